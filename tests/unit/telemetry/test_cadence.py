"""Ticks and refresh periods, on a clock of the test's own."""

import random
from itertools import pairwise

import pytest

from harness.telemetry.cadence import Ticks, poll, refresh_of

MS = 1_000_000
PERIOD_NS = 100 * MS


def ticks_until(end_ns: int, seed: int) -> list[int]:
    ticks, at, now = Ticks(0.1, 0, random.Random(seed)), [], 0
    while now < end_ns:
        now = ticks.next(now)
        at.append(now)
    return at


def test_one_tick_falls_into_each_period():
    at = ticks_until(1000 * PERIOD_NS, seed=1)
    assert [t // PERIOD_NS for t in at] == list(range(len(at)))
    assert len(at) in (1000, 1001)


def test_a_workload_in_phase_with_the_period_is_seen_at_all_its_phases():
    # 700 W in the first quarter of each 100 ms, 200 W else: 325 W on average.
    def watts(t: int) -> int:
        return 700 if t % PERIOD_NS < PERIOD_NS // 4 else 200

    regular = [watts(n * PERIOD_NS) for n in range(2000)]
    assert sum(regular) / len(regular) == 700  # what the jitter is for
    seen = [watts(t) for t in ticks_until(2000 * PERIOD_NS, seed=2)]
    assert sum(seen) / len(seen) == pytest.approx(325, rel=0.05)


def test_late_ticks_are_skipped_and_not_bunched():
    ticks = Ticks(0.1, 0, random.Random(3))
    now, at = 0, []
    for turn in range(200):
        now = ticks.next(now)
        at.append(now)
        if turn % 10 == 0:
            now += 730 * MS  # a call that took long
    assert all(b // PERIOD_NS > a // PERIOD_NS for a, b in pairwise(at))  # never two in a period
    assert ticks.skipped >= 20 * 6
    assert ticks.drawn == 200
    assert ticks.drawn + ticks.skipped == at[-1] // PERIOD_NS + 1  # each period was used or skipped


def test_a_tick_is_never_in_the_past():
    ticks, now = Ticks(0.1, 0, random.Random(4)), 0
    for _ in range(500):
        due = ticks.next(now)
        assert due >= now
        now = due + 130 * MS


def counter(refresh_ns: int, *, step_ns: int, duration_ns: int, repeat: int = 1) -> list[tuple[int, float | None]]:
    """Polls of a counter that takes a new value every `refresh_ns`; `repeat`-th values are left equal."""
    polls: list[tuple[int, float | None]] = []
    for at in range(7 * MS, duration_ns, step_ns):
        n = at // refresh_ns
        polls.append((at, float(n - (n % repeat == 1 if repeat > 1 else 0))))
    return polls


@pytest.mark.parametrize("refresh_ms", [10, 20, 25, 100, 166, 250])
def test_the_refresh_period_is_found(refresh_ms):
    found = refresh_of(counter(refresh_ms * MS, step_ns=2 * MS, duration_ns=1500 * MS))
    assert found.period_s == pytest.approx(refresh_ms / 1000, rel=0.03)
    assert found.resolution_s == pytest.approx(0.002)
    assert found.reason is None


def test_refreshes_that_left_the_value_equal_do_not_stretch_the_period():
    polls = counter(50 * MS, step_ns=2 * MS, duration_ns=1500 * MS, repeat=5)
    assert refresh_of(polls).period_s == pytest.approx(0.05, rel=0.03)


def test_a_period_that_cannot_be_seen_is_none_with_the_reason():
    assert "changed 0 times" in str(refresh_of([(n * MS, 5.0) for n in range(500)]).reason)
    every = refresh_of([(n * MS, float(n)) for n in range(500)])
    assert every.period_s is None
    assert "new at each poll" in str(every.reason)
    assert refresh_of([(n * MS, None) for n in range(500)]).reason == "not readable"
    assert refresh_of([]).period_s is None


def test_a_poll_ends_when_the_sampler_is_told_to_stop():
    now = 0

    def wait(seconds: float) -> bool:
        nonlocal now
        now += round(seconds * 1e9)
        return now > 50 * MS

    series = poll(lambda: [(now, 1.0), (now, None)], duration_s=9, step_s=0.01, wait=wait, now_ns=lambda: now)
    assert [len(points) for points in series] == [6, 6]
