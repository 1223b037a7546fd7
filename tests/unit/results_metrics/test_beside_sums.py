"""What a series keeps of its readings: only what is whole, and good enough where its sums have grown large."""

import math

import numpy as np
import pytest

from results import power
from results.intervals import Ns
from results.power import PIECE, Floats, Series
from results.sampling import Z95, half_width


def test_sums_that_were_not_finished_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    times, values = np.arange(3 * PIECE, dtype=np.int64) * 100_000_000, rng.normal(400.0, 90.0, 3 * PIECE)
    whole = Series(times, values).unseen_until(0.1)
    series, unseen, calls = Series(times, values), power.unseen, 0

    def full(times: Ns, values: Floats, refresh_s: float) -> Floats:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError
        return unseen(times, values, refresh_s)

    monkeypatch.setattr(power, "unseen", full)
    with pytest.raises(MemoryError):
        series.unseen_until(0.1)
    np.testing.assert_array_equal(series.unseen_until(0.1), whole)


@pytest.mark.parametrize("silent_s", [0, 3_600, 86_400])
def test_what_was_wild_before_the_window_moves_its_interval_by_next_to_nothing(silent_s: int) -> None:
    """A day of jumps at each reading, then silence, then a quiet window: its variance is a difference of large sums."""
    rng = np.random.default_rng(8)
    before, inside = 864_000, 6_000
    times = np.arange(before + inside, dtype=np.int64) * 100_000_000
    times[before:] += silent_s * 10**9
    low, high = int(times[before]), int(times[-1])
    joules = 400.0 * (high - low) / 1e9
    wild = 700.0 * (np.arange(before) % 2)
    for noise_w in (0.0, 0.001, 0.1, 1.0, 5.0):
        quiet = 400.0 + rng.normal(0.0, noise_w, inside)
        direct = Z95 * math.sqrt(float(power.unseen(times[before:], quiet, 0.1).sum()))
        found = half_width(Series(times, np.concatenate((wild, quiet))), 0.1, low, high)
        assert found is not None
        assert abs(found - direct) <= 1e-4 * joules
        assert noise_w or found == 0.0  # a constant load has no variance, whatever was before
