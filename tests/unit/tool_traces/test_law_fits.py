"""Laws fitted to values whose law is known, and to values that no log-normal describes."""

import math

import numpy as np
import pytest

from workloads.deep_research.fit_law import (
    LEAST_TESTED,
    MOST_VALUES,
    LawFit,
    discrete,
    empirical,
    fit_law,
    mean_interval,
    quantile_interval,
)
from workloads.deep_research.laws import Empirical, LogNormal


def log_normal(n: int, seed: int, mu: float = 2.0, sigma: float = 0.6) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(mu, sigma, n)


def bimodal(n: int, seed: int) -> np.ndarray:
    return np.concatenate([log_normal(n // 2, seed, 0.0, 0.2), log_normal(n - n // 2, seed + 1, 3.0, 0.2)])


def heavy(n: int, seed: int) -> np.ndarray:
    return 1 + np.random.default_rng(seed).pareto(1.5, n)


def agrees(fit: LawFit) -> bool:
    return all(figure.within for figure in (fit.mean, fit.p50, fit.p95, fit.p99))


def test_a_log_normal_is_found_with_its_parameters() -> None:
    fit = fit_law(log_normal(5_000, 1))
    assert isinstance(fit.law, LogNormal)
    # Standard errors of mu and sigma: sigma / sqrt(n) and sigma / sqrt(2 n); five of each.
    assert fit.law.mu == pytest.approx(2.0, abs=5 * 0.6 / math.sqrt(5_000))
    assert fit.law.sigma == pytest.approx(0.6, abs=5 * 0.6 / math.sqrt(10_000))
    assert (fit.clipped_low, fit.clipped_high) == (0, 0)
    assert fit.ks is not None
    assert fit.ks < 0.02


def test_clipped_values_are_not_taken_for_the_law() -> None:
    values = np.clip(log_normal(5_000, 2, 3.0, 0.8), 8.0, 40.0)
    fit = fit_law(values)
    assert isinstance(fit.law, LogNormal), fit.why
    # Those within a thousandth of an end are counted with it.
    assert fit.clipped_low == pytest.approx((values == 8.0).sum(), abs=25)
    assert fit.clipped_high == pytest.approx((values == 40.0).sum(), abs=25)
    assert fit.law.mu == pytest.approx(3.0, abs=0.06)
    assert fit.law.sigma == pytest.approx(0.8, abs=0.06)
    assert (fit.law.least, fit.law.cap) == (8.0, 40.0)
    # What an estimate that ignores the clipping gives is far off: this test can tell the two apart.
    assert float(np.log(values).std()) < 0.65


@pytest.mark.parametrize("make", [bimodal, heavy], ids=["bimodal", "heavy tail"])
def test_what_is_no_log_normal_keeps_its_values(make: object) -> None:
    values = make(2_000, 4)  # type: ignore[operator]
    fit = fit_law(values)
    assert fit.kind == "empirical"
    assert fit.p_value == pytest.approx(0.005)
    assert "does not fit" in fit.why
    assert fit.law.clipped_mean == pytest.approx(float(values.mean()), rel=1e-12)
    assert fit.law.cap == values.max()
    assert values.min() <= fit.law.least <= np.quantile(values, 0.01)
    assert agrees(fit)


def test_the_p_value_is_one_of_a_test_that_holds_its_level() -> None:
    refused = sum(fit_law(log_normal(60, seed)).kind == "empirical" for seed in range(100))
    # The test refuses 5 %, the figures' intervals some more: 20 of 100 would be far beyond both (p < 1e-4 at 9 %).
    assert refused < 20


@pytest.mark.parametrize("n", [2, 7, LEAST_TESTED - 1])
def test_few_values_are_fitted_and_said_to_be_few(n: int) -> None:
    fit = fit_law(log_normal(n, 5))
    assert (fit.kind, fit.p_value) == ("log-normal", None)
    assert f"n = {n}: too few" in fit.why
    assert fit.p99.high is None


@pytest.mark.parametrize(("values", "why"), [([3.0], "one value"), ([3.0] * 50, "hardly differ")])
def test_values_without_a_spread_stay_as_they_are(values: list[float], why: str) -> None:
    fit = fit_law(values)
    assert fit.law == Empirical(values=(3.0,), shares=(1.0,))
    assert (fit.ks, fit.p_value) == (None, None)
    assert why in fit.why


def test_whole_seconds_and_zeros_are_no_trouble() -> None:
    fit = fit_law(np.floor(log_normal(500, 6, 0.5, 1.0)))
    assert fit.law.least > 0
    assert fit.law.clipped_mean == pytest.approx(fit.mean.observed, rel=0.1)


@pytest.mark.parametrize("values", [[], [1.0, -1.0], [1.0, math.nan], [math.inf]])
def test_no_values_are_no_law(values: list[float]) -> None:
    with pytest.raises(ValueError, match="values"):
        fit_law(values)


@pytest.mark.parametrize("n", [1, 5, 11, MOST_VALUES, MOST_VALUES + 1, 5_000, 50_000])
def test_an_empirical_law_keeps_mean_tail_and_size(n: int) -> None:
    values = heavy(n, n)
    law = empirical(values)
    assert len(law.values) <= MOST_VALUES + 1
    assert law.clipped_mean == pytest.approx(float(values.mean()), rel=1e-9)
    assert law.cap == values.max()
    assert list(law.values) == sorted(law.values)
    for q in (0.5, 0.95, 0.99):
        rank = max(math.ceil(q * n), 1) - 1
        low, high = np.sort(values)[[max(rank - n // 200 - 1, 0), min(rank + n // 200 + 1, n - 1)]]
        assert low <= law.at(q) <= high
    assert law.at(1e-12) == law.least
    assert law.at(1 - 1e-12) == law.cap


def test_counts_have_their_exact_shares() -> None:
    law = discrete([1, 1, 4, 2])
    assert law == Empirical(values=(1.0, 2.0, 4.0), shares=(0.5, 0.75, 1.0))
    assert law.clipped_mean == 2.0
    assert [law.at(u) for u in (0.49, 0.5, 0.51, 0.76)] == [1.0, 1.0, 2.0, 4.0]


def test_intervals_cover_what_they_claim() -> None:
    rng = np.random.default_rng(8)
    true = {0.5: 0.5, 0.95: 0.95}
    covered = dict.fromkeys([*true, "mean"], 0)
    for _ in range(400):
        values = np.sort(rng.uniform(size=120))
        for q, value in true.items():
            low, high = quantile_interval(values, q)
            covered[q] += (low is None or low <= value) and (high is None or value <= high)
        low, high = mean_interval(values)
        assert low is not None
        assert high is not None
        covered["mean"] += low <= 0.5 <= high
    # 95 % of 400 is 380; four standard errors are 17. Those of quantiles are conservative: they may cover more.
    assert all(count >= 363 for count in covered.values())
    assert covered["mean"] <= 397


def test_an_interval_that_the_values_cannot_give_has_no_end() -> None:
    values = np.arange(1.0, 11.0)
    assert quantile_interval(values, 0.99)[1] is None
    assert quantile_interval(values, 0.01)[0] is None
    assert mean_interval(values[:1]) == (None, None)
