"""Bins keep the least, the mean and the most of what they hold; against sums by hand, and on random histories."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.html.binning import bin_counts, bin_readings, bin_shares, even_edges
from results.intervals import Timeline


def edges(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_edges_are_even_and_end_where_they_should() -> None:
    made = even_edges(5, 105, 4)
    assert made.tolist() == [5, 30, 55, 80, 105]
    assert even_edges(0, 3, 10).tolist() == [0, 1, 2, 3]  # no bin is shorter than a ns
    with pytest.raises(ValueError, match="at least one bin"):
        even_edges(5, 5, 4)


def test_readings_keep_least_mean_and_most() -> None:
    times = edges(0, 1, 9, 10, 19, 20, 35)
    values = np.array([3.0, 700.0, 2.0, 5.0, np.nan, 8.0, 9.0])
    bins = bin_readings(times, values, edges(0, 10, 20, 30))
    assert bins.n.tolist() == [3, 1, 1]
    assert bins.low.tolist() == [2.0, 5.0, 8.0]
    assert bins.high.tolist() == [700.0, 5.0, 8.0]  # one reading's peak is not averaged away
    assert bins.mean == pytest.approx([705 / 3, 5.0, 8.0])


def test_an_empty_bin_is_unknown_and_not_zero() -> None:
    bins = bin_readings(edges(1), np.array([4.0]), edges(0, 10, 20))
    assert bins.n.tolist() == [1, 0]
    assert np.isnan([bins.low[1], bins.mean[1], bins.high[1]]).all()
    nothing = bin_readings(edges(), np.array([]), edges(0, 10))
    assert nothing.n.tolist() == [0]
    assert np.isnan(nothing.mean[0])


def test_counts_know_every_instant() -> None:
    # Two intervals that touch, a third within the first bin alone, and one that never begins inside.
    bins = bin_counts(edges(0, 10, 2, 50), edges(10, 25, 4, 60), edges(0, 10, 20, 30))
    assert bins.low.tolist() == [1.0, 1.0, 0.0]
    assert bins.high.tolist() == [2.0, 1.0, 1.0]
    assert bins.mean == pytest.approx([1.2, 1.0, 0.5])


intervals = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100)), max_size=40)


@given(intervals, st.integers(1, 17))
def test_counts_against_every_ns(some: list[tuple[int, int]], count: int) -> None:
    starts = edges(*(start for start, _ in some))
    ends = edges(*(start + length for start, length in some))
    cuts = even_edges(20, 320, count)
    bins = bin_counts(starts, ends, cuts)
    level = np.array([sum(start <= at < end for start, end in zip(starts, ends, strict=True)) for at in range(20, 320)])
    for place, (low, high) in enumerate(zip(cuts[:-1] - 20, cuts[1:] - 20, strict=True)):
        inside = level[low:high]
        assert (bins.low[place], bins.high[place]) == (inside.min(), inside.max())
        assert bins.mean[place] == pytest.approx(inside.mean())


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=60), st.integers(1, 9))
def test_readings_against_each_bin(values: list[float], count: int) -> None:
    times = np.arange(len(values), dtype=np.int64) * 7
    cuts = even_edges(0, int(times[-1]) + 1, min(count, int(times[-1]) + 1))
    bins = bin_readings(times, np.array(values), cuts)
    assert int(bins.n.sum()) == len(values)
    assert np.nanmin(bins.low) == min(values)
    assert np.nanmax(bins.high) == max(values)
    known = bins.n > 0
    assert (bins.low[known] <= bins.mean[known]).all()
    assert (bins.mean[known] <= bins.high[known]).all()
    assert float((bins.mean[known] * bins.n[known]).sum()) == pytest.approx(sum(values), abs=1e-3)


def test_shares_sum_to_what_the_timeline_covers() -> None:
    line = Timeline(edges(5, 12, 18, 25), np.array([0, 2, 0], dtype=np.int8))
    shares = bin_shares(line, edges(0, 10, 20, 30), 3)
    assert shares.shape == (3, 3)
    assert shares[0].tolist() == [0.5, 0.4, 0.5]
    assert shares[1].tolist() == [0.0, 0.0, 0.0]
    assert shares[2].tolist() == [0.0, 0.6, 0.0]
    assert shares.sum(axis=0).tolist() == [0.5, 1.0, 0.5]
