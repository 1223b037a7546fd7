"""Statistics over runs: a run is the replicate. Intervals, p values, equivalence, detectable effects, and Holm.

Everything that is a ratio is done on logs: effects multiply, and A against B is B against A turned round. Student's t
and the non-central t are scipy's (`scipy.special`), exact where the table's approximations are not.

Sources. Welch 1947, Biometrika 34 (unequal variances); Satterthwaite 1946, Biometrics Bulletin 2 (degrees of freedom);
Schuirmann 1987, J. Pharmacokinetics and Biopharmaceutics 15 (two one-sided tests); Holm 1979, Scandinavian J. of
Statistics 6; Cohen 1988, Statistical Power Analysis, chapter 2 (power by the non-central t); Geyer 1992 (correlated
steps, `results.stats.effective_n`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import nctdtr, nctdtrinc, stdtr, stdtrit

from results.comparing.measures import Kind
from results.stats import effective_n

CONFIDENCE = 0.95
POWER = 0.80
FEWEST_PAIRS = 4  # paired steps: fewer say nothing of their spread

Basis = Literal["runs", "pairs of runs", "runs and a baseline's noise", "within runs only"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Run-to-run spread known from elsewhere (a baseline): `sd` on the scale of `kind`, from `n` runs (df = n - 1).

    `sd` None: it is not known (fewer than 2 runs, or a value of 0 where logs are taken).
    """

    kind: Kind
    sd: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """B against A. On the scale of `kind`: `ratio` B / A (1: equal), `difference` B - A (0: equal), in the unit.

    `estimate`, `low`, `high`: that ratio or difference with its interval of `confidence`, whose ends are None where
    there is no spread to tell them from. `se`, `df`: of the log ratio or the difference. `p`: two-sided, of no change.
    """

    kind: Kind
    estimate: float
    low: float | None
    high: float | None
    confidence: float
    se: float | None
    df: float | None
    p: float | None
    n_a: int
    n_b: int
    basis: Basis

    @property
    def effect(self) -> float:
        """The estimate on the scale it is computed on: the log of a ratio, or the difference itself."""
        return math.log(self.estimate) if self.kind == "ratio" else self.estimate

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """The interval of another confidence, as ratio or difference; None where there is no spread."""
        if self.se is None or self.df is None:
            return None
        half = t_quantile((1 + confidence) / 2, self.df) * self.se
        return self._back(self.effect - half), self._back(self.effect + half)

    def p_beyond(self, margin: float, *, worse_is_more: bool) -> float | None:
        """One-sided p of 'worse by no more than `margin`': small means that it is worse by more than that.

        `margin`: a share for a ratio (0.05: 5 % more, or the same 5 % less where more is better), else in the unit.
        """
        if self.se is None or self.df is None:
            return None
        allowed = math.log1p(margin) if self.kind == "ratio" else margin
        beyond = (self.effect if worse_is_more else -self.effect) - allowed
        return _upper_tail(beyond, self.se, self.df)

    def equivalent(self, margin: float, alpha: float = 0.05) -> bool | None:
        """Whether it lies within the margin by two one-sided tests at `alpha`: the 1 - 2 alpha interval is inside.

        The margin of a ratio is symmetric on logs: 0.05 means within 1 / 1.05 and 1.05. None: no spread is known.
        """
        found = self.interval(1 - 2 * alpha)
        if found is None:
            return None
        if self.kind == "ratio":
            return found[0] > 1 / (1 + margin) and found[1] < 1 + margin
        return found[0] > -margin and found[1] < margin

    def detectable(self, alpha: float = 0.05, power: float = POWER, *, one_sided: bool = False) -> float | None:
        """The minimum detectable effect: the true change that such a comparison finds with that power.

        As a share for a ratio (0.08: 8 % more), else in the unit. None where there is no spread.
        """
        if self.se is None or self.df is None:
            return None
        shift = detectable_shift(self.df, alpha, power, one_sided=one_sided)
        if shift is None:
            return None
        effect = shift * self.se
        return math.expm1(min(effect, 700.0)) if self.kind == "ratio" else effect

    def _back(self, value: float) -> float:
        return math.exp(max(min(value, 700.0), -700.0)) if self.kind == "ratio" else value


