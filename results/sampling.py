"""How far the mean of a sampled quantity may lie from its true mean over the window: what happened between samples.

Samples come one per period, at a random place in it. The window itself is the whole of what is asked for, so slow
change that the samples follow is no error; what changes between two samples is. Its variance is taken from successive
differences (von Neumann, Kent, Bellinson, Hart 1941, "The mean square successive difference", Annals of Mathematical
Statistics 12(2); as the variance of one draw per stratum: Wolter 2007, Introduction to Variance Estimation, 2nd ed.,
section 8.2). For independent samples that is the usual variance; for autocorrelated ones it is smaller, as it should
be, and it does not take a sensor that repeats its value for new knowledge: a change counts for a whole refresh.

How much a quantity varies from step to step is another question: `results.stats.ratio_of_sums` over the steps.
"""

import math
from dataclasses import dataclass

import numpy as np

from results.intervals import Ns
from results.power import Floats, Series, unseen

Z95 = 1.96  # normal quantile: the sum of many small independent errors
FEWEST = 8  # differences; fewer give no variance worth a number


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMean:
    """Time-weighted mean over a window. `half_width`: of its 95 % interval, None with fewer than FEWEST samples.

    `covered`: share of the window in which no gap between samples was too long; the mean is over that share alone.
    """

    value: float | None
    half_width: float | None
    n: int
    covered: float


def half_width(series: Series, refresh_s: float, low: int | None = None, high: int | None = None) -> float | None:
    """Half the width of the 95 % interval of the series' integral (unit s); None with fewer than FEWEST samples.

    `low`, `high`: where only a stretch of it counts, from the sample at or before to the one at or after.
    """
    first = 0 if low is None else max(int(np.searchsorted(series.times, low, side="right")) - 1, 0)
    last = series.times.size if high is None else int(np.searchsorted(series.times, high, side="left")) + 1
    last = min(last, series.times.size)
    if last - first <= FEWEST:
        return None
    total = series.unseen_until(refresh_s)
    return Z95 * math.sqrt(float(total[last - 1] - total[first]))


def unseen_within(series: Series, refresh_s: float, edges: Ns) -> Floats:
    """Variance (unit^2 s^2) of the integral inside each cell of `edges`; what crosses an edge belongs to no cell."""
    if series.times.size < 2 or edges.size < 2:
        return np.zeros(max(edges.size - 1, 0))
    total = series.unseen_until(refresh_s)
    place = np.searchsorted(series.times, edges, side="left")  # of the first sample at or after each edge
    first, last = place[:-1], np.maximum(place[1:] - 1, place[:-1])
    return np.where(last > first, total[last.clip(max=total.size - 1)] - total[first.clip(max=total.size - 1)], 0.0)


def window_mean(series: Series, low: int, high: int, refresh_s: float = 0.0) -> SampledMean:
    """The mean of a sampled quantity over [low, high) ns, left out where two samples lie too far apart."""
    nothing = SampledMean(value=None, half_width=None, n=0, covered=0.0)
    first, last = (int(place) for place in np.searchsorted(series.times, (low, high), side="left"))
    if last - first < 2:
        return nothing
    taken = Series(series.times[first:last], series.values[first:last])
    gaps = np.diff(taken.times) / 1e9
    near = gaps <= max(series.gap_limit_s, 2 * refresh_s)
    seconds = float(gaps[near].sum())
    if not seconds:
        return nothing
    middle = (taken.values[1:] + taken.values[:-1]) / 2
    edge_s = min(float(taken.times[0] - low) / 1e9, series.gap_limit_s)
    edge_s += min(float(high - taken.times[-1]) / 1e9, series.gap_limit_s)
    spread = Z95 * math.sqrt(float(unseen(taken.times, taken.values, refresh_s)[near].sum())) / seconds
    return SampledMean(
        value=float((middle * gaps)[near].sum()) / seconds,
        half_width=spread if near.sum() >= FEWEST else None,
        n=int(taken.times.size),
        covered=min(1.0, (seconds + edge_s) / ((high - low) / 1e9)),
    )
