"""What users of other frameworks were told wrongly about time, told right here.

Each case is an issue or pull request of a public project whose report gives inputs small enough for a CPU.

verl 6693, 6069, 6798: one pause of a window counted, so that idle was above 1, or stuck at 0
    test_idle_is_the_union_of_all_pauses_cut_to_the_window_and_a_share
verl 7601, 3263: how long does which side wait in async? open-instruct 853: train idle always 0
    test_each_side_of_an_async_run_says_how_long_it_waited_for_the_other
SkyRL 1794: eval mixed into the step
    test_an_eval_is_no_part_of_what_a_step_waits_for_and_the_window_says_that_it_is_inside
SkyRL 1804: a row per turn, so that long trajectories counted many times
    test_a_trajectory_of_many_turns_counts_once_among_the_durations
SkyRL 1900, 1925: engine-bound or environment-bound? set-up time was hidden
    test_seconds_of_engine_tool_and_set_up_are_told_apart
verifiers 1182: parts did not sum to the total, and the rest had no name
    test_parts_of_a_life_sum_to_it_and_the_rest_has_a_name
slime 232, miles_diffusion 19: reward time inside generation, or blamed on it
    test_reward_behind_generation_is_neither_generation_nor_the_trainers_time
NeMo-RL 1098: how long is the generation bubble?
    test_the_bubble_of_a_batch_is_what_nobody_generated_in_its_tail
NeMo-RL 3595: a check passed when the run had stopped early
    test_a_run_that_stopped_early_has_no_number_in_any_comparison
trl 4501: one NaN wiped a logged mean
    test_a_nan_is_unknown_of_its_own_step_and_a_failure_and_nothing_else_is_lost
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded_histories import History, ns

from harness.protocol.events import Failure, Hello, Step, read_events
from harness.protocol.recorder import Recorder
from reports.comparable import bad_run
from results.account import Account, UnitAccount, make_account
from results.lifetimes import lifetimes
from results.straggler import batches, straggler, tails
from results.throughput import Lives
from results.tracks import tracks
from results.window import Window, steady_window

END = 40


def _window(low: float = 0, high: float = END) -> Window:
    return Window(start_ns=ns(low), end_ns=ns(high), after_step=0, last_step=1, boundaries_ns=(ns(low), ns(high)))


def _account(history: History) -> Account:
    run = history.run()
    return make_account(run, tracks(run), _window())


def _unit(account: Account, name: str) -> UnitAccount:
    return next(unit for unit in account.units if unit.unit == name)


def test_idle_is_the_union_of_all_pauses_cut_to_the_window_and_a_share() -> None:
    history = History("async")
    history.life("t", 0, 40)
    history.turn("t", 0, 40, "e0")
    for start, end in ((-10, 5), (10, 15), (12, 18), (30, 50)):  # begun before, apart, overlapping, ended after
        history.sync(1, start, end, "e0")
    paused = _unit(_account(history), "e0").seconds["weight_sync"]
    assert paused == pytest.approx(5 + 8 + 10)
    assert paused / END == pytest.approx(0.575)
    everything = History("async")
    everything.life("t", 0, 40)
    everything.turn("t", 0, 40, "e0")
    for start, end in ((-10, 30), (0, 40), (20, 90)):
        everything.sync(1, start, end, "e0")
    assert _unit(_account(everything), "e0").seconds == pytest.approx({"weight_sync": 40.0})  # 100 %, not 225 %


def test_each_side_of_an_async_run_says_how_long_it_waited_for_the_other() -> None:
    history = History("async")
    history.span("wait_rollout", 0, 10)
    history.span("train", 10, 40)
    history.life("t", 0, 25)
    history.turn("t", 0, 25)
    history.gate(25, False)  # the bound holds new trajectories back until the trainer is through
    account = _account(history)
    assert _unit(account, "train").seconds["wait_rollout"] / END == pytest.approx(0.25)
    assert _unit(account, "rollout").seconds["wait_train"] / END == pytest.approx(0.375)


def test_an_eval_is_no_part_of_what_a_step_waits_for_and_the_window_says_that_it_is_inside() -> None:
    history = History("disaggregated", {"warmup_steps": 1})
    for step in range(1, 5):
        history.step(step, 10 * step)
    history.span("wait_rollout", 10, 18)
    history.span("eval", 18, 25)
    history.span("train", 25, 40)
    run = history.run()
    window = steady_window(run, tracks(run)).window
    assert window is not None
    assert "eval inside (7.0 s)" in window.not_steady
    unit = _unit(make_account(run, tracks(run), window), "train")
    assert unit.seconds == pytest.approx({"eval": 7.0, "train": 15.0, "wait_rollout": 8.0})


def test_a_trajectory_of_many_turns_counts_once_among_the_durations() -> None:
    def found(turns: int) -> tuple[float | None, str]:
        history = History("disaggregated", {"warmup_steps": 1, "group_size": 4, "batch_size": 1})
        for number, length in enumerate((4, 5, 6, 28)):
            history.life(f"t{number}", 0, length)
            for turn in range(turns if length == 28 else 1):
                history.turn(f"t{number}", length * turn / turns, length * (turn + 1) / turns)
        history.span("wait_rollout", 0, 28, step=2)
        history.step(1, 0)
        history.step(2, 40, ("t0", "t1", "t2", "t3"))
        run = history.run()
        arrays = tracks(run)
        window = steady_window(run, arrays).window
        assert window is not None
        made = batches(run, arrays, window)
        account = make_account(run, arrays, window, tails=tails(made))
        (note,) = [each for each in window.not_steady if "p95" in each]
        return straggler(run, window, made, account).slot_loss.value, note

    loss, note = found(1)
    assert loss == pytest.approx(1 - (4 + 5 + 6 + 28) / 4 / 28)
    assert note.startswith("the window is 1.4 x the p95 trajectory")  # 40 / 28
    assert found(28) == (loss, note)


def test_seconds_of_engine_tool_and_set_up_are_told_apart() -> None:
    history = History("async")
    history.life("t", 0, 40)
    history.turn("t", 6, 16, "e0")  # 6 s from its start to its first turn
    history.tool("t", 16, 37)
    run = history.run()
    arrays = tracks(run)
    whole = _unit(make_account(run, arrays, _window(), by_engine=False), "rollout")
    assert whole.seconds == pytest.approx({"agent": 9.0, "generating": 10.0, "tool_wait": 21.0})
    lived = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert lived.seconds["tool"] == pytest.approx(21.0)
    assert lived.seconds["agent"] == pytest.approx(9.0)


def test_parts_of_a_life_sum_to_it_and_the_rest_has_a_name() -> None:
    history = History("async")
    history.life("t", 2, 33)
    history.turn("t", 4, 10, "e0", submitted_ns=ns(3))
    history.tool("t", 11, 20)
    history.sync(1, 22, 24, "e0")
    history.turn("t", 21, 28, "e0", submitted_ns=ns(21))
    history.span("reward", 29, 31, "rollout", trajectory_id="t")
    history.step(1, 38, ("t",))
    run = history.run()
    arrays = tracks(run)
    found = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    expected = {"queued": 1, "generating": 11, "paused": 2, "tool": 9, "reward": 2, "agent": 6, "buffer_wait": 5}
    assert found.seconds == pytest.approx(expected)
    assert sum(s or 0.0 for s in found.seconds.values()) == pytest.approx(38 - 2) == pytest.approx(found.total_s)


def test_reward_behind_generation_is_neither_generation_nor_the_trainers_time() -> None:
    history = History("async")
    history.life("a", 0, 30)
    history.turn("a", 0, 10, "e0")
    history.span("reward", 10, 30, "rollout", trajectory_id="a")
    history.life("b", 0, 25)
    history.turn("b", 0, 25, "e0")
    history.span("train", 0, 40)
    run = history.run()
    arrays = tracks(run)
    account = make_account(run, arrays, _window())
    assert _unit(account, "train").seconds == pytest.approx({"train": 40.0})
    # b generates to 25; then nothing runs and a is being judged: 5 s, and not the 20 s that it took.
    assert _unit(account, "e0").seconds["generating"] == pytest.approx(25.0)
    assert _unit(account, "e0").seconds["agent"] == pytest.approx(5.0)
    lived = lifetimes(run, arrays, _window(), Lives.of(run, arrays).left)
    assert lived.seconds["reward"] == pytest.approx(20.0)
    assert lived.seconds["generating"] == pytest.approx(35.0)


def test_the_bubble_of_a_batch_is_what_nobody_generated_in_its_tail() -> None:
    history = History("disaggregated")
    for name, end in (("a", 10), ("b", 12), ("c", 14), ("d", 30)):
        history.life(name, 0, end)
        history.turn(name, 0, min(end, 14), "e0" if name < "c" else "e1")
    history.tool("d", 14, 26)
    history.turn("d", 26, 30, "e1")
    history.span("wait_rollout", 0, 30, step=1)
    history.span("train", 30, 40, step=1)
    history.step(1, 40, ("a", "b", "c", "d"))
    run = history.run()
    arrays = tracks(run)
    made = batches(run, arrays, _window())
    account = make_account(run, arrays, _window(), tails=tails(made))
    assert account.tail_s == pytest.approx(30 - 12)  # from the median's end to the last one's
    assert _unit(account, "e0").tail_seconds == pytest.approx({"empty": 18.0})
    assert _unit(account, "e1").tail_seconds == pytest.approx({"generating": 6.0, "tool_wait": 12.0})
    assert straggler(run, _window(), made, account).waste_gpu_s == pytest.approx(18 + 12)


def test_a_run_that_stopped_early_has_no_number_in_any_comparison() -> None:
    def case(status: str | None) -> SimpleNamespace:
        meta = {} if status is None else {"status": status}
        return SimpleNamespace(run=SimpleNamespace(meta=meta, run_id="the-run"), spoiled=None)

    assert bad_run([case("finished")]) is None  # type: ignore[list-item]
    for status in ("failed", "interrupted", "stalled", None):
        why = bad_run([case("finished"), case(status)])  # type: ignore[list-item]
        assert why is not None
        assert "the-run did not finish" in why


def test_a_nan_is_unknown_of_its_own_step_and_a_failure_and_nothing_else_is_lost(tmp_path: Path) -> None:
    hello = Hello(protocol=1, run_id="r", host="h", pid=1, role="controller", wall_ns=1, mono_ns=1)
    recorder = Recorder(tmp_path / "h-1.jsonl", hello)
    for step, reward in ((1, 0.25), (2, float("nan")), (3, 0.75)):
        told = Step(
            step=step,
            policy_version=step,
            start_ns=step,
            end_ns=step + 1,
            trajectory_ids=(),
            reward_mean=reward,
            grad_norm=1.0,
        )
        recorder.emit(told)
    recorder.metric("logprob_diff_max", float("inf"), labels={"same_version": True, "of": float("nan")})
    recorder.bye()
    events = list(read_events(tmp_path / "h-1.jsonl"))
    assert not [event for event in events if isinstance(event, ValueError)]
    steps = [event for event in events if isinstance(event, Step)]
    assert [(each.reward_mean, each.grad_norm) for each in steps] == [(0.25, 1.0), (None, 1.0), (0.75, 1.0)]
    said = [event.message for event in events if isinstance(event, Failure)]
    assert said == [
        "step 2: reward_mean is NaN or infinite, and unknown in the record",
        "metric: value, labels is NaN or infinite, and unknown in the record",
    ]
