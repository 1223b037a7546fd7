"""verl's taps and configuration, without verl: stubs of the modules that are patched."""

import asyncio
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.child.steps import StepLog
from adapters.child.track import TapError, Track
from adapters.verl.adapter import ADAPTER
from adapters.verl.environment import environment
from adapters.verl.overrides import CPU_DIFFERENCES, DIFFERENCES, LOSS, overrides
from adapters.verl.phases import phases_for
from adapters.verl.worker import trainer as verl_trainer
from adapters.verl.worker.admission import Admission
from adapters.verl.worker.syncs import tap_pauses
from adapters.verl.worker.taps import tap_timers
from adapters.verl.worker.trainer import Bench, install
from harness.protocol.events import Gate, Span, Step, read_events
from harness.protocol.phases import Phase
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Device, Gpus, Placement

TIMERS = ("step", "gen", "old_log_prob", "adv", "update_actor", "update_weights")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "events.jsonl", make_hello("run", "controller"))


def found(recorder: Recorder, kind: type[Any]) -> list[Any]:
    return [event for event in read_events(recorder.path) if isinstance(event, kind)]


def bench_of(recorder: Recorder, placement: Placement) -> Bench:
    spec = replace(make_spec("verl", placement), steps=1, warmup_steps=0)
    pool = "both" if placement is Placement.COLOCATED else "train"
    track = Track(recorder, pool, phases_for(placement), lambda: bench.step)
    bench = Bench(spec=spec, recorder=recorder, track=track, log=StepLog(recorder), admission=Admission(recorder, spec))
    return bench


@contextmanager
def marked_timer(name: str, timing: dict[str, float], color: str | None = None) -> Iterator[None]:
    yield
    timing[name] = 1.0


