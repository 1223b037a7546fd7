"""Statistics against published tables, definitions and simulated truth."""

import math
import random
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.stats import (
    MIN_STEPS,
    dot,
    effective_n,
    halves_differ,
    mean,
    quantile,
    quantiles,
    ratio_of_sums,
    t_quantile,
    weighted_quantile,
)


@pytest.mark.parametrize(
    ("p", "df", "table"),
    [  # any printed table of Student's t
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.975, 5, 2.571),
        (0.975, 10, 2.228),
        (0.975, 19, 2.093),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.95, 4, 2.132),
        (0.95, 9, 1.833),
        (0.995, 9, 3.250),
        (0.995, 3, 5.841),
        (0.90, 7, 1.415),
        (0.025, 10, -2.228),
        (0.5, 7, 0.0),
    ],
)
def test_t_quantile_has_the_tables_values(p: float, df: float, table: float) -> None:
    assert t_quantile(p, df) == pytest.approx(table, abs=1.1e-3)


def test_t_quantile_falls_with_whole_and_broken_degrees_of_freedom() -> None:
    values = [t_quantile(0.975, df / 4) for df in range(4, 400)]
    assert all(a > b for a, b in pairwise(values))
    assert values[-1] > 1.95996


@pytest.mark.parametrize(("p", "df"), [(0.0, 5), (1.0, 5), (0.9, 0.5)])
def test_t_quantile_refuses_what_has_none(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        t_quantile(p, df)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.floats(0, 1))
def test_a_quantile_is_the_smallest_value_with_that_share_at_or_below(values: list[int], q: float) -> None:
    found = quantile(values, q)
    assert found in values
    share = sum(v <= found for v in values) / len(values)
    assert share >= q - 1e-9
    below = [v for v in values if v < found]
    assert not below or sum(v <= max(below) for v in values) / len(values) < q


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5)), min_size=1, max_size=20), st.sampled_from([0.5, 0.95])
)
def test_a_weighted_quantile_is_that_of_the_values_repeated(pairs: list[tuple[int, int]], q: float) -> None:
    repeated = [value for value, weight in pairs for _ in range(weight)]
    assert weighted_quantile([v for v, _ in pairs], [w for _, w in pairs], q) == quantile(repeated, q)


def test_quantiles_of_nothing_are_unknown() -> None:
    assert quantile([], 0.5) is None
    assert weighted_quantile([1.0], [0.0], 0.5) is None


def test_a_ratio_is_of_sums_and_below_20_steps_has_a_range_only() -> None:
    found = ratio_of_sums([1.0, 30.0], [1.0, 10.0])
    assert found.value == pytest.approx(31 / 11)  # not the mean of 1 and 3
    assert (found.ci_low, found.ci_high) == (None, None)
    assert (found.low, found.high) == (1.0, 3.0)
    short = ratio_of_sums(np.arange(1.0, MIN_STEPS), np.ones(MIN_STEPS - 1))
    assert short.ci_low is None
    assert ratio_of_sums(np.arange(1.0, MIN_STEPS + 1), np.ones(MIN_STEPS)).ci_low is not None
    assert ratio_of_sums([1.0], [0.0]).value is None


def _correlated(rng: random.Random, n: int, rho: float) -> list[float]:
    values, now = [], rng.gauss(0, 1) / math.sqrt(1 - rho * rho)
    for _ in range(n):
        values.append(now)
        now = rho * now + rng.gauss(0, 1)
    return values


def test_correlated_steps_are_worth_fewer() -> None:
    rng = random.Random(7)
    worth = np.mean([effective_n(_correlated(rng, 400, 0.8)) for _ in range(30)])
    assert worth == pytest.approx(400 * (1 - 0.8) / (1 + 0.8), rel=0.35)  # of an AR(1) process
    assert np.mean([effective_n(_correlated(rng, 400, 0.0)) for _ in range(30)]) > 250
    assert effective_n([1.0, -1.0] * 20) == 40  # alternation earns nothing
    assert effective_n([3.0] * 9) == 9


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = random.Random(11)
    hits = naive = 0
    for _ in range(300):
        series = 10 + np.array(_correlated(rng, 60, 0.6))
        found = mean(series)
        assert found.ci_low is not None
        assert found.ci_high is not None
        hits += found.ci_low <= 10 <= found.ci_high
        half = 2.0 * series.std(ddof=1) / math.sqrt(60)
        naive += abs(series.mean() - 10) <= half
    assert hits / 300 > 0.85
    assert naive / 300 < 0.80  # so the correction is what makes it hold


def test_halves_differ_only_beyond_their_own_scatter() -> None:
    assert halves_differ([10.0, 10.1, 9.9, 10.0, 12.0, 12.1, 11.9, 12.0], 0.1)
    assert not halves_differ([10.0, 10.1, 9.9, 10.0, 10.4, 10.3, 10.5, 10.4], 0.1)
    assert not halves_differ([5.0, 15.0, 9.0, 10.0, 12.0, 6.0, 18.0, 12.0], 0.1)
    assert not halves_differ([1.0, 9.0], 0.1)


@pytest.mark.parametrize("n", [0, 1, 8_191, 8_192, 8_193, 50_000])
def test_a_long_sum_of_products_is_that_of_its_pieces(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.uniform(-1, 1, n), rng.integers(-9, 9, n)
    assert dot(a, b) == pytest.approx(math.fsum((a * b).tolist()), rel=1e-12, abs=1e-12)


def test_no_piece_is_long_enough_to_be_shared_among_threads() -> None:
    """On a machine whose cores are all busy, the threads that BLAS keeps ready take more than they give."""
    code = """
import os, sys, time
import numpy as np
from results.stats import dot, effective_n

def spent():
    others = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return sum(int(open(f"/proc/self/task/{task}/schedstat").read().split()[0]) for task in others)

x = np.sin(np.arange(1_000_000))
time.sleep(0.5)  # they spin when they are made, too
before = spent()
if sys.argv[1] == "whole":
    x @ x
else:
    dot(x, x), effective_n(x)
time.sleep(0.3)
print(spent() - before)
"""
    whole, pieces = (
        int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, check=True, timeout=120).stdout)
        for how in ("whole", "pieces")
    )
    assert pieces <= min(whole, 5_000_000), whole  # ns


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.lists(st.floats(0, 1), max_size=5))
def test_several_quantiles_are_those_of_each(values: list[float], shares: list[float]) -> None:
    assert quantiles(values, shares) == [quantile(values, q) for q in shares]
    ordered = sorted(values)
    for q, found in zip(shares, quantiles(values, shares), strict=True):
        rank = max(math.ceil(q * len(values) - 1e-9), 1) - 1
        assert found == (ordered[rank] if values else None)
