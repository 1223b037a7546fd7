"""Selection against pipelines of which it is known what they passed over."""

import pytest
from recorded_histories import History, ns

from results.selection import Selection, selection
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
