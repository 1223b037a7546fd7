"""Tables that others publish: CSV, TSV, JSON, JSON lines, and the tables in Markdown or in text with tabs."""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_BAR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `line`: of the file, from 1 (None in JSON)."""

    cells: tuple[str, ...]
    line: int | None


@dataclass(slots=True)
class TextTable:
    """A table as text: every row has a cell for every column. `problems`: rows that were left out, with why."""

    columns: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    line: int | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, cells: Sequence[str], line: int | None) -> None:
        """A row; one of another length is a problem: a torn line joins two rows into one."""
        cells = [cell.strip() for cell in cells]
        if len(cells) == len(self.columns):
            self.rows.append(Row(tuple(cells), line))
        else:
            where = f"line {line}" if line is not None else f"row {len(self.rows) + 1}"
            self.problems.append(f"{where}: {len(cells)} cells under {len(self.columns)} columns: left out")


def read_tables(text: str, suffix: str) -> list[TextTable]:
    """The tables of a file's text, by its suffix (`.csv`, `.tsv`, `.json`, `.jsonl`; all else is searched for tables).

    Raises:
        ValueError: JSON that is damaged, or that holds no rows; CSV that is binary.
    """
    text = text.removeprefix("\ufeff")
    if suffix == ".csv":
        return _separated(text, ",")
    if suffix == ".tsv":
        return _separated(text, "\t")
    if suffix in (".jsonl", ".ndjson"):
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        return [_records([(_loads(line), number) for number, line in lines])]
    if suffix == ".json":
        return [_of_json(_loads(text))]
    lines_of = text.splitlines()
    return sorted([*_markdown(lines_of), *_tabbed(lines_of)], key=lambda table: table.line or 0)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except RecursionError:
        raise ValueError("too deeply nested") from None


def _separated(text: str, delimiter: str) -> list[TextTable]:
    reader = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter)
    table: TextTable | None = None
    try:
        lines = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:  # a NUL, or a quoted field without an end
        raise ValueError(f"line {reader.line_num}: {error}") from None
    for number, cells in lines:
        if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
            continue
        if table is None:
            table = TextTable(tuple(cell.strip() for cell in cells), line=number)
        else:
            table.add(cells, number)
    return [] if table is None else [table]


def _of_json(read: Any) -> TextTable:
    """Rows of JSON: a list of objects, an object of lists, `columns` with `data` or `rows`, objects by name, or one."""
    if isinstance(read, dict):
        rows = read.get("data", read.get("rows"))
        if isinstance(read.get("columns"), list) and isinstance(rows, list):
            table = TextTable(tuple(map(str, read["columns"])))
            for row in rows:
                table.add([_text(cell) for cell in row], None)
            return table
        values = list(read.values())
        if values and all(isinstance(value, list) for value in values):
            length = max(map(len, values))
            padded = [[*value, *[None] * (length - len(value))] for value in values]
            return _records([(dict(zip(read, row, strict=True)), None) for row in zip(*padded, strict=True)])
        if values and all(isinstance(value, dict) for value in values):
            return _records([({"name": name, **value}, None) for name, value in read.items()])
        return _records([(read, None)])
    if isinstance(read, list):
        return _records([(row, None) for row in read])
    raise ValueError("no rows: expected a list of objects, or an object of lists")


def _records(records: Sequence[tuple[Any, int | None]]) -> TextTable:
    flat = []
    for record, line in records:
        if not isinstance(record, dict):
            raise ValueError("no rows: expected objects, one for each row")
        flat.append((dict(_flat(record)), line))
    columns = tuple(dict.fromkeys(key for record, _ in flat for key in record))
    table = TextTable(columns, line=1)
    for record, line in flat:
        table.add([record.get(column, "") for column in columns], line)
    return table


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _markdown(lines: Sequence[str]) -> Iterator[TextTable]:
    place = 0
    while place + 1 < len(lines):
        header = lines[place]
        if "|" not in header or not _RULE.match(lines[place + 1]) or "|" not in lines[place + 1]:
            place += 1
            continue
        table = TextTable(tuple(_cells(header)), line=place + 1)
        place += 2
        while place < len(lines) and "|" in lines[place]:
            table.add(_cells(lines[place]), place + 1)
            place += 1
        yield table


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|").strip() for cell in _BAR.split(line.strip().strip("|"))]


def _tabbed(lines: Sequence[str]) -> Iterator[TextTable]:
    """Blocks of two or more neighbouring lines with as many tabs each."""
    place = 0
    while place + 1 < len(lines):
        tabs = lines[place].count("\t")
        if not tabs or lines[place + 1].count("\t") != tabs:
            place += 1
            continue
        table = TextTable(tuple(cell.strip() for cell in lines[place].split("\t")), line=place + 1)
        place += 1
        while place < len(lines) and lines[place].count("\t") == tabs:
            table.add(lines[place].split("\t"), place + 1)
            place += 1
        yield table
