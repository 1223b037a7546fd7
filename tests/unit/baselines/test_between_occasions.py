"""The test in which nights differ: by hand where it is exact, by its own error rate where it is not."""

import math

import numpy as np
import pytest

from reports.checked.page import page
from results.baselines.between import over_occasions
from results.baselines.check import check
from results.baselines.store import Baseline
from results.comparing.welch import compare, t_quantile

LEVEL = 0.01 / 3


def nights_of(rng, sizes, between, within):
    """Values by night: each night is off by itself, and each run of it."""
    return [list(10 * np.exp(rng.normal(0, between) + rng.normal(0, within, size))) for size in sizes]


def test_nights_of_one_size_are_the_t_of_their_means():
    rng = np.random.default_rng(3)
    a, b = nights_of(rng, [3] * 6, 0.05, 0.01), nights_of(rng, [3], 0.05, 0.01)
    contrast, spread = over_occasions(a, b, "ratio", LEVEL)
    means = np.log(a).mean(axis=1)
    assert contrast.effect == pytest.approx(float(np.log(b).mean() - means.mean()))
    assert contrast.se == pytest.approx(float(means.std(ddof=1)) * math.sqrt(1 + 1 / 6))
    assert contrast.df == pytest.approx(5)
    half = t_quantile(0.975, 5) * contrast.se
    assert contrast.low == pytest.approx(math.exp(contrast.effect - half))
    assert contrast.p == pytest.approx(2 * contrast.p_beyond(0.0, worse_is_more=contrast.effect > 0))
    assert spread.occasions == 7
    assert spread.within == pytest.approx(0.01, rel=0.5)


def test_for_nights_of_any_sizes_the_variance_is_right_on_average():
    rng = np.random.default_rng(5)
    sizes, new = [4, 6, 2, 6, 5, 3, 5], [2, 3, 1]
    between, within = 0.05, 0.02
    of = [sizes, new]
    true = between**2 * sum(sum(n * n for n in side) / sum(side) ** 2 for side in of)
    true += within**2 * sum(1 / sum(side) for side in of)
    seen, effects, spreads = [], [], []
    for _ in range(1500):
        contrast, spread = over_occasions(*(nights_of(rng, side, between, within) for side in of), "ratio", 0.4)
        seen.append(contrast.se**2)
        effects.append(contrast.effect)
        spreads.append(spread.between**2)
    assert np.var(effects) == pytest.approx(true, rel=0.1)
    assert np.mean(seen) == pytest.approx(true, rel=0.1)  # at 0.4 Welch's is seldom the wider
    assert np.mean(spreads) == pytest.approx(between**2, rel=0.1)


@pytest.mark.parametrize(("sizes", "new"), [([3] * 3, [3]), ([3] * 8, [3]), ([1] * 6, [3]), ([2, 4, 3, 1], [2, 2])])
def test_nights_that_differ_raise_no_more_alarms_than_promised(sizes, new):
    rng = np.random.default_rng(7)
    alarms = before = 0
    for _ in range(1200):
        a, b = nights_of(rng, sizes, 0.05, 0.01), nights_of(rng, new, 0.05, 0.01)
        contrast, _ = over_occasions(a, b, "ratio", LEVEL)
        alarms += (contrast.p_beyond(0.0, worse_is_more=True) or 1.0) <= LEVEL
        plain = compare([v for night in a for v in night], [v for night in b for v in night], "ratio")
        before += (plain.p_beyond(0.0, worse_is_more=True) or 1.0) <= LEVEL
    assert alarms <= 11  # 4 are expected; 12 and more come about once in a thousand times
    assert before >= 40  # as if runs were independent: ten times what was promised, and more


def test_where_nights_do_not_differ_runs_on_many_nights_still_show_a_change():
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(200):
        b = [[1.15 * v for v in night] for night in nights_of(rng, [3, 3], 0, 0.01)]
        contrast, _ = over_occasions(nights_of(rng, [2] * 6, 0, 0.01), b, "ratio", LEVEL)
        found += contrast.p_beyond(0.0, worse_is_more=True) <= LEVEL
    assert found >= 190


def test_two_occasions_and_single_runs_are_welch_s_alone():
    rng = np.random.default_rng(1)
    a, b = nights_of(rng, [3, 3], 0.05, 0.01), nights_of(rng, [3], 0.05, 0.01)
    plain = compare([v for night in a for v in night], b[0], "ratio")
    assert over_occasions(a, b, "ratio", LEVEL) == (plain, None)
    assert over_occasions([[1.0], [1.0], [1.0]], [[1.0]], "ratio", LEVEL)[1] is None
    assert over_occasions([[0.0], [1.0], [1.0]], [[1.0]], "ratio", LEVEL) == (None, None)


def test_sides_that_vary_unequally_are_left_to_welch_s():
    """New runs all over the place, against nights as alike as can be: pooled they would look sure."""
    rng = np.random.default_rng(2)
    a, b = nights_of(rng, [4] * 8, 0.002, 0.002), nights_of(rng, [3], 0, 0.10)
    contrast, _ = over_occasions(a, b, "ratio", LEVEL)
    assert contrast == compare([v for night in a for v in night], b[0], "ratio")


def told(cells):
    return page(cells, Baseline(where="b", runs=(), ignored=(), trusted=frozenset({"Ann"}), accepted={}))


def test_the_page_says_how_nights_vary_or_that_it_is_not_known(nights):
    new = nights(3, first=9, each=3, seed=2, prefix="new")
    said = told(check(new, nights(12, each=3)))
    assert "Runs vary from occasion to occasion, and within one, by (standard deviations): step\\_time\\_s " in said
    assert "how much nights differ is not known" not in said
    said = told(check(new, nights(6, each=3)))
    assert "2 occasions: how much nights differ is not known" in said
    assert "Runs vary from" not in said
