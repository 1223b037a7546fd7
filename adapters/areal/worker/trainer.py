"""AReaL's PPOTrainer, recording what it consumes; its loop is AReaL's own."""

import random
import time
from typing import Any

from areal import PPOTrainer
from areal.infra import LocalScheduler
from areal.infra.rpc.rtensor import RTensor

from adapters.areal.worker.pools import gpu_labels
from adapters.areal.worker.proof import ask_engines, ask_trainer
from adapters.areal.worker.rollout_side import Admission, watch_pauses, watch_rejections
from adapters.areal.worker.shared import ID_KEY, TOKENS_KEY, unpack_id
from adapters.areal.worker.taps import tap_function
from adapters.child.engines import announce_engine
from adapters.child.gpus import UnknownGpuError
from adapters.child.proof import SyncProof
from adapters.child.steps import StepLog
from adapters.child.track import Track, require
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device, Placement, RunSpec

START_TIMEOUT_S = 600.0  # a worker imports torch, transformers and AReaL; on a busy machine that takes minutes
WORKER_MODULE = "adapters.areal.worker.rpc"


class PatientScheduler(LocalScheduler):
    """AReaL's local scheduler; its limits of 30 s and 60 s for a worker's start can't be configured."""

    @staticmethod
    async def _wait_for_fork_ready(session: Any, host: str, port: int, timeout: float = START_TIMEOUT_S) -> bool:
        return await LocalScheduler._wait_for_fork_ready(session, host, port, timeout=START_TIMEOUT_S)

    def fork_workers(self, role: str, target_role: str, command: str | None = None) -> list[str]:
        """Forked workers have no `scheduling_spec` of their own."""
        return super().fork_workers(role, target_role, command or WORKER_MODULE)


