"""verl's V1 trainers, recording what they consume; their loops are verl's own."""

import contextlib
from dataclasses import dataclass, field
from typing import Any

from adapters.child.engines import announce_engine
from adapters.child.gpus import UnknownGpuError
from adapters.child.proof import SyncProof
from adapters.child.steps import StepLog, record_logprob_difference
from adapters.child.track import Track, require
from adapters.verl.worker.admission import Admission
from adapters.verl.worker.pools import gpu_pools
from adapters.verl.worker.proof import ask_engines, ask_trainer, servers_of
from adapters.verl.worker.syncs import tap_pauses, tap_proof
from adapters.verl.worker.taps import tap_function, tap_timers, trainer_modules
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device, Placement, RunSpec

GONE_S = 10.0  # an agent loop that was killed is gone by then, or is left to Ray
MODES = {Placement.COLOCATED: "sync", Placement.DISAGGREGATED: "separate_async", Placement.ASYNC: "separate_async"}


@dataclass(kw_only=True)
class Bench:
    """What a recording trainer holds beside verl's own parts."""

    spec: RunSpec
    recorder: Recorder
    track: Track
    log: StepLog
    admission: Admission
    step: int | None = None
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # prompt uid -> (row, attempt)
    balanced: Any = None  # the batch being trained on, in the order of its rows


def trajectory_id(key: str, rows: dict[str, tuple[int, int]]) -> str:
    """The id of a trajectory from verl's key, `{uid}_{session}_{output}`."""
    uid, session, _ = key.split("_")
    prompt, attempt = rows[uid]
    return f"p{prompt}-s{session}-a{attempt}"


