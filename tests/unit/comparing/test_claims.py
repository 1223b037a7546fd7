"""Verdicts and gates: what is claimed, what is not, and that nothing passes unseen."""

import math

import numpy as np
import pytest

from results.comparing.claims import Compared, GateRule, Verdict, gate, judge
from results.comparing.measures import MEASURES

STEP, RATE, POWER = (
    MEASURES[name] for name in ("step_time_s", "throughput_tokens_per_s_gpu", "power_utilisation_ratio")
)
QUIET = [1.00, 1.01, 0.99, 1.00, 1.01]


def one(measure=STEP, a=None, b=None, **more):  # type: ignore[no-untyped-def]
    return Compared(measure=measure, a=QUIET if a is None else a, b=QUIET if b is None else b, **more)


def scaled(factor: float) -> list[float]:
    return [value * factor for value in QUIET]


@pytest.mark.parametrize(
    ("measure", "factor", "verdict"),
    [
        (STEP, 1.2, Verdict.WORSE),
        (STEP, 0.8, Verdict.BETTER),
        (RATE, 1.2, Verdict.BETTER),
        (RATE, 0.8, Verdict.WORSE),
        (STEP, 1.001, Verdict.NO_DIFFERENCE),
    ],
)
def test_the_direction_decides(measure, factor: float, verdict: Verdict) -> None:  # type: ignore[no-untyped-def]
    (claim,) = judge([one(measure, b=scaled(factor))])
    assert claim.verdict is verdict
    assert claim.contrast is not None
    assert claim.contrast.estimate == pytest.approx(factor)


def test_equivalence_stands_beside_no_difference() -> None:
    (claim,) = judge([one(b=scaled(1.001))])
    assert claim.equivalent is True
    (wide,) = judge([one(a=[1.0, 1.07, 0.94, 1.03, 1.0], b=[1.0, 1.08, 0.96, 1.05, 1.0])])
    assert wide.verdict is Verdict.NO_DIFFERENCE
    assert wide.equivalent is False


def test_noisy_runs_are_underpowered_and_not_equal() -> None:
    (claim,) = judge([one(a=[1.0, 1.5, 0.7], b=[1.2, 0.8, 1.4])])
    assert claim.verdict is Verdict.UNDERPOWERED
    assert claim.equivalent is False
    assert claim.detectable is not None
    assert claim.detectable > 0.15
    assert "would be found" in claim.why


def test_single_runs_claim_nothing() -> None:
    (claim,) = judge([one(a=[1.0], b=[2.0])])
    assert claim.verdict is Verdict.UNDERPOWERED
    assert "how runs vary is not known" in claim.why


def test_power_utilisation_has_no_good_direction() -> None:
    (claim,) = judge([one(POWER, a=[0.34, 0.35, 0.34], b=[0.51, 0.52, 0.51])])
    assert claim.verdict is Verdict.NONE
    assert claim.p_adjusted is None


def test_what_is_refused_and_what_is_unknown_are_not_comparable() -> None:
    refused, unknown = judge([one(refused="granularity"), one(b=[None, None], why_unknown="no GPU")])
    assert (refused.verdict, refused.contrast, refused.why) == (Verdict.NOT_COMPARABLE, None, "granularity")
    assert (unknown.verdict, unknown.why) == (Verdict.NOT_COMPARABLE, "no GPU")


def test_what_one_side_has_nothing_of_is_a_difference() -> None:
    zeros, some = [0.0, 0.0, 0.0], [0.10, 0.11, 0.09]
    (worse,), (same,) = judge([one(a=zeros, b=some)]), judge([one(a=[0.0, 0.2, 0.1], b=some)])
    assert worse.contrast is not None
    assert worse.contrast.kind == "difference"
    assert worse.contrast.estimate == pytest.approx(0.1)
    assert worse.verdict is Verdict.WORSE
    assert worse.equivalent is None
    assert same.verdict is Verdict.NO_DIFFERENCE
    assert "a run has 0" in same.why
    assert gate([one(a=zeros, b=some)])[0].failed  # a gate takes no other scale than its measure's


def test_no_verdict_where_none_may_follow() -> None:
    (claim,) = judge([one(b=scaled(2.0), unclaimed="on CPU")])
    assert claim.verdict is Verdict.NONE
    assert claim.contrast is not None


