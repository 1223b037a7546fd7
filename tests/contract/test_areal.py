"""AReaL's taps and configuration, without AReaL: stubs of what is patched."""

import asyncio
import sys
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.areal.adapter import ADAPTER
from adapters.areal.overrides import DIFFERENCES, LOSS, overrides
from adapters.areal.phases import PHASES, phases_for
from adapters.areal.worker.rollout_side import Admission, watch_pauses, watch_rejections
from adapters.areal.worker.shared import pack_id, unpack_id
from adapters.areal.worker.taps import tap_function, tap_timers
from adapters.child.track import TapError, Track
from harness.protocol.events import Gate, Span, read_events
from harness.protocol.phases import Phase
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Device, Gpus, Offload, Placement


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "events.jsonl", make_hello("run", "controller"))


@pytest.fixture
def track(recorder: Recorder) -> Track:
    return Track(recorder, "train", PHASES, lambda: 3)


def spans(recorder: Recorder) -> list[Span]:
    return [event for event in read_events(recorder.path) if isinstance(event, Span)]


def gates(recorder: Recorder) -> list[Gate]:
    return [event for event in read_events(recorder.path) if isinstance(event, Gate)]


def stub_module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> Any:
    """Puts a module and its packages into sys.modules; returns the module."""
    parts = name.split(".")
    modules = {".".join(parts[:n]): types.ModuleType(".".join(parts[:n])) for n in range(1, len(parts) + 1)}
    for full, module in modules.items():
        monkeypatch.setitem(sys.modules, full, module)
        if "." in full:
            setattr(modules[full.rpartition(".")[0]], full.rpartition(".")[2], module)
    vars(modules[name]).update(members)
    return modules[name]


def test_every_native_timer_becomes_a_span_and_still_times(
    monkeypatch: pytest.MonkeyPatch, recorder: Recorder, track: Track
) -> None:
    timed: list[str] = []

    @contextmanager
    def record_timing(key: str) -> Any:
        timed.append(key)
        yield

    module = stub_module(monkeypatch, "areal.utils.stats_tracker", record_timing=record_timing)
    tap_timers(track)
    timing: Callable[[str], AbstractContextManager[None]] = module.record_timing
    with timing("update_weights"), track.block("rollout.pause"):
        pass
    with pytest.raises(ZeroDivisionError), timing("train_step"):
        raise ZeroDivisionError
    assert timed == ["update_weights", "train_step"]
    found = {span.native_name: (span.phase, span.container) for span in spans(recorder)}
    assert found["update_weights"] == (Phase.WEIGHT_SYNC, False)
    assert found["rollout.pause"] == (Phase.WEIGHT_SYNC, True)  # inside a leaf it covers nothing
    assert found["train_step"] == (Phase.TRAIN, False)  # recorded although it failed


@pytest.mark.parametrize(
    ("module", "install", "named"),
    [
        ("areal.utils.stats_tracker", "timers", r"areal\.utils\.stats_tracker\.record_timing is gone"),
        ("areal.api.cli_args", "command", r"areal\.api\.cli_args\.get_py_cmd is gone"),
        ("areal.infra.scheduler.local", "controller", r"areal\.infra\.scheduler\.local\.get_tms_env_vars is gone"),
        ("areal.trainer.ppo.actor", "actor", r"areal\.trainer\.ppo\.actor\.PPOActor is gone"),
    ],
)
def test_a_patch_point_that_is_gone_fails_by_name(
    monkeypatch: pytest.MonkeyPatch, track: Track, module: str, install: str, named: str
) -> None:
    from adapters.areal.cpu.shims import install_in_controller
    from adapters.areal.worker.actor import tap_actor
    from adapters.areal.worker.rpc import tap_command

    stub_module(monkeypatch, module)
    installs: dict[str, Callable[[], None]] = {
        "timers": lambda: tap_timers(track),
        "command": tap_command,
        "controller": install_in_controller,
        "actor": tap_actor,
    }
    with pytest.raises(TapError, match=named):
        installs[install]()


