"""What of a report's page is shown in a terminal: its verdicts, and the tables that people come for."""

import re
import unicodedata

from reports.html.document import inline, plain

TABLES = ("Placements", "Where a step goes", "Frameworks x placements", "Whether it may be believed")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def verdicts(page: str) -> str:
    """What a page says first, as plain text: all before its first section, without tables and sub-points."""
    head = re.split(r"^## ", page, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in head.splitlines() if not line.startswith(("  ", "|", "!", "<")) and line.strip() != ">"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_plain(line) for line in lines)).strip() + "\n"


def tables(page: str) -> str:
    """The tables of the sections in TABLES, aligned, each under its heading; details and notes are left out."""
    page = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    parts = _SECTION.split(page)
    shown: list[str] = []
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title not in TABLES:
            continue
        shown += [title, ""]
        rows: list[list[str]] = []
        for line in [*body.splitlines(), ""]:
            if line.startswith("|"):
                rows.append([_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))])
            elif rows:
                shown += [*_aligned(rows), ""]
                rows = []
            if line.startswith("### "):
                shown += [_plain(line), ""]
    return "\n".join(shown)


def _aligned(rows: list[list[str]]) -> list[str]:
    """Markdown rows as columns; the second row only says how a column is aligned."""
    right = [cell.endswith(":") and not cell.startswith(":") for cell in rows[1]]
    body = [rows[0], *rows[2:]]
    widths = [max(_width(row[column]) for row in body) for column in range(len(rows[0]))]
    return [
        "  ".join(
            " " * (width - _width(cell)) + cell if to_right else cell + " " * (width - _width(cell))
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in body
    ]


def _plain(text: str) -> str:
    """A line as it reads: within code an entity is text, elsewhere it is a character."""
    return plain(inline(re.sub(r"^#+ |^> |</?su[bp]>|<br>", "", text)))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