def test_verdicts_are_corrected_together() -> None:
    rng = np.random.default_rng(2)
    trials = 400
    wrong = 0
    for _ in range(trials):
        family = [one(a=np.exp(rng.normal(0, 0.03, 4)).tolist(), b=np.exp(rng.normal(0, 0.03, 4)).tolist())] * 1
        family += [
            one(a=np.exp(rng.normal(0, 0.03, 4)).tolist(), b=np.exp(rng.normal(0, 0.03, 4)).tolist()) for _ in range(9)
        ]
        wrong += any(claim.verdict in (Verdict.BETTER, Verdict.WORSE) for claim in judge(family))
    # 10 measures at 5 % each would be wrong in 40 % of the families; together it is 5 %, here with 3 sd of luck.
    assert wrong / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_a_gate_needs_both_tolerance_and_test() -> None:
    worse, small, better = (gate([one(b=scaled(factor))])[0] for factor in (1.15, 1.05, 0.7))
    assert worse.failed
    assert worse.change == pytest.approx(0.15)
    assert not small.failed  # shown, within the tolerance
    assert small.p_adjusted is not None
    assert small.p_adjusted < 0.01
    assert small.change == pytest.approx(0.05)
    assert not better.failed
    loud = gate([one(a=[1.0, 1.4, 0.7], b=[1.3, 1.7, 1.0])])[0]
    assert loud.change is not None
    assert loud.change > 0.10
    assert not loud.failed  # beyond the tolerance, and no more than how runs vary
    assert loud.underpowered


def test_less_throughput_is_worse_by_what_it_costs() -> None:
    found = gate([one(RATE, b=scaled(0.8))])[0]
    assert found.failed
    assert found.change == pytest.approx(0.25)  # 1 / 0.8: a fifth less is a quarter more time


def test_tolerances_by_measure() -> None:
    assert gate([one(b=scaled(1.05))], tolerances={"step_time_s": 0.02})[0].failed
    assert not gate([one(b=scaled(1.15))], tolerances={"step_time_s": 0.5})[0].failed


@pytest.mark.parametrize("b", [[1.0, None, 1.0], [1.0, math.nan, 1.0], []])
def test_a_missing_value_fails_a_gate(b: list[float | None]) -> None:
    found = gate([one(b=b)])[0]
    assert found.failed
    assert found.why


def test_single_runs_are_underpowered_never_green() -> None:
    found = gate([one(b=[3.0])])[0]
    assert not found.failed
    assert found.underpowered
    assert "how runs vary" in found.why


def test_what_cannot_gate() -> None:
    with pytest.raises(ValueError, match="at most 5"):
        gate([one()] * 6)
    with pytest.raises(ValueError, match="no good direction"):
        gate([one(POWER)])


def test_the_gates_detectable_effect_is_found_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    rule, sd, n = GateRule(), 0.03, 6

    def check(factor: float) -> tuple[bool, float]:
        a, b = np.exp(rng.normal(0, sd, n)), factor * np.exp(rng.normal(0, sd, n))
        (each,) = gate([one(a=a.tolist(), b=b.tolist())], rule=rule)
        return each.failed, each.detectable or math.inf

    told = float(np.median([check(1.0)[1] for _ in range(300)]))
    assert 0.10 < told < 0.20
    rate = np.mean([check(1 + told)[0] for _ in range(600)])
    assert rate == pytest.approx(rule.power, abs=0.03)


def family(factor: float, rng: np.random.Generator, sd: float = 0.02, n: int = 6, size: int = 12) -> list[Compared]:
    """One measure that changed by `factor` among others that did not."""

    def draw(by: float = 1.0) -> list[float]:
        return (by * np.exp(rng.normal(0, sd, n))).tolist()

    return [one(a=draw(), b=draw(factor if not k else 1.0)) for k in range(size)]


def test_what_is_called_detectable_is_found_with_the_correction_that_verdicts_have() -> None:
    rng = np.random.default_rng(3)
    told = float(np.median([judge(family(1.0, rng))[0].detectable or math.inf for _ in range(200)]))
    found = [judge(family(1 + told, rng))[0].verdict is Verdict.WORSE for _ in range(400)]
    assert np.mean(found) >= 0.80 - 3 * math.sqrt(0.8 * 0.2 / 400)


def test_a_larger_family_detects_less_and_is_sooner_underpowered() -> None:
    a, b = [1.0, 1.07, 0.94, 1.05, 0.97], [1.0, 1.06, 0.95, 1.05, 0.97]
    alone, *_ = judge([one(a=a, b=b)])
    among, *_ = judge([one(a=a, b=b)] * 12)
    assert alone.contrast is not None
    assert alone.detectable == alone.contrast.detectable(0.05)
    assert among.detectable == alone.contrast.detectable(0.05 / 12)
    assert (alone.verdict, among.verdict) == (Verdict.NO_DIFFERENCE, Verdict.UNDERPOWERED)
    # What is not tested takes nothing from the others.
    beside, *_ = judge([one(a=a, b=b), *[one(a=a, b=b, unclaimed="on CPU")] * 11])
    assert beside.detectable == alone.detectable
