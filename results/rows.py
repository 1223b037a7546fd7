"""Rows on their way to a table: gathered in short lists, kept as Arrow, so that millions of events fit in memory."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.schema import TABLES

BATCH_ROWS = 65_536


class Rows:
    """The growing rows of one table (`columns`: a part of its columns, where the rest is joined later)."""

    def __init__(self, table: str, columns: Sequence[str] | None = None) -> None:
        schema = TABLES[table]
        self.schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        self._lists: list[list[Any]] = [[] for _ in self.schema]
        self._batches: list[pa.RecordBatch] = []

    def add(self, *values: Any) -> None:
        """One row, its values in the order of the columns."""
        for column, value in zip(self._lists, values, strict=True):
            column.append(value)
        if len(self._lists[0]) >= BATCH_ROWS:
            self._flush()

    def table(self, *keys: str) -> pa.Table:
        """All rows, sorted by `keys`, equal ones in the order they were added; handed over, so once only."""
        self._flush()
        table = pa.Table.from_batches(self._batches, schema=self.schema)
        self._batches = []  # the table has them now, and gives them up once it is sorted
        if not keys or not table.num_rows:
            return table.combine_chunks()
        order = pa.array(range(table.num_rows), pa.int64())
        with_order = table.append_column("", order)
        indices = pc.sort_indices(with_order, [*((key, "ascending") for key in keys), ("", "ascending")])
        return table.take(indices).combine_chunks()

    def _flush(self) -> None:
        if self._lists[0]:
            arrays = [pa.array(values, field.type) for values, field in zip(self._lists, self.schema, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._lists = [[] for _ in self.schema]
