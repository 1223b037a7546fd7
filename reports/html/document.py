"""The Markdown that reports are written in, read back as blocks: the HTML page says what the Markdown page says.

Only what `reports.markdown` and the reports write is known: headings, tables, lists, quotes, details, captions,
pictures and footnotes; bold, emphasis, code and escapes within a line. What is not known is text. Nothing here is
markup: blocks hold plain text with a kind, and the template escapes it.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

TEXT, STRONG, CODE, EMPHASIS, NOTE = "text", "strong", "code", "emphasis", "note"

_INLINE = re.compile(
    r"(?P<escaped>\\[\\`*_|<>\[\]~])"
    r"|(?P<fence>`+)(?P<code>.+?)(?<!`)(?P=fence)(?!`)"
    r"|\[\^(?P<note>\d+)\]"
    r"|(?P<strong>\*\*)"
    r"|(?P<emphasis>\*)"
    r"|(?P<newline><br>)"
)
_PICTURE = re.compile(r"!\[(?P<text>.*)\]\((?P<path>[^()]+)\)\s*")
_CELL = re.compile(r"(?<!\\)\|")
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*)(?:\.\d+)?(?:e[+-]?\d+)?")
_CLOSING = {STRONG: re.compile(r"\*\*"), EMPHASIS: re.compile(r"(?<![*\\])\*(?!\*)")}
_FOOTNOTE = re.compile(r"\[\^(\d+)\]: (.*)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a line: text | strong | code | emphasis, or the number of a footnote."""

    kind: str
    text: str


Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell: what it says, and the number it is sorted by (None: sorted as text, after all numbers)."""

    line: Line
    value: float | None

    @property
    def plain(self) -> str:
        """Its text without marks of footnotes."""
        return plain(self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block. `kind`: heading, paragraph, caption, list, quote, table, picture, details."""

    kind: str
    level: int = 0  # of a heading
    lines: tuple[Line, ...] = ()  # heading, paragraph, caption: one; quote: one each
    items: tuple[tuple[int, Line], ...] = ()  # list: depth and text
    head: tuple[Line, ...] = ()  # table
    right: tuple[bool, ...] = ()  # table: which columns are right-aligned
    rows: tuple[tuple[Cell, ...], ...] = ()
    totals: tuple[tuple[Cell, ...], ...] = ()  # rows whose every cell is bold or empty: never sorted among the others
    path: str = ""  # picture
    blocks: "tuple[Block, ...]" = ()  # details

    @property
    def line(self) -> Line:
        """The only line of a heading, paragraph, caption, picture, or a details' summary."""
        return self.lines[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands under one `##`; the first section has no title."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A page: its title, its sections, and the reasons that its footnotes give, by number."""

    title: str
    sections: tuple[Section, ...]
    notes: dict[int, Line] = field(default_factory=dict)


def read(lines: Sequence[str]) -> Document:
    """The page that those Markdown lines are."""
    source = [part for line in lines for part in line.split("\n")]
    notes: dict[int, Line] = {}
    body = []
    for text in source:
        found = _FOOTNOTE.fullmatch(text)
        if found:
            notes[int(found[1])] = inline(found[2])
        else:
            body.append(text)
    title, sections, current = "", [], ("", list[Block]())
    for block in _blocks(body):
        if block.kind == "heading" and block.level == 1:
            title = plain(block.line)
        elif block.kind == "heading" and block.level == 2:
            sections.append(current)
            current = (plain(block.line), [])
        else:
            current[1].append(block)
    sections.append(current)
    made = tuple(Section(title=name, blocks=tuple(blocks)) for name, blocks in sections if name or blocks)
    return Document(title=title, sections=made, notes=notes)


def inline(text: str) -> Line:
    """A line's pieces. Marks that are never closed are text."""
    pieces: list[Piece] = []
    state = {STRONG: False, EMPHASIS: False}
    at = 0

    def add(kind: str, said: str) -> None:
        if not said:
            return
        if pieces and pieces[-1].kind == kind and kind not in (CODE, NOTE):
            said = pieces.pop().text + said
        pieces.append(Piece(kind, said))

    def now() -> str:
        return STRONG if state[STRONG] else EMPHASIS if state[EMPHASIS] else TEXT

    for found in _INLINE.finditer(text):
        add(now(), html.unescape(text[at : found.start()]))
        at = found.end()
        if found["escaped"]:
            add(now(), found["escaped"][1])
        elif found["fence"]:
            inside = found["code"].replace("\\|", "|")
            padded = inside.startswith(" `") or inside.endswith("` ")
            add(CODE, inside[1:-1] if padded else inside)
        elif found["note"]:
            add(NOTE, found["note"])
        elif found["newline"]:
            add(now(), "\n")
        else:
            mark, kind = (found[0], STRONG) if found["strong"] else (found[0], EMPHASIS)
            if state[kind] or _CLOSING[kind].search(text, at):
                state[kind] = not state[kind]
            else:
                add(now(), mark)
    add(now(), html.unescape(text[at:]))
    return tuple(pieces)


def plain(line: Line) -> str:
    """The text of a line, without marks of footnotes."""
    return "".join(piece.text for piece in line if piece.kind != NOTE)


def number_in(text: str) -> float | None:
    """The number that a cell begins with, `1,234 s` or `<0.1%` too; None where it begins with none."""
    found = _NUMBER.match(text.lstrip("<>≤≥±$ "))
    return float(found[0].replace(",", "")) if found else None


def _blocks(lines: Sequence[str]) -> list[Block]:
    made: list[Block] = []
    at = 0
    while at < len(lines):
        text = lines[at]
        if not text.strip():
            at += 1
            continue
        end = at + 1
        if text.startswith("|"):
            end = _run(lines, at, "|")
            made.append(_table(lines[at:end]))
        elif text.startswith(">"):
            end = _run(lines, at, ">")
            quoted = [inline(line[1:].strip()) for line in lines[at:end] if line[1:].strip()]
            made.append(Block(kind="quote", lines=tuple(quoted)))
        elif text.lstrip().startswith("- "):
            while end < len(lines) and lines[end].lstrip().startswith("- "):
                end += 1
            items = [(_depth(line), inline(line.lstrip()[2:])) for line in lines[at:end]]
            made.append(Block(kind="list", items=tuple(items)))
        elif text.startswith("<details>"):
            end = next((n for n in range(at, len(lines)) if lines[n].startswith("</details>")), len(lines))
            summary = text.removeprefix("<details>").removeprefix("<summary>").removesuffix("</summary>")
            inner = tuple(_blocks(lines[at + 1 : end]))
            made.append(Block(kind="details", lines=(inline(summary),), blocks=inner))
            end += 1
        elif (picture := _PICTURE.fullmatch(text)) is not None:
            made.append(Block(kind="picture", lines=(inline(picture["text"]),), path=picture["path"]))
        elif text.startswith("#") and text.lstrip("#").startswith(" "):
            level = len(text) - len(text.lstrip("#"))
            made.append(Block(kind="heading", level=level, lines=(inline(text.lstrip("# ")),)))
        elif text.startswith("<sub>"):
            said = text.removesuffix("<br>").removeprefix("<sub>").removesuffix("</sub>")
            made.append(Block(kind="caption", lines=(inline(said),)))
        else:
            made.append(Block(kind="paragraph", lines=(inline(text),)))
        at = end
    return made


def _run(lines: Sequence[str], at: int, mark: str) -> int:
    while at < len(lines) and lines[at].startswith(mark):
        at += 1
    return at


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 2


def _table(lines: Sequence[str]) -> Block:
    rows = [[cell.strip() for cell in _CELL.split(line.strip())[1:-1]] for line in lines]
    head = tuple(inline(cell) for cell in rows[0])
    sides = rows[1] if len(rows) > 1 else []
    width = len(head)
    right = tuple(side.endswith(":") and not side.startswith(":") for side in sides)
    made = [tuple(_cell(text) for text in (*row, *[""] * (width - len(row)))[:width]) for row in rows[2:]]
    body: list[tuple[Cell, ...]] = []
    totals: list[tuple[Cell, ...]] = []
    for row in made:
        (totals if _is_total(row) else body).append(row)
    return Block(
        kind="table",
        head=head,
        right=(*right, *[False] * (width - len(right)))[:width],
        rows=tuple(body),
        totals=tuple(totals),
    )


def _cell(text: str) -> Cell:
    line = inline(text)
    return Cell(line=line, value=number_in(plain(line)))


def _is_total(row: Sequence[Cell]) -> bool:
    said = [piece for cell in row for piece in cell.line if piece.text.strip()]
    return bool(said) and all(piece.kind == STRONG for piece in said)
