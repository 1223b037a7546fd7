"""Blame adds up to the last bit, names what was planted, and says when it speaks of two runs only."""

import math
from fractions import Fraction

import pytest
from comparing_folders import collected, play_run
from hypothesis import given, settings
from hypothesis import strategies as st
from made_measures import made_run, steady

from results.comparing.blame import blame
from results.comparing.measures import RunMeasures
from results.comparing.measuring import measure_run
from results.comparing.welch import noise_of

_seconds = st.floats(0.0, 1e4, allow_nan=False)


@given(st.lists(st.lists(_seconds, min_size=4, max_size=4), min_size=2, max_size=6), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_effects_and_remainder_are_the_total(rows: list[list[float]], cut: int) -> None:
    names = ("phase_train_s", "phase_logprob_s", "exposed_tool_s", "phase_other_s")
    runs = [
        made_run(f"r{i}", {name: [s + 0.1] for name, s in zip(names, row, strict=True)}) for i, row in enumerate(rows)
    ]
    cut = min(cut, len(runs) - 1)
    found = blame(runs[:cut], runs[cut:])
    assert not isinstance(found, str)
    total = math.fsum([*(one.seconds for one in found.effects), found.remainder.seconds])
    assert total == pytest.approx(found.total.seconds, abs=1e-12, rel=1e-12)
    # What is left is what nobody named, to rounding: nothing else hides in it.
    other = [Fraction(row[3]) for row in rows]
    left = sum(other[cut:]) / len(other[cut:]) - sum(other[:cut]) / cut
    assert found.remainder.seconds == pytest.approx(float(left), abs=1e-8)


def test_what_was_planted_is_blamed() -> None:
    a = [steady(f"a{i}", 0.30 + 0.003 * i, 1.0 + 0.02 * i) for i in range(4)]
    b = [steady(f"b{i}", 0.36 + 0.003 * i, 1.0 + 0.02 * i) for i in range(4)]
    found = blame(a, b)
    assert not isinstance(found, str)
    assert found.culprit is not None
    assert found.culprit.name == "phase_train_s"
    assert found.culprit.seconds == pytest.approx(0.06)
    assert found.effects[0].name == "phase_train_s"
    assert not next(one for one in found.effects if one.name == "exposed_tool_s").shown
    # The whole step is noisier than its training: the total need not be shown for its part to be.
    assert found.total.low is not None
    assert found.total.low < found.total.seconds < (found.total.high or 0)


def test_no_culprit_where_nothing_is_shown() -> None:
    a = [steady(f"a{i}", 0.30 + 0.05 * i) for i in range(3)]
    b = [steady(f"b{i}", 0.31 + 0.05 * i) for i in range(3)]
    found = blame(a, b)
    assert not isinstance(found, str)
    assert found.culprit is None


def test_a_slower_part_is_blamed_though_noise_made_the_step_faster() -> None:
    tools_a, tools_b = (1.5, 1.2, 1.4, 1.1), (1.3, 1.0, 1.2, 1.1)
    a = [steady(f"a{i}", 0.300 + 0.001 * i, tool) for i, tool in enumerate(tools_a)]
    b = [steady(f"b{i}", 0.340 + 0.001 * i, tool) for i, tool in enumerate(tools_b)]
    found = blame(a, b)
    assert not isinstance(found, str)
    assert found.total.seconds < 0
    assert not found.total.shown
    assert found.culprit is not None
    assert found.culprit.name == "phase_train_s"
    # Where the whole is shown to be faster, a part that is slower is not what made it so.
    faster = blame(a, [steady(f"b{i}", 0.340 + 0.001 * i, tool / 4) for i, tool in enumerate(tools_b)])
    assert not isinstance(faster, str)
    assert faster.culprit is not None
    assert faster.culprit.name == "exposed_tool_s"


def test_one_run_a_side_is_paired_by_plan_and_says_so() -> None:
    waits = [1.0, 3.0, 2.0, 5.0, 1.5, 4.0]
    a = made_run("a", {"phase_train_s": [0.3, 0.31, 0.30, 0.29, 0.3, 0.31], "exposed_tool_s": waits})
    b = made_run("b", {"phase_train_s": [0.4, 0.41, 0.40, 0.40, 0.4, 0.41], "exposed_tool_s": waits})
    found = blame([a], [b])
    assert not isinstance(found, str)
    assert found.within_runs
    train = next(one for one in found.effects if one.name == "phase_train_s")
    assert train.low is not None
    assert train.low > 0.09
    tool = next(one for one in found.effects if one.name == "exposed_tool_s")
    assert (tool.seconds, tool.low, tool.high) == (0.0, 0.0, 0.0)


def test_async_single_runs_have_no_interval() -> None:
    found = blame([steady("a", 0.3, placement="async")], [steady("b", 0.4, placement="async")])
    assert not isinstance(found, str)
    assert not found.within_runs
    assert found.total.seconds == pytest.approx(0.1)
    assert found.total.low is None
    assert found.culprit is None


def test_a_baselines_noise_gives_single_runs_an_interval() -> None:
    noise = {"phase_train_s": noise_of([0.30, 0.302, 0.298, 0.301], "difference")}
    found = blame([steady("a", 0.3)], [steady("b", 0.4)], noise=noise)
    assert not isinstance(found, str)
    train = next(one for one in found.effects if one.name == "phase_train_s")
    assert train.low is not None
    assert 0.08 < train.low < 0.1


def test_a_run_without_a_step_time_is_named() -> None:
    bad = made_run("broken", {"phase_train_s": [1.0]})
    values = {**bad.values, "step_time_s": type(bad.values["step_time_s"])(None, "no steady window")}
    broken = type(bad)(**{name: getattr(bad, name) for name in bad.__slots__ if name != "values"}, values=values)
    assert blame([broken], [bad]) == "broken: no steady window"


@pytest.mark.parametrize("placement", ["colocated", "async"])
def test_slower_training_of_whole_runs_is_blamed_on_training(tmp_path, placement: str) -> None:  # type: ignore[no-untyped-def]
    def runs(side: str, factor: float) -> list[RunMeasures]:
        folders = [play_run(tmp_path / f"{side}{i}", placement, slower_train=factor, noise=i) for i in range(4)]
        return [measure_run(collected(folder)) for folder in folders]

    found = blame(runs("a", 1.0), runs("b", 2.0))
    assert not isinstance(found, str)
    assert found.culprit is not None
    assert found.culprit.name == "phase_train_s"
    assert 25 < found.culprit.seconds < 41  # of 33 s