class StubBuffer:
    """As verl's replay buffer, in small: a batch is what was submitted."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.evict: list[str] = []

    def _clear_groups(self, partition_id: str, uids: list[str]) -> None:
        self.submitted = [uid for uid in self.submitted if uid not in uids]

    def sample(self, global_steps: int) -> tuple[Any, dict[str, float]]:
        if self.evict:
            self._clear_groups("train", self.evict)
        keys = [f"{uid}_{session}_0" for uid in self.submitted for session in range(2)]
        version = global_steps - 1
        tags = [{"seq_len": 10, "min_global_steps": version, "max_global_steps": version} for _ in keys]
        return types.SimpleNamespace(keys=[*keys, "padding"], tags=[*tags, {"is_padding": True, "seq_len": 1}]), {}


def stub_verl() -> list[Any]:
    """Stand-ins for trainer_base, trainer_sync and trainer_separate_async."""
    base, sync, separate = (types.ModuleType(name) for name in ("trainer_base", "trainer_sync", "separate_async"))
    modules: list[Any] = [base, sync, separate]
    for module in modules:
        module.marked_timer = marked_timer
    base_: Any = base
    base_.tq = types.SimpleNamespace(kv_clear=lambda keys: None)
    base_.calculate_debug_metrics = lambda data: {"compared": 1.0}

    class Tracking:
        def log(self, data: dict[str, Any], step: int) -> None:
            self.logged = (data, step)

    class Trainer:
        def __init__(self, config: Any) -> None:
            self.replay_buffer = StubBuffer()
            self.global_steps = 0

        def _setup(self) -> None: ...

        def on_init_end(self) -> None: ...

        def on_step_begin(self) -> None: ...

        def prepare_step(self) -> dict[str, float]:
            return {}

        def _submit_batch_to_rollout(self, batch: Any) -> int:
            self.replay_buffer.submitted += list(batch["uid"])
            return len(batch)

        def _balance_batch(self, batch: Any) -> Any:
            return batch

        def _compute_metrics(self) -> None: ...

        def fit(self, batch: Any, data: Any) -> Any:
            """One step as verl makes it."""
            timing: dict[str, float] = {}
            self.on_init_end()
            self.global_steps = 1
            with base_.marked_timer("step", timing):
                self.on_step_begin()
                self.prepare_step()
                self._submit_batch_to_rollout(batch)
                with base_.marked_timer("gen", timing):
                    sampled, _ = self.replay_buffer.sample(global_steps=1)
                self._balance_batch(sampled)
                with base_.marked_timer("old_log_prob", timing):
                    base_.calculate_debug_metrics(data)
                for name in TIMERS[3:]:
                    with base_.marked_timer(name, timing):
                        pass
            self._compute_metrics()
            base_.tq.kv_clear(keys=sampled.keys)
            tracking = base_.Tracking()
            tracking.log(data={"actor/grad_norm": 0.5, "critic/score/mean": 0.25}, step=1)
            return timing, tracking.logged

    base_.Tracking = Tracking
    base_.TRAINER_REGISTRY = {"sync": Trainer, "separate_async": type("SeparateAsync", (Trainer,), {})}
    return modules


class Batch(dict[str, list[Any]]):
    """Rows by column; its length is the number of rows."""

    def __len__(self) -> int:
        return len(self["uid"])


def batch_of(rows: int) -> Batch:
    return Batch(uid=[f"u-{i}" for i in range(rows)], index=list(range(rows)), attempt=[0] * rows)


class Mask:
    """As much of a tensor as the loss tokens need."""

    def __init__(self, ones: int) -> None:
        self.ones = ones

    def __gt__(self, other: int) -> "Mask":
        return self

    def sum(self) -> "Mask":
        return self

    def item(self) -> int:
        return self.ones


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    modules = stub_verl()
    monkeypatch.setattr(verl_trainer, "trainer_modules", lambda: modules)
    monkeypatch.setattr(verl_trainer, "record_logprob_difference", lambda *args: None)
    return modules


@pytest.mark.parametrize("placement", list(Placement))
def test_a_step_is_recorded_with_what_it_consumed(stubbed: list[Any], recorder: Recorder, placement: Placement) -> None:
    bench = bench_of(recorder, placement)
    install(bench)
    trainer = stubbed[0].TRAINER_REGISTRY[verl_trainer.MODES[placement]](None)
    trainer.replay_buffer.evict = ["u-3"]
    data = types.SimpleNamespace(batch={"response_mask": Mask(42), "old_log_probs": None, "rollout_log_probs": None})
    timing, logged = trainer.fit(batch_of(4), data)
    assert set(timing) == set(TIMERS)  # verl's own timers work as before
    assert logged[1] == 1
    (step,) = found(recorder, Step)
    assert step.trajectory_ids == tuple(f"p{p}-s{s}-a0" for p in range(3) for s in range(2))
    assert step.dropped_ids == ("p3-s0-a0", "p3-s1-a0")
    assert (step.loss_tokens, step.processed_tokens) == (42, 60)
    assert (step.reward_mean, step.grad_norm, step.policy_version) == (0.25, 0.5, 1)
    assert bench.track.unknown == set()
    spans = found(recorder, Span)
    leaves = {span.native_name: span.phase for span in spans if not span.container}
    wait = Phase.GENERATION if placement is Placement.COLOCATED else Phase.WAIT_ROLLOUT
    assert leaves["replay_buffer.sample"] == wait
    assert leaves["balance_batch"] == leaves["prepare_step"] == Phase.DATA
    assert {"old_log_prob", "update_actor", "compute_metrics", "kv_clear", "tracking.log"} <= set(leaves)
    assert {span.native_name for span in spans if span.container} == {"step", "gen"}


def delete(owner: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], None]:
    return lambda modules: delattr(owner(modules), name)


def trainer_of(modules: list[Any]) -> Any:
    return modules[0].TRAINER_REGISTRY["sync"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda modules: modules[0], "marked_timer"),
        (lambda modules: modules[1], "marked_timer"),
        (lambda modules: modules[2], "marked_timer"),
        (lambda modules: modules[0], "TRAINER_REGISTRY"),
        (lambda modules: modules[0], "calculate_debug_metrics"),
        (lambda modules: modules[0], "Tracking"),
        (lambda modules: modules[0], "tq"),
        (lambda modules: modules[0].Tracking, "log"),
        (lambda modules: modules[0].tq, "kv_clear"),
        (trainer_of, "_setup"),
        (trainer_of, "on_init_end"),
        (trainer_of, "on_step_begin"),
        (trainer_of, "prepare_step"),
        (trainer_of, "_submit_batch_to_rollout"),
        (trainer_of, "_balance_batch"),
        (trainer_of, "_compute_metrics"),
    ],
)
def test_a_patch_point_that_is_gone_fails_at_the_start_by_name(
    stubbed: list[Any], recorder: Recorder, owner: Callable[[list[Any]], Any], name: str
) -> None:
    delete(owner, name)(stubbed)
    with pytest.raises(TapError, match=rf"\.{name} is gone"):
        install(bench_of(recorder, Placement.COLOCATED))


@pytest.mark.parametrize("name", ["sample", "_clear_groups"])
def test_a_replay_buffer_without_its_hooks_fails_by_name(
    stubbed: list[Any], recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(StubBuffer, name)
    install(bench_of(recorder, Placement.COLOCATED))
    with pytest.raises(TapError, match=rf"StubBuffer\.{name} is gone"):
        stubbed[0].TRAINER_REGISTRY["sync"](None)


def test_a_timed_block_that_fails_is_still_a_span(recorder: Recorder) -> None:
    modules = stub_verl()
    tap_timers(bench_of(recorder, Placement.ASYNC).track, modules)
    with pytest.raises(ValueError, match="inside"), modules[2].marked_timer("update_weights", {}):
        raise ValueError("inside")
    assert [span.native_name for span in found(recorder, Span)] == ["update_weights"]


class StubManager:
    """As verl's CheckpointEngineManager of separate pools, in small."""

    def update_weights(self, global_steps: int) -> dict[str, float]:
        async def sync() -> None:
            await self.abort_replicas()
            await self.resume_generation_replicas()

        asyncio.run(sync())
        return {"version": global_steps}

    async def abort_replicas(self) -> None: ...

    async def resume_generation_replicas(self) -> None: ...


