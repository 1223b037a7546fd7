"""One sensor's readings of one GPU, and the joules between two instants by three ways of knowing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from results.intervals import Ns
from results.stats import dot

GAP_PERIODS = 10.0  # a gap longer than so many sample periods (and than GAP_S) hides what happened in it
GAP_S = 1.0
PIECE = 2**15  # readings that are worked on at once

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Readings in order of time; `times` in monotonic ns, `values` in the sensor's unit.

    What several figures need of all readings is worked out once, and kept.
    """

    times: Ns
    values: Floats
    _unseen: dict[float, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, times: Ns, values: Floats) -> "Series":
        """The readings that are there (finite), sorted, the last of those at one instant kept."""
        known = np.isfinite(values)
        if known.all() and (times[1:] > times[:-1]).all():
            return cls(times, values)
        order = np.argsort(times[known], kind="stable")
        t, v = times[known][order], values[known][order]
        keep = np.concatenate((t[1:] != t[:-1], [True])) if t.size else np.zeros(0, dtype=np.bool_)
        return cls(t[keep], v[keep])

    def shifted(self, ns: int) -> "Series":
        """The same readings, moved in time."""
        return Series(self.times + ns, self.values)

    @cached_property
    def period_s(self) -> float:
        """Median time between readings; 0 with fewer than two."""
        return float(np.median(np.diff(self.times), overwrite_input=True)) / 1e9 if self.times.size > 1 else 0.0

    def share_times(self, *others: "Series") -> None:
        """Gives others what is known of the times, where theirs are the very same."""
        for other in others:
            if other.times is self.times and other is not self:
                vars(other)["period_s"] = self.period_s

    @property
    def gap_limit_s(self) -> float:
        """The longest acceptable time between two readings."""
        return max(GAP_S, GAP_PERIODS * self.period_s)

    def around(self, low: int, high: int) -> "Series | None":
        """From the last reading at or before `low` to the first at or after `high`; None when one is missing."""
        if self.times.size == 0 or self.times[0] > low or self.times[-1] < high:
            return None
        first = int(np.searchsorted(self.times, low, side="right")) - 1
        last = int(np.searchsorted(self.times, high, side="left"))
        return Series(self.times[first : last + 1], self.values[first : last + 1])

    def longest_gap_s(self) -> float:
        """The longest time between two readings."""
        gaps = (np.diff(self.times[first : last + 1]).max() for first, last in _pieces(self.times.size))
        return float(max(gaps, default=0)) / 1e9

    def edge_gap_s(self, low: int, high: int) -> float:
        """The longer of the times between the readings around `low` and around `high`."""
        gaps = [0.0]
        for at in (low, high):
            before = int(np.searchsorted(self.times, at, side="right")) - 1
            after = int(np.searchsorted(self.times, at, side="left"))
            gaps.append(float(self.times[after] - self.times[before]) / 1e9)
        return max(gaps)

    def at(self, times: Ns) -> Floats:
        """Values at instants, linear between readings and constant beyond the first and last."""
        if self.times.size == 0:
            return np.full(times.shape, np.nan)
        return self._at(times, np.searchsorted(self.times, times, side="right") - 1)

    def _at(self, times: Ns, before: Ns) -> Floats:
        """The same; `before`: the last reading at or before each instant, -1 where there is none."""
        last = self.times.size - 1
        cell, after = np.clip(before, 0, last), np.clip(before + 1, 0, last)
        # Only the readings around are looked at: np.interp would first make floats of all the times.
        here, span = self.values[cell], self.times[after] - self.times[cell]
        slope = (self.values[after] - here) / np.maximum(span, 1)
        return np.where(span > 0, slope * (times - self.times[cell]) + here, here)

    @cached_property
    def _trapezoids(self) -> Floats:
        """The integral (unit x s) from the first reading to each."""
        whole = np.zeros(self.times.size)
        for first, last in _pieces(self.times.size):
            area = np.diff(self.times[first : last + 1]) / 1e9
            area *= self.values[first + 1 : last + 1] + self.values[first:last]
            area /= 2
            area[0] += whole[first]
            np.cumsum(area, out=whole[first + 1 : last + 1])
        return whole

    def integral(self, times: Ns) -> Floats:
        """The integral (unit x s) from the first reading to each of `times`: the trapezoid, cut inside its cells."""
        before = np.searchsorted(self.times, times, side="right") - 1
        cell = np.clip(before, 0, self.times.size - 1)
        inside = (times - self.times[cell]) / 1e9
        cut = inside * (self.values[cell] + self._at(times, before)) / 2
        return np.asarray(self._trapezoids[cell] + cut, dtype=np.float64)

    def sum_up(self, refresh_s: float) -> None:
        """Works out now what `integral` and `unseen_until` keep."""
        if self.times.size:
            self.integral(self.times[:1])
            self.unseen_until(refresh_s)

    def unseen_until(self, refresh_s: float) -> Floats:
        """Variance (unit^2 s^2) of the integral from the first reading to each: the sum of `unseen`."""
        if refresh_s not in self._unseen:
            whole = np.zeros(self.times.size)
            for first, last in _pieces(self.times.size):
                found = unseen(self.times[first : last + 1], self.values[first : last + 1], refresh_s)
                found[0] += whole[first]
                np.cumsum(found, out=whole[first + 1 : last + 1])
            self._unseen[refresh_s] = whole  # not before it is whole: another thread may ask, or this be interrupted
        return self._unseen[refresh_s]

    def held_until(self, times: Ns) -> Floats:
        """The integral (unit x s) of a setting from the first reading to each of `times`: readings hold until the next.

        Before the first reading its value held already (and counts below 0).
        """
        whole = np.concatenate(([0.0], np.cumsum(np.diff(self.times) / 1e9 * self.values[:-1])))
        cell = np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, self.times.size - 1)
        return np.asarray(whole[cell] + (times - self.times[cell]) / 1e9 * self.values[cell], dtype=np.float64)

    def held(self, low: int, high: int) -> float | None:
        """The integral (unit x s) over [low, high) of a setting: each reading holds until the next."""
        if self.times.size == 0 or high <= low:
            return None
        edges = np.concatenate(([low], np.clip(self.times[1:], low, high), [high]))
        return dot(self.values, np.diff(edges) / 1e9)


def unseen(times: Ns, values: Floats, refresh_s: float) -> Floats:
    """Variance (unit^2 s^2) of the integral between each two neighbouring readings: see `results.sampling`."""
    found = np.diff(times) / 1e9
    np.maximum(found, refresh_s, out=found)
    found *= found
    change = np.diff(values)
    change *= change
    found *= change
    found /= 2
    return found


def _pieces(readings: int) -> Iterator[tuple[int, int]]:
    """The first and last reading of each piece; neighbouring ones share a reading.

    What is made of a piece on the way stays in the processor's cache. A day of readings does not, and the system would
    first have to find memory for each array of them.
    """
    for first in range(0, readings - 1, PIECE):
        yield first, min(first + PIECE, readings - 1)
