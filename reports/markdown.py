"""Markdown as text: cells that cannot break a table, numbers with the digits they earn, footnotes for the unknown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

UNKNOWN = "–"
LEFT, RIGHT = ":--", "--:"


@dataclass(slots=True)
class Footnotes:
    """Numbers reasons in the order in which they are first used; one reason has one number."""

    reasons: list[str] = field(default_factory=list)

    def mark(self, reason: str) -> str:
        """The reference of that reason, e.g. `[^1]`."""
        clean = one_line(reason)
        if clean not in self.reasons:
            self.reasons.append(clean)
        return f"[^{self.reasons.index(clean) + 1}]"

    def unknown(self, reason: str) -> str:
        """What stands in place of a number that is not known, with why."""
        return UNKNOWN + self.mark(reason)

    def lines(self) -> list[str]:
        """The notes themselves, for the end of the page."""
        return [f"[^{number}]: {escape(reason)}" for number, reason in enumerate(self.reasons, start=1)]


def plural(count: int, what: str) -> str:
    """E.g. `1 run`, `2 runs`, `3 processes`, `4 trajectories`."""
    if count == 1:
        return f"{count:,} {what}"
    if what.endswith("y") and what[-2:-1] not in "aeiou":
        return f"{count:,} {what[:-1]}ies"
    return f"{count:,} {what}{'es' if what.endswith('s') else 's'}"


def one_line(text: str) -> str:
    """Text without line breaks, tabs or other control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def escape(text: object) -> str:
    """A value as text that Markdown prints as it is, also inside a table cell."""
    return one_line(str(text)).translate(_ESCAPED)


# An ampersand too: a run's text `&lt;` would else be printed as `<`.
_ESCAPED = str.maketrans({**{c: f"\\{c}" for c in "\\`*_|[]~"}, "&": "&amp;", "<": "&lt;", ">": "&gt;"})


def code(text: object) -> str:
    """A value as code, safe inside a table cell: a `|` is written as a backslash escape, as GitHub's tables read it."""
    clean = one_line(str(text)).replace("|", "\\|")
    if not clean:
        return ""
    fence = "`"
    while fence in clean:
        fence += "`"
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> list[str]:
    """A table's lines. Cells are Markdown already (`escape` what is a value).

    Args:
        header: the columns' names.
        rows: cells, one list per row, each as long as the header.
        align: one letter per column, `l` or `r`; columns beyond it are right-aligned.

    Raises:
        ValueError: a row has another number of cells than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under {len(header)} columns: {list(row)!r}")
    sides = [LEFT if place < len(align) and align[place] == "l" else RIGHT for place in range(len(header))]
    return [_row(header), _row(sides), *(_row(row) for row in rows)]


def number(value: float, digits: int = 3) -> str:
    """A number with that many significant digits, thousands grouped; whole numbers whole, tiny ones as 1.2e-07."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= 15:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - size)
    if round(abs(value), decimals) >= 10 ** (size + 1):
        decimals = max(0, decimals - 1)
    return f"{value:,.{decimals}f}"


def seconds(value: float) -> str:
    """Seconds, to three digits below 100 s and whole above."""
    return f"{number(value)} s" if abs(value) < 100 else f"{value:,.0f} s"


def percent(ratio: float) -> str:
    """A ratio as per cent, one decimal; more than nothing is never 0.0 %, less than all never 100.0 %."""
    value = 100 * ratio
    if value != 0 and abs(value) < 0.05:
        return "<0.1%" if value > 0 else ">-0.1%"
    if 99.95 <= value < 100 - 1e-6:
        return ">99.9%"
    return f"{value:.1f}%"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell if cell else " " for cell in cells) + " |"
