"""Selection against pipelines of which it is known what they passed over."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from recorded_histories import History, ns

from results.selection import CONFIDENCE, QUANTITIES, RESAMPLES, SEED, Selection, _ratios, selection
from results.window import Window

WINDOW = Window(start_ns=ns(0), end_ns=ns(100), after_step=1, last_step=2, boundaries_ns=(ns(0), ns(100)))


def _found(*, skip_long: bool = False, groups: int = 20, late: int = 0) -> Selection:
    """Groups of a short and a long trajectory (100 and 300 tokens), one a second, trained 20 s after their start."""
    history = History("async")
    trained = []
    for group in range(groups):
        for sample, tokens in enumerate((100 + group, 300 + group)):
            name = f"p{group}-s{sample}"
            plan = {"planned_generated_tokens": tokens, "planned_tool_ns": tokens * 10, "planned_tool_calls": 3}
            history.life(name, group, group + 10, group_id=f"p{group}", prompt=group, sample=sample, **plan)
            if not (skip_long and sample):
                trained.append((name, group + 20))
    for i in range(late):  # too late to be trained inside the window: no sign of anything
        history.life(f"l{i}", 95, None, group_id=f"l{i}", prompt=900 + i, sample=0, planned_generated_tokens=9_000)
    for name, end in trained:
        history.step(1, end, (name,))
    return selection(history.run(), WINDOW)


def test_what_trains_all_it_admits_selects_nothing() -> None:
    found = _found(late=9)
    assert (found.groups, found.admitted, found.trained, found.flagged) == (20, 40, 40, False)
    assert {name: ratio and ratio.value for name, ratio in found.ratios.items()} == {
        "tokens": 1.0,
        "tool_seconds": 1.0,
        "tool_calls": 1.0,
    }


def test_passing_the_long_ones_over_is_flagged_with_an_interval_off_one() -> None:
    found = _found(skip_long=True)
    tokens, calls = found.ratios["tokens"], found.ratios["tool_calls"]
    assert tokens is not None
    assert tokens.value == pytest.approx(109.5 / 209.5)
    assert 0.4 < tokens.ci_low < tokens.value < tokens.ci_high < 0.6
    assert tokens.flagged
    assert calls is not None
    assert not calls.flagged
    assert found.worst is not None
    assert (found.worst[0], found.flagged) == ("tokens", True)
    assert found == _found(skip_long=True)  # the resampling is seeded


def test_fewer_than_four_groups_say_nothing() -> None:
    found = _found(skip_long=True, groups=3)
    assert set(found.ratios.values()) == {None}
    assert found.note == "3 groups were admitted early enough in the window, fewer than 4"
    assert found.flagged is None
    empty = selection(History("async").run(), WINDOW)
    assert empty.note == "no trajectory was admitted and trained on inside the window"


def test_a_retry_of_one_plan_counts_once() -> None:
    history = History("async")
    for group in range(5):
        plan = {"planned_generated_tokens": 100, "planned_tool_ns": 0, "planned_tool_calls": 0}
        history.life(f"p{group}-a0", group, group + 1, status="failed", group_id=f"p{group}", sample=0, **plan)
        history.life(f"p{group}-a1", group + 1, group + 5, group_id=f"p{group}", sample=0, attempt=1, **plan)
        history.step(1, group + 20, (f"p{group}-a1",))
    found = selection(history.run(), WINDOW)
    assert (found.groups, found.admitted, found.trained) == (5, 5, 5)
    assert found.ratios["tool_seconds"] is None  # nothing was planned: no ratio


def test_the_interval_of_many_groups_takes_no_memory_for_each_draw() -> None:
    """Resampled 2,000 times, a day's groups would be more numbers than a machine holds."""
    rng = np.random.default_rng(5)
    groups = np.arange(6_000).repeat(2)
    rows = pd.DataFrame(
        {
            "group_id": [f"g{group:04}" for group in groups],
            "trained": rng.uniform(size=groups.size) < 0.7,
            **{name: rng.integers(1, 9_000, groups.size) for name in QUANTITIES.values()},
        }
    )
    tracemalloc.start()
    found = _ratios(rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50e6
    tokens = found["tokens"]
    assert tokens is not None
    work, trained = rows[QUANTITIES["tokens"]].to_numpy(np.float64), rows["trained"].to_numpy(np.float64)
    parts = (work * trained, trained, work, np.ones(work.size))
    by_group = np.array([np.bincount(groups, weights=each) for each in parts])
    again = np.random.default_rng(SEED)
    drawn = []
    for _ in range(RESAMPLES):  # gathered, one after the other
        taken, used, admitted, all_of_them = by_group[:, again.integers(0, 6_000, 6_000)].sum(axis=1)
        drawn.append((taken / used) / (admitted / all_of_them))
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="inverted_cdf")
    assert (tokens.ci_low, tokens.ci_high) == (pytest.approx(low, rel=1e-12), pytest.approx(high, rel=1e-12))
