"""Identities in tables that others published: columns are matched to figures, and each row and pair of rows checked."""

import difflib
import math
import re
from collections.abc import Sequence

from harness.protocol.errors import SpecError
from results.importing.tables import Row, TextTable
from results.lint import identities
from results.lint.energy_identities import not_blank
from results.lint.findings import Linted
from results.lint.given import Given
from results.lint.implied import implied_energy
from results.lint.names import (
    COUNT,
    ENERGY,
    FAMILIES,
    LABEL,
    NAMES,
    POWER,
    RATIO,
    TIME,
    Column,
    guessed_columns,
    known_column,
    read_heading,
)
from results.lint.quantity import Quantity, read_number, says_nothing, too_large, unit_fits
from results.lint.rows import Line, check_row

MOST_NAMED = 20  # columns that one message names
MOST_SIGNS = 60  # of a heading or cell in a message
_WHOLE = re.compile(r"^\W*(?:total|sum|whole|overall|all)\b|\btotal\W*$", re.IGNORECASE)


def lint_tables(source: str, tables: Sequence[TextTable], given: Given) -> Linted:
    """Checks the tables of a file.

    Raises:
        SpecError: a column that `given` names is in none of the tables, or is given a name that there is not.
    """
    linted = Linted(source)
    used: set[str] = set()
    for number, table in enumerate(tables, start=1):
        named = f"table {number}, " if len(tables) > 1 else ""
        columns = _in_known_units(_columns(table, given, used), table, named, linted)
        linted.notes += [f"{named}{problem}" for problem in table.problems]
        if not any(column is not None and column.kind != LABEL for column in columns):
            what = f" ({', '.join(map(clipped, table.columns[:MOST_NAMED]))}{_and_more(table.columns)})"
            linted.notes.append(f"{named}no column is known: name them with --map COLUMN=NAME{what}")
            continue
        linted.columns_not_read += [f"{named}{clipped(heading)}" for heading in _not_read(table, columns)]
        _table(
            linted,
            [_line(row, place, columns, table, named, given, linted) for place, row in enumerate(table.rows)],
            given,
        )
    for heading in given.columns:
        if heading not in used:
            headings = list(dict.fromkeys(column for table in tables for column in table.columns))
            near = difflib.get_close_matches(heading, headings, n=1)
            there = f"; there are {', '.join(map(repr, map(clipped, headings[:MOST_NAMED])))}{_and_more(headings)}"
            hint = f"; did you mean {near[0]!r}?" if near else there
            raise SpecError(f"--map {heading}=...: {source} has no such column{hint}")
    return linted


def _columns(table: TextTable, given: Given, used: set[str]) -> list[Column | None]:
    columns: list[Column | None] = [None] * len(table.columns)
    for place, heading in enumerate(table.columns):
        key = next((key for key in given.columns if _same(key, heading)), None)
        if key is None:
            continue
        used.add(key)
        name, _, unit = given.columns[key].partition(":")
        columns[place] = known_column(name.strip(), unit.strip() or read_heading(heading)[1])
        if columns[place] is None:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            families = ", ".join(f"{family}.WORD" for family in FAMILIES)
            raise SpecError(
                f"--map {key}={given.columns[key]}: no figure of that name{hint} (docs/lint.md; or {families})"
            )
    taken = {column.name for column in columns if column is not None}
    guesses = guessed_columns(table.columns, [row.cells for row in table.rows], taken)
    for place, guess in enumerate(guesses):
        if columns[place] is None and guess is not None and guess.name not in taken:
            columns[place] = guess
            taken.add(guess.name)
    return columns


def _in_known_units(
    columns: Sequence[Column | None], table: TextTable, named: str, linted: Linted
) -> list[Column | None]:
    """The columns without those whose unit is not known: their numbers could be thousands, or percent."""
    kept: list[Column | None] = []
    for column, heading in zip(columns, table.columns, strict=True):
        if column is None or column.kind == LABEL or not column.unit or unit_fits(column.kind, column.unit):
            kept.append(column)
            continue
        kept.append(None)
        linted.notes.append(
            f"{named}{clipped(heading)!r} is not used: {clipped(column.unit)!r} is no known unit of {column.name} "
            f"({column.kind}); name one with --map COLUMN={column.name}:UNIT (1: the numbers are as they stand)"
        )
    return kept


def _not_read(table: TextTable, columns: Sequence[Column | None]) -> list[str]:
    """Headings of the columns of numbers that nothing is known of."""
    return [
        heading
        for place, (heading, column) in enumerate(zip(table.columns, columns, strict=True))
        if column is None and any(read_number(row.cells[place]) is not None for row in table.rows)
    ]


def clipped(text: str) -> str:
    """Text of a file as one short printable piece of a message."""
    text = "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))
    return text if len(text) <= MOST_SIGNS else text[: MOST_SIGNS - 1] + "…"


def _and_more(columns: Sequence[str]) -> str:
    return f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else ""


def _same(one: str, two: str) -> bool:
    return one.strip() == two.strip() or " ".join(one.split()).casefold() == " ".join(two.split()).casefold()


