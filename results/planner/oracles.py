"""What theory says of simple scenarios: the simulator is checked against it, and a reader can check both.

All assume that load slows nothing and that trajectories are independent draws of one law.
"""

import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np

from results.planner.draws import Floats
from results.planner.model import Empirical, Fixed, Law, LogNormal, Mixture, mean_of

_PANELS = 400
_POINTS = 12
_BEYOND = 12.0  # standard deviations of a log-normal's logarithm, past which nothing is left at double precision


def expected_max(law: Law, count: int) -> float:
    """Mean of the longest of `count` independent draws, in seconds: the integral of 1 - F(x)**count from 0 up.

    Gauss-Legendre quadrature in ln x between the law's jumps; exact sums where the law is made of jumps alone.
    """
    return _moment(law, count, 1)


def deviation_of_max(law: Law, count: int) -> float:
    """Standard deviation of the longest of `count` independent draws, in seconds."""
    mean = _moment(law, count, 1)
    return math.sqrt(max(_moment(law, count, 2) - mean * mean, 0.0))


def synchronous_step_s(law: Law, count: int, update_s: float) -> float:
    """Mean seconds of a synchronous step with as many workers as trajectories: the longest, then the update."""
    return expected_max(law, count) + update_s


def synchronous_busy(law: Law, count: int, update_s: float) -> float:
    """Share of the workers' time with a trajectory in such a step (renewal-reward: a ratio of means)."""
    return mean_of(law) / synchronous_step_s(law, count, update_s)


def renewal_rate(law: Law, workers: int, batch: int) -> float:
    """Updates a second when workers never wait and the trainer keeps up: W / (B E[T])."""
    return workers / (batch * mean_of(law))


def asynchronous_rate(law: Law, workers: int, batch: int, update_s: float) -> float:
    """Updates a second without bound: the slower of generation and the trainer, in the long run."""
    rate = renewal_rate(law, workers, batch)
    return min(rate, 1 / update_s) if update_s > 0 else rate


def staleness_at_finish(workers: int, batch: int) -> float:
    """Mean updates during a trajectory, W / B (Little 1961): updates come at W / (B E[T]), and it lasts E[T].

    While the trainer keeps up, and whatever the law of durations.
    """
    return workers / batch


def makespan(durations: Sequence[float], workers: int) -> float:
    """Seconds until the last of a batch ends when each worker takes the next one as it becomes free (Graham 1966)."""
    free = [0.0] * min(workers, max(len(durations), 1))
    for duration in durations:
        heapq.heappushpop(free, free[0] + duration)
    return max(free)


def _moment(law: Law, count: int, power: int) -> float:
    """E[max ** power] = the integral of power x**(power - 1) (1 - F(x)**count)."""
    jumps = sorted(set(_jumps(law)))
    spread = _log_normals(law)
    if not spread:
        total, below = 0.0, 0.0
        for value in jumps:
            at = float(_cdf(law, np.array([value]))[0]) ** count
            total += value**power * (at - below)
            below = at
        return total
    low = min(part.median_s * math.exp(-_BEYOND * part.sigma) for part in spread)
    high = max(part.median_s * math.exp(_BEYOND * part.sigma) for part in spread)
    edges = {math.log(low), math.log(max([high, *jumps]))}
    edges |= {math.log(value) for value in jumps if value > low}
    places, weights = np.polynomial.legendre.leggauss(_POINTS)
    total = low**power  # below it 1 - F**count is 1
    ordered = sorted(edges)
    for left, right in itertools.pairwise(ordered):
        panels: Floats = np.linspace(left, right, _PANELS + 1)
        half = (panels[1:] - panels[:-1])[:, None] / 2
        points: Floats = np.exp((panels[1:] + panels[:-1])[:, None] / 2 + half * places)
        missing = -np.expm1(count * np.log(np.maximum(_cdf(law, points), 1e-300)))
        total += float((half * weights * power * points**power * missing).sum())
    return total


def _log_normals(law: Law) -> list[LogNormal]:
    if isinstance(law, Mixture):
        return [one for _, part in law.parts for one in _log_normals(part)]
    return [law] if isinstance(law, LogNormal) and law.sigma > 0 else []


def _jumps(law: Law) -> list[float]:
    match law:
        case Fixed():
            return [law.seconds]
        case Empirical():
            return list(law.values)
        case LogNormal():
            return [] if law.sigma > 0 else [law.median_s]
        case Mixture():
            return [value for _, part in law.parts for value in _jumps(part)]


def _cdf(law: Law, at: Floats) -> Floats:
    match law:
        case Fixed():
            return (at >= law.seconds).astype(np.float64)
        case Empirical():
            values = np.sort(np.array(law.values))
            found: Floats = np.searchsorted(values, at, side="right") / len(values)
            return found
        case LogNormal():
            if law.sigma == 0:
                return (at >= law.median_s).astype(np.float64)
            scaled = np.log(at / law.median_s) / (law.sigma * math.sqrt(2))
            upper: Floats = np.vectorize(math.erfc, otypes=[np.float64])(-scaled)
            return upper / 2
        case Mixture():
            total = sum(weight for weight, _ in law.parts)
            mixed: Floats = np.zeros(at.shape)
            for weight, part in law.parts:
                mixed += weight / total * _cdf(part, at)
            return mixed