def t_quantile(p: float, df: float) -> float:
    """Quantile `p` of Student's t with `df` degrees of freedom, whole or not."""
    return float(stdtrit(df, p))


def compare(
    a: Sequence[float | None],
    b: Sequence[float | None],
    kind: Kind,
    *,
    noise: Noise | None = None,
    confidence: float = CONFIDENCE,
) -> Contrast | None:
    """Sides of independent runs: Welch's t on logs (`ratio`) or as they are (`difference`).

    With `noise` the spread is pooled with the baseline's (one variance for all is assumed then), which also serves
    sides of one run. None: a side has no known value, or a ratio is asked for and a value is 0 or less. A value that
    is not known, or is no number, has no part in it: `n_a` and `n_b` count the others.
    """
    x, y = _scale(a, kind), _scale(b, kind)
    if x is None or y is None:
        return None
    effect = float(y.mean() - x.mean())
    if noise is not None and noise.sd is not None and noise.n >= 2:
        sums = float(((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()) + noise.sd**2 * (noise.n - 1)
        df = float(x.size + y.size - 2 + noise.n - 1)
        se = math.sqrt(sums / df * (1 / x.size + 1 / y.size))
        return _contrast(kind, effect, se, df, (x.size, y.size), "runs and a baseline's noise", confidence)
    if x.size < 2 or y.size < 2:
        return _contrast(kind, effect, None, None, (x.size, y.size), "runs", confidence)
    of_x, of_y = float(x.var(ddof=1)) / x.size, float(y.var(ddof=1)) / y.size
    se = math.sqrt(of_x + of_y)
    if se == 0:
        return _contrast(kind, effect, 0.0, float(x.size + y.size - 2), (x.size, y.size), "runs", confidence)
    df = (of_x + of_y) ** 2 / (of_x**2 / (x.size - 1) + of_y**2 / (y.size - 1))
    return _contrast(kind, effect, se, df, (x.size, y.size), "runs", confidence)


def compare_pairs(
    a: Sequence[float], b: Sequence[float], kind: Kind, *, confidence: float = CONFIDENCE
) -> Contrast | None:
    """Runs paired one by one (by seed): the t of their differences. None as `compare`, or with fewer than 2 pairs."""
    x, y = _scale(a, kind), _scale(b, kind)
    if x is None or y is None or x.size != y.size or x.size < 2:
        return None
    gaps = y - x
    se = float(gaps.std(ddof=1)) / math.sqrt(gaps.size)
    n = (int(x.size), int(y.size))
    return _contrast(kind, float(gaps.mean()), se, float(gaps.size - 1), n, "pairs of runs", confidence)


def compare_steps(
    a: Mapping[str, float], b: Mapping[str, float], kind: Kind, *, confidence: float = CONFIDENCE
) -> Contrast | None:
    """Two runs by the steps that trained on the same plans (`plan -> seconds`), in the order of `a`.

    The effect is that of the sums over those steps (a ratio of sums, or the mean difference); its spread that of the
    steps' own differences about it, with the number of steps that the correlated ones are worth. It says nothing of
    how runs vary: `within runs only`. None with fewer than FEWEST_PAIRS common plans, or without a ratio.
    """
    common = [plan for plan in a if plan in b]
    x = np.array([a[plan] for plan in common], dtype=np.float64)
    y = np.array([b[plan] for plan in common], dtype=np.float64)
    if x.size < FEWEST_PAIRS or (kind == "ratio" and (x.sum() <= 0 or y.sum() <= 0)):
        return None
    if kind == "ratio":
        ratio = float(y.sum() / x.sum())
        effect, left = math.log(ratio), (y - ratio * x) / float(y.mean())  # linearised, as results.stats.ratio_of_sums
    else:
        effect, left = float((y - x).mean()), y - x
    worth = effective_n(left)
    n = (int(x.size), int(x.size))
    if worth < 2:
        return _contrast(kind, effect, None, None, n, "within runs only", confidence)
    se = float(left.std(ddof=1)) / math.sqrt(worth)
    return _contrast(kind, effect, se, worth - 1, n, "within runs only", confidence)


def noise_of(values: Sequence[float | None], kind: Kind) -> Noise:
    """The run-to-run spread of a baseline's runs of one cell."""
    x = _scale(values, kind)
    count = 0 if x is None else int(x.size)
    return Noise(kind=kind, sd=float(x.std(ddof=1)) if x is not None and count >= 2 else None, n=count)


def noise_of_both(a: Noise, b: Noise) -> Noise:
    """The noise of sides of two cells as one: the mean of the two variances, with Satterthwaite's degrees of freedom.

    So two single runs differ by the sum of both variances, each with what its own cell says of it.
    """
    if a.sd is None or b.sd is None:
        return Noise(kind=a.kind, sd=None, n=0)
    of_a, of_b = a.sd**2, b.sd**2
    spread = of_a + of_b
    df = spread**2 / (of_a**2 / (a.n - 1) + of_b**2 / (b.n - 1)) if spread else min(a.n, b.n) - 1
    return Noise(kind=a.kind, sd=math.sqrt(spread / 2), n=int(df) + 1)


def finite(value: float | None) -> bool:
    """Whether a value is known, and a number."""
    return value is not None and math.isfinite(value)


def mean_of(values: Sequence[float | None], kind: Kind) -> float | None:
    """The mean over runs as a contrast takes it: geometric for a ratio, unless a value is 0 or less."""
    known = [value for value in values if value is not None and finite(value)]
    if not known:
        return None
    if kind == "difference" or min(known) <= 0:
        return math.fsum(known) / len(known)
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values: of all claims with p <= alpha, one or more is false with probability <= alpha.

    None stays None and does not count as a test.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for rank, (p, place) in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p))
        adjusted[place] = worst
    return adjusted


