"""Rows on their way to a table: gathered in short lists, kept as Arrow, so that millions of events fit in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from results.schema import TABLES

BATCH_ROWS = 65_536
_AFTER_ALL = 2**62


class Rows:
    """The growing rows of one table (`columns`: a part of its columns, where the rest is joined later).

    Rows have an order besides what they are sorted by: `at`, where it is set, else that of their adding, after those.
    """

    def __init__(self, table: str, columns: Sequence[str] | None = None) -> None:
        schema = TABLES[table]
        self.schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        self.at: int | None = None
        self._added = 0
        self._lists: list[list[Any]] = [[] for _ in self.schema]
        self._order: list[int] = []
        self._batches: list[pa.RecordBatch] = []
        self._orders: list[npt.NDArray[np.int64]] = []

    def add(self, *values: Any) -> None:
        """One row, its values in the order of the columns."""
        for column, value in zip(self._lists, values, strict=True):
            column.append(value)
        self._order.append(_AFTER_ALL + self._added if self.at is None else self.at)
        self._added += 1
        if len(self._order) >= BATCH_ROWS:
            self._flush()

    def put(self, columns: Mapping[str, Any], order: npt.NDArray[np.int64]) -> None:
        """Many rows: Arrow arrays, or one value for all rows; a column that is not there is null."""
        arrays = []
        for field in self.schema:
            values = columns.get(field.name)
            if isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            if not isinstance(values, pa.Array):
                values = pa.repeat(pa.scalar(values, field.type), order.size)
            arrays.append(values)
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self._orders.append(order)
        self._added += order.size

    def table(self, key: str | None = None) -> pa.Table:
        """All rows, sorted by `key`, equal ones in their order; handed over, so once only."""
        self._flush()
        table = pa.Table.from_batches(self._batches, schema=self.schema).combine_chunks()
        order = np.concatenate([np.empty(0, dtype=np.int64), *self._orders])
        self._batches, self._orders = [], []  # the table has them now
        if key is None or not table.num_rows:
            return table
        times = table[key].to_numpy() if not table[key].null_count else None
        if times is None:
            # Rows without a time come last.
            missing = table[key].is_null().to_numpy()
            times = table[key].fill_null(0).to_numpy()
            return table.take(pa.array(np.lexsort((order, times, missing))))
        if (np.diff(order) < 0).any():
            return table.take(pa.array(np.lexsort((order, times))))
        if (np.diff(times) < 0).any():
            return table.take(pa.array(np.argsort(times, kind="stable")))
        return table

    def _flush(self) -> None:
        if self._order:
            arrays = [pa.array(values, field.type) for values, field in zip(self._lists, self.schema, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._orders.append(np.array(self._order, dtype=np.int64))
            self._lists, self._order = [[] for _ in self.schema], []
