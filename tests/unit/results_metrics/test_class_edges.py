"""How far the joules of a class may be off at its edges, where readings come at random within their slots."""

import numpy as np
import pytest

from results.gpu_energy import edge_doubt
from results.power import Series

LOW_W, HIGH_W = 100.0, 500.0
S = 1_000_000_000


def read(rng: np.random.Generator, rise_s: float, *, refresh_s: float, period_s: float) -> Series:
    """A rise of power, by a sensor with such a refresh, read once at random in each slot."""
    times = (np.arange(0.0, 20.0, period_s) + rng.uniform(0, period_s, round(20 / period_s))) * S
    phase = rng.uniform(0, refresh_s)
    sensed_s = np.floor((times / S - phase) / refresh_s) * refresh_s + phase  # when what is shown was measured
    return Series(times.astype(np.int64), np.where(sensed_s >= rise_s, HIGH_W, LOW_W))


@pytest.mark.parametrize(("refresh_s", "period_s"), [(0.1, 0.1), (0.02, 0.1), (1.0, 1.0)])
def test_the_doubt_covers_how_late_and_how_far_apart_readings_are(refresh_s: float, period_s: float) -> None:
    rng = np.random.default_rng(1)
    inside, by_half_a_refresh, told = 0, 0, []
    tries = 1_000
    for _ in range(tries):
        rise_s = float(rng.uniform(9.0, 11.0))
        power = read(rng, rise_s, refresh_s=refresh_s, period_s=period_s)
        edges = np.array([3.0, rise_s, 17.0]) * S
        before_it, after_it = np.diff(power.integral(edges.astype(np.int64)))
        off = max(abs(before_it - LOW_W * (rise_s - 3.0)), abs(after_it - HIGH_W * (17.0 - rise_s)))
        # What the account calls the refresh is never less than the time between two readings.
        (doubt, _) = edge_doubt(power, max(refresh_s, period_s), edges.astype(np.int64))
        inside += off <= doubt
        by_half_a_refresh += off <= (HIGH_W - LOW_W) * max(refresh_s, period_s) / 2
        told.append(doubt)
    assert inside == tries
    assert by_half_a_refresh <= 0.8 * tries  # half a refresh alone would not do
    assert max(told) <= 2.0 * (HIGH_W - LOW_W) * max(refresh_s, period_s)  # and it still says something


def test_a_steady_power_has_no_doubt_at_its_edges() -> None:
    times = np.arange(0, 10 * S, S // 10)
    assert edge_doubt(Series(times, np.full(times.size, 300.0)), 0.1, np.array([S, 5 * S, 9 * S])).tolist() == [
        0.0,
        0.0,
    ]


def test_one_reading_has_no_gap() -> None:
    power = Series(np.array([S]), np.array([300.0]))
    assert edge_doubt(power, 0.1, np.array([0, S, 2 * S])).tolist() == [0.0, 0.0]
