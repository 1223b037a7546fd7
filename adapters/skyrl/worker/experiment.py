"""SkyRL's experiment with our parts in its own hooks: data, client, generator, trainer, tracker."""

import time
from typing import Any

from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils.tracking import Tracking

from adapters.child.codec import ChatCodec
from adapters.child.track import Track
from adapters.skyrl.phases import phases_for
from adapters.skyrl.worker.client import tap_controller_client
from adapters.skyrl.worker.generator import BenchGenerator
from adapters.skyrl.worker.proof import SyncProof, probe_rows
from adapters.skyrl.worker.taps import tap_timers, unshuffle
from adapters.skyrl.worker.trainer import AsyncTrainer, StepLog, close_step, tap_trainers, trainer_class
from harness.protocol.phases import Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Placement, RunSpec

PROOF_VERSIONS = 2


class Rows:
    """The data set: row i is the plan's prompt i. Replaces PromptDataset, whose filter spawns eight processes."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        prompt = [{"role": "user", "content": f"prompt {index}"}]
        return {"prompt": prompt, "env_class": "bench", "env_extras": {}, "uid": str(index)}

    def collate_fn(self, items: list[Any]) -> list[Any]:
        return items


class RecordingTracking(Tracking):
    """The tracker's committed log is the end of a step."""

    def __init__(self, session: "Experiment", config: Any) -> None:
        super().__init__("bench", "bench", "console", config)
        self.session = session

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        """Keeps the scalars of the step; on commit emits its `Step`."""
        log = self.session.log
        log.scalars.update({k: float(v) for k, v in data.items() if isinstance(v, int | float)})
        if not commit or not log.trajectory_ids:
            return
        with self.session.track.block("tracker.log"):
            self.session.end_step(step)


class Experiment(BasePPOExp):
    """BasePPOExp with its hooks filled in."""

    def __init__(self, spec: RunSpec, config: Any, recorder: Recorder) -> None:
        self.spec = spec
        self.recorder = recorder
        self.trainer: Any = None
        pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.TRAIN
        self.track = Track(recorder, pool.value, phases_for(spec.placement), self._step)
        self.log = StepLog(recorder)
        self._boundary_ns: int | None = None  # end of the last step
        super().__init__(config)

    def _step(self) -> int | None:
        return None if self.trainer is None else int(self.trainer.global_step)

    def get_train_dataset(self) -> Any:
        return Rows(self.spec.prompts)

    def get_tracker(self) -> Any:
        return RecordingTracking(self, self.cfg)

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        generator = BenchGenerator(self.spec, inference_engine_client, ChatCodec(tokenizer), self.recorder)
        if self.spec.placement is not Placement.ASYNC:
            generator.on_batch = self._batch_gate
        return generator

    def _batch_gate(self, is_open: bool) -> None:
        """Synchronous placements admit one batch, and nothing until the next step's."""
        why = "the step's batch is offered" if is_open else "the step's batch is complete"
        cap = self.spec.trajectories_per_step
        self.recorder.gate(is_open, why, in_flight=0, cap=cap)

    def get_trainer(self, **kwargs: Any) -> Any:
        trainer = trainer_class(self.spec.placement)(**kwargs)
        vocabulary = len(self.tokenizer)
        versions = min(PROOF_VERSIONS, self.spec.warmup_steps)
        proof = SyncProof(self.recorder, probe_rows(vocabulary, self.spec.seed), versions)
        trainer.attach(self.spec, self.recorder, self.track, self.log, proof)
        trainer.bench_generator = kwargs["generator"]
        if isinstance(trainer, AsyncTrainer):
            trainer.watch_admission()
        self.trainer = trainer
        return trainer

    def end_step(self, step: int) -> None:
        """Closes a step at the trainer's own boundary; the last one closes admission."""
        end = time.monotonic_ns()
        begin = self._boundary_ns or self.track.began.get("step", end)
        close_step(self.recorder, self.log, step, begin, end, self.trainer.bench_generator.results)
        self._boundary_ns = end
        if step >= self.spec.steps:
            in_flight = self.trainer.bench_generator.in_flight
            self.recorder.gate(False, "the last step has ended", in_flight=in_flight)


def make_experiment(spec: RunSpec, config: Any, recorder: Recorder) -> Experiment:
    """An experiment whose taps are in place.

    Raises:
        TapError: a patch point of SkyRL is gone.
    """
    if spec.placement is not Placement.COLOCATED:
        tap_controller_client(recorder)
    unshuffle()
    experiment = Experiment(spec, config, recorder)
    tap_timers(experiment.track)
    tap_trainers(experiment.track, spec.placement)
    return experiment
