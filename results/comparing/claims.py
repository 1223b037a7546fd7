"""What a comparison may claim: a verdict per measure, and the gate of a regression check.

MEASURING.md, "Claims". Verdicts of a family of measures are Holm-corrected together: of all that is called better or
worse in one, anything is wrong with probability `alpha` at most. The intervals beside them are each measure's own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from results.comparing.measures import Measure
from results.comparing.welch import POWER, Contrast, Noise, compare, holm, mean_of, t_quantile

Values = Sequence[float | None]


class Verdict(StrEnum):
    """What may be said of B against A by one measure."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference shown"
    NOT_COMPARABLE = "not comparable"
    UNDERPOWERED = "underpowered"
    NONE = "no verdict"  # the measure has no good direction, or nothing may be claimed of these runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a comparison claims something. Shares for ratios; for differences the same numbers in the measure's unit."""

    alpha: float = 0.05  # of a family of measures, two-sided
    margin: float = 0.05  # equivalent: within this
    most_detectable: float = 0.15  # a comparison that could not find this much (power 80 %) is underpowered


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """B against A by one measure. `why` says what stands behind the verdict, in words, where it is not plain."""

    measure: Measure
    a: float | None
    """Mean over the runs of A, as the contrast takes it: geometric for a ratio, arithmetic for a difference."""
    b: float | None
    contrast: Contrast | None
    verdict: Verdict
    p_adjusted: float | None = None
    equivalent: bool | None = None
    """Within the margin, by two one-sided tests; None where that can't be told."""
    detectable: float | None = None
    """The true change that is called better or worse with power 80 %, whatever the family's other measures show."""
    why: str = ""
    lost_a: int = 0
    """How many runs of A have no value, and so no part in the contrast; `lost_b` of B; `lost` says which and why."""
    lost_b: int = 0
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The material of one claim: the values on both sides (of runs, or of blocks of them), or a contrast of them made
    elsewhere (paired by plan, or by seed)."""

    measure: Measure
    a: Values
    b: Values
    contrast: Contrast | None = None  # None: `welch.compare` of the values
    refused: str = ""  # why it is not comparable
    unclaimed: str = ""  # why no verdict follows, whatever is seen
    why_unknown: str = ""  # why a side has no value
    lost_a: int = 0  # as in a claim
    lost_b: int = 0
    lost: str = ""


RULE = Rule()


def judge(
    compared: Sequence[Compared], *, rule: Rule = RULE, noise: Mapping[str, Noise] | None = None
) -> tuple[Claim, ...]:
    """A claim for each, corrected together as one family.

    Only measures with a direction, of which something could be claimed, count in the correction. What is detectable,
    and so what is underpowered, is told with the correction too: at `alpha` / tests Holm rejects whatever the others
    show. `noise`: by measure, of a baseline.
    """
    found = [_contrast(one, noise) or _plain(one) for one in compared]
    tests = [
        contrast.p
        if contrast is not None and not one.refused and not one.unclaimed and one.measure.direction != "none"
        else None
        for one, contrast in zip(compared, found, strict=True)
    ]
    tests = [
        None if contrast is None or contrast.basis == "within runs only" else p
        for p, contrast in zip(tests, found, strict=True)
    ]
    alpha = rule.alpha / max(1, sum(p is not None for p in tests))
    return tuple(
        _claim(one, contrast, p, rule, alpha) for one, contrast, p in zip(compared, found, holm(tests), strict=True)
    )


def _contrast(one: Compared, noise: Mapping[str, Noise] | None) -> Contrast | None:
    if one.refused:
        return None
    if one.contrast is not None:
        return one.contrast
    return compare(one.a, one.b, one.measure.kind, noise=(noise or {}).get(one.measure.name))


def _plain(one: Compared) -> Contrast | None:
    """Where a run has 0 of what others have, there is no ratio, and the difference is all that can be compared."""
    if one.refused or one.measure.kind != "ratio" or not (known := [v for v in (*one.a, *one.b) if v is not None]):
        return None
    return compare(one.a, one.b, "difference") if min(known) == 0 else None


def _claim(one: Compared, contrast: Contrast | None, p: float | None, rule: Rule, alpha: float) -> Claim:
    verdict, why = _verdict(one, contrast, p, rule, alpha)
    over_runs = None if contrast is None or contrast.basis == "within runs only" else contrast
    alike = over_runs is not None and over_runs.kind == one.measure.kind  # else the margin is of another scale
    kind = one.measure.kind if contrast is None else contrast.kind
    return Claim(
        measure=one.measure,
        a=mean_of(one.a, kind),
        b=mean_of(one.b, kind),
        contrast=contrast,
        verdict=verdict,
        p_adjusted=p,
        equivalent=over_runs.equivalent(rule.margin) if over_runs is not None and alike else None,
        detectable=None if over_runs is None else over_runs.detectable(alpha),
        why=why,
        lost_a=one.lost_a,
        lost_b=one.lost_b,
        lost=one.lost,
    )


def _verdict(
    one: Compared, contrast: Contrast | None, p: float | None, rule: Rule, alpha: float
) -> tuple[Verdict, str]:
    if one.refused:
        return Verdict.NOT_COMPARABLE, one.refused
    if contrast is None:
        return Verdict.NOT_COMPARABLE, one.why_unknown or "a side has no value above 0 to take a ratio of"
    if one.unclaimed:
        return Verdict.NONE, one.unclaimed
    if one.measure.direction == "none":
        return Verdict.NONE, "more of it is neither better nor worse by itself"
    if contrast.basis == "within runs only":
        return Verdict.UNDERPOWERED, "one run a side: the interval is of these two runs' steps, not of how runs vary"
    if p is None:
        return Verdict.UNDERPOWERED, f"{contrast.n_a} and {contrast.n_b} runs: how runs vary is not known"
    if p <= rule.alpha and contrast.effect != 0:
        more = contrast.effect > 0
        return (Verdict.WORSE if more == (one.measure.direction == "lower") else Verdict.BETTER), ""
    if contrast.kind != one.measure.kind:
        return Verdict.NO_DIFFERENCE, "a run has 0 of it: a difference, where a ratio is not defined"
    found = contrast.detectable(alpha)
    if found is None or found > rule.most_detectable:
        most = "more than any change" if found is None else f"{found:.0%}" if _ratio(contrast) else f"{found:.3g}"
        return Verdict.UNDERPOWERED, f"only a change of {most} would be found (power {POWER:.0%})"
    return Verdict.NO_DIFFERENCE, ""


def _ratio(contrast: Contrast) -> bool:
    return contrast.kind == "ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRule:
    """When a regression check fails: the change passes the tolerance AND the test says it is no accident.

    `alpha` is of the whole check, one-sided, Holm-corrected over its measures: a check of runs that did not change
    fails with at most this probability, whatever the tolerance. A check that could not find `most_detectable` in a
    measure with probability `power` is underpowered: neither red nor green.
    """

    alpha: float = 0.01
    tolerance: float = 0.10
    most_detectable: float = 0.15
    power: float = 0.95
    most_measures: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One measure of a check. `change`: how much worse the candidate is (0.1: 10 % worse; below 0: better)."""

    measure: Measure
    contrast: Contrast | None
    change: float | None
    p_adjusted: float | None
    failed: bool
    detectable: float | None
    """The least worsening that this check finds with the rule's power, tolerance and correction included."""
    underpowered: bool
    why: str = ""


