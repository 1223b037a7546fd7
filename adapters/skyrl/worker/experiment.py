"""SkyRL's experiment with our parts in its own hooks: data, client, generator, trainer, tracker."""

from typing import Any

from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils.tracking import Tracking

from adapters.child.codec import ChatCodec
from adapters.child.engines import announce_engine
from adapters.child.proof import SyncProof
from adapters.child.steps import StepLog
from adapters.child.track import Track
from adapters.skyrl.phases import phases_for
from adapters.skyrl.worker.client import tap_controller_client
from adapters.skyrl.worker.generator import BenchGenerator
from adapters.skyrl.worker.taps import tap_timers, unshuffle
from adapters.skyrl.worker.trainer import AsyncTrainer, tap_trainers, trainer_class
from harness.protocol.phases import Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Placement, RunSpec


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
        self.session.take_scalars(data)
        if commit and self.session.log.trajectory_ids:
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
        self._scalars: dict[str, float] = {}  # of the step being worked on
        super().__init__(config)

    def _step(self) -> int | None:
        return None if self.trainer is None else int(self.trainer.global_step)

    def get_train_dataset(self) -> Any:
        return Rows(self.spec.prompts)

    def get_tracker(self) -> Any:
        return RecordingTracking(self, self.cfg)

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        generator = BenchGenerator(self.spec, inference_engine_client, ChatCodec(tokenizer), self.recorder)
        for url in inference_engine_client.server_urls:  # the router's own page knows nothing of the engines
            announce_engine(self.recorder, url, url=f"{url}/metrics")
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
        proof = SyncProof(self.recorder, self.spec, len(self.tokenizer))
        trainer.attach(self.spec, self.recorder, self.track, self.log, proof)
        trainer.bench_generator = kwargs["generator"]
        trainer.server_groups = self._server_groups or ()
        if isinstance(trainer, AsyncTrainer):
            trainer.watch_admission()
        self.trainer = trainer
        return trainer

    def take_scalars(self, data: dict[str, Any]) -> None:
        """Keeps what the trainer logs of a step."""
        self._scalars.update({k: float(v) for k, v in data.items() if isinstance(v, int | float)})

    def end_step(self, step: int) -> None:
        """Closes a step at the trainer's own boundary; the last one closes admission."""
        generator = self.trainer.bench_generator
        for trajectory_id in self.log.trajectory_ids:
            generator.results.pop(trajectory_id, None)
        self.log.reward_mean = self._scalars.get("reward/avg_raw_reward")
        self.log.grad_norm = next((v for k, v in self._scalars.items() if k.endswith("grad_norm")), None)
        self._scalars = {}
        self.log.close(step, self.track.began["step"])
        if step >= self.spec.steps:
            self.recorder.gate(False, "the last step has ended", in_flight=generator.work.in_flight)


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