def test_servers_are_started_with_this_environments_python(monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.areal.worker.rpc import tap_command

    module = stub_module(
        monkeypatch, "areal.api.cli_args", get_py_cmd=lambda name, args: ["python3", "-m", name, "--port", "1"]
    )
    tap_command()
    assert module.get_py_cmd("a.server", {}) == [sys.executable, "-m", "a.server", "--port", "1"]


def test_a_rollout_workers_bound_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.areal.worker.rpc import unscale_staleness

    seen: list[int | None] = []

    class WorkflowExecutor:
        def initialize(self, logger: Any = None, train_data_parallel_size: int | None = None) -> None:
            seen.append(train_data_parallel_size)

    stub_module(monkeypatch, "areal.infra.workflow_executor", WorkflowExecutor=WorkflowExecutor)
    unscale_staleness()
    WorkflowExecutor().initialize(logger="log", train_data_parallel_size=4)
    assert seen == [1]


def test_a_tapped_function_keeps_its_result_and_its_errors(recorder: Recorder, track: Track) -> None:
    owner = types.SimpleNamespace(pause=lambda x: x + 1)
    tap_function(owner, "pause", "rollout.pause", track)
    assert owner.pause(1) == 2
    with pytest.raises(TypeError):
        owner.pause("a")
    assert [span.phase for span in spans(recorder)] == [Phase.WEIGHT_SYNC, Phase.WEIGHT_SYNC]
    with pytest.raises(TapError, match="gone is gone"):
        tap_function(owner, "gone", "rollout.pause", track)


class StubRollout:
    """As AReaL's RolloutController with its staleness manager and its dispatcher, in small."""

    def __init__(self) -> None:
        self.version = self.running = self.accepted = 0
        self.paused = False
        self.max_concurrent_rollouts = 4
        self.staleness_manager = self.dispatcher = self
        self.calls: list[str] = []

    def get_capacity(self) -> int:
        return (self.version + 1) * 2 - self.running - self.accepted

    def get_stats(self) -> Any:
        return types.SimpleNamespace(running=self.running)

    def is_paused(self) -> bool:
        return self.paused

    def on_rollout_submitted(self) -> None:
        self.running += 1

    def on_rollout_accepted(self) -> None:
        self.running, self.accepted = self.running - 1, self.accepted + 1

    def on_rollout_rejected(self) -> None:
        self.running -= 1

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def set_version(self, version: int) -> None:
        self.version = version

    def get_version(self) -> int:
        return self.version

    async def pause_generation(self) -> None:
        self.calls.append("pause")

    async def continue_generation(self) -> None:
        self.calls.append("continue")

    def task_factory(self, pending: Any) -> Any:
        async def submit() -> Any:
            return None if pending.rejected else "result"

        return submit


def test_admission_is_open_while_the_rule_has_room_and_nothing_is_paused(recorder: Recorder) -> None:
    rollout = StubRollout()
    Admission(recorder, rollout, group_size=3)
    rollout.on_rollout_submitted()
    rollout.on_rollout_submitted()  # room for two groups at version 0
    rollout.on_rollout_accepted()
    rollout.pause()
    rollout.set_version(1)
    rollout.resume()
    assert [(gate.open, gate.why, gate.in_flight, gate.cap) for gate in gates(recorder)] == [
        (True, "start", 0, 12),
        (False, "on_rollout_submitted", 6, 12),
        (True, "resume", 3, 12),
    ]


def test_after_the_last_step_admission_stays_closed(recorder: Recorder) -> None:
    rollout = StubRollout()
    admission = Admission(recorder, rollout, group_size=3)
    admission.end()
    rollout.on_rollout_submitted()
    rollout.set_version(1)
    rollout.resume()
    assert [gate.open for gate in gates(recorder)] == [True, False]


def test_admission_says_which_part_of_areal_is_gone(recorder: Recorder) -> None:
    rollout: Any = StubRollout()
    rollout.staleness_manager = types.SimpleNamespace(max_concurrent_rollouts=4)
    with pytest.raises(TapError, match="get_capacity is gone"):
        Admission(recorder, rollout, group_size=3)


def test_each_sync_is_recorded_per_engine_with_the_version_it_makes_visible(recorder: Recorder) -> None:
    rollout = StubRollout()
    rollout.version = 4
    watch_pauses(recorder, rollout, ["a:1", "b:2"])

    async def sync() -> None:
        await rollout.pause_generation()
        await rollout.continue_generation()

    asyncio.run(sync())
    assert rollout.calls == ["pause", "continue"]
    assert [(span.unit, span.attributes["version"], span.pool) for span in spans(recorder)] == [
        ("a:1", 5, "rollout"),
        ("b:2", 5, "rollout"),
    ]


def test_a_group_that_areal_drops_is_told(recorder: Recorder) -> None:
    rollout = StubRollout()
    dropped: list[int] = []
    watch_rejections(rollout, dropped.append)
    for prompt, rejected in ((7, False), (8, True)):
        pending = types.SimpleNamespace(data={"prompt": prompt}, rejected=rejected)
        result = asyncio.run(rollout.task_factory(pending)())
        assert result == (None if rejected else "result")
    assert dropped == [8]


@pytest.mark.parametrize("numbers", [(0, 0, 0), (7, 3, 1), (2**31 - 1, 2**20 - 1, 2**12 - 1)])
def test_an_id_survives_its_way_through_a_tensor(numbers: tuple[int, int, int]) -> None:
    packed = pack_id(*numbers)
    assert packed < 2**63
    assert unpack_id(packed) == "p{}-s{}-a{}".format(*numbers)


def test_an_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="p1-s1048576-a0"):
        pack_id(1, 2**20, 0)


