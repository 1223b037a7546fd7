"""Statistics of a run: order-statistic quantiles, ratios of sums, and intervals that know their steps are correlated.

Below `MIN_STEPS` steps a within-run interval would be a guess, so only the range of the steps is given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

MIN_STEPS = 20  # fewer steps: their range only, no interval
CONFIDENCE = 0.95
_PIECE = 8_192  # OpenBLAS keeps to one thread up to 10,000 (kernel/x86_64/ddot.c)

Floats = npt.NDArray[np.float64]
Numbers = Sequence[float] | npt.NDArray[np.float64] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and what its steps say about it, in the figure's own unit.

    `ci_low`, `ci_high`: the 95 % interval, None below `MIN_STEPS` steps. `low`, `high`: the range of the steps.
    `effective_n`: steps after correction for autocorrelation, None where no interval is given.
    """

    value: float | None
    n: int
    ci_low: float | None = None
    ci_high: float | None = None
    low: float | None = None
    high: float | None = None
    effective_n: float | None = None


def quantile(values: Numbers, q: float) -> float | None:
    """The smallest value with at least a share `q` of the values at or below it; None when there are none.

    An order statistic (type 1 of Hyndman & Fan 1996, The American Statistician 50), never an interpolation: the
    answer is a value that was seen.

    Raises:
        ValueError: `q` is not within 0..1.
    """
    return quantiles(values, (q,))[0]


def quantiles(values: Numbers, shares: Sequence[float]) -> list[float | None]:
    """`quantile` at several shares, for which the values are gone through once.

    Raises:
        ValueError: a share is not within 0..1.
    """
    for q in shares:
        if not 0 <= q <= 1:
            raise ValueError(f"q = {q}: allowed is 0..1")
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0 or not shares:
        return [None for _ in shares]
    ranks = [max(math.ceil(q * data.size - 1e-9), 1) - 1 for q in shares]
    data = np.partition(data, ranks)
    return [float(data[rank]) for rank in ranks]


