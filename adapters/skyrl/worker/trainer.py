"""SkyRL's two trainers, recording what they consume; their loops are SkyRL's own."""

from collections.abc import Sequence
from typing import Any

from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.trainer import RayPPOTrainer

from adapters.child.gpus import UnknownGpuError
from adapters.child.proof import SyncProof
from adapters.child.steps import StepLog, record_logprob_difference
from adapters.child.track import Track, require
from adapters.skyrl.worker.generator import BenchGenerator
from adapters.skyrl.worker.pools import gpus_of_run
from adapters.skyrl.worker.proof import ask_engines, ask_trainer
from adapters.skyrl.worker.taps import tap_function
from harness.protocol.events import Scalar
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Placement, RunSpec


class RecordingTrainer:
    """Mixin before a SkyRL trainer. `bench` holds what the session gives it."""

    spec: RunSpec
    recorder: Recorder
    track: Track
    log: StepLog
    proof: SyncProof
    bench_generator: BenchGenerator
    server_groups: Sequence[Any] = ()
    global_step: int
    dispatch: Any
    inference_engine_client: Any

    def attach(self, spec: RunSpec, recorder: Recorder, track: Track, log: StepLog, proof: SyncProof) -> None:
        """Gives the trainer its recorder; called before its models are built."""
        self.spec, self.recorder, self.track, self.log, self.proof = spec, recorder, track, log, proof

    def build_models(self, *args: Any) -> None:
        super().build_models(*args)  # type: ignore[misc]
        self._tap_sync()
        self._report_pools()

    def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> Any:
        ids = list(generator_output["bench_ids"])
        batch = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        self.log.trajectory_ids = ids
        self.log.loss_tokens = int((batch["loss_mask"] > 0).sum().item())
        self.log.processed_tokens = int(batch["attention_mask"].sum().item())
        return batch

    def fwd_logprobs_values_reward(self, batch: Any) -> Any:
        batch = super().fwd_logprobs_values_reward(batch)  # type: ignore[misc]
        ours, theirs = batch.get("action_log_probs"), batch.get("rollout_logprobs")
        if ours is not None and theirs is not None:
            record_logprob_difference(
                self.recorder, self.global_step, ours, theirs, batch["loss_mask"], self._fresh_rows()
            )
        return batch

    def _fresh_rows(self) -> list[int]:
        """Rows generated in full by the very version being trained."""
        trained_at = self.global_step - 1
        results = self.bench_generator.results
        return [
            row
            for row, trajectory_id in enumerate(self.log.trajectory_ids)
            if (result := results.get(trajectory_id)) is not None
            and result.version_first == result.version_last == trained_at
        ]

    def _tap_sync(self) -> None:
        """Wraps this dispatch's sync: the proof phase around it, and the version it makes visible."""
        dispatch = self.dispatch
        real: Any = require(dispatch, "save_weights_for_sampler")
        broadcast: Any = require(dispatch, "_broadcast_to_inference_engines")
        synced = 0

        async def save_weights_for_sampler(*args: Any, **kwargs: Any) -> Any:
            nonlocal synced
            version = synced
            if self.proof.wants(version):
                ask_trainer(self.proof, dispatch, version, self.spec.gpus.train)
            result = await real(*args, **kwargs)
            synced += 1
            if self.proof.wants(version):
                await ask_engines(self.proof, self.inference_engine_client, version)
            seconds = dispatch.last_weight_sync_seconds
            transfer = None if seconds is None else round(seconds * 1e9)
            for native in ("sync_weights", "sync_weights_to_inference_engines"):
                self.track.note(native, version=version, transfer_ns=transfer)
            return result

        def broadcast_once(*args: Any, **kwargs: Any) -> Any:
            # The control of the weight-sync proof: all but the first sync move nothing, and the proof must fail.
            return broadcast(*args, **kwargs) if synced == 0 else None

        dispatch.save_weights_for_sampler = save_weights_for_sampler
        if self.spec.fault("no-sync") is not None:
            dispatch._broadcast_to_inference_engines = broadcast_once

    def _report_pools(self) -> None:
        """Says which GPUs train and which engine generates on which; without GPUs there is nothing to say."""
        try:
            gpus = gpus_of_run(self, self.server_groups)
        except UnknownGpuError as error:
            self.recorder.failure("telemetry", error)  # figures per pool are missing then, not wrong
            return
        for gpu in gpus:
            labels: dict[str, Scalar] = {"uuid": gpu.uuid, "pool": gpu.pool}
            if gpu.engine is not None:
                labels["engine"] = gpu.engine
            self.recorder.metric("gpu.pool", 1.0, labels=labels)


class SyncTrainer(RecordingTrainer, RayPPOTrainer):
    """The synchronous trainer: colocated and disaggregated."""

    def _remove_tail_data(self, entries: Any) -> Any:
        with self.track.block("remove_tail_data"):
            return super()._remove_tail_data(entries)


class AsyncTrainer(RecordingTrainer, FullyAsyncRayPPOTrainer):
    """The fully asynchronous trainer; its admission rule is watched, not changed."""

    def watch_admission(self) -> None:
        """Records a gate event whenever the capacity rule opens or closes.

        Raises:
            TapError: the staleness manager lost a method.
        """
        manager = self._staleness_manager
        capacity: Any = require(manager, "_compute_capacity_unlocked")
        is_open = True
        group = self.spec.group_size
        cap = self.num_parallel_generation_workers * group

        def look(why: str) -> None:
            nonlocal is_open
            now_open = capacity() > 0
            if now_open != is_open:
                is_open = now_open
                self.recorder.gate(now_open, why, in_flight=manager._stat.running * group, cap=cap)

        def watch(name: str) -> None:
            real: Any = require(manager, name)

            async def watched(*args: Any, **kwargs: Any) -> Any:
                result = await real(*args, **kwargs)
                look(name)
                return result

            setattr(manager, name, watched)

        for name in ("acquire_submission_slot", "on_rollout_accepted", "notify_capacity_change", "on_rollout_rejected"):
            watch(name)
        self.recorder.gate(True, "start", in_flight=0, cap=cap)


def trainer_class(placement: Placement) -> type[SyncTrainer] | type[AsyncTrainer]:
    """SkyRL's trainer of a placement."""
    return AsyncTrainer if placement is Placement.ASYNC else SyncTrainer


def tap_trainers(track: Track, placement: Placement) -> None:
    """Blocks for the named functions of a placement's trainer that no native timer covers."""
    import skyrl.train.fully_async_trainer as fully_async
    import skyrl.train.trainer as synchronous
    from skyrl.backends.skyrl_train.inference_servers import remote_inference_client

    # Colocated engines are put to sleep after `generate`, outside every native timer.
    client = require(remote_inference_client, "RemoteInferenceClient")
    tap_function(client, "sleep", "client.sleep", track)
    if placement is Placement.ASYNC:
        # There, prepare_generator_input runs in the generation tasks: not on the trainer's track.
        tap_function(require(fully_async, "_AsyncDataloader"), "mark_consumed_uids", "mark_consumed_uids", track)
    else:
        tap_function(synchronous, "prepare_generator_input", "prepare_generator_input", track)