def test_with_separate_pools_rollout_is_the_trainers_wait() -> None:
    assert phases_for(Placement.COLOCATED)["rollout"] is Phase.GENERATION
    assert phases_for(Placement.DISAGGREGATED)["rollout"] is Phase.WAIT_ROLLOUT
    assert phases_for(Placement.ASYNC)["rollout"] is Phase.WAIT_ROLLOUT


def settings(placement: Placement, device: Device, folder: Path) -> dict[str, str]:
    pairs = (item.partition("=")[::2] for item in overrides(make_spec("areal", placement, device), folder))
    return dict(pairs)


@pytest.mark.parametrize("device", list(Device))
def test_all_placements_train_the_same_way(device: Device, tmp_path: Path) -> None:
    allowed = {"actor.trial_name", "actor.weight_update_mode", "actor.backend"}  # names, transport and GPUs

    def actor(placement: Placement) -> dict[str, str]:
        found = settings(placement, device, tmp_path)
        return {key: value for key, value in found.items() if key.startswith("actor.") and key not in allowed}

    colocated = actor(Placement.COLOCATED)
    assert actor(Placement.DISAGGREGATED) == colocated
    assert actor(Placement.ASYNC) == colocated
    assert "upper: 2.0" in colocated["actor.rejection_sampling"]
    assert colocated["actor.recompute_logprob"] == "true"


def test_staleness_is_areals_own_bound(tmp_path: Path) -> None:
    found = {placement: settings(placement, Device.CPU, tmp_path) for placement in Placement}
    bounds = {placement: keys["rollout.max_head_offpolicyness"] for placement, keys in found.items()}
    assert bounds == {Placement.COLOCATED: "0", Placement.DISAGGREGATED: "0", Placement.ASYNC: "1"}
    assert found[Placement.ASYNC]["rollout.max_concurrent_rollouts"] == "8"  # groups: two batches of four


def test_colocated_takes_turns_and_the_others_have_pools_of_their_own(tmp_path: Path) -> None:
    found = {placement: settings(placement, Device.CUDA, tmp_path) for placement in Placement}
    assert "target: actor" in found[Placement.COLOCATED]["rollout.scheduling_strategy"]
    assert found[Placement.COLOCATED]["actor.backend"] == "fsdp:d8"
    for placement in (Placement.DISAGGREGATED, Placement.ASYNC):
        assert "separation" in found[placement]["rollout.scheduling_strategy"]
        assert (found[placement]["actor.backend"], found[placement]["rollout.backend"]) == ("fsdp:d4", "vllm:d4")


def test_as_shipped_leaves_the_loss_alone(tmp_path: Path) -> None:
    spec = replace(make_spec("areal", Placement.COLOCATED), as_shipped=True)
    found = overrides(spec, tmp_path)
    assert not set(LOSS) & set(found)
    assert not any(item.startswith("actor.reward_norm") for item in found)


def test_what_differs_is_said_before_the_start(tmp_path: Path) -> None:
    notes = ADAPTER.launch(make_spec("areal", Placement.ASYNC), tmp_path).notes
    assert len(DIFFERENCES) >= 5
    for difference in DIFFERENCES:
        assert f"differs: {difference}" in notes


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "sglang"}, "engine = sglang"),
        ({"engine": "tgi"}, "engine = tgi"),
        ({"gpus": Gpus(train=2, rollout=2)}, "gpus = 2+2"),
        ({"device": Device.CUDA, "gpus": Gpus(train=3, rollout=3)}, "batch_size = 4"),
        ({"nodes": 2}, "nodes = 2"),
        ({"offload": Offload.FULL}, "offload = full"),
    ],
)
def test_what_areal_cannot_do_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    reason = ADAPTER.supports(replace(make_spec("areal", Placement.DISAGGREGATED), **change))
    assert reason is not None
    assert named in reason


def test_colocated_on_gpus_is_refused_until_someone_proved_it() -> None:
    reason = ADAPTER.supports(make_spec("areal", Placement.COLOCATED, Device.CUDA))
    assert reason is not None
    assert "unverified on a GPU" in reason
    assert "--unverified" in reason
    asked = replace(make_spec("areal", Placement.COLOCATED, Device.CUDA), unverified=True)
    assert ADAPTER.supports(asked) is None
    assert ADAPTER.supports(make_spec("areal", Placement.COLOCATED, Device.CPU)) is None
