"""Reading tables in the forms that they are published in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.importing.tables import TextTable, read_tables


def cells(table: TextTable) -> list[tuple[str, ...]]:
    return [table.columns, *(row.cells for row in table.rows)]


def test_markdown_among_text() -> None:
    text = "# Title\n\ntext | with a bar\n\n| a | b \\| c |\n| :-- | --: |\n| 1 | **2** |\n|3|4|\n\nmore\n\n"
    text += "a | b\n--|--\n5 | 6\n"
    first, second = read_tables(text, ".md")
    assert cells(first) == [("a", "b | c"), ("1", "**2**"), ("3", "4")]
    assert [row.line for row in first.rows] == [7, 8]
    assert cells(second) == [("a", "b"), ("5", "6")]


def test_csv_with_quotes_comments_and_a_mark() -> None:
    (table,) = read_tables('\ufeff# made by hand\nname,tokens\n"a, b","1,234"\n\nc,5\n', ".csv")
    assert cells(table) == [("name", "tokens"), ("a, b", "1,234"), ("c", "5")]


def test_tabs_in_text() -> None:
    first, second = read_tables("words\na\tb\n1\t2\nmore words\nx\ty\tz\n1\t2\t3\n", ".txt")
    assert (cells(first), cells(second)) == ([("a", "b"), ("1", "2")], [("x", "y", "z"), ("1", "2", "3")])


def test_json_keeps_digits() -> None:
    (table,) = read_tables('[{"a": 0.50, "b": 1e3, "c": null, "d": {"e": 7}, "f": [1]}]', ".json")
    assert cells(table) == [("a", "b", "c", "d/e"), ("0.50", "1e3", "", "7")]


def test_json_lines() -> None:
    (table,) = read_tables('{"a": 1}\n\n{"a": 2, "b": 3}\n', ".jsonl")
    assert cells(table) == [("a", "b"), ("1", ""), ("2", "3")]
    assert [row.line for row in table.rows] == [1, 3]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".md", ".txt"])
@given(text=st.text(max_size=300))
def test_any_text_is_read_or_is_no_table(text: str, suffix: str) -> None:
    try:
        tables = read_tables(text, suffix)
    except ValueError:
        return
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@given(text=st.text(max_size=200))
def test_any_json_is_read_or_refused(text: str, suffix: str) -> None:
    try:
        tables = read_tables(text, suffix)
    except ValueError:
        return
    assert all(len(row.cells) == len(table.columns) for table in tables for row in table.rows)