def _line(
    row: Row, place: int, columns: Sequence[Column | None], table: TextTable, named: str, given: Given, linted: Linted
) -> Line:
    label = next((cell for cell in row.cells if cell and read_number(cell) is None and not too_large(cell)), "")
    where = f"{named}row {place + 1}" + (f" ({label})" if label else "")
    figures: dict[str, Quantity] = {}
    labels: dict[str, str] = {}
    for column, heading, cell in zip(columns, table.columns, row.cells, strict=True):
        if column is None or not cell:
            continue
        if column.kind == LABEL:
            labels[column.name] = cell
            continue
        read = read_number(cell, exact=column.kind == COUNT)
        value = None if read is None else read.of_kind(column.kind, column.unit)
        if value is not None and not math.isfinite(value.value):  # in its base unit
            value = None
        if read is not None:
            narrow = column.kind in (POWER, ENERGY, RATIO, TIME)
            linted.check(not_blank(read.quantity, column.name, narrow=narrow), where, row.line)
        if value is not None:
            figures[column.name] = value
        elif too_large(cell):
            linted.notes.append(f"{where}: {clipped(heading)!r} = {clipped(cell)!r} is too large to be computed with")
        elif not says_nothing(cell):
            linted.notes.append(
                f"{where}: {clipped(heading)!r} = {clipped(cell)!r} is not read as {column.name} ({column.kind})"
            )
    if given.gpus is not None:
        figures.setdefault("gpus", Quantity.exact(given.gpus))
    if given.limit_watts is not None:
        figures.setdefault("limit_watts", Quantity.exact(given.limit_watts))
    if given.max_staleness is not None:
        figures.setdefault("staleness_bound", Quantity.exact(given.max_staleness))
    return Line(row=where, line=row.line, figures=figures, labels=labels)


def _table(linted: Linted, lines: Sequence[Line], given: Given) -> None:
    for line in lines:
        check_row(linted, line, given)
        _against_baseline(linted, line, given)
    if any("phase" in line.labels for line in lines):
        _phase_rows(linted, lines, given)
        return
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.labels.get("group", ""), []).append(line)
    for group in groups.values():
        _pairs(linted, group, given)


def _against_baseline(linted: Linted, line: Line, given: Given) -> None:
    """What a row says of itself against the run it names as its baseline."""
    q = line.figures
    for time in ("step_s", "wall_s"):
        if time in q and f"{time}_baseline" in q:
            _ratios(linted, line, q[f"{time}_baseline"], q[time], given)
            break
    else:
        if "speed_up" in q and "time_reduction" in q:
            # Both speak of one pair of times: 1 / speed-up is what is left of it.
            left = Quantity.exact(1.0) / q["speed_up"]
            linted.check(
                identities.time_reduction(
                    _magnitude(q["time_reduction"]), Quantity.exact(1.0), left, slack=given.slack
                ),
                line.row,
                line.line,
            )
    implied_energy(linted, line.row, line.line, q, given.slack)


def _ratios(linted: Linted, line: Line, before: Quantity, after: Quantity, given: Given) -> None:
    q = line.figures
    if "speed_up" in q:
        linted.check(identities.speed_up(q["speed_up"], before, after, slack=given.slack), line.row, line.line)
    if "time_reduction" in q:
        stated = _magnitude(q["time_reduction"])
        linted.check(identities.time_reduction(stated, before, after, slack=given.slack), line.row, line.line)
    if "time_change" in q:
        stated = q["time_change"].scaled(-1.0)
        linted.check(identities.time_reduction(stated, before, after, slack=given.slack), line.row, line.line)


def _magnitude(reduction: Quantity) -> Quantity:
    """A reduction without its sign: `-16.1 %` and `16.1 %` are both 16.1 % less."""
    return reduction.scaled(-1.0) if reduction.value < 0 else reduction


def _pairs(linted: Linted, group: Sequence[Line], given: Given) -> None:
    """Each row against the first: the one whose speed-up is 1, else the one at the top."""
    base = next(
        (line for line in group if "speed_up" in line.figures and line.figures["speed_up"].value == 1.0), group[0]
    )
    for line in group:
        if line is base:
            continue
        q, b = line.figures, base.figures
        time = next((name for name in ("step_s", "wall_s") if name in q and name in b), None)
        if time is None or f"{time}_baseline" in q:
            continue
        _ratios(linted, line, b[time], q[time], given)
        if "power_utilisation_baseline" not in q:
            pair = {
                f"{name}_baseline": b[name] for name in ("power_utilisation", "joules_per_step", "gpus") if name in b
            }
            against = f"{line.row} against {base.row}"
            implied_energy(linted, against, line.line, {**q, **pair, f"{time}_baseline": b[time]}, given.slack)


def _phase_rows(linted: Linted, lines: Sequence[Line], given: Given) -> None:
    """Rows that are phases: they sum to no more than the row of the whole, and each share is its part of it."""
    whole = next((line for line in lines if _WHOLE.search(line.labels.get("phase", ""))), None)
    parts = [line for line in lines if line is not whole]
    times = [line.figures["phase_s"] for line in parts if "phase_s" in line.figures]
    shares = [line.figures["share"] for line in parts if "share" in line.figures]
    row = f"{parts[0].row} to {parts[-1].row}" if parts else "no row"
    if len(shares) > 1:
        linted.check(identities.shares_within_one(shares), row)
    step = None if whole is None else whole.figures.get("phase_s")
    if not times:
        return
    if whole is None or step is None:
        linted.unchecked("phases_within_step", row, "no row of the whole step (`Total`)")
        return
    linted.check(identities.phases_within_step(times, step), row, whole.line)
    for line in parts:
        if "phase_s" in line.figures and "share" in line.figures:
            q = line.figures
            what = line.labels.get("phase", "part")
            check = identities.share_of_whole(q["share"], q["phase_s"], step, what, slack=given.slack)
            linted.check(check, line.row, line.line)
