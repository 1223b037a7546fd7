"""Series that are worked on piece by piece: the same numbers, to the last bit, as of all readings at once."""

import numpy as np
import pytest

from results.power import PIECE, Series, unseen


@pytest.mark.parametrize("readings", [0, 1, 2, 3, PIECE - 1, PIECE, PIECE + 1, PIECE + 2, 2 * PIECE + 1, 3 * PIECE + 7])
def test_no_piece_is_left_out_and_none_counts_twice(readings: int) -> None:
    rng = np.random.default_rng(readings)
    times = np.cumsum(rng.integers(20_000_000, 180_000_000, readings))
    values = rng.normal(400.0, 90.0, readings)
    gaps = np.diff(times) / 1e9
    whole = np.concatenate((np.zeros(min(readings, 1)), np.cumsum((values[1:] + values[:-1]) * gaps / 2)))
    if readings:
        np.testing.assert_array_equal(Series(times, values).integral(times), whole)
    variance = np.maximum(gaps, 0.1) ** 2 * np.diff(values) ** 2 / 2
    np.testing.assert_allclose(unseen(times, values, 0.1), variance, rtol=1e-14)
    if readings:
        told = Series(times, values).unseen_until(0.1)
        np.testing.assert_allclose(told, np.concatenate(([0.0], np.cumsum(variance))), rtol=1e-12)
    assert Series(times, values).longest_gap_s() == max(gaps, default=0.0)
