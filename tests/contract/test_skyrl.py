"""SkyRL's taps and configuration, without SkyRL: stubs of the modules that are patched."""

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.child.track import TapError, Track, require
from adapters.skyrl.adapter import ADAPTER
from adapters.skyrl.overrides import LOSS, overrides
from adapters.skyrl.phases import PHASES, phases_for
from harness.protocol.events import Open, Span, read_events
from harness.protocol.phases import Phase
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Device, Gpus, Placement


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "events.jsonl", make_hello("run", "controller"))


@pytest.fixture
def track(recorder: Recorder) -> Track:
    return Track(recorder, "train", PHASES, lambda: 3)


def spans(recorder: Recorder) -> list[Span]:
    return [event for event in read_events(recorder.path) if isinstance(event, Span)]


def test_only_the_outermost_named_block_is_a_leaf(recorder: Recorder, track: Track) -> None:
    for native in ("step", "train_critic_and_policy", "policy_train"):
        track.enter(native)
    for native in ("policy_train", "train_critic_and_policy", "step"):
        track.leave(native)
    found = {span.native_name: span for span in spans(recorder)}
    assert {name: span.container for name, span in found.items()} == {
        "policy_train": True,
        "train_critic_and_policy": False,
        "step": True,
    }
    assert found["train_critic_and_policy"].phase == Phase.TRAIN
    assert found["step"].step == 3


def test_a_named_block_inside_a_leaf_covers_nothing(recorder: Recorder, track: Track) -> None:
    with track.block("sync_weights"), track.block("client.sleep"):
        pass
    found = {span.native_name: span.container for span in spans(recorder)}
    assert found == {"client.sleep": True, "sync_weights": False}


def test_what_begins_is_announced_so_that_a_hang_can_be_named(recorder: Recorder, track: Track) -> None:
    track.enter("generate")
    opened = [event for event in read_events(recorder.path) if isinstance(event, Open)]
    assert [event.native_name for event in opened] == ["generate"]


def test_an_unmapped_timer_is_remembered(track: Track) -> None:
    with track.block("brand_new_timer"):
        pass
    assert track.unknown == {"brand_new_timer"}


def test_a_block_that_never_began_is_ignored(recorder: Recorder, track: Track) -> None:
    track.leave("generate")
    assert spans(recorder) == []


def test_a_missing_patch_point_is_named() -> None:
    with pytest.raises(TapError, match=r"patch point json\.no_such_function is gone"):
        require(__import__("json"), "no_such_function")


def stub_timer(monkeypatch: pytest.MonkeyPatch, timer: Any) -> None:
    module: Any = types.ModuleType("skyrl.train.utils.utils")
    if timer is not None:
        module.Timer = timer
    package: Any = types.ModuleType("skyrl.train.utils")
    package.utils = module
    for name, stub in {
        "skyrl": types.ModuleType("skyrl"),
        "skyrl.train": types.ModuleType("skyrl.train"),
        "skyrl.train.utils": package,
        "skyrl.train.utils.utils": module,
    }.items():
        monkeypatch.setitem(sys.modules, name, stub)


class StubTimer:
    """As SkyRL's Timer, in small."""

    def __init__(self, message: str, update_dict: dict[str, float] | None = None) -> None:
        self.message = message
        self.update_dict = update_dict

    def __enter__(self) -> "StubTimer":
        return self

    def __exit__(self, *args: object) -> None:
        if self.update_dict is not None:
            self.update_dict[self.message] = 1.0


def test_native_timers_become_spans_and_still_time(
    monkeypatch: pytest.MonkeyPatch, recorder: Recorder, track: Track
) -> None:
    from adapters.skyrl.worker.taps import tap_timers

    timer = type("Timer", (StubTimer,), {"__enter__": StubTimer.__enter__, "__exit__": StubTimer.__exit__})
    stub_timer(monkeypatch, timer)
    tap_timers(track)
    timings: dict[str, float] = {}
    with timer("generate", timings):
        pass
    with pytest.raises(ValueError, match="inside"), timer("sync_weights", timings):
        raise ValueError("inside")
    assert [span.native_name for span in spans(recorder)] == ["generate", "sync_weights"]
    assert timings == {"generate": 1.0, "sync_weights": 1.0}


def test_a_framework_without_its_timer_fails_at_the_start_by_name(
    monkeypatch: pytest.MonkeyPatch, track: Track
) -> None:
    from adapters.skyrl.worker.taps import tap_timers

    stub_timer(monkeypatch, None)
    with pytest.raises(TapError, match=r"skyrl\.train\.utils\.utils\.Timer is gone"):
        tap_timers(track)


def test_a_tapped_function_keeps_its_result_and_its_errors(recorder: Recorder, track: Track) -> None:
    from adapters.skyrl.worker.taps import tap_function

    module = types.SimpleNamespace(prepare_generator_input=lambda x: x + 1)
    tap_function(module, "prepare_generator_input", "prepare_generator_input", track)
    assert module.prepare_generator_input(1) == 2
    with pytest.raises(TypeError):
        module.prepare_generator_input("a")
    assert len(spans(recorder)) == 2
    with pytest.raises(TapError, match="gone is gone"):
        tap_function(module, "gone", "gone", track)


def test_with_separate_pools_generate_is_the_trainers_wait() -> None:
    assert phases_for(Placement.COLOCATED)["generate"] is Phase.GENERATION
    assert phases_for(Placement.DISAGGREGATED)["generate"] is Phase.WAIT_ROLLOUT
    assert phases_for(Placement.ASYNC)["wait_for_generation_buffer"] is Phase.WAIT_ROLLOUT


@pytest.mark.parametrize("device", list(Device))
def test_all_placements_train_the_same_way(device: Device, tmp_path: Path) -> None:
    def settings(placement: Placement) -> dict[str, str]:
        pairs = (item.split("=", 1) for item in overrides(make_spec("skyrl", placement, device), tmp_path))
        return {key: value for key, value in pairs if key.startswith(("trainer.algorithm", "trainer.policy"))}

    colocated = settings(Placement.COLOCATED)
    assert settings(Placement.DISAGGREGATED) == colocated
    assert settings(Placement.ASYNC) == colocated
    assert colocated["trainer.algorithm.policy_loss_type"] == "cispo"


def test_as_shipped_leaves_the_loss_alone_and_async_gets_one_it_accepts(tmp_path: Path) -> None:
    spec = replace(make_spec("skyrl", Placement.COLOCATED), as_shipped=True)
    assert not set(LOSS) & set(overrides(spec, tmp_path))
    spec = replace(make_spec("skyrl", Placement.ASYNC), as_shipped=True)
    assert "trainer.algorithm.policy_loss_type=rollout_is" in overrides(spec, tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "sglang"}, "engine = sglang"),
        ({"gpus": Gpus(train=2, rollout=2)}, "gpus = 2+2"),
        ({"device": Device.CUDA, "gpus": Gpus(train=3, rollout=3)}, "batch_size x group_size = 8"),
        ({"nodes": 2}, "nodes = 2"),
    ],
)
def test_what_skyrl_cannot_do_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    reason = ADAPTER.supports(replace(make_spec("skyrl", Placement.DISAGGREGATED), **change))
    assert reason is not None
    assert named in reason
