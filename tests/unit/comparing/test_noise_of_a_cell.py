"""Noise from elsewhere: only of the same cell, and of each side its own."""

from dataclasses import replace

import pytest
from made_measures import steady

from harness.protocol.errors import SpecError
from results.comparing.claims import Verdict
from results.comparing.comparison import Side, compare_sides
from results.comparing.measures import RunMeasures


def one(label: str, train: float, **more: object) -> Side:
    return Side.of(label, [steady(label, train, **more)])


def cell(label: str, spread: float = 0.002, count: int = 5, **more: object) -> Side:
    made = [steady(f"{label}{i}", 0.3 + spread * i, 1.0 + spread * i, **more) for i in range(count)]
    return Side.of(label, made)


def changed(run: RunMeasures, **facts: object) -> dict[str, object]:
    return {"machine": {**run.machine, **facts}}


RUN = steady("any", 0.3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"work": {**RUN.work, "model": "small"}}, r"model \(small, not tiny\)"),
        ({"system": {**RUN.system, "gpus": "1+1"}}, r"gpus \(1\+1, not not on record\)"),
        (changed(RUN, cpu="Another CPU"), r"cpu \(Another CPU, not Example CPU\)"),
        (changed(RUN, host="node-9"), r"host \(node-9, not node-1\)"),
        ({"framework": "areal"}, r"framework \(areal, not simulated\)"),
        ({"granularity": "pool"}, r"granularity"),
    ],
)
def test_noise_of_another_cell_is_refused_with_what_differs(more: dict[str, object], said: str) -> None:
    """A quiet small model's spread would make any two single runs of a larger one differ."""
    with pytest.raises(SpecError, match=said) as error:
        compare_sides([one("a", 0.3), one("b", 0.33)], noise=cell("quiet", **more))
    assert "--noise-from quiet" in str(error.value)


def test_longer_runs_vary_less_and_are_no_noise_of_shorter_ones() -> None:
    long = cell("long", system={**RUN.system, "steps": "60"})
    with pytest.raises(SpecError, match=r"60 steps.*6"):
        compare_sides([one("a", 0.3), one("b", 0.33)], noise=long)
    short = cell("short", system={**RUN.system, "steps": "4"})
    (pair,) = compare_sides([one("a", 0.3), one("b", 0.45)], noise=short).pairs
    assert pair.noise == "short"


def test_of_several_cells_the_one_that_matches_is_taken() -> None:
    other = cell("other", 0.0001, model="large", work={**RUN.work, "model": "large"})
    right = cell("right", 0.004)
    (pair,) = compare_sides([one("a", 0.3), one("b", 0.45)], noise=[other, right]).pairs
    (alone,) = compare_sides([one("a", 0.3), one("b", 0.45)], noise=right).pairs
    assert pair.claim("phase_train_s") == alone.claim("phase_train_s")
    assert pair.noise == "right"
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.verdict is Verdict.WORSE


def test_sides_of_two_cells_need_the_noise_of_both() -> None:
    fast = {"system": {**RUN.system, "offload": "none"}}
    slow = {"system": {**RUN.system, "offload": "full"}}
    sides = [one("a", 0.3, **fast), one("b", 0.45, **slow)]
    with pytest.raises(SpecError, match=r"b: .*offload \(none, not full\)"):
        compare_sides(sides, noise=cell("fast", **fast))
    quiet, loud = cell("quiet", 0.0005, **fast), cell("loud", 0.02, **slow)
    (pair,) = compare_sides(sides, noise=[quiet, loud]).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.contrast is not None
    assert claim.contrast.se is not None
    # The variance of the difference of two single runs is the sum of both cells' variances: the loud one's, nearly.
    (both_loud,) = compare_sides(
        [one("a", 0.3, **slow), one("b", 0.45, **slow)],
        noise=loud,
    ).pairs
    of_loud = both_loud.claim("phase_train_s")
    assert of_loud is not None
    assert of_loud.contrast is not None
    assert claim.contrast.se == pytest.approx(of_loud.contrast.se / 2**0.5, rel=0.01)
    assert claim.contrast.df is not None
    assert of_loud.contrast.df is not None
    assert claim.contrast.df <= of_loud.contrast.df


def test_a_cell_of_two_runs_tells_nothing_of_how_runs_vary() -> None:
    with pytest.raises(SpecError, match="3 or more"):
        compare_sides([one("a", 0.3), one("b", 0.45)], noise=cell("few", count=2))


def test_rows_say_that_a_baselines_noise_is_in_the_blame() -> None:
    from reports.compared.tabular import rows

    found = compare_sides([one("a", 0.3), one("b", 0.45)], noise=cell("noise"))
    bases = {row["basis"] for row in rows([found]) if row["section"] == "blame" and row["ci_low"] is not None}
    assert bases == {"runs and a baseline's noise"}
    within = compare_sides([one("a", 0.3), one("b", 0.45)])
    held = [row for row in rows([within]) if row["section"] == "blame" and row["measure"] == "phase_train_s"]
    assert [(row["basis"], row["n_a"]) for row in held] == [("within runs only", 6)]
    assert replace(found.rule, alpha=0.05) == found.rule
