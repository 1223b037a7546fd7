"""A law for recorded values: log-normal where that holds, else the values themselves; and how good it is.

The log-normal is fitted by maximum likelihood, values that lie together at an end taken as clipped there (censored:
all that is known of them is that they were beyond). Its goodness is the Kolmogorov-Smirnov distance with a p-value by
simulation: of samples of the same size, drawn from the fitted law and fitted again (parametric bootstrap; Stute,
Gonzalez Manteiga & Presedo Quindimil 1993, Metrika 40), the share with a distance as great. A table's p-value would be
far too kind, as it holds for a law that was not fitted to the same values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from workloads.deep_research.laws import Empirical, Law, LogNormal

Floats = npt.NDArray[np.float64]

LEAST_TESTED = 30  # values; of fewer, no law can be ruled out that would matter
LEAST_P = 0.05  # a log-normal with less is not taken
CONFIDENCE = 0.95
_SURE = 0.99  # figures of a log-normal that lie outside of these intervals speak against it
MOST_VALUES = 512  # of an empirical law
_MOST_TESTED = 20_000  # values; a test of more would refuse any law for nothing that matters
_SIMULATIONS = 199
_TOGETHER, _CLIPPED = 1e-3, 3  # this many values this near (relative) to an end: clipped there
_LEAST = 1e-6  # nothing is drawn below: a logarithm needs more than 0
_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the values, its 95 % interval, and the same figure of the law.

    An end of the interval is None where the values are too few to have one.
    """

    observed: float
    low: float | None
    high: float | None
    fitted: float

    @property
    def within(self) -> bool:
        """Whether the law's figure lies within the interval of the observed one."""
        return _within(self.fitted, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A fitted law and what speaks for it. Figures are in the values' own unit."""

    law: Law
    n: int
    why: str  # this law and not the other
    ks: float | None  # distance of the log-normal, whether it was taken or not; None: it could not be fitted
    p_value: float | None  # of that distance; None: too few values
    clipped_low: int  # values taken as clipped at the smallest
    clipped_high: int
    mean: Figure
    p50: Figure
    p95: Figure
    p99: Figure
    greatest: float

    @property
    def kind(self) -> str:
        """`log-normal` or `empirical`."""
        return "log-normal" if isinstance(self.law, LogNormal) else "empirical"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normal:
    """A normal law of logarithms, values beyond `low` and `high` clipped there."""

    mu: float
    sigma: float
    low: float
    high: float


def fit_law(values: Sequence[float] | Floats, *, seed: int = 1) -> LawFit:
    """The law of `values`, each 0 or more (less than 1e-6 is taken as that).

    Args:
        seed: of the simulations behind the p-value.

    Raises:
        ValueError: there are none, or one is negative or not finite.
    """
    data = np.sort(np.asarray(values, dtype=np.float64))
    if data.size == 0:
        raise ValueError("no values: no law")
    if not np.isfinite(data).all() or data[0] < 0:
        raise ValueError("values: allowed are finite numbers of 0 or more")
    data = np.maximum(data, _LEAST)
    n = int(data.size)
    clipped_low, clipped_high = _clipped(data)
    normal = _fit(np.log(data), clipped_low, clipped_high)
    if normal is None:
        return _made(data, empirical(data), "the values hardly differ" if n > 1 else "one value", None, None)
    law = _log_normal(normal, data)
    ks, p_value = _goodness(np.log(data), normal, clipped_low, clipped_high, seed)
    if n < LEAST_TESTED:
        why = f"n = {n}: too few to tell whether it fits (at least {LEAST_TESTED})"
        return _made(data, law, why, ks, None, clipped_low, clipped_high)
    if p_value >= LEAST_P:
        wrong = [name for name, figure in _figures(data, law, _SURE).items() if not figure.within]
        if not wrong:
            return _made(data, law, "it fits", ks, p_value, clipped_low, clipped_high)
        why = f"a log-normal has another {' and '.join(wrong)}"
    else:
        why = f"a log-normal does not fit (p = {p_value:.3f})"
    return _made(data, empirical(data), why, ks, p_value, clipped_low, clipped_high)


def empirical(values: Sequence[float] | Floats, most: int = MOST_VALUES) -> Empirical:
    """The values themselves; of more than `most`, means of neighbours, the finer the nearer to the upper tail.

    So the mean stays that of the values, and the greatest of them stays itself.
    """
    data = np.sort(np.maximum(np.asarray(values, dtype=np.float64), _LEAST))
    n = int(data.size)
    if n <= most:
        ends = np.arange(1, n + 1)
    else:
        body = np.round(n * np.arange(1, most // 2 + 1) / (most // 2))
        tail = np.round(n - 10 ** np.linspace(math.log10(n / 10), 0, most // 2)) if n > 10 else body
        ends = np.unique(np.concatenate([body, tail, [n]])).astype(np.int64)
        ends = ends[(ends > 0) & (ends <= n)]
    starts = np.concatenate([[0], ends[:-1]])
    sums = np.add.reduceat(data, starts)
    return _merged([float(v) for v in sums / (ends - starts)], [float(end) / n for end in ends])


def discrete(values: Sequence[int]) -> Empirical:
    """Whole numbers with their shares, exactly."""
    seen, counts = np.unique(np.asarray(values), return_counts=True)
    shares = np.cumsum(counts) / len(values)
    return Empirical(values=tuple(float(v) for v in seen), shares=(*(float(s) for s in shares[:-1]), 1.0))


def mean_interval(data: Floats, confidence: float = CONFIDENCE) -> tuple[float | None, float | None]:
    """The interval of a mean by its standard error, values taken as independent; none of fewer than two."""
    if data.size < 2:
        return None, None
    half = _STANDARD.inv_cdf((1 + confidence) / 2) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return float(data.mean()) - half, float(data.mean()) + half


def quantile_interval(ordered: Floats, q: float, confidence: float = CONFIDENCE) -> tuple[float | None, float | None]:
    """The interval of a quantile by order statistics (binomial, so of any continuous law); an end may be None."""
    n = int(ordered.size)
    counts = np.arange(n + 1)
    logs = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    mass = np.exp(logs[n] - logs - logs[::-1] + counts * math.log(q) + (n - counts) * math.log1p(-q))
    below = np.cumsum(mass)
    tail = (1 - confidence) / 2
    low = int(np.searchsorted(below, tail, side="right")) - 1  # P(fewer than low + 1 values below) <= tail
    high = int(np.searchsorted(below, 1 - tail, side="left"))
    return (float(ordered[low]) if low >= 0 else None, float(ordered[high]) if high < n else None)


def _figures(data: Floats, law: Law, confidence: float) -> dict[str, Figure]:
    low, high = mean_interval(data, confidence)
    found = {"mean": Figure(observed=float(data.mean()), low=low, high=high, fitted=law.clipped_mean)}
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        rank = max(math.ceil(q * data.size - 1e-9), 1) - 1
        low, high = quantile_interval(data, q, confidence)
        found[name] = Figure(observed=float(data[rank]), low=low, high=high, fitted=law.at(q))
    return found


def _made(
    data: Floats,
    law: Law,
    why: str,
    ks: float | None,
    p_value: float | None,
    clipped_low: int = 0,
    clipped_high: int = 0,
) -> LawFit:
    return LawFit(
        law=law,
        n=int(data.size),
        why=why,
        ks=ks,
        p_value=p_value,
        clipped_low=clipped_low,
        clipped_high=clipped_high,
        greatest=float(data[-1]),
        **_figures(data, law, CONFIDENCE),
    )


def _clipped(data: Floats) -> tuple[int, int]:
    low = int(np.searchsorted(data, data[0] * (1 + _TOGETHER), side="right"))
    high = int(data.size - np.searchsorted(data, data[-1] * (1 - _TOGETHER), side="left"))
    return (low if low >= _CLIPPED else 0, high if high >= _CLIPPED else 0)


def _fit(logs: Floats, clipped_low: int, clipped_high: int) -> _Normal | None:
    """Maximum likelihood, by expectation and maximisation where values are clipped; None: there is no spread."""
    n = int(logs.size)
    inside = logs[clipped_low : n - clipped_high]
    if inside.size < 2 or float(inside[-1] - inside[0]) < 1e-9:
        return None
    low, high = float(logs[0]), float(logs[-1])
    total, squares = float(inside.sum()), float(inside @ inside)
    mu, sigma = float(logs.mean()), max(float(logs.std()), 1e-9)
    for _ in range(1_000 if clipped_low or clipped_high else 0):
        first, second = total, squares
        if clipped_low:
            z = (low - mu) / sigma
            ratio = _hazard(-z)  # of the lower tail
            mean = mu - sigma * ratio
            first += clipped_low * mean
            second += clipped_low * (mean**2 + sigma**2 * (1 - z * ratio - ratio**2))
        if clipped_high:
            z = (high - mu) / sigma
            ratio = _hazard(z)
            mean = mu + sigma * ratio
            first += clipped_high * mean
            second += clipped_high * (mean**2 + sigma**2 * (1 + z * ratio - ratio**2))
        new_mu = first / n
        new_sigma = math.sqrt(max(second / n - new_mu**2, 1e-18))
        done = abs(new_mu - mu) + abs(new_sigma - sigma) < 1e-9
        mu, sigma = new_mu, new_sigma
        if done:
            break
    return _Normal(
        mu=mu,
        sigma=sigma,
        low=low if clipped_low else -math.inf,
        high=high if clipped_high else math.inf,
    )


def _hazard(z: float) -> float:
    """Density over upper tail of the standard normal."""
    tail = 0.5 * math.erfc(z / math.sqrt(2))
    if tail < 1e-300:
        return z + 1 / z
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) / tail


def _goodness(logs: Floats, normal: _Normal, clipped_low: int, clipped_high: int, seed: int) -> tuple[float, float]:
    """(distance, p-value by simulation)."""
    distance = _distance(logs, normal, clipped_low, clipped_high)
    if logs.size < LEAST_TESTED:
        return distance, math.nan
    rng = np.random.default_rng(seed)
    tested, against = logs, distance
    fitted: _Normal | None = normal
    if logs.size > _MOST_TESTED:
        tested = np.sort(rng.choice(logs, _MOST_TESTED, replace=False))
        low, high = _clipped(np.exp(tested))
        fitted = _fit(tested, low, high)
        if fitted is None:
            return distance, 1.0
        against = _distance(tested, fitted, low, high)
    assert fitted is not None
    as_great = 0
    for _ in range(_SIMULATIONS):
        drawn = np.sort(np.clip(rng.normal(fitted.mu, fitted.sigma, tested.size), fitted.low, fitted.high))
        low = int(np.searchsorted(drawn, fitted.low, side="right"))
        high = int(drawn.size - np.searchsorted(drawn, fitted.high, side="left"))
        again = _fit(drawn, low, high)
        as_great += again is None or _distance(drawn, again, low, high) >= against
    return distance, (1 + as_great) / (_SIMULATIONS + 1)


def _distance(logs: Floats, normal: _Normal, clipped_low: int, clipped_high: int) -> float:
    """Kolmogorov-Smirnov distance over where the law is continuous: between the clipped ends."""
    n = int(logs.size)
    inside = logs[clipped_low : n - clipped_high]
    law = _cdf((inside - normal.mu) / normal.sigma)
    ranks = np.arange(clipped_low, n - clipped_high)
    worst = float(max((law - ranks / n).max(), ((ranks + 1) / n - law).max()))
    ends = []
    if clipped_low:
        ends.append((clipped_low / n, float(logs[0])))
    if clipped_high:
        ends.append(((n - clipped_high) / n, float(logs[-1])))
    return max([worst, *(abs(share - _STANDARD.cdf((x - normal.mu) / normal.sigma)) for share, x in ends)])


def _cdf(z: Floats) -> Floats:
    """The standard normal's distribution function (Abramowitz & Stegun 1964, 26.2.17: to 7.5e-8)."""
    size = np.abs(z)
    t = 1 / (1 + 0.2316419 * size)
    terms = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    upper = np.exp(-size * size / 2) / math.sqrt(2 * math.pi) * terms
    return np.asarray(np.where(z > 0, 1 - upper, upper), dtype=np.float64)


def _log_normal(normal: _Normal, data: Floats) -> LogNormal:
    """Clipped to what was seen: no draw is smaller or greater than any value."""
    mean = math.exp(normal.mu + normal.sigma**2 / 2)
    return LogNormal(mean=mean, sigma=normal.sigma, least=float(data[0]), cap=float(data[-1]))


def _merged(values: list[float], shares: list[float]) -> Empirical:
    """Equal neighbours as one."""
    kept: list[tuple[float, float]] = []
    for value, share in zip(values, shares, strict=True):
        value = max(value, kept[-1][0]) if kept else value  # a mean's last bit must not make it descend
        if kept and kept[-1][0] == value:
            kept[-1] = (value, share)
        else:
            kept.append((value, share))
    return Empirical(values=tuple(v for v, _ in kept), shares=tuple(s for _, s in kept))


def _within(value: float, low: float | None, high: float | None) -> bool:
    slack = 1e-9 * abs(value)
    return (low is None or value >= low - slack) and (high is None or value <= high + slack)
