import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.page import verdicts
from reports.html.document import inline, plain
from reports.markdown import UNKNOWN, Footnotes, code, escape, number, one_line, percent, plural, seconds, table


def _cells(line: str) -> list[str]:
    """Cells as GitHub splits a row: at every `|` that no backslash escapes."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@given(st.text(max_size=60))
def test_no_value_can_break_a_row(value: str) -> None:
    lines = table(["a", "b"], [[escape(value), code(value)]], "ll")
    assert len(lines) == 3
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert len(_cells(lines[2])) == 2


def test_pipes_newlines_and_markup_are_printed_as_they_are() -> None:
    assert escape("a|b\n*c* <d> [^1]") == r"a\|b \*c\* &lt;d&gt; \[^1\]"
    assert code("x|y") == r"`x\|y`"
    assert code("tick ` inside") == "``tick ` inside``"
    assert code("") == ""
    assert one_line("a\x00b\tc\u2028d") == "a b c d"


def test_alignment_rows_are_ascii() -> None:
    lines = table(["name", "value"], [["a", "1"]], "l")
    assert lines == ["| name | value |", "| :-- | --: |", "| a | 1 |"]
    assert lines[1].isascii()


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="3 cells under 2 columns"):
        table(["a", "b"], [["1", "2", "3"]])


def test_a_reason_is_noted_once_and_in_order_of_use() -> None:
    notes = Footnotes()
    assert notes.unknown("no GPU") == f"{UNKNOWN}[^1]"
    assert notes.mark("too few steps") == "[^2]"
    assert notes.unknown("no\nGPU") == f"{UNKNOWN}[^1]"
    assert notes.lines() == ["[^1]: no GPU", "[^2]: too few steps"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (99.96, "100"),
        (9.0, "9"),
        (float("nan"), "nan"),
        (12.345, "12.3"),
        (0.98765, "0.988"),
        (0.00123, "0.00123"),
        (0.00000012, "1.20e-07"),
        (-3.14159, "-3.14"),
    ],
)
def test_numbers_have_the_digits_they_earn(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(min_value=1e-4, max_value=1e12))
def test_a_printed_number_is_within_half_a_percent(value: float) -> None:
    assert math.isclose(float(number(value).replace(",", "")), value, rel_tol=0.0051)


def test_shares_and_times() -> None:
    assert percent(0.12345) == "12.3%"
    assert percent(0) == "0.0%"
    assert percent(0.0001) == "<0.1%"  # something is not nothing
    assert percent(0.9999) == ">99.9%"  # and not quite all is not all
    assert percent(1.0 - 1e-12) == "100.0%"
    assert percent(-0.161) == "-16.1%"
    assert seconds(4.2) == "4.20 s"
    assert seconds(451.4) == "451 s"


def test_one_is_singular_and_more_are_not() -> None:
    assert [plural(count, "trajectory") for count in (0, 1, 2)] == ["0 trajectories", "1 trajectory", "2 trajectories"]
    assert [plural(1_000, what) for what in ("day", "process", "reply")] == [
        "1,000 days",
        "1,000 processes",
        "1,000 replies",
    ]


@given(st.text(alphabet="&<>|*_`~[]\\;abgltmpqu3#x9 ", max_size=40))
def test_what_is_escaped_is_read_back_as_it_was(value: str) -> None:
    """A run's text `&lt;b&gt;` is those nine characters, not a tag's; a terminal and the HTML page print it so."""
    assert plain(inline(escape(value))) == one_line(value)


def test_entities_in_a_value_are_text() -> None:
    assert escape("&lt;b&gt; R&D ~~gone~~") == r"&amp;lt;b&amp;gt; R&amp;D \~\~gone\~\~"
    shown = verdicts(f"> {escape('&lt;b&gt; R&D <i>')} **so** {code('&lt;*x*')}[^1]\n").strip()
    assert shown == "&lt;b&gt; R&D <i> so &lt;*x*"
