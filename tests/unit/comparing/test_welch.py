"""The statistics of comparisons, against scipy's own tests, by hand, and by what intervals must cover."""

import math

import numpy as np
import pytest
from scipy import stats

from results.comparing.welch import (
    compare,
    compare_pairs,
    compare_steps,
    detectable_shift,
    holm,
    mean_of,
    noise_of,
    power_of,
)

A = [2.31, 2.45, 2.38, 2.52, 2.40]
B = [2.60, 2.58, 2.75, 2.49]


def test_a_ratio_is_welchs_t_on_logs() -> None:
    found = compare(A, B, "ratio")
    assert found is not None
    told = stats.ttest_ind(np.log(B), np.log(A), equal_var=False)
    assert found.p == pytest.approx(told.pvalue)
    assert found.df == pytest.approx(told.df)
    interval = told.confidence_interval(0.95)
    assert found.low == pytest.approx(math.exp(interval.low))
    assert found.high == pytest.approx(math.exp(interval.high))
    assert found.estimate == pytest.approx(stats.gmean(B) / stats.gmean(A))


def test_a_difference_is_welchs_t_as_it_is() -> None:
    found = compare(A, B, "difference")
    assert found is not None
    told = stats.ttest_ind(B, A, equal_var=False)
    assert (found.p, found.df) == (pytest.approx(told.pvalue), pytest.approx(told.df))
    assert found.estimate == pytest.approx(np.mean(B) - np.mean(A))


def test_turning_the_sides_round_turns_the_ratio_round() -> None:
    one, two = compare(A, B, "ratio"), compare(B, A, "ratio")
    assert one is not None
    assert two is not None
    assert one.estimate == pytest.approx(1 / two.estimate)
    assert one.low == pytest.approx(1 / (two.high or 0))
    assert one.p == pytest.approx(two.p)


def test_pairs_are_the_paired_t() -> None:
    x, y = [1.0, 2.0, 4.0, 8.0], [1.1, 2.1, 4.6, 8.5]
    found = compare_pairs(x, y, "ratio")
    assert found is not None
    told = stats.ttest_rel(np.log(y), np.log(x))
    assert found.p == pytest.approx(told.pvalue)
    assert found.df == 3
    assert found.basis == "pairs of runs"


def test_one_run_a_side_has_no_spread() -> None:
    found = compare([2.0], [2.4], "ratio")
    assert found is not None
    assert found.estimate == pytest.approx(1.2)
    assert (found.low, found.high, found.p, found.se) == (None, None, None, None)
    assert found.detectable() is None
    assert found.equivalent(0.05) is None
    assert compare([2.0, None], [None], "ratio") is None


def test_no_ratio_of_zero() -> None:
    assert compare([0.0, 1.0], [1.0, 2.0], "ratio") is None
    assert compare([0.0, 0.0], [0.5, 0.5], "difference") is not None


def test_runs_that_do_not_vary() -> None:
    same, other = compare([1.0, 1.0], [1.0, 1.0], "difference"), compare([1.0, 1.0], [2.0, 2.0], "difference")
    assert same is not None
    assert other is not None
    assert same.p == 1
    assert same.equivalent(0.01) is True
    assert other.p == 0
    assert (other.low, other.high) == (1.0, 1.0)


def test_a_baselines_noise_serves_single_runs() -> None:
    before = [10.0, 10.4, 9.7, 10.2, 9.9, 10.1]
    noise = noise_of(before, "ratio")
    assert noise.sd == pytest.approx(np.log(before).std(ddof=1))
    found = compare([10.0], [12.0], "ratio", noise=noise)
    assert found is not None
    assert noise.sd is not None
    assert found.df == 5
    assert found.se == pytest.approx(noise.sd * math.sqrt(2))
    assert found.basis == "runs and a baseline's noise"
    # Of two whole sides it is the classic pooled t.
    pooled = compare(A, B, "ratio", noise=noise_of(A, "ratio"))
    assert pooled is not None
    assert pooled.df == len(A) + len(B) - 2 + len(A) - 1


