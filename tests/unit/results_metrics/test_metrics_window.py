"""The steady window: boundary to boundary, after the warm-up, before the drain; or a reason why there is none."""

import pytest
from recorded_histories import History, ns

from results.tracks import tracks
from results.window import Steady, admission_closed_ns, steady_window


def _steady(history: History) -> Steady:
    run = history.run()
    return steady_window(run, tracks(run))


def _synchronous(steps: int, each: float = 10.0, **changes: int) -> History:
    history = History("disaggregated", {"steps": max(steps, 2), "warmup_steps": 1, **changes})
    for step in range(1, steps + 1):
        history.life(f"t{step}", (step - 1) * each, step * each - 1)
        history.step(step, step * each, (f"t{step}",))
    return history


def test_a_synchronous_window_runs_from_the_warm_ups_end_to_the_last_steps_end() -> None:
    window = _steady(_synchronous(12, warmup_steps=2)).window
    assert window is not None
    assert (window.start_ns, window.end_ns) == (ns(20), ns(120))
    assert (window.after_step, window.last_step, window.steps, window.seconds) == (2, 12, 10, 100.0)
    assert window.step_seconds.tolist() == [10.0] * 10
    assert window.not_steady == ()


def test_no_warm_up_asked_for_still_leaves_the_first_step_out() -> None:
    window = _steady(_synchronous(3, warmup_steps=0)).window
    assert window is not None
    assert window.after_step == 1


@pytest.mark.parametrize(("steps", "warmup"), [(0, 1), (1, 1), (2, 2), (2, 3)])
def test_too_few_steps_give_no_window_and_a_reason(steps: int, warmup: int) -> None:
    found = _steady(_synchronous(steps, warmup_steps=warmup))
    assert found.window is None
    assert found.reason


def test_a_short_or_drifting_window_says_so() -> None:
    history = _synchronous(5)
    history.life("long", 0, 45)
    window = _steady(history).window
    assert window is not None
    assert any("4 steps" in note for note in window.not_steady)
    assert any("p95 trajectory" in note for note in window.not_steady)
    drift = History("disaggregated", {"steps": 13})
    end = 0.0
    for step in range(1, 14):
        end += 10 if step < 7 else 20
        drift.step(step, end)
    window = _steady(drift).window
    assert window is not None
    assert any("step times differ" in note for note in window.not_steady)


@pytest.mark.parametrize(("life", "said"), [(40.0, "1.0"), (13.34, "2.999"), (13.4, "2.99"), (13.8, "2.9")])
def test_what_is_less_than_the_bound_is_so_as_printed(life: float, said: str) -> None:
    history = _synchronous(5)
    for number in range(3):
        history.life(f"long{number}", 0, life)
    window = _steady(history).window
    assert window is not None
    (note,) = [each for each in window.not_steady if "p95" in each]
    assert note == f"the window is {said} x the p95 trajectory, less than 3 x"


def test_checkpoint_and_eval_inside_are_told_and_outside_are_not() -> None:
    history = _synchronous(12)
    history.span("checkpoint", 55, 56)
    history.span("eval", 2, 8)
    window = _steady(history).window
    assert window is not None
    assert window.not_steady == ("checkpoint inside (1.0 s)",)


def test_a_step_without_a_record_is_told() -> None:
    history = _synchronous(12)
    del history.rows["steps"][5]
    window = _steady(history).window
    assert window is not None
    assert window.steps == 10
    assert any("1 step of the window without a record" in note for note in window.not_steady)


def _async(first_start: dict[int, float], full_at: float = 5.0, **changes: int) -> History:
    """Six steps of 10 s, update 1 visible from 12 s on; `first_start`: oldest start among a step's trajectories."""
    history = History("async", {"steps": 6, "warmup_steps": 1, "max_staleness": 1, **changes})
    for step in range(1, 7):
        for other in range(2):
            start = max(0.0, first_start.get(step, step * 10 - 15.0)) + other
            history.life(f"t{step}-{other}", start, step * 10 - 1)
        history.step(step, step * 10, (f"t{step}-0", f"t{step}-1"))
        history.sync(step, step * 10, step * 10 + 2, engine="e0")
        history.sync(step, step * 10, step * 10 + 1, engine="e1")
    history.gate(0, True, 0, 10)
    history.gate(full_at, False, 9, 10)
    history.gate(full_at + 1, True, 8, 10)
    return history


