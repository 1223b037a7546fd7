"""Answers against accepted ones, and functions of the user's own."""

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from workloads.deep_research.dataset import Row
from workloads.deep_research.scoring import ScoreError, exact, f1, load_judge, normalise

ROW = Row(prompt=0, question="?", answers=("The Oslo Bridge", "Bridge of Oslo"), extra={"level": 2})


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The  Old Bridge.", "old bridge"),
        ("4,200 metres", "4200 Metres!"),
        ("1\u202f234\u202f567", "1234567"),
        ("ﬁve", "FIVE"),
        ("Straße", "STRASSE"),
        ("an apple, a day", "apple day"),
        ("-5", "\u22125"),
        ("“Oslo”", "oslo"),
    ],
)
def test_what_is_the_same(text: str, same: str) -> None:
    assert normalise(text) == normalise(same)


@pytest.mark.parametrize(
    ("text", "other"), [("3.5", "35"), ("-5", "5"), ("1,23", "1234"), ("theory", "ory"), ("å", "a")]
)
def test_what_is_not(text: str, other: str) -> None:
    assert normalise(text) != normalise(other)


def test_exact_takes_any_accepted_answer() -> None:
    assert exact("the bridge of Oslo", ROW.answers) == 1.0
    assert exact("bridge", ROW.answers) == 0.0
    assert exact("bridge", ()) == 0.0


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    # 2 of 3 given words in an answer of 2: precision 2/3, recall 1.
    assert f1("old Oslo bridge", ["Oslo Bridge"]) == pytest.approx(0.8)
    assert f1("Oslo Oslo", ["Oslo"]) == pytest.approx(2 / 3)
    assert f1("Bergen", ["Oslo", "Bergen harbour"]) == pytest.approx(2 / 3)
    assert f1("x", []) == 0.0
    assert f1("the", ["a"]) == 1.0  # nothing against nothing
    assert f1("the", ["Oslo"]) == 0.0


def judged(reward: str, answer: str) -> float:
    async def judge() -> float:
        return await load_judge(reward)(answer, ROW)

    return asyncio.run(judge())


def test_built_in_judges() -> None:
    assert judged("exact", "Oslo Bridge") == 1.0
    assert judged("f1", "Oslo") == pytest.approx(2 / 3)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("own_scorer")

    async def later(answer: str, row: Row) -> float:
        return 1.0

    module.by_level = lambda answer, row: len(answer) / row.extra["level"]
    module.fails = lambda answer, row: 1 / 0
    module.infinite = lambda answer, row: float("inf")
    module.unary = lambda answer: 1.0
    module.later = later
    module.number = 3
    monkeypatch.setitem(sys.modules, "own_scorer", module)
    return module


@pytest.mark.usefixtures("own")
def test_a_function_of_the_users_own_gets_answer_and_row() -> None:
    assert judged("own_scorer:by_level", "Oslo") == 2.0


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("name", "said"), [("fails", "ZeroDivisionError"), ("infinite", "finite number")])
def test_what_it_raises_or_returns_is_told(name: str, said: str) -> None:
    with pytest.raises(ScoreError, match=said):
        judged(f"own_scorer:{name}", "Oslo")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("no_such_module_here:f", "can't be imported"),
        ("own_scorer:missing", "has no function missing"),
        ("own_scorer:number", "has no function number"),
        ("own_scorer:unary", "can't be called with"),
        ("own_scorer:later", "plain function"),
    ],
)
def test_it_is_looked_at_before_the_run(reward: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_judge(reward)
