"""Joules by what became of the work, in histories whose power is a straight line: every integral is known."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_histories import History, ns

from results.account import make_account
from results.class_energy import TAIL_GENERATING, TAIL_WASTE
from results.energy import Energy, energy
from results.power import Series
from results.running import DROPPED_STALE, OPEN, TRAINED, TRAINED_STALE, running_work, turn_time
from results.straggler import batches, tails
from results.throughput import Lives
from results.tracks import tracks
from results.window import Window

LOW, HIGH = 20.0, 120.0
SCALE = 1.02  # the counter's, against the power: k
WATTS = 100.0  # of one GPU at the history's begin; 1 W more each second
LIMIT = 400.0


def _history(placement: str, pools: tuple[str, ...]) -> History:
    history = History(placement, {"device": "cuda"})
    history.meta = {"gpus": [{"uuid": f"GPU-{n}", "name": "NVIDIA L40S", "host": "node0"} for n in range(len(pools))]}
    for pool in dict.fromkeys(pools):
        mine = [f"GPU-{n}" for n, of in enumerate(pools) if of == pool]
        history.process("controller", 12, gpu_uuids=mine, pool=pool)
    for n in range(len(pools)):
        for at in np.arange(0.03, 140, 0.1):
            watts, joules = WATTS + at, (WATTS * at + at * at / 2) * SCALE
            history.add(
                "samples",
                gpu=f"GPU-{n}",
                mono_ns=ns(at),
                power_instant_watts=watts,
                energy_joules=joules,
                power_limit_watts=LIMIT,
            )
    return history


def _joules(begin: float, end: float) -> float:
    """Of one GPU."""
    return (WATTS * (end - begin) + (end * end - begin * begin) / 2) * SCALE


def _found(history: History) -> Energy:
    run = history.run()
    edges = (ns(LOW), ns(HIGH))
    window = Window(start_ns=edges[0], end_ns=edges[1], after_step=1, last_step=2, boundaries_ns=edges)
    arrays = tracks(run)
    made = batches(run, arrays, window)
    account = make_account(run, arrays, window, tails=tails(made), by_engine=False)
    work = running_work(run, arrays, Lives.of(run, arrays), made)
    return energy(run, window, {unit.pool: unit.timeline for unit in account.units}, 4, tokens=200, work=work)


def _parts(found: Energy) -> dict[str, float | None]:
    return {each.name: each.joules for each in found.attributed if each.pool == "rollout"}


def _batch(**changes: object) -> History:
    """Two GPUs roll out. a, b, c, d start together; b is the median of ends, d's last tool call ends the tail."""
    history = _history("disaggregated", ("train", "train", "rollout", "rollout"))
    for name, ends in (("a", 40.0), ("b", 60.0), ("c", 80.0), ("d", 110.0)):
        history.life(name, 20, ends, version_first=0)
        history.turn(name, 20, min(ends, 100.0), generated_tokens=10)
    history.tool("d", 100, 110)
    history.step(1, 20, start=0)
    history.step(2, 120, ("a", "b", "c", "d"), start=20)
    history.span("wait_rollout", 20, 110, step=2)
    history.span("train", 110, 120, step=2)
    for row in history.rows["trajectories"]:
        row["version_trained"] = 1 if row["trajectory_id"] in changes.get("stale", ()) else 0  # type: ignore[operator]
    return history


def test_by_hand() -> None:
    found = _found(_batch(stale=("c",)))
    parts = _parts(found)
    two = [2 * _joules(*cell) for cell in ((20, 40), (40, 60), (60, 80), (80, 100), (100, 110))]
    of_c = two[0] / 4 + two[1] / 3 + two[2] / 2
    assert parts[TRAINED_STALE] == pytest.approx(of_c, rel=1e-4)
    assert parts[TRAINED] == pytest.approx(sum(two[:4]) - of_c, rel=1e-4)
    assert parts[TAIL_GENERATING] == pytest.approx(two[2] + two[3], rel=1e-4)
    assert parts[TAIL_WASTE] == pytest.approx(two[4], rel=1e-4)
    classes = {each.name: each for each in found.classes if each.pool == "rollout"}
    assert classes["generating"].joules == pytest.approx(sum(two[:4]), rel=1e-4)
    assert classes["generating"].power_utilisation == pytest.approx(sum(two[:4]) / (2 * 80 * LIMIT), rel=1e-4)
    whole = 4 * _joules(20, 120)
    assert found.joules == pytest.approx(whole, rel=1e-4)
    assert (found.joules_per_step, found.joules_per_token) == (pytest.approx(whole), pytest.approx(whole / 200))


def test_late_work_is_only_of_what_was_consumed() -> None:
    history = _batch()
    history.life("cut", 20, 90, status="cancelled")  # over-sampled, and cut: not of the batch, yet it ran in its tail
    history.turn("cut", 20, 90, generated_tokens=10)
    parts = _parts(_found(history))
    two = [2 * _joules(*cell) for cell in ((60, 80), (80, 90), (90, 100))]
    assert parts[TAIL_GENERATING] == pytest.approx(two[0] * 2 / 3 + two[1] / 2 + two[2], rel=1e-4)


