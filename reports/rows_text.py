"""Rows of any Arrow table as text or Parquet: an aligned table, CSV, JSON. Unknown stays unknown in each."""

import csv
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.markdown import one_line

UNKNOWN = "-"


def write_rows(table: pa.Table, form: str, file: IO[bytes]) -> None:
    """Writes `table` to a binary file as `table`, `csv`, `json` (an array of objects) or `parquet`.

    Null is an empty field in CSV, `null` in JSON and `-` in a table. Numbers that JSON has not are text there, and in
    the others the same words: `inf`, `-inf`, `nan`.

    Raises:
        OSError: it cannot be written.
    """
    if form == "parquet":
        pq.write_table(table, file, compression="zstd")
        return
    write = {"table": _aligned, "csv": _csv, "json": _json}[form]
    file.write(write(table).encode("utf-8", "replace"))


def _json(table: pa.Table) -> str:
    rows = [
        "  " + json.dumps(_plain(dict(zip(table.column_names, row, strict=True))), ensure_ascii=False, allow_nan=False)
        for row in _rows(table)
    ]
    return "[\n" + ",\n".join(rows) + "\n]\n" if rows else "[]\n"


def _csv(table: pa.Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in _rows(table):
        writer.writerow([_field(value) for value in row])
    return text.getvalue()


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """By position: an answer may have two columns of one name."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _aligned(table: pa.Table) -> str:
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.to_pylist()
        cells = [name, *(_cell(value) for value in values)]
        width = max(map(len, cells))
        right = (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
        )
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "".join("  ".join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}"
    return one_line(str(_field(value)))  # text of a run may hold what a terminal would obey


def _field(value: Any) -> Any:
    value = _plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case None | bool() | int() | str():
            return value
        case bytes():
            return value.hex()
    return str(value)
