"""How far the engines' counters and the replies agree, in the words of the report: never more than was seen."""

import pytest
from recorded_histories import History, ns

from reports.markdown import Footnotes
from reports.tables import adherence_table
from results.adherence import check_adherence
from results.counters import CounterCheck, check_counters

Spans = list[tuple[float, float, int | None]]


def checked(readings: list[tuple[float, float]], spans: Spans) -> tuple[CounterCheck, str]:
    """The check, and its row in the report."""
    history = History()
    for at, value in readings:
        history.add(
            "engine_samples",
            engine="e0",
            mono_ns=ns(at),
            uncertainty_ns=10_000_000,
            family="vllm",
            generation_tokens=float(value),
        )
    for start, end, tokens in spans:
        history.turn("a", start, end, "e0", generated_tokens=tokens)
    run = history.run()
    lines = adherence_table(check_adherence(run), Footnotes())
    (row,) = [line for line in lines if "by the engines' own counters" in line] or [""]
    return check_counters(run), row


def test_more_tokens_than_replies_are_not_called_equal() -> None:
    """As a live run had it: four turns were cut, and eleven tokens of theirs are in the counter."""
    replies: Spans = [(1, 2, 10), (3, 4, 20)]
    cut: Spans = [(6, 8, None)] * 4
    found, row = checked([(0, 0), (5, 30), (9, 41)], replies + cut)
    assert (found.match, found.counted, found.replied, found.more, found.unanswered) == (True, 41, 30, 11, 4)
    said = (
        "equal up to the last reading with no request under way; 11 more were counted in all, and 4 turns without a"
        " reply may be what they are of"
    )
    assert found.agreement == said
    assert said in row
    assert "| equal:" not in row


@pytest.mark.parametrize(
    ("readings", "spans", "agreement"),
    [
        ([(0, 0), (9, 30)], [(1, 2, 10), (3, 4, 20)], "equal"),
        ([(0, 0), (6, 25)], [(1, 2, 10), (3, 8, 20)], "they agree"),
        (
            [(0, 0), (2.5, 10), (6, 25)],
            [(1, 2, 10), (3, 8, 20)],
            "equal up to the last reading with no request under way",
        ),
        (
            [(0, 0), (2.5, 10), (6, 11)],
            [(1, 2, 10), (3, 5, None)],
            "equal up to the last reading with no request under way; 1 more were counted in all, and 1 turn without a"
            " reply may be what they are of",
        ),
    ],
)
def test_how_far_they_agree_is_said(readings: list[tuple[float, float]], spans: Spans, agreement: str) -> None:
    found, _ = checked(readings, spans)
    assert found.match is True
    assert found.agreement == agreement
