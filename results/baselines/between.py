"""A contrast in which occasions vary too: nights differ by more than the runs of one night tell.

One-way random effects: a run is its side's mean + what its occasion was off (variance tau2) + what it was off itself
(sigma2), on logs for ratios. The two are told apart by the mean squares between and within occasions, of both sides
pooled, for groups of any sizes (Searle, Casella & McCulloch 1992, Variance Components, chapter 3: E[MSB] = sigma2 + n0
tau2). The variance of the sides' difference, A tau2 + B sigma2, is then a sum of the two mean squares, with degrees of
freedom by Satterthwaite 1946, Biometrics Bulletin 2. Its tau2 is not cut off at 0: occasions that happen to agree do
not make the test surer than their number allows. Where all groups have one size, it is Student's t with the occasions'
own degrees of freedom, exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.comparing.measures import Kind
from results.comparing.welch import Contrast, compare, t_quantile

LEAST_OCCASIONS = 3  # of the baseline: two are one difference, and say next to nothing of how others differ

Groups = Sequence[Sequence[float]]  # values by occasion


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How runs vary, standard deviations (of logs for a ratio): `between` occasions and `within` one.

    `within` None: no occasion has two runs. `occasions`: how many, of both sides.
    """

    between: float
    within: float | None
    occasions: int


def over_occasions(a: Groups, b: Groups, kind: Kind, level: float) -> tuple[Contrast | None, Spread | None]:
    """B against A, by whichever is less sure at `level` (one-sided): Welch's t over runs, or the model above.

    Welch's lets the sides vary unequally and knows no occasions; the model knows them and takes the sides to vary
    alike. A change is shown where both show it. None for the spread: A has fewer than LEAST_OCCASIONS occasions, or
    nothing varies. None for both: as `welch.compare`.
    """
    plain = compare([v for group in a for v in group], [v for group in b for v in group], kind)
    if plain is None or len(a) < LEAST_OCCASIONS:
        return plain, None
    sides = [[np.log(group) if kind == "ratio" else np.asarray(group, dtype=np.float64) for group in s] for s in (a, b)]
    every = [group for side in sides for group in side]
    counts = [np.array([group.size for group in side], dtype=np.float64) for side in sides]
    df_between = sum(len(side) - 1 for side in sides)
    df_within = sum(group.size - 1 for group in every)
    between = within = spread_of_sizes = 0.0
    for side, n in zip(sides, counts, strict=True):
        means = np.array([group.mean() for group in side])
        between += float((n * (means - (n * means).sum() / n.sum()) ** 2).sum())
        spread_of_sizes += float(n.sum() - (n**2).sum() / n.sum())
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in every)
    n0 = spread_of_sizes / df_between
    ms_between, ms_within = between / df_between, within / df_within if df_within else 0.0
    of_between = sum(float(((n / n.sum()) ** 2).sum()) for n in counts) / n0
    of_within = max(0.0, sum(1 / float(n.sum()) for n in counts) - of_between) if df_within else 0.0
    parts = of_between * ms_between, of_within * ms_within
    variance = sum(parts)
    if variance <= 0:
        return plain, None
    df = variance**2 / (parts[0] ** 2 / df_between + (parts[1] ** 2 / df_within if df_within else 0.0))
    spread = Spread(
        between=math.sqrt(max(0.0, ms_between - ms_within) / n0),
        within=math.sqrt(ms_within) if df_within else None,
        occasions=len(every),
    )
    return _wider(plain, _with(plain, math.sqrt(variance), df), level), spread


def _wider(one: Contrast, two: Contrast, level: float) -> Contrast:
    """The one that a change has to be larger for, to be shown at `level`."""
    if one.se is None or one.df is None or two.se is None or two.df is None:
        return one  # a single run on a side: there is no test
    return max(one, two, key=lambda each: t_quantile(1 - level, each.df or 1.0) * (each.se or 0.0))


def _with(contrast: Contrast, se: float, df: float) -> Contrast:
    """The same effect with another standard error."""
    made = replace(contrast, se=se, df=df)
    ends = made.interval(made.confidence)
    half = made.p_beyond(0.0, worse_is_more=made.effect > 0)
    assert ends is not None
    assert half is not None
    return replace(made, low=ends[0], high=ends[1], p=min(1.0, 2 * half))
