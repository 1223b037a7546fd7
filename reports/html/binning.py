"""Many readings as few bins, honestly: the least, the mean and the most of each bin are kept; an empty bin is unknown.

All functions take the bins' edges (ns, ascending, one more than there are bins); a bin holds what lies in
[edge, next edge), the last one its end too.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from results.intervals import Ns, Timeline, level

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Per bin: how many readings, and their least, mean and most; NaN where there are none."""

    n: npt.NDArray[np.int64]
    low: Floats
    mean: Floats
    high: Floats


def even_edges(start_ns: int, end_ns: int, bins: int) -> Ns:
    """Edges of bins of equal length (to the ns).

    Raises:
        ValueError: no time, or no bin.
    """
    if end_ns <= start_ns or bins < 1:
        raise ValueError(f"bins = {bins} of [{start_ns}, {end_ns}): needs at least one bin, and some time")
    steps = np.arange(bins + 1, dtype=np.float64) * ((end_ns - start_ns) / bins)
    edges = start_ns + np.round(steps).astype(np.int64)
    edges[-1] = end_ns
    return np.unique(edges)


def bin_readings(times: Ns, values: Floats, edges: Ns) -> Bins:
    """Readings by bin. The mean is of readings, each counted once; readings that are NaN, or outside, are left out."""
    count = edges.size - 1
    keep = ~np.isnan(values) & (times >= edges[0]) & (times <= edges[-1])
    at, known = _bin_of(times[keep], edges), values[keep]
    n = np.bincount(at, minlength=count).astype(np.int64)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, at, known)
    np.maximum.at(high, at, known)
    sums = np.bincount(at, weights=known, minlength=count)
    empty = n == 0
    low[empty] = high[empty] = np.nan
    mean = np.divide(sums, n, out=np.full(count, np.nan), where=~empty)
    return Bins(n=n, low=low, mean=np.clip(mean, low, high), high=high)  # rounding of a sum leads nowhere else


def bin_counts(starts: Ns, ends: Ns, edges: Ns) -> Bins:
    """How many of those intervals are open: least and most at any instant of a bin, and the mean over its time.

    Every instant is known, so no bin is empty; `n` is the instants in the bin at which the count changed.
    """
    low_ns, high_ns = int(edges[0]), int(edges[-1])
    keep = (ends > starts) & (ends > low_ns) & (starts < high_ns)
    s, e = np.maximum(starts[keep], low_ns), np.minimum(ends[keep], high_ns)
    grid = _ascending(np.concatenate((edges, s, e)))
    height = level(s, e, grid).astype(np.float64)
    first = np.searchsorted(grid, edges[:-1])  # each bin begins at a point of the grid
    weight = np.concatenate(([0.0], np.cumsum(height * np.diff(grid))))
    means = np.diff(weight[np.searchsorted(grid, edges)]) / np.diff(edges)
    low, high = np.minimum.reduceat(height, first), np.maximum.reduceat(height, first)
    changes = np.diff(np.concatenate((first, [height.size]))) - 1
    return Bins(n=changes.astype(np.int64), low=low, mean=np.clip(means, low, high), high=high)


def bin_shares(timeline: Timeline, edges: Ns, codes: int) -> Floats:
    """Share of each bin that carries each code below `codes`, shape (codes, bins).

    Sums to the part of the bin that the timeline covers: 1 inside it, 0 outside.
    """
    count = edges.size - 1
    points = _ascending(np.concatenate((timeline.edges, edges)))
    points = points[(points >= timeline.edges[0]) & (points <= timeline.edges[-1])]
    points = points[(points >= edges[0]) & (points <= edges[-1])]
    shares = np.zeros((codes, count))
    if points.size < 2:
        return shares
    at = _bin_of(points[:-1], edges)
    code = timeline.at(points).astype(np.int64)
    np.add.at(shares, (code, at), np.diff(points).astype(np.float64))
    return shares / np.diff(edges)


def _ascending(times: Ns) -> Ns:
    """Each time once, in order. (np.unique hashes large arrays: ten times slower.)"""
    every = np.sort(times)
    return every[np.concatenate(([True], every[1:] != every[:-1]))]


def _bin_of(times: Ns, edges: Ns) -> npt.NDArray[np.int64]:
    return np.clip(np.searchsorted(edges, times, side="right") - 1, 0, edges.size - 2).astype(np.int64)