GATE_RULE = GateRule()


def gate(
    compared: Sequence[Compared],
    *,
    rule: GateRule = GATE_RULE,
    tolerances: Mapping[str, float] | None = None,
    noise: Mapping[str, Noise] | None = None,
) -> tuple[Gate, ...]:
    """The gates of one check (A: the baseline, B: the candidate), corrected together.

    A measure that has no contrast (a value is missing, or is no number) fails: it never passes unseen.
    `tolerances`: by measure, where they differ from the rule's.

    Raises:
        ValueError: more measures than the rule allows, or one without a direction.
    """
    if len(compared) > rule.most_measures:
        raise ValueError(f"{len(compared)} gating measures: allowed are at most {rule.most_measures}")
    for one in compared:
        if one.measure.direction == "none":
            raise ValueError(f"{one.measure.name} has no good direction: it can't gate")
    found = [_contrast(one, noise) for one in compared]
    tests = [
        None if contrast is None else contrast.p_beyond(0.0, worse_is_more=one.measure.direction == "lower")
        for one, contrast in zip(compared, found, strict=True)
    ]
    return tuple(
        _gate(one, contrast, p, rule, (tolerances or {}).get(one.measure.name, rule.tolerance), len(compared))
        for one, contrast, p in zip(compared, found, holm(tests), strict=True)
    )


def _gate(
    one: Compared, contrast: Contrast | None, p: float | None, rule: GateRule, tolerance: float, tests: int
) -> Gate:
    missing = any(value is None or value != value for value in (*one.a, *one.b)) or not one.a or not one.b
    if contrast is None or missing:
        return Gate(
            measure=one.measure,
            contrast=contrast,
            change=None,
            p_adjusted=None,
            failed=True,
            detectable=None,
            underpowered=False,
            why=one.refused or one.why_unknown or "a run has no value of it",
        )
    change = worsening(contrast, one.measure)
    least = _least(contrast, rule, tolerance, tests)
    return Gate(
        measure=one.measure,
        contrast=contrast,
        change=change,
        p_adjusted=p,
        failed=p is not None and p <= rule.alpha and change > tolerance,
        detectable=least,
        underpowered=p is None or least is None or least > rule.most_detectable,
        why="" if p is not None else f"{contrast.n_a} and {contrast.n_b} runs: how runs vary is not known",
    )


def worsening(contrast: Contrast, measure: Measure) -> float:
    """How much worse B is: for a ratio the share by which what should be low is higher, or A is above B; else the
    difference turned so that more is worse."""
    if contrast.kind == "difference":
        return contrast.estimate if measure.direction == "lower" else -contrast.estimate
    return (contrast.estimate if measure.direction == "lower" else 1 / contrast.estimate) - 1


def _least(contrast: Contrast, rule: GateRule, tolerance: float, tests: int) -> float | None:
    """Of the worsening that the test finds and the one that passes the tolerance, with the rule's power: the larger."""
    if contrast.se is None or contrast.df is None:
        return None
    by_test = contrast.detectable(rule.alpha / tests, rule.power, one_sided=True)
    if by_test is None:
        return None
    spread = t_quantile(rule.power, contrast.df) * contrast.se
    if contrast.kind == "difference":
        return max(by_test, tolerance + spread)
    return max(by_test, (1 + tolerance) * math.exp(spread) - 1)