def power_of(shift: float, df: float, alpha: float, *, one_sided: bool = False) -> float:
    """The probability that a t test finds a true effect of `shift` > 0 standard errors, and on its own side."""
    return 1.0 - float(nctdtr(df, shift, t_quantile(1 - (alpha if one_sided else alpha / 2), df)))


def detectable_shift(df: float, alpha: float, power: float, *, one_sided: bool = False) -> float | None:
    """The effect, in standard errors, that is found with that power; None when it is beyond all reason."""
    found = float(nctdtrinc(df, 1 - power, t_quantile(1 - (alpha if one_sided else alpha / 2), df)))
    return found if math.isfinite(found) else None


def _scale(values: Sequence[float | None], kind: Kind) -> "np.ndarray[tuple[int], np.dtype[np.float64]] | None":
    known = np.array([value for value in values if finite(value)], dtype=np.float64)
    if known.size == 0 or (kind == "ratio" and known.min() <= 0):
        return None
    return np.log(known) if kind == "ratio" else known


def _upper_tail(effect: float, se: float, df: float) -> float:
    if se == 0:
        return 0.0 if effect > 0 else 1.0 if effect < 0 else 0.5
    return float(stdtr(df, -effect / se))


def _contrast(
    kind: Kind,
    effect: float,
    se: float | None,
    df: float | None,
    n: tuple[int, int],
    basis: Basis,
    confidence: float,
) -> Contrast:
    estimate = math.exp(effect) if kind == "ratio" else effect
    low = high = p = None
    if se is not None and df is not None:
        half = t_quantile((1 + confidence) / 2, df) * se
        low, high = effect - half, effect + half
        if kind == "ratio":
            low, high = math.exp(max(low, -700.0)), math.exp(min(high, 700.0))
        p = min(1.0, 2 * _upper_tail(abs(effect), se, df)) if se > 0 else float(effect == 0)
    return Contrast(
        kind=kind,
        estimate=estimate,
        low=low,
        high=high,
        confidence=confidence,
        se=se,
        df=df,
        p=p,
        n_a=n[0],
        n_b=n[1],
        basis=basis,
    )
