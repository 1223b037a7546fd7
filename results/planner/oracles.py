"""What theory says of simple scenarios: the simulator is checked against it, and a reader can check both.

All assume that load slows nothing and that trajectories are independent draws of one law.
"""

import heapq
import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from results.planner.draws import Floats
from results.planner.model import (
    Composed,
    Empirical,
    Fixed,
    InFlight,
    Law,
    LogNormal,
    Mixture,
    Mode,
    Scenario,
    mean_duration,
    mean_of,
)

_PANEL = 0.25  # standard deviations of a log-normal's logarithm: a panel's width
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


def trainer_load(scenario: Scenario) -> float | None:
    """Trajectories that end while the trainer works on a batch, over those it takes; above 1 they pile up without end.

    update_s x W / (B E[T]) in the workshop. None where something bounds what starts, or there is no closed form: tools
    beside a pool that load slows or a sync pauses, and syncs that wait for what is in flight.
    """
    policy, pools, law = scenario.policy, scenario.pools, scenario.durations
    if policy.mode is not Mode.ASYNC or policy.max_staleness is not None or policy.in_flight is InFlight.WAIT:
        return None
    work_s = mean_of(pools.logprob) + mean_of(pools.train)
    sync_s = mean_of(pools.pause) + mean_of(pools.transfer) + mean_of(pools.resume)
    tools = isinstance(law, Composed) and max(law.turns) > 1 and mean_of(law.tool) > 0
    pauses = policy.in_flight is InFlight.PARTIAL and sync_s > 0
    if tools and (pauses or not pools.slow_down.flat):
        return None
    lasts_s = mean_duration(law)
    if not pools.slow_down.flat:  # without tools all workers generate, always
        lasts_s *= pools.slow_down.at(pools.workers / pools.engines)
    making_s = work_s if pauses else work_s + sync_s
    return pools.workers * making_s / (scenario.trajectories_per_step * lasts_s)


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
    if isinstance(law, LogNormal):  # of all medians the same but for the scale
        return law.median_s**power * _unit_moment(law.sigma, count, power)
    return _integral(law, count, power)


@lru_cache(maxsize=4096)
def _unit_moment(sigma: float, count: int, power: int) -> float:
    return _integral(LogNormal(1.0, sigma), count, power)


def _integral(law: Law, count: int, power: int) -> float:
    jumps = sorted(set(_jumps(law)))
    spread = _log_normals(law)
    if not spread:
        total, below = 0.0, 0.0
        for value in jumps:
            at = float(1 - _above(law, np.array([value]))[0]) ** count
            total += value**power * (at - below)
            below = at
        return total
    low = min(_part_edges(part, power)[0] for part in spread)
    # Below the first log-normal F moves at jumps alone: exact rectangles.
    steps = [0.0, *(value for value in jumps if 0 < value < low), low]
    total = 0.0
    for left, right in itertools.pairwise(steps):
        total += float(_missing(law, count, np.array([left]))[0]) * (right**power - left**power)
    edges = {math.log(edge) for part in spread for edge in _part_edges(part, power)}
    edges |= {math.log(value) for value in jumps if value > low}
    ordered: Floats = np.array(sorted(edges))
    places, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = (ordered[1:] - ordered[:-1])[:, None] / 2
    points: Floats = np.exp((ordered[1:] + ordered[:-1])[:, None] / 2 + half * places)
    return total + float((half * weights * power * points**power * _missing(law, count, points)).sum())


def _part_edges(part: LogNormal, power: int) -> list[float]:
    """Where a log-normal's panels meet, in seconds: `_PANEL` deviations wide, so that none steps over its rise.

    E[x ** power] is made of values about power x sigma deviations up, so that far they go.
    """
    steps = math.ceil((2 * _BEYOND + power * part.sigma) / _PANEL)
    return [part.median_s * math.exp((step * _PANEL - _BEYOND) * part.sigma) for step in range(steps + 1)]


def _missing(law: Law, count: int, at: Floats) -> Floats:
    """1 - F(x)**count, exact where F is almost 1."""
    above = _above(law, at)
    with np.errstate(divide="ignore"):  # F = 0: its logarithm is -inf, and what is missing is all
        missing: Floats = -np.expm1(count * np.log1p(-np.minimum(above, 1.0)))
    return missing


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


def _above(law: Law, at: Floats) -> Floats:
    """1 - F(x): the share above x, without the cancellation of taking F from 1."""
    match law:
        case Fixed():
            return (at < law.seconds).astype(np.float64)
        case Empirical():
            values = np.sort(np.array(law.values))
            found: Floats = 1 - np.searchsorted(values, at, side="right") / len(values)
            return found
        case LogNormal():
            if law.sigma == 0:
                return (at < law.median_s).astype(np.float64)
            with np.errstate(divide="ignore"):
                scaled = np.log(at / law.median_s) / (law.sigma * math.sqrt(2))
            upper: Floats = np.vectorize(math.erfc, otypes=[np.float64])(scaled)
            return upper / 2
        case Mixture():
            total = sum(weight for weight, _ in law.parts)
            mixed: Floats = np.zeros(at.shape)
            for weight, part in law.parts:
                mixed += weight / total * _above(part, at)
            return mixed
