"""verl's trainer taps, without verl: stubs of the modules that are patched."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from verl_stubs import TIMERS, Mask, StubBuffer, StubRay, batch_of, bench_of, found, stub_verl

from adapters.child.track import TapError
from adapters.verl.worker import trainer as verl_trainer
from adapters.verl.worker.taps import tap_timers
from adapters.verl.worker.trainer import install
from harness.protocol.events import Span, Step
from harness.protocol.phases import Phase
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Placement


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "events.jsonl", make_hello("run", "controller"))


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    modules = stub_verl()
    monkeypatch.setattr(verl_trainer, "trainer_modules", lambda: modules)
    monkeypatch.setattr(verl_trainer, "record_logprob_difference", lambda *args: None)
    return modules


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StubRay:
    made = StubRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    return made


def test_agent_loops_are_still_there_when_the_training_fails(
    stubbed: list[Any], recorder: Recorder, ray: StubRay
) -> None:
    install(bench_of(recorder, Placement.ASYNC))
    trainer = stubbed[0].TRAINER_REGISTRY["separate_async"](None)
    manager = types.SimpleNamespace(agent_loop_workers=[ray.actor("loop-0")], batch=None, data=None)
    with pytest.raises(TypeError):
        trainer.fit(manager)
    assert ray.killed == []  # what they saw of the failure is on record


@pytest.mark.parametrize("placement", list(Placement))
def test_a_step_is_recorded_with_what_it_consumed(
    stubbed: list[Any], recorder: Recorder, ray: StubRay, placement: Placement
) -> None:
    bench = bench_of(recorder, placement)
    install(bench)
    trainer = stubbed[0].TRAINER_REGISTRY[verl_trainer.MODES[placement]](None)
    trainer.replay_buffer.evict = ["u-3"]
    data = types.SimpleNamespace(batch={"response_mask": Mask(42), "old_log_probs": None, "rollout_log_probs": None})
    loops = [ray.actor("loop-0"), ray.actor("loop-1")]
    trainer.fit(types.SimpleNamespace(agent_loop_workers=loops, batch=batch_of(4), data=data))
    timing, logged = trainer.seen
    # They end before verl ends the engines they ask: on other nodes they would outlive those, and record failures.
    assert ray.killed == ray.waited == ["loop-0", "loop-1"]
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
        (trainer_of, "fit"),
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