def real_rows(batch: Any) -> list[tuple[str, dict[str, Any]]]:
    """Keys and tags of a batch without the rows that verl fills it up with."""
    return [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


class RecordingTrainer:
    """Mixin before a verl trainer; `bench` is set on the subclass that `install` makes."""

    bench: Bench
    global_steps: int
    replay_buffer: Any
    actor_rollout_wg: Any
    tokenizer: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        tap_function(self.replay_buffer, "sample", "replay_buffer.sample", self.bench.track)
        self._watch_sampling()

    def _watch_sampling(self) -> None:
        bench, buffer = self.bench, self.replay_buffer
        sample: Any = require(buffer, "sample")
        clear: Any = require(buffer, "_clear_groups")

        def watched(*args: Any, **kwargs: Any) -> Any:
            batch, metrics = sample(*args, **kwargs)
            rows = real_rows(batch)
            bench.log.trajectory_ids += [trajectory_id(key, bench.rows) for key, _ in rows]
            bench.log.processed_tokens = (bench.log.processed_tokens or 0) + sum(tag["seq_len"] for _, tag in rows)
            bench.admission.taken(len({key.split("_")[0] for key, _ in rows}))
            return batch, metrics

        def dropped(partition_id: str, uids: Any) -> Any:
            for uid in uids:
                prompt, attempt = bench.rows[uid]
                bench.log.dropped_ids += [f"p{prompt}-s{s}-a{attempt}" for s in range(bench.spec.group_size)]
            bench.admission.taken(len(uids))
            return clear(partition_id, uids)

        buffer.sample, buffer._clear_groups = watched, dropped

    def _setup(self) -> None:
        super()._setup()  # type: ignore[misc]
        bench = self.bench
        proof = SyncProof(bench.recorder, bench.spec, len(self.tokenizer))
        separate = bench.spec.placement is not Placement.COLOCATED
        side: Any = require(self, "standalone_server_manager" if separate else "llm_server_manager")
        manager: Any = require(self, "standalone_checkpoint_manager" if separate else "checkpoint_manager")
        if separate:
            tap_pauses(manager, bench.recorder, side.server_addresses)
        else:
            tap_function(manager, "sleep_replicas", "sleep_replicas", bench.track)
        pad_id = int(self.tokenizer.pad_token_id)
        tap_proof(
            manager,
            bench.track,
            proof,
            lambda version: ask_trainer(proof, self.actor_rollout_wg, version, bench.spec.gpus.train, pad_id),
            lambda version: ask_engines(proof, servers_of(side), version),
        )
        self._announce(side.server_addresses)
        rollout = [worker for replica in side.get_replicas() for worker in replica.workers] if separate else []
        try:
            pools = gpu_pools(self.actor_rollout_wg.workers, rollout)
        except UnknownGpuError as error:
            bench.recorder.failure("telemetry", error)  # figures per pool are missing then, not wrong
            return
        for uuid, pool in pools.items():
            bench.recorder.metric("gpu.pool", 1.0, labels={"uuid": uuid, "pool": pool})

    def _announce(self, addresses: list[str]) -> None:
        on_cpu = self.bench.spec.device is Device.CPU
        for address in addresses:
            if on_cpu:
                reason = "on cpu verl generates with transformers behind its replica interface: no endpoint"
                announce_engine(self.bench.recorder, address, reason=reason)
            else:
                announce_engine(self.bench.recorder, address, url=f"http://{address}/metrics")

    def fit(self, agent_loop_manager: Any) -> None:
        workers: Any = require(agent_loop_manager, "agent_loop_workers")
        super().fit(agent_loop_manager)  # type: ignore[misc]
        end_agents(workers)

    def on_init_end(self) -> None:
        with self.bench.track.block("update_weights"):  # the first sync, which no native timer covers
            super().on_init_end()  # type: ignore[misc]

    def on_step_begin(self) -> None:
        self.bench.step = int(self.global_steps)
        super().on_step_begin()  # type: ignore[misc]

    def prepare_step(self) -> Any:
        with self.bench.track.block("prepare_step"):
            return super().prepare_step()  # type: ignore[misc]

    def _submit_batch_to_rollout(self, batch: Any) -> Any:
        bench = self.bench
        for uid, row, attempt in zip(list(batch["uid"]), list(batch["index"]), list(batch["attempt"]), strict=True):
            bench.rows[uid] = int(row), int(attempt)
        bench.admission.dispatching(len(batch))
        result = super()._submit_batch_to_rollout(batch)  # type: ignore[misc]
        bench.admission.dispatched()
        return result

    def _balance_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self.bench.track.block("balance_batch"):
            self.bench.balanced = super()._balance_batch(*args, **kwargs)  # type: ignore[misc]
            return self.bench.balanced

    def _compute_metrics(self, *args: Any, **kwargs: Any) -> Any:
        with self.bench.track.block("compute_metrics"):
            return super()._compute_metrics(*args, **kwargs)  # type: ignore[misc]


def end_agents(workers: list[Any]) -> None:
    """Ends verl's agent loops before verl ends the engines that they ask: a run that is over leaves turns under way.

    Ray ends actors in any order. A loop that outlives its engine (on a cluster, on another node) would record a failure
    that is none.
    """
    import ray

    for worker in workers:
        ray.kill(worker)
    for worker in workers:
        with contextlib.suppress(ray.exceptions.RayError):  # GetTimeoutError too
            ray.get(worker.__ray_ready__.remote(), timeout=GONE_S)


def record_difference(bench: Bench, data: Any) -> None:
    """Takes what verl hands to its own comparison of logprobs: rows in the order of the balanced batch."""
    batch = data.batch
    mask = batch["response_mask"]
    bench.log.loss_tokens = (bench.log.loss_tokens or 0) + int((mask > 0).sum().item())
    if bench.step is None:
        return
    trained_at = bench.step - 1
    fresh = [
        row
        for row, tag in enumerate(bench.balanced.tags)
        if not tag.get("is_padding", False) and tag["min_global_steps"] == tag["max_global_steps"] == trained_at
    ]
    record_logprob_difference(
        bench.recorder, bench.step, batch["old_log_probs"], batch["rollout_log_probs"], mask, fresh
    )


def install(bench: Bench) -> None:
    """Taps the trainer of the spec's placement, and registers its recording subclass under its own name.

    Raises:
        TapError: a patch point of verl is gone.
    """
    base, *others = trainer_modules()
    tap_timers(bench.track, [base, *others])
    registry: Any = require(base, "TRAINER_REGISTRY")
    mode = MODES[bench.spec.placement]
    trainer: Any = registry[mode]
    for name in ("_setup", "on_init_end", "on_step_begin", "prepare_step", "_submit_batch_to_rollout", "fit"):
        require(trainer, name)
    for name in ("_balance_batch", "_compute_metrics"):
        require(trainer, name)
    registry[mode] = type(f"Recording{trainer.__name__}", (RecordingTrainer, trainer), {"bench": bench})
    tap_function(require(base, "tq"), "kv_clear", "kv_clear", bench.track)
    _tap_comparison(base, bench)
    _tap_tracking(base, bench)


def _tap_comparison(base: Any, bench: Bench) -> None:
    compare: Any = require(base, "calculate_debug_metrics")

    def calculate_debug_metrics(data: Any) -> Any:
        record_difference(bench, data)
        return compare(data)

    base.calculate_debug_metrics = calculate_debug_metrics


def _tap_tracking(base: Any, bench: Bench) -> None:
    """The tracker's log is the end of a step."""
    tracking: Any = require(base, "Tracking")
    require(tracking, "log")

    class RecordingTracking(tracking):
        def log(self, data: dict[str, Any], step: int, *args: Any, **kwargs: Any) -> None:
            with bench.track.block("tracking.log"):
                super().log(data, step, *args, **kwargs)
            end_step(bench, data, int(step))

    base.Tracking = RecordingTracking


def end_step(bench: Bench, data: dict[str, Any], step: int) -> None:
    """Closes a step at the trainer's own boundary; the last one closes admission."""
    reward, norm = data.get("critic/score/mean"), data.get("actor/grad_norm")
    bench.log.reward_mean = None if reward is None else float(reward)
    bench.log.grad_norm = None if norm is None else float(norm)
    bench.log.close(step, bench.track.began["step"])
    if step >= bench.spec.steps:
        bench.admission.end()
