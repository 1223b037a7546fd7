"""The Markdown of reports, read back: what was escaped comes back as it was, and nothing becomes markup."""

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.html.document import CODE, NOTE, STRONG, TEXT, Piece, inline, number_in, plain, read
from reports.html.packing import embedded, packed
from reports.markdown import Footnotes, code, escape, one_line, table

NASTY = "<script>alert('x')</script> | `a` **b** [c](javascript:alert(1)) \\ &lt; &amp; \u2028 *d* [^1]"


@given(st.text(max_size=80))
def test_what_was_escaped_comes_back(text: str) -> None:
    # Markdown itself writes `&` as it is, so an entity in a value reads as what it stands for.
    if "&" not in text:
        assert plain(inline(escape(text))) == one_line(text)


@given(st.text(max_size=60))
def test_code_comes_back(text: str) -> None:
    if "\\|" not in text:
        assert plain(inline(code(text))) == one_line(text)


def test_kinds_of_pieces() -> None:
    line = inline(f"**bad**: {escape('a*b')} in {code('x|y')}[^12]")
    assert line == (
        Piece(STRONG, "bad"),
        Piece(TEXT, ": a*b in "),
        Piece(CODE, "x|y"),
        Piece(NOTE, "12"),
    )
    assert plain(line) == "bad: a*b in x|y"


def test_marks_that_are_never_closed_are_text() -> None:
    assert plain(inline("2 * 3 and **open")) == "2 * 3 and **open"


def test_a_table_with_values_totals_and_unknowns() -> None:
    notes = Footnotes()
    rows = [
        [code("p1|s2"), "1,234 s", notes.unknown("no GPU")],
        [escape(NASTY), "<0.1%", "-55.4%"],
        ["**Total**", "**7 s**", " "],
    ]
    page = read(["# Title", "", "## Here", "", *table(["Name", "time", "share"], rows, "l"), "", *notes.lines()])
    (section,) = page.sections
    (block,) = section.blocks
    assert (page.title, section.title) == ("Title", "Here")
    assert [plain(head) for head in block.head] == ["Name", "time", "share"]
    assert block.right == (False, True, True)
    assert [[cell.plain for cell in row] for row in block.rows] == [
        ["p1|s2", "1,234 s", "–"],
        [one_line(NASTY), "<0.1%", "-55.4%"],
    ]
    assert [[cell.value for cell in row][1:] for row in block.rows] == [[1234.0, None], [0.1, -55.4]]
    assert [cell.plain for cell in block.totals[0]] == ["Total", "7 s", ""]
    assert page.notes == {1: (Piece(TEXT, "no GPU"),)}


def test_blocks() -> None:
    lines = ["# T", "", "> one", ">", "> two", "", "- **a**: b", "  - c", "", "## S", "", "### H", "", "text", ""]
    lines += ["![what it shows](figures/x.png)", "", "<details><summary>More</summary>", "", "- `d`", "", "</details>"]
    lines += ["", "<sub>n = 3[^1]</sub>", "", "[^1]: why"]
    page = read(lines)
    head, section = page.sections
    assert [block.kind for block in head.blocks] == ["quote", "list"]
    assert [plain(line) for line in head.blocks[0].lines] == ["one", "two"]
    assert [depth for depth, _ in head.blocks[1].items] == [0, 1]
    assert [block.kind for block in section.blocks] == ["heading", "paragraph", "picture", "details", "caption"]
    assert section.blocks[2].path == "figures/x.png"
    assert section.blocks[3].blocks[0].items == ((0, (Piece(CODE, "d"),)),)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12.5 s", 12.5), ("–", None), ("at most 2x", None), ("+3 pp", 3.0), ("1.2e-07", 1.2e-7), (">99.9%", 99.9)],
)
def test_the_number_that_a_cell_begins_with(text: str, value: float | None) -> None:
    assert number_in(text) == value


def test_embedded_json_ends_no_element_and_no_line() -> None:
    data = {"q": "</script><!--<script>&amp;\u2028\u2029", "half": "\ud800"}
    text = embedded(data)
    assert not any(mark in text for mark in "<>&\u2028\u2029")
    assert json.loads(text)["q"] == data["q"]
    text.encode("utf-8")
    with pytest.raises(ValueError, match="JSON"):
        embedded([float("nan")])


def test_packed_arrays_are_little_endian_and_never_wrap() -> None:
    assert packed([1, 258], "u2") == {"k": "u2", "d": base64.b64encode(struct.pack("<2H", 1, 258)).decode()}
    assert packed([-1.5], "f4")["d"] == base64.b64encode(struct.pack("<f", -1.5)).decode()
    for kind, value in (("u1", 256), ("u4", -1), ("i4", 2**31)):
        with pytest.raises(ValueError, match="does not fit"):
            packed([value], kind)
    with pytest.raises(ValueError, match="allowed is one of"):
        packed([1], "f8")