def test_discarded_stale_work_of_async_and_no_tail() -> None:
    history = _history("async", ("train", "train", "rollout", "rollout"))
    for name, begin, end in (("a", 20, 60), ("b", 40, 80), ("c", 50, 120)):
        history.life(name, begin, end if name != "c" else None, version_first=0)
        history.turn(name, begin, end, generated_tokens=10)
    history.step(1, 20, start=0)
    history.step(2, 120, ("a",), start=20, trained_at=3, dropped_ids=["b"])
    history.rows["trajectories"][0]["version_trained"] = 1
    found = _found(history)
    parts = _parts(found)
    cells = {cell: 2 * _joules(*cell) for cell in ((20, 40), (40, 50), (50, 60), (60, 80), (80, 120))}
    of_b = cells[40, 50] / 2 + cells[50, 60] / 3 + cells[60, 80] / 2
    assert parts[DROPPED_STALE] == pytest.approx(of_b, rel=1e-4)
    assert parts[OPEN] == pytest.approx(cells[50, 60] / 3 + cells[60, 80] / 2 + cells[80, 120], rel=1e-4)
    assert TAIL_WASTE not in parts
    assert TAIL_GENERATING not in parts


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 130), st.integers(1, 60), st.sampled_from(["ok", "failed", "cancelled", "open"])),
        min_size=1,
        max_size=8,
    )
)
def test_fates_add_up_to_generating_whatever_happened(made: list[tuple[int, int, str]]) -> None:
    history = _history("async", ("train", "train", "rollout", "rollout"))
    history.life("whole", 0, 140)  # so that generating is never too short
    history.turn("whole", 15, 125, generated_tokens=1)
    for number, (start, length, status) in enumerate(made):
        history.life(f"t{number}", start, None if status == "open" else start + length, status=status)
        history.turn(f"t{number}", start, start + length, generated_tokens=5)
    history.step(1, 20, start=0)
    history.step(2, 120, tuple(f"t{n}" for n, each in enumerate(made) if each[2] == "ok" and n % 2), start=20)
    found = _found(history)
    (generating,) = [each for each in found.classes if (each.pool, each.name) == ("rollout", "generating")]
    parts = [each.joules for each in found.attributed]
    assert None not in parts
    assert sum(each or 0.0 for each in parts) == pytest.approx(generating.joules)


def test_without_a_valid_check_nothing_is_attributed() -> None:
    history = _batch()
    for row in history.rows["samples"]:
        row["energy_joules"] *= 1.06
    found = _found(history)
    assert found.joules is not None  # printed with its verdict
    assert found.verdict == "bad"
    assert {each.joules for each in (*found.attributed, *found.classes)} == {None}
    notes = {each.note for each in found.attributed}
    assert notes == {"no valid check of counter against integral"}


def test_idle_power_says_which_gpu_of_which_node_was_not_seen_long_enough() -> None:
    history = _batch()
    told = _found(history)
    assert told.idle_watts == pytest.approx(4 * (WATTS + 6), rel=0.01)
    assert told.idle_note is None
    late = [row for row in history.rows["samples"] if row["gpu"] != "GPU-3" or row["mono_ns"] >= ns(9)]
    history.rows["samples"] = late
    history.meta["gpus"][3]["host"] = "node1"
    found = _found(history)
    assert (found.idle_watts, found.idle_ratio) == (None, None)
    assert found.idle_note is not None
    assert "GPU-3 on node1" in found.idle_note
    assert "3.0 s before the launch" in found.idle_note


@given(
    st.lists(st.tuples(st.integers(-20, 120), st.integers(0, 60)), max_size=8),
    st.sets(st.integers(0, 100), min_size=2, max_size=9),
)
def test_turn_time_is_what_each_turn_spends_in_each_cell(turns: list[tuple[int, int]], cuts: set[int]) -> None:
    starts = np.array([start for start, _ in turns], dtype=np.int64)
    ends = np.array([start + length for start, length in turns], dtype=np.int64)
    edges = np.array(sorted(cuts), dtype=np.int64)
    expected = [
        sum(max(0, min(start + length, high) - max(start, low)) for start, length in turns)
        for low, high in pairwise(edges.tolist())
    ]
    assert turn_time(starts, ends, edges).tolist() == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500)), min_size=1, max_size=8),
    st.lists(st.integers(-20, 300), min_size=2, max_size=6),
)
def test_a_setting_held_to_each_instant_is_the_one_held_between_them(
    readings: list[tuple[int, int]], cuts: list[int]
) -> None:
    times = np.cumsum([gap for gap, _ in readings]).astype(np.int64) * 10**9
    series = Series(times, np.array([float(value) for _, value in readings]))
    edges = np.array(sorted(set(cuts)), dtype=np.int64) * 10**9
    parts = np.diff(series.held_until(edges))
    for (low, high), part in zip(pairwise(edges.tolist()), parts, strict=True):
        assert part == pytest.approx(series.held(int(low), int(high)))
