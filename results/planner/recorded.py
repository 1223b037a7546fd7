"""Laws from what was recorded: a column of a Parquet file, or the trajectories of a measured run.

pyarrow is loaded where a file is read, and no earlier: a cluster's nodes get laws as numbers, and need none.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError
from results.planner.checks import number

MOST_ROWS = 10_000_000
Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which rows of a file count.

    Args:
        where: by column, the values that a row may have (all columns together).
        after: by column, the values that the row before it may have: the one before in the file with the same `per`.
            A first row has none before it, and is left out.
        per: the column that tells sessions apart; needed by `after`.
        at_most: values above it are left out (in the column's own unit); None keeps all.
    """

    where: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    after: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    per: str | None = None
    at_most: float | None = None


def chosen_of(table: Mapping[str, Any], where: str) -> Chosen:
    """The rows that the keys `where`, `after`, `per` and `at_most` of a law's table choose.

    Raises:
        SpecError: one of them is of another kind, or `after` has no `per`.
    """
    at_most, per = table.get("at_most"), table.get("per")
    if at_most is not None:
        number(f"{where}.at_most", at_most)
    if per is not None and not isinstance(per, str):
        raise SpecError(f"{where}.per = {per!r}: allowed is a column's name")
    found = Chosen(
        where=_values(table.get("where", {}), f"{where}.where"),
        after=_values(table.get("after", {}), f"{where}.after"),
        per=per,
        at_most=None if at_most is None else float(at_most),
    )
    if found.after and per is None:
        raise SpecError(f"{where}.after: give per, the column within which one row comes after another")
    return found


def _values(table: object, where: str) -> dict[str, tuple[Value, ...]]:
    if not isinstance(table, Mapping):
        raise SpecError(f"{where} = {table!r}: allowed is a table of columns, e.g. {{ type = 'n' }}")
    found = {}
    for name, value in table.items():
        values = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not values or not all(isinstance(one, Value) for one in values):
            raise SpecError(f"{where}.{name} = {value!r}: allowed is a value or a list of values")
        found[name] = values
    return found


def column_values(file: str, column: str, where: str, chosen: Chosen | None = None) -> tuple[float, ...]:
    """The numbers in a column of a Parquet file; rows without one, and those not chosen, are left out.

    Raises:
        SpecError: it can't be read, has no such column, the column has no numbers, or no row with one is chosen.
    """
    import pyarrow as pa

    chosen = chosen or Chosen()
    table = _read(file, [column, *_columns(chosen)], where)
    values = _plain(table, column, where)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise SpecError(f"{where}: column {column} of {file} holds {values.type}, no numbers")
    kept = [value for value, take in zip(values.to_pylist(), _take(table, chosen, file, where), strict=True) if take]
    limit = chosen.at_most
    found = tuple(float(value) for value in kept if value is not None and (limit is None or value <= limit))
    if not found:
        rows = "that is chosen " if chosen != Chosen() else ""
        raise SpecError(f"{where}: column {column} of {file} holds no number {rows}".rstrip())
    return found


def rows_per(file: str, column: str, where: str, chosen: Chosen | None = None) -> tuple[int, ...]:
    """How many rows each value of a column has, of those chosen: turns per session, say.

    Raises:
        SpecError: it can't be read, has no such column, or no row is chosen.
    """
    chosen = chosen or Chosen()
    table = _read(file, [column, *_columns(chosen)], where)
    names = zip(_plain(table, column, where).to_pylist(), _take(table, chosen, file, where), strict=True)
    counts = Counter(value for value, take in names if value is not None and take)
    if not counts:
        rows = " that is chosen" if chosen != Chosen() else ""
        raise SpecError(f"{where}: column {column} of {file} holds nothing{rows}")
    return tuple(sorted(counts.values()))


def trajectory_seconds(run: str, where: str) -> tuple[float, ...]:
    """Seconds from begin to end of each trajectory of a run that ended well, waits and pauses included.

    Raises:
        SpecError: no run folder with tables, or no trajectory in it ended well.
    """
    path = Path(run) / "tables" / "trajectories.parquet"
    if not path.is_file():
        raise SpecError(f"{where} = {run}: no run folder with tables; `bench collect {run}` makes them")
    table = _read(str(path), ["status", "start_ns", "end_ns"], where)
    found = [
        (row["end_ns"] - row["start_ns"]) / 1e9
        for row in table.to_pylist()
        if row["status"] == "ok" and row["end_ns"] is not None and row["start_ns"] is not None
    ]
    if not found:
        raise SpecError(f"{where} = {run}: no trajectory of it ended well")
    return tuple(found)


def _columns(chosen: Chosen) -> list[str]:
    return [*chosen.where, *chosen.after, *([chosen.per] if chosen.per is not None else [])]


def _take(table: Any, chosen: Chosen, file: str, where: str) -> list[bool]:
    """For each row of the file whether it is chosen."""
    take = [True] * table.num_rows
    for name, allowed in chosen.where.items():
        own = _plain(table, name, where).to_pylist()
        _occurs(own, allowed, f"{where}.where.{name}", file)
        take = [one and value in allowed for one, value in zip(take, own, strict=True)]
    if chosen.after and chosen.per is not None:
        before: list[int | None] = []
        last: dict[Any, int] = {}
        for place, value in enumerate(_plain(table, chosen.per, where).to_pylist()):
            before.append(last.get(value))
            last[value] = place
        for name, allowed in chosen.after.items():
            own = _plain(table, name, where).to_pylist()
            _occurs(own, allowed, f"{where}.after.{name}", file)
            take = [
                one and place is not None and own[place] in allowed for one, place in zip(take, before, strict=True)
            ]
    return take


def _occurs(own: list[Any], allowed: Sequence[Value], where: str, file: str) -> None:
    there = set(own)
    for value in allowed:
        if value not in there:
            known = ", ".join(sorted(repr(one) for one in there if one is not None)[:20])
            raise SpecError(f"{where} = {value!r}: no row of {file} has it; there are {known}")


def _plain(table: Any, column: str, where: str) -> Any:
    import pyarrow as pa

    found = table.column(column).combine_chunks()
    if pa.types.is_nested(found.type):
        raise SpecError(f"{where}: column {column} holds {found.type}; allowed is a column of plain values")
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def _read(file: str, columns: Sequence[str], where: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(os.path.expanduser(file))  # noqa: PTH111  # Path's raises for a user that isn't there
        missing = [name for name in columns if name not in parquet.schema_arrow.names]
        if missing:
            known = ", ".join(parquet.schema_arrow.names)
            raise SpecError(f"{where}: {file} has no column {missing[0]}; it has {known}")
        if parquet.metadata.num_rows > MOST_ROWS:
            raise SpecError(f"{where}: {file} has {parquet.metadata.num_rows} rows; allowed is at most {MOST_ROWS}")
        return parquet.read(list(dict.fromkeys(columns)))
    except (OSError, pa.ArrowException) as error:
        raise SpecError(f"{where}: {file} cannot be read as Parquet: {error}") from None
