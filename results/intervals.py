"""Stretches of time as pairs of arrays (starts, ends), in ns, half open: what is counted, covered and overlapped.

All functions are vectorised: a run has millions of turns.
"""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
NO_NS: Ns = np.empty(0, dtype=np.int64)


def clip(starts: Ns, ends: Ns, low: int, high: int) -> tuple[Ns, Ns]:
    """The parts of the intervals inside [low, high); those outside are dropped."""
    s, e = np.maximum(starts, low), np.minimum(ends, high)
    keep = e > s
    return s[keep], e[keep]


def merge(starts: Ns, ends: Ns) -> tuple[Ns, Ns]:
    """The union of intervals, as sorted intervals that do not touch."""
    keep = ends > starts
    s, e = starts[keep], ends[keep]
    if s.size == 0:
        return NO_NS, NO_NS
    order = np.argsort(s, kind="stable")
    s, e = s[order], e[order]
    reach = np.maximum.accumulate(e)
    first = np.concatenate(([True], s[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return s[first], reach[last]


def covered(starts: Ns, ends: Ns, times: Ns) -> Ns:
    """How much of the union of intervals lies before each of `times`, in ns."""
    s, e = merge(starts, ends)
    if s.size == 0:
        return np.zeros(times.shape, dtype=np.int64)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(e - s)))
    index = np.searchsorted(s, times, side="right")
    last = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.maximum(e[last] - times, 0), 0)
    return np.asarray(total[index] - over, dtype=np.int64)


def overlap(starts: Ns, ends: Ns, others: tuple[Ns, Ns]) -> Ns:
    """How much of each interval is covered by the union of `others`, in ns."""
    return covered(*others, ends) - covered(*others, starts)


def covered_cells(edges: Ns, others: tuple[Ns, Ns]) -> Ns:
    """How much of each cell between neighbouring `edges` is covered by the union of `others`, in ns."""
    return np.diff(covered(*others, edges))


def level(starts: Ns, ends: Ns, grid: Ns) -> Ns:
    """How many intervals are open in each cell [grid[i], grid[i + 1]).

    `grid` is sorted and holds every start and end that lies within it.
    """
    keep = ends > starts
    change = _at(starts[keep], grid) - _at(ends[keep], grid)
    return np.asarray(np.cumsum(change), dtype=np.int64)


def _at(times: Ns, grid: Ns) -> Ns:
    """How many of `times` lie at the begin of each cell; the first cell's holds all before it.

    Times are looked up in the grid, not the grid in them: it is made of many kinds of times, each far fewer.
    """
    return np.bincount(np.searchsorted(grid, times), minlength=grid.size)[: grid.size - 1]


def grid_of(low: int, high: int, *times: Ns) -> Ns:
    """The sorted boundaries within [low, high], both ends included."""
    parts = [t[(t > low) & (t < high)] for t in times]
    every = np.sort(np.concatenate([np.array([low, high], dtype=np.int64), *parts]))
    return every[np.concatenate(([True], every[1:] != every[:-1]))]  # np.unique hashes: ten times slower


@dataclass(frozen=True, slots=True)
class Timeline:
    """One code for every instant: code `codes[i]` holds in [edges[i], edges[i + 1]) (ns)."""

    edges: Ns
    codes: Codes

    def at(self, grid: Ns) -> Codes:
        """The code in each cell of a finer grid that holds every edge between its own ends."""
        begins = np.searchsorted(grid[:-1], self.edges[1:-1])
        cells = np.diff(begins, prepend=0, append=grid.size - 1)
        return np.repeat(self.codes, cells)

    def seconds(self, codes: int) -> npt.NDArray[np.float64]:
        """Seconds of each code below `codes`."""
        return np.bincount(self.codes, weights=np.diff(self.edges).astype(np.float64), minlength=codes) / 1e9

    def where(self, *codes: int) -> tuple[Ns, Ns]:
        """The stretches that carry one of the codes, merged."""
        hit = np.isin(self.codes, codes)
        return merge(self.edges[:-1][hit], self.edges[1:][hit])

    def merged(self) -> "Timeline":
        """The same timeline without edges between equal codes."""
        change = np.concatenate(([True], self.codes[1:] != self.codes[:-1]))
        return Timeline(np.concatenate((self.edges[:-1][change], self.edges[-1:])), self.codes[change])


@dataclass(frozen=True, slots=True)
class Innermost:
    """The timeline of the leaf that started last, and the defects found on the way."""

    timeline: Timeline
    overlaps: int  # leaves that began while another leaf of the same process was open
    overlap_s: float  # seconds named more than once


def innermost(starts: Ns, ends: Ns, codes: Codes, low: int, high: int, nothing: int) -> Innermost:
    """Which interval names each instant of [low, high): of those open, the one that started last.

    Instants in no interval carry the code `nothing`. Of two that start together the one that ends first is inside.
    """
    keep = (np.minimum(ends, high) > np.maximum(starts, low)) & (ends > starts)
    s, e, c = starts[keep], ends[keep], codes[keep]
    order = np.lexsort((-e, s))
    s, e, c = np.maximum(s[order], low), np.minimum(e[order], high), c[order]
    if s.size == 0:
        whole = Timeline(np.array([low, high], dtype=np.int64), np.array([nothing], dtype=np.int8))
        return Innermost(whole, 0, 0.0)
    nested = s[1:] < np.maximum.accumulate(e)[:-1]
    union_s, union_e = merge(s, e)
    twice = float((e - s).sum() - (union_e - union_s).sum()) / 1e9
    grid = grid_of(low, high, s, e)
    if not nested.any():
        cell = np.searchsorted(s, grid[:-1], side="right") - 1
        inside = (cell >= 0) & (grid[:-1] < e[np.maximum(cell, 0)])
        painted = np.where(inside, c[np.maximum(cell, 0)], nothing).astype(np.int8)
    else:
        painted = np.full(grid.size - 1, nothing, dtype=np.int8)
        heap: list[tuple[int, int]] = []  # (-order, end): the latest start on top
        upcoming = 0
        for i, at in enumerate(grid[:-1].tolist()):
            while upcoming < s.size and s[upcoming] <= at:
                heapq.heappush(heap, (-upcoming, int(e[upcoming])))
                upcoming += 1
            while heap and heap[0][1] <= at:
                heapq.heappop(heap)
            if heap:
                painted[i] = c[-heap[0][0]]
    return Innermost(Timeline(grid, painted).merged(), int(nested.sum()), twice)