class BenchTrainer(PPOTrainer):
    """PPOTrainer with a recorder."""

    def __init__(self, spec: RunSpec, config: Any, rows: Any, recorder: Recorder, track: Track, logs: str) -> None:
        """Starts the workers and engines.

        Args:
            config: the spec's PPOConfig.
            rows: the data set, row i the plan's prompt i.
            logs: folder for the workers' output.

        Raises:
            TapError: a patch point of AReaL is gone.
        """
        self.spec, self.recorder, self.track = spec, recorder, track
        self.log = StepLog(recorder)
        self.began_ns = 0
        self._logs = logs
        self._asked: set[tuple[str, int]] = set()
        super().__init__(config, train_dataset=rows)
        self.proof = SyncProof(recorder, spec, len(self.tokenizer))
        self.engines = [f"{info.host}:{info.port}" for info in self.rollout.server_infos]
        self._tap_rollout()
        self._tap_actor()
        self._tap_stats()
        self._report_pools()

    # What AReaL lets a trainer decide.

    def _init_scheduler(self) -> Any:
        return PatientScheduler(exp_config=self.config, startup_timeout=START_TIMEOUT_S, log_dir=self._logs)

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        random.seed()  # AReaL has just seeded it and draws ports from it: two runs of one seed must not collide

    def _init_rollout(self, rollout_config: Any, is_eval: bool = False, lora_path: str | None = None) -> Any:
        # AReaL starts a rollout worker for evaluation even when there is none.
        if is_eval:
            return None
        rollout = super()._init_rollout(rollout_config, is_eval, lora_path)
        for info in rollout.server_infos:  # at once, so that the engines' counters are read before their first request
            address = f"{info.host}:{info.port}"
            announce_engine(self.recorder, address, url=f"http://{address}/metrics")
        return rollout

    # The track.

    @property
    def step(self) -> int:
        """The step being worked on, from 1."""
        return self._closed_steps + 1

    _closed_steps = 0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """AReaL's training loop, after the probe of version 0 where no engine sleeps."""
        if not self._colocated:
            self._probe("trainer", 0)
            self._probe("engine", 0)
        self.began_ns = time.monotonic_ns()
        return super().train(*args, **kwargs)

    def _onload_rollout(self, is_eval: bool = False) -> None:
        super()._onload_rollout(is_eval)
        if not is_eval:
            self._probe("engine", int(self.rollout.get_version()))

    def _onload_model(self, engine: Any, role: str) -> None:
        super()._onload_model(engine, role)
        if role == "actor" and self._closed_steps == 0:
            self._probe("trainer", 0)

    def _export_and_commit_stats(self, epoch: int, epoch_step: int, global_step: int) -> None:
        with self.track.block("export_and_commit_stats"):
            super()._export_and_commit_stats(epoch=epoch, epoch_step=epoch_step, global_step=global_step)
        step = global_step + 1
        self.log.close(step, self.began_ns)
        self._closed_steps = step
        if step >= self.spec.steps:
            self.admission.end()

    def _save_perf_tracer(self, step: int) -> None:
        with self.track.block("save_perf_tracer"):
            super()._save_perf_tracer(step)

    # Taps.

    @property
    def _colocated(self) -> bool:
        return self.spec.placement is Placement.COLOCATED

    def _tap_rollout(self) -> None:
        rollout = self.rollout
        self.admission = Admission(self.recorder, rollout, self.spec.group_size)
        watch_rejections(rollout, self._rejected)
        if not self._colocated:
            watch_pauses(self.recorder, rollout, self.engines)
        for name in ("pause", "resume"):
            tap_function(rollout, name, f"rollout.{name}", self.track)
        if self.saver.is_async:
            tap_function(self.saver, "maybe_wait_for_staging", "saver.maybe_wait_for_staging", self.track)
        tap_function(self, "_evaluate_fn", "evaluate_fn", self.track)
        set_version: Any = require(rollout, "set_version")

        def and_probe(version: int) -> None:
            set_version(version)
            if not self._colocated:  # there, the engines still sleep
                self._probe("engine", version)

        rollout.set_version = and_probe

    def _tap_actor(self) -> None:
        actor = self.actor
        prepare: Any = require(actor, "prepare_batch")
        update: Any = require(actor, "update_weights")

        def prepare_batch(*args: Any, **kwargs: Any) -> Any:
            batch = prepare(*args, **kwargs)
            self._consumed(batch)
            return batch

        def update_weights(meta: Any) -> None:
            version = int(meta.version)
            self._probe("trainer", version)
            if self.spec.fault("no-sync") is None:  # the control of the weight-sync proof: nothing moves
                if self._colocated and self.spec.device is Device.CUDA:
                    self.rollout.onload(tags=["weights"])  # AReaL would write into weights that are asleep
                update(meta)
            self.track.note("update_weights", version=version)

        tap_function(actor, "save", "actor.save", self.track)
        actor.prepare_batch = prepare_batch
        actor.update_weights = update_weights

    def _tap_stats(self) -> None:
        commit: Any = require(self.stats_logger, "commit")

        def and_keep(epoch: int, step: int, global_step: int, stats: dict[str, float]) -> None:
            self.log.grad_norm = _ending(stats, "/grad_norm")
            tokens = stats.get("ppo_actor/n_valid_tokens")
            self.log.loss_tokens = None if tokens is None else round(tokens)
            commit(epoch, step, global_step, stats)

        self.stats_logger.commit = and_keep

    def _report_pools(self) -> None:
        """Says which GPUs train and which engine generates on which; without GPUs there is nothing to say."""
        try:
            gpus = gpu_labels(self.scheduler, self.engines, colocated=self._colocated)
        except UnknownGpuError as error:
            self.recorder.failure("telemetry", error)  # figures per pool are missing then, not wrong
            return
        for labels in gpus:
            self.recorder.metric("gpu.pool", 1.0, labels=labels)

    def _consumed(self, batch: list[dict[str, Any]]) -> None:
        """Notes what a step trains on; our own keys leave the batch."""
        ours = RTensor.localize([{key: row[key] for key in (ID_KEY, TOKENS_KEY, "rewards")} for row in batch])
        for row in batch:
            del row[ID_KEY], row[TOKENS_KEY]
        self.log.trajectory_ids = [unpack_id(int(packed)) for row in ours for packed in row[ID_KEY]]
        self.log.processed_tokens = sum(int(row[TOKENS_KEY].sum()) for row in ours)
        rewards = [float(reward) for row in ours for reward in row["rewards"]]
        self.log.reward_mean = sum(rewards) / len(rewards) if rewards else None

    def _rejected(self, prompt: int) -> None:
        ids = [f"p{prompt}-s{sample}-a0" for sample in range(self.spec.group_size)]
        self.log.dropped_ids.extend(ids)
        self.recorder.failure("engine", f"AReaL's controller dropped the group p{prompt}: {', '.join(ids)}")

    def _probe(self, source: str, version: int) -> None:
        if not self.proof.wants(version) or (source, version) in self._asked:
            return
        self._asked.add((source, version))
        with self.track.block("proof"):
            if source == "trainer":
                ask_trainer(self.proof, self.actor, version, self.spec.gpus.train)
            else:
                ask_engines(self.proof, self.spec.engine, self.engines, version)


def _ending(stats: dict[str, float], end: str) -> float | None:
    return next((float(value) for key, value in stats.items() if key.endswith(end)), None)