def test_a_sync_is_one_span_per_engine_with_its_version(recorder: Recorder) -> None:
    manager = StubManager()
    tap_pauses(manager, recorder, ["a", "b"])
    assert manager.update_weights(7) == {"version": 7}
    spans = found(recorder, Span)
    assert [(span.pool, span.unit, span.attributes["version"]) for span in spans] == [
        ("rollout", "a", 7),
        ("rollout", "b", 7),
    ]
    parts = [spans[0].attributes[name] for name in ("pause_ns", "transfer_ns", "resume_ns")]
    assert sum(int(part or 0) for part in parts) == spans[0].end_ns - spans[0].start_ns


@pytest.mark.parametrize("name", ["abort_replicas", "resume_generation_replicas", "update_weights"])
def test_a_manager_without_a_method_fails_by_name(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(StubManager, name)
    with pytest.raises(TapError, match=rf"StubManager\.{name} is gone"):
        tap_pauses(StubManager(), recorder, ["a"])


def test_a_gate_closes_when_the_run_ahead_is_full_and_opens_with_the_next_batch(recorder: Recorder) -> None:
    admission = Admission(recorder, make_spec("verl", Placement.ASYNC))  # 4 groups of 2, one step ahead
    for _ in range(2):
        admission.dispatching(4)
        admission.dispatched()
    admission.taken(4)
    admission.dispatching(4)
    gates = found(recorder, Gate)
    assert [(gate.open, gate.in_flight, gate.cap) for gate in gates] == [(True, 0, 16), (False, 16, 16), (True, 8, 16)]


def test_a_synchronous_gate_closes_once_the_batch_is_out_and_for_good_at_the_end(recorder: Recorder) -> None:
    admission = Admission(recorder, make_spec("verl", Placement.DISAGGREGATED))
    admission.dispatching(4)
    admission.dispatched()
    admission.taken(4)
    admission.end()
    assert [(gate.open, gate.in_flight) for gate in found(recorder, Gate)] == [(True, 0), (False, 8), (False, 0)]


def pairs(placement: Placement, device: Device, tmp_path: Path, **changes: Any) -> dict[str, str]:
    spec = replace(make_spec("verl", placement, device), **changes)
    return dict(item.split("=", 1) for item in overrides(spec, tmp_path))


@pytest.mark.parametrize("device", list(Device))
def test_all_placements_train_the_same_way(device: Device, tmp_path: Path) -> None:
    def settings(placement: Placement) -> dict[str, str]:
        found = pairs(placement, device, tmp_path)
        chosen = {
            key: value
            for key, value in found.items()
            if key.startswith(("algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.model"))
        }
        # Colocated on GPUs moves its training state away while the engine runs: listed in DIFFERENCES.
        return {key: value for key, value in chosen.items() if not key.endswith("_offload")}

    colocated = settings(Placement.COLOCATED)
    assert settings(Placement.DISAGGREGATED) == colocated
    assert settings(Placement.ASYNC) == colocated
    assert colocated["algorithm.rollout_correction.rollout_is"] == "token"
    assert colocated["algorithm.rollout_correction.bypass_mode"] == "False"
    assert any("parameters and optimizer are moved" in text for text in DIFFERENCES)


def test_as_shipped_leaves_the_loss_and_the_poll_alone(tmp_path: Path) -> None:
    found = overrides(replace(make_spec("verl", Placement.ASYNC), as_shipped=True), tmp_path)
    assert not set(LOSS[1:]) & set(found)
    assert not [item for item in found if "custom_sampler" in item]


@pytest.mark.parametrize(("max_staleness", "threshold"), [(1, "2"), (3, "4")])
def test_the_bound_and_the_run_ahead_come_from_max_staleness(
    tmp_path: Path, max_staleness: int, threshold: str
) -> None:
    found = pairs(Placement.ASYNC, Device.CUDA, tmp_path, max_staleness=max_staleness)
    assert found["trainer.v1.sampler.max_off_policy_threshold"] == threshold
    assert found["trainer.v1.separate_async.num_warmup_batches"] == str(max_staleness)
    assert found["trainer.v1.separate_async.parameter_sync_step"] == "1"


def test_disaggregated_is_a_true_split_that_trains_on_nothing_stale(tmp_path: Path) -> None:
    found = pairs(Placement.DISAGGREGATED, Device.CUDA, tmp_path)
    assert found["actor_rollout_ref.hybrid_engine"] == "False"
    assert found["trainer.v1.separate_async.num_warmup_batches"] == "0"
    assert found["trainer.v1.sampler.max_off_policy_threshold"] == "1"


def test_the_rollout_tp_is_the_specs_and_not_verls_two(tmp_path: Path) -> None:
    found = pairs(Placement.COLOCATED, Device.CUDA, tmp_path, rollout_tp=4)
    assert found["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "4"


@pytest.mark.parametrize("device", list(Device))
def test_what_differs_is_printed_with_the_launch(device: Device, tmp_path: Path) -> None:
    launch = ADAPTER.launch(make_spec("verl", Placement.ASYNC, device), tmp_path)
    said = "\n".join(launch.notes)
    assert all(text in said for text in DIFFERENCES)
    assert all((text in said) == (device is Device.CPU) for text in CPU_DIFFERENCES)
    assert ("VERL_PLATFORM" in launch.env) == (device is Device.CPU)


def test_the_cpu_environment_is_named_for_the_engine_that_runs_there() -> None:
    cpu, cuda = environment(Device.CPU, "vllm"), environment(Device.CUDA, "vllm")
    assert cpu is not None
    assert cpu.name == "verl-cpu-transformers"
    assert cuda is not None
    assert cuda.name == "verl-cuda-vllm"
    assert environment(Device.CUDA, "transformers") is None
    assert environment(Device.CPU, "sglang") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "sglang"}, "engine = sglang"),
        ({"gpus": Gpus(train=2, rollout=2)}, "gpus = 2+2"),
        ({"device": Device.CUDA, "gpus": Gpus(train=3, rollout=3)}, "batch_size x group_size = 8"),
        ({"device": Device.CUDA, "engine": "transformers"}, "engine = transformers"),
        ({"device": Device.CUDA, "faults": ("no-sync",)}, "no-sync"),
        ({"nodes": 2}, "nodes = 2"),
    ],
)
def test_what_verl_cannot_do_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    reason = ADAPTER.supports(replace(make_spec("verl", Placement.DISAGGREGATED), **change))
    assert reason is not None
    assert named in reason


@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("device", list(Device))
def test_every_placement_is_honoured(placement: Placement, device: Device) -> None:
    assert ADAPTER.supports(make_spec("verl", placement, device)) is None


def test_the_parents_half_needs_no_framework() -> None:
    assert not {"verl", "torch", "ray"} & set(sys.modules)