def weighted_quantile(values: Numbers, weights: Numbers, q: float) -> float | None:
    """The smallest value at or below which a share `q` of the weight lies; None when there is no weight.

    Raises:
        ValueError: `q` is not within 0..1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q = {q}: allowed is 0..1")
    data, mass = np.asarray(values), np.asarray(weights, dtype=np.float64)
    counts = np.issubdtype(data.dtype, np.integer)
    data, mass = (data if counts else data.astype(np.float64))[mass > 0], mass[mass > 0]
    if data.size == 0:
        return None
    if counts and int(data.max()) - int(data.min()) <= data.size:
        # Few different counts, many times each: their weights add up without a sort.
        least, of_each = int(data.min()), np.bincount(data - data.min(), weights=mass)
        data = least + np.flatnonzero(of_each)
        below = np.cumsum(of_each[of_each > 0])
    else:
        order = np.argsort(data, kind="stable")
        data, below = data[order], np.cumsum(mass[order])
    return float(data[min(int(np.searchsorted(below, q * below[-1] * (1 - 1e-12))), data.size - 1)])


def t_quantile(p: float, df: float) -> float:
    """Quantile `p` of Student's t with `df` >= 1 degrees of freedom (whole or not).

    Hill 1970, "Algorithm 396: Student's t-quantiles", Communications of the ACM 13(10): exact at 1 and 2, within
    1e-3 of the tables elsewhere in the body of the distribution.

    Raises:
        ValueError: `p` outside 0..1, or fewer than 1 degree of freedom.
    """
    if not 0 < p < 1 or df < 1:
        raise ValueError(f"p = {p}, df = {df}: allowed is 0 < p < 1 and df >= 1")
    if p == 0.5:
        return 0.0
    tails = 2 * min(p, 1 - p)
    sign = 1.0 if p > 0.5 else -1.0
    if df == 1:
        return sign / math.tan(tails * math.pi / 2)
    if df == 2:
        return sign * math.sqrt(2 / (tails * (2 - tails)) - 2)
    a = 1 / (df - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * df
    y = (d * tails) ** (2 / df)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tails / 2)
        y = x * x
        if df < 5:
            c += 0.3 * (df - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((df + 6) / (df * y) - 0.089 * d - 0.822) * (df + 2) * 3) + 0.5 / (df + 4)) * y - 1) * (df + 1) / (
            df + 2
        ) + 1 / y
    return sign * math.sqrt(df * y)


def dot(a: Numbers, b: Numbers) -> float:
    """The sum of the products of two lists of the same length.

    In pieces so short that one thread does each: of longer ones BLAS gives every core a part, and its threads then spin
    for a while, on cores that others could use.
    """
    x, y = np.asarray(a), np.asarray(b)
    return float(sum(float(x[i : i + _PIECE] @ y[i : i + _PIECE]) for i in range(0, x.size, _PIECE)))


def effective_n(series: Numbers) -> float:
    """How many independent values a correlated series is worth, within 1..n.

    n / (1 + 2 x sum of autocorrelations), the sum cut by the initial positive sequence: pairs of neighbouring lags
    are added while their sum is positive (Geyer 1992, Statistical Science 7(4), section 3.3). Never more than n:
    alternating steps are no reason to claim more than was seen.
    """
    x = np.asarray(series, dtype=np.float64)
    n = x.size
    if n < 2:
        return float(n)
    x = x - x.mean()
    variance = dot(x, x)
    if variance <= 0:
        return float(n)
    time = -1.0
    for lag in range(0, n - 1, 2):
        # Lag by lag: few are needed, and all of them are as much work as the square of the series is long.
        pair = (dot(x[: n - lag], x[lag:]) + dot(x[: n - lag - 1], x[lag + 1 :])) / variance
        if pair <= 0:
            break
        time += 2 * pair
    return float(min(max(n / max(time, 1.0), 1.0), n))


def ratio_of_sums(numerator: Numbers, denominator: Numbers) -> Estimate:
    """Sum of numerators / sum of denominators of the steps, with the interval of a ratio on the log scale.

    The variance is that of the residuals numerator - ratio x denominator (linearised ratio estimator, Cochran 1977,
    Sampling Techniques, section 6.4: both are resampled together), over the effective number of steps.
    The value is None when the denominators sum to nothing.
    """
    x, y = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    n = int(x.size)
    total = float(y.sum())
    if n == 0 or total <= 0:
        return Estimate(value=None, n=n)
    ratio = float(x.sum()) / total
    each = x[y > 0] / y[y > 0]
    low, high = float(each.min()), float(each.max())
    if n < MIN_STEPS or ratio <= 0:
        return Estimate(value=ratio, n=n, low=low, high=high)
    residual = x - ratio * y
    worth = effective_n(residual)
    if worth < 2:
        return Estimate(value=ratio, n=n, low=low, high=high, effective_n=worth)
    relative = float(residual.std(ddof=1)) / math.sqrt(worth) / (total / n) / ratio
    factor = math.exp(t_quantile((1 + CONFIDENCE) / 2, worth - 1) * relative)
    return Estimate(
        value=ratio, n=n, ci_low=ratio / factor, ci_high=ratio * factor, low=low, high=high, effective_n=worth
    )


def mean(values: Numbers) -> Estimate:
    """Mean of a series of steps: a t interval with the effective number of steps, from `MIN_STEPS` on."""
    x = np.asarray(values, dtype=np.float64)
    n = int(x.size)
    if n == 0:
        return Estimate(value=None, n=0)
    value, low, high = float(x.mean()), float(x.min()), float(x.max())
    if n < MIN_STEPS:
        return Estimate(value=value, n=n, low=low, high=high)
    worth, half = effective_n(x), _half_width(x)
    if math.isinf(half):
        return Estimate(value=value, n=n, low=low, high=high, effective_n=worth)
    return Estimate(value=value, n=n, ci_low=value - half, ci_high=value + half, low=low, high=high, effective_n=worth)


def halves_differ(values: Numbers, share: float) -> bool:
    """Whether the two halves of a series differ by more than `share` of its mean, beyond their own t intervals.

    A sign to look, no claim: so, unlike the figures' own intervals, it is told below `MIN_STEPS` steps too, from 3
    steps a half on (and there as if the steps were independent: so few say nothing of their correlation).
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 6:
        return False
    first, second = x[: x.size // 2], x[x.size - x.size // 2 :]
    gap = abs(float(first.mean()) - float(second.mean())) - _half_width(first) - _half_width(second)
    return gap > share * abs(float(x.mean()))


def _half_width(x: Floats) -> float:
    """Half the width of the t interval of a mean; infinite where there is none."""
    worth = effective_n(x) if x.size >= MIN_STEPS else float(x.size)
    if worth < 2:
        return math.inf
    return t_quantile((1 + CONFIDENCE) / 2, worth - 1) * float(x.std(ddof=1)) / math.sqrt(worth)
