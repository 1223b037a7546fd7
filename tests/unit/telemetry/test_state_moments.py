"""When utilisation is read: evenly at all phases of a load that repeats in its period, by many GPUs at once."""

from itertools import pairwise

from harness.telemetry.reader import STATE_PERIOD_S, state_after

PERIOD_NS = round(STATE_PERIOD_S * 1e9)
BEGIN_NS = 86_400_000_123_456  # a machine that has been up for a day
TICK_NS = 100_000_000


def moments(index, count, late_ns=0):
    found, at = [], BEGIN_NS
    for _ in range(count):
        at = state_after(at, index)
        found.append(at)
        at += late_ns
    return found


def test_it_is_read_once_a_period_and_at_all_phases():
    at = moments(0, 200)
    assert at[-1] - at[0] == sum(b - a for a, b in pairwise(at))
    assert abs((at[-1] - at[0]) / PERIOD_NS - 199) < 1
    phases = sorted(one % PERIOD_NS / PERIOD_NS for one in at)
    assert max(b - a for a, b in pairwise([0.0, *phases, 1.0])) < 2.7 / 200


def test_two_are_further_apart_than_a_tick_and_nearer_than_two_periods():
    gaps = [b - a for a, b in pairwise(moments(1, 500))]
    assert min(gaps) > 1.5 * TICK_NS
    assert max(gaps) < 2 * PERIOD_NS


def test_every_other_gpu_has_it_at_the_same_time():
    assert moments(0, 20) == moments(2, 20)
    assert moments(1, 20) == moments(7, 20)
    assert not set(moments(0, 20)) & set(moments(1, 20))


def test_one_that_comes_late_is_due_once_and_not_for_each_that_it_missed():
    late = moments(0, 10, late_ns=3 * PERIOD_NS)
    assert all(b - a > 3 * PERIOD_NS for a, b in pairwise(late))