def test_an_async_window_waits_for_trajectories_that_saw_update_one() -> None:
    window = _steady(_async({3: 11.9, 4: 12.0})).window  # step 3 has one from before every engine had update 1
    assert window is not None
    assert (window.after_step, window.last_step) == (4, 6)
    window = _steady(_async({3: 12.0})).window
    assert window is not None
    assert window.after_step == 3


def test_an_async_window_is_never_before_max_staleness_plus_one() -> None:
    window = _steady(_async(dict.fromkeys(range(1, 7), 12.0), max_staleness=3)).window
    assert window is not None
    assert window.after_step == 4


def test_an_async_window_waits_for_90_percent_of_the_cap() -> None:
    window = _steady(_async({3: 12.0}, full_at=41.0)).window
    assert window is not None
    assert window.after_step == 5


def test_an_async_pipeline_is_full_when_the_staleness_rule_admits_no_more() -> None:
    """Finished trajectories that wait to be trained on count under the rule: 6 of 10 in flight may be all it admits."""
    history = _async({3: 12.0})
    history.rows["gates"].clear()
    history.gate(0, True, 0, 10)
    history.gate(33, False, 6, 10)
    history.gate(34, True, 5, 10)
    history.gate(60, False, 0, 10)  # the end of the run, which says nothing about a full pipeline
    window = _steady(history).window
    assert window is not None
    assert window.after_step == 4
    history.rows["gates"].clear()
    history.gate(0, True, 0, 10)
    history.gate(60, False, 0, 10)
    assert "never closed for capacity" in _steady(history).reason


def test_an_async_window_ends_before_admission_closes_for_good() -> None:
    history = _async({3: 12.0})
    history.gate(55, False, 3, 10)
    window = _steady(history).window
    assert window is not None
    assert window.last_step == 5
    history.gate(56, True, 3, 10)  # it reopened: the last step is in again
    window = _steady(history).window
    assert window is not None
    assert window.last_step == 6


def test_a_gate_closed_because_it_is_full_is_no_drain() -> None:
    history = _async({3: 12.0})
    history.gate(55, False, 10, 10)
    run = history.run()
    assert admission_closed_ns(run.frame("gates")) is None


def test_an_async_run_without_update_one_has_no_window() -> None:
    history = _async({3: 12.0})
    history.rows["weight_syncs"].clear()
    found = _steady(history)
    assert found.window is None
    assert "update 1" in str(found.reason)


def test_a_gate_that_says_it_is_the_last_is_final_whatever_comes_after() -> None:
    for why, closed in (("the last step has ended", ns(50)), ("end of the run", ns(50)), ("capacity", None)):
        history = History("async")
        history.gate(10, True, 0, 4)
        history.add("gates", mono_ns=ns(50), open=False, why=why, in_flight=4, cap=4)
        history.gate(51, True, 3, 4)
        history.gate(52, False, 4, 4)
        assert admission_closed_ns(history.run().frame("gates")) == closed


def test_why_there_is_no_window_never_calls_a_step_that_was_found_the_warm_up() -> None:
    history = History("async", {"warmup_steps": 1})
    for step in (1, 2, 3):
        history.life(f"t{step}", step * 10 + 1, step * 10 + 9)
        history.step(step, step * 10 + 10, (f"t{step}",))
    history.sync(1, 19, 30.5)  # step 3 is the first that trained only on what started after it
    run = history.run()
    reason = str(steady_window(run, tracks(run)).reason)
    assert reason == "too few steps: the window begins with the end of step 3, none ended after it"