def test_equivalence_is_two_one_sided_tests() -> None:
    near = compare([1.00, 1.01, 0.99, 1.00], [1.01, 1.00, 1.02, 1.01], "ratio")
    assert near is not None
    x, y = np.log([1.00, 1.01, 0.99, 1.00]), np.log([1.01, 1.00, 1.02, 1.01])
    margin = math.log(1.05)
    above = stats.ttest_ind(y, x - margin, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(y, x + margin, equal_var=False, alternative="less").pvalue
    assert max(above, below) < 0.05
    assert near.equivalent(0.05) is True
    assert near.equivalent(0.05, alpha=max(above, below) * 1.01) is True
    assert near.equivalent(0.05, alpha=max(above, below) * 0.99) is False
    assert near.equivalent(0.005) is False


def test_one_sided_p_beyond_a_margin() -> None:
    found = compare(A, B, "ratio")
    assert found is not None
    assert found.p is not None
    assert found.p_beyond(0.0, worse_is_more=True) == pytest.approx(found.p / 2)
    assert found.p_beyond(0.0, worse_is_more=False) == pytest.approx(1 - found.p / 2)
    told = stats.ttest_ind(np.log(B), np.log(A) + math.log(1.05), equal_var=False, alternative="greater")
    assert found.p_beyond(0.05, worse_is_more=True) == pytest.approx(told.pvalue)


def test_holm_by_hand() -> None:
    # Three tests: 3 x 0.01, 2 x 0.02 (not below the one before), 1 x 0.5.
    assert holm([0.02, 0.01, 0.5]) == [pytest.approx(0.04), pytest.approx(0.03), pytest.approx(0.5)]
    assert holm([0.01, None, 0.012]) == [pytest.approx(0.02), None, pytest.approx(0.02)]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("one_sided", [False, True])
def test_the_detectable_effect_is_found_as_often_as_it_says(one_sided: bool) -> None:
    rng = np.random.default_rng(11)
    n, sd, alpha, power = 5, 0.04, 0.05, 0.8
    shift = detectable_shift(2 * n - 2, alpha, power, one_sided=one_sided)
    assert shift is not None
    assert power_of(shift, 2 * n - 2, alpha, one_sided=one_sided) == pytest.approx(power, abs=1e-4)
    x = rng.normal(0.0, sd, (4000, n))
    y = rng.normal(shift * sd * math.sqrt(2 / n), sd, (4000, n))
    p = stats.ttest_ind(y, x, axis=1, alternative="greater" if one_sided else "two-sided").pvalue
    assert (p <= alpha).mean() == pytest.approx(power, abs=0.025)


def test_few_runs_detect_only_what_is_huge() -> None:
    found = compare([1.0, 1.1], [1.0, 1.1], "ratio")
    assert found is not None
    assert (found.detectable(0.05) or 0) > 0.3
    assert (found.detectable(0.001) or 0) > 10  # never a reassuring None


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    trials, hits = 2000, 0
    for _ in range(trials):
        x, y = np.exp(rng.normal(0.0, 0.03, 5)), np.exp(rng.normal(math.log(1.1), 0.09, 4))
        found = compare(x.tolist(), y.tolist(), "ratio")
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.1 <= found.high
    # Welch with so few and so unequal runs is near its level, not on it.
    assert 0.93 <= hits / trials <= 0.97


def test_steps_paired_by_plan_do_not_hold_the_plans_own_spread() -> None:
    rng = np.random.default_rng(3)
    work = np.exp(rng.normal(0.0, 0.4, 12))  # how long a step's plan takes, whoever runs it
    a = {f"p{i}": float(seconds * np.exp(rng.normal(0, 0.02))) for i, seconds in enumerate(work)}
    b = {f"p{i}": float(1.05 * seconds * np.exp(rng.normal(0, 0.02))) for i, seconds in enumerate(work)}
    paired, loose = compare_steps(a, b, "ratio"), compare(list(a.values()), list(b.values()), "ratio")
    assert paired is not None
    assert loose is not None
    assert paired.se is not None
    assert loose.se is not None
    assert paired.basis == "within runs only"
    assert loose.se > 8 * paired.se
    assert paired.low is not None
    assert paired.high is not None
    assert paired.low < 1.05 < paired.high


def test_intervals_of_paired_steps_cover_what_steps_vary_by() -> None:
    rng = np.random.default_rng(8)
    trials, hits = 600, 0
    for _ in range(trials):
        work = np.exp(rng.normal(0.0, 0.4, 12))
        a = {f"p{i}": float(s * np.exp(rng.normal(0, 0.05))) for i, s in enumerate(work)}
        b = {f"p{i}": float(1.1 * s * np.exp(rng.normal(0, 0.05))) for i, s in enumerate(work)}
        found = compare_steps(a, b, "ratio")
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.1 <= found.high
    assert 0.92 <= hits / trials <= 0.98


def test_steps_without_common_plans_are_not_paired() -> None:
    assert compare_steps({"p1": 1.0, "p2": 1.0}, {"p3": 1.0, "p4": 1.0}, "ratio") is None


def test_means_are_geometric_for_ratios() -> None:
    assert mean_of([1.0, 4.0], "ratio") == pytest.approx(2.0)
    assert mean_of([1.0, 4.0, None], "difference") == pytest.approx(2.5)
    assert mean_of([0.0, 4.0], "ratio") == pytest.approx(2.0)
    assert mean_of([None], "ratio") is None
