"""The three straggler numbers of hand-made batches."""

import pytest
from recorded_histories import History, ns

from results.account import make_account
from results.straggler import Straggler, bars, batches, straggler, tails
from results.tracks import tracks
from results.window import Window


def _window(high: float, steps: int) -> Window:
    edges = tuple(ns(high * i / steps) for i in range(steps + 1))
    return Window(start_ns=edges[0], end_ns=edges[-1], after_step=0, last_step=steps, boundaries_ns=edges)


def _found(history: History, high: float, steps: int = 1) -> Straggler:
    run, window = history.run(), _window(high, steps)
    arrays = tracks(run)
    made = batches(run, arrays, window)
    return straggler(run, window, made, make_account(run, arrays, window, tails=tails(made)))


def _colocated() -> History:
    """One batch: generate 1..42 s, ends at 11, 21, 31 and 41 s; the last one waits for a tool from 25 to 35 s."""
    history = History("colocated", {"steps": 2})
    history.span("generation", 1, 42, "both", step=1)
    history.span("train", 42, 50, "both", step=1)
    for i, end in enumerate((11, 21, 31, 41)):
        history.life(f"t{i}", 1, end, tool_calls=i, tool_ns=i * 10**9, generated_tokens=7)
        if i < 3:
            history.turn(f"t{i}", 1, end)
    history.turn("t3", 1, 25)
    history.tool("t3", 25, 35)
    history.turn("t3", 35, 40)
    history.step(1, 50, ("t0", "t1", "t2", "t3"))
    return history


def test_the_three_numbers_of_a_batch() -> None:
    found = _found(_colocated(), 50)
    assert found.gap.value == pytest.approx((41 - 21) / 41)  # the median of four is the second
    assert found.slot_loss.value == pytest.approx(1 - (10 + 20 + 30 + 40) / 4 / 40)
    # Inside 21..41 s: t2 generates to 31, the tool waits to 35, t3 generates to 40, the agent works to 41.
    assert found.waste_gpu_s == pytest.approx(2 * (4 + 1))
    assert found.speed_up_bound == pytest.approx(1 / (1 - 20 / 50))
    assert found.gap.n == 1


def test_fewer_than_four_have_no_straggler() -> None:
    history = History("disaggregated", {"steps": 2})
    for i in range(3):
        history.life(f"t{i}", 0, 10 + i)
    history.step(1, 20, ("t0", "t1", "t2"))
    found = _found(history, 20)
    assert (found.gap.value, found.slot_loss.value, found.waste_gpu_s, found.speed_up_bound) == (None,) * 4
    assert found.note is not None


def test_shares_are_ratios_of_sums_over_batches() -> None:
    history = History("disaggregated", {"steps": 2})
    for step, (begin, length) in enumerate(((0, 10), (50, 40)), start=1):
        history.span("wait_rollout", begin, begin + length, "train", step=step)
        for i in range(4):
            history.life(f"t{step}-{i}", begin, begin + length / (2 if i < 3 else 1))
        history.step(step, 50 * step, tuple(f"t{step}-{i}" for i in range(4)))
    found = _found(history, 100, steps=2)
    assert found.gap.value == pytest.approx((5 + 20) / (10 + 40))
    assert (found.gap.low, found.gap.high) == (0.5, 0.5)


def test_cut_trajectories_do_not_make_the_tail_longer() -> None:
    history = _colocated()
    history.life("cut", 1, 49, status="cancelled")
    assert _found(history, 50).gap.value == pytest.approx(20 / 41)


def test_async_has_a_group_tail_and_no_batch_tail() -> None:
    history = History("async", {"steps": 2})
    for group, ends in (("a", (10, 20, 40)), ("b", (5, 10, 20))):
        for i, end in enumerate(ends):
            history.life(f"{group}{i}", 0, end, group_id=group)
    history.step(1, 50, ("a0", "a1", "a2", "b0", "b1", "b2"))
    found = _found(history, 50)
    assert (found.gap.value, found.slot_loss.value, found.waste_gpu_s) == (None, None, None)
    assert found.group_tail.value == pytest.approx((20 + 10) / (40 + 20))
    assert found.group_tail.n == 2


def test_bars_of_a_step_are_sorted_by_completion_from_the_phases_start() -> None:
    run, window = _colocated().run(), _window(50, 1)
    found = bars(run, tracks(run), window, 1)
    assert found["end_s"].tolist() == [10.0, 20.0, 30.0, 40.0]
    assert found["start_s"].tolist() == [0.0] * 4
    assert found["tool_calls"].tolist() == [0, 1, 2, 3]
    assert found.attrs == {"step": 1, "median_end_s": 20.0, "last_end_s": 40.0}
    assert bars(run, tracks(run), window, 9).empty
