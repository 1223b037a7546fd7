"""What every export reads of a run: columns as lists, the wall clock, and what is content of the run's work."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.store import RunTables

# What the agent asked and read, and messages that may quote it: exported only when asked for.
CONTENT = frozenset({"argument", "detail", "message"})
CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Rows:
    """A table as one list per column."""

    columns: Mapping[str, list[Any]]
    count: int

    @classmethod
    def of(cls, run: RunTables, name: str, columns: Collection[str] | None = None) -> "Rows":
        """The rows of table `name`, of all columns or of those of `columns`."""
        table = run.tables[name]
        wanted = [column for column in table.column_names if columns is None or column in columns]
        return cls({column: values(table[column]) for column in wanted}, table.num_rows)

    def known(self, row: int, names: tuple[str, ...]) -> dict[str, Any]:
        """The values of one row that are known, by column."""
        found = {name: self.columns[name][row] for name in names}
        return {name: value for name, value in found.items() if value is not None}


def values(column: pa.ChunkedArray) -> list[Any]:
    """A column as a list; equal texts are one object, for a run says the same few of them a million times.

    Of floats only finite ones are values: what is none (a gradient's NaN) no format can hold.
    """
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode().unify_dictionaries()
        texts: list[str | None] = encoded.chunk(0).dictionary.to_pylist() if encoded.num_chunks else []
        return [None if n is None else texts[n] for chunk in encoded.chunks for n in chunk.indices.to_pylist()]
    found: list[Any] = column.to_pylist()
    if not pa.types.is_floating(column.type):
        return found
    return [value if value is not None and math.isfinite(value) else None for value in found]


def wall_minus_mono_ns(run: RunTables) -> int | None:
    """What to add to the tables' times to have wall time (ns since 1970); None when no process said both clocks.

    Read once, at the first line of the controller: a wall clock that was set later does not bend the times.
    """
    processes = run.tables["processes"].filter(pc.is_valid(run.tables["processes"]["wall_minus_mono_ns"]))
    hosts = run.tables["hosts"]
    reference = set(hosts.filter(hosts["reference"])["host"].to_pylist())
    rows = processes.select(["host", "role", "mono_ns", "wall_minus_mono_ns"]).to_pylist()
    rows.sort(key=lambda row: (row["host"] not in reference, row["role"] != CONTROLLER, row["mono_ns"]))
    return int(rows[0]["wall_minus_mono_ns"]) if rows else None


def bounds_ns(run: RunTables) -> tuple[int, int] | None:
    """First and last instant that was recorded; None for a run without any."""
    processes = run.tables["processes"]
    first, last = pc.min(processes["first_ns"]).as_py(), pc.max(processes["last_ns"]).as_py()
    return None if first is None or last is None else (first, last)
