"""Rows on their way to a table: gathered in short lists, kept as Arrow, so that millions of events fit in memory."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from results.schema import TABLES
from results.texts import encoded

BATCH_ROWS = 65_536
_AFTER_ALL = 2**62


class Rows:
    """The growing rows of one table (`columns`: a part of its columns, where the rest is joined later).

    Rows have an order besides what they are sorted by: `at`, where it is set, else that of their adding, after those.
    """

    def __init__(self, table: str, columns: Sequence[str] | None = None, *, texts: Collection[str] = ()) -> None:
        """`texts`: columns of few different texts, which are kept and handed over dictionary-encoded."""
        schema = TABLES[table]
        schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        self.schema = encoded(schema, texts)
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
            arrays.append(_column(field.type, values, order.size))
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self._orders.append(order)
        self._added += order.size

    def table(self, key: str | None = None) -> pa.Table:
        """All rows, sorted by `key`, equal ones in their order; handed over, so once only."""
        self._flush()
        columns = pa.Table.from_batches(self._batches, schema=self.schema).columns
        at = _places(columns[self.schema.get_field_index(key)], self._orders) if key is not None else None
        self._batches, self._orders = [], []  # the table has them now
        made = []
        while columns:  # one by one, so that no more than a column is there twice
            column = pa.table([columns.pop(0)], names=[""]).combine_chunks()
            made.append((column if at is None else column.take(at)).column(0))
        return pa.Table.from_arrays(made, schema=self.schema)

    def _flush(self) -> None:
        if self._order:
            arrays = [
                _column(field.type, pa.array(values, _plain(field.type)), len(values))
                for values, field in zip(self._lists, self.schema, strict=True)
            ]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
            self._orders.append(np.array(self._order, dtype=np.int64))
            self._lists, self._order = [[] for _ in self.schema], []


def _places(key: pa.ChunkedArray, orders: Sequence[npt.NDArray[np.int64]]) -> pa.Array | None:
    """Where the rows lie, sorted by `key`, equal ones in their order; None: they are sorted."""
    order = np.concatenate([np.empty(0, dtype=np.int64), *orders])
    if key.null_count:
        # Rows without a time come last.
        times, missing = key.fill_null(0).to_numpy(), key.is_null().to_numpy()
        return pa.array(np.lexsort((order, times, missing)))
    times = key.to_numpy()
    if (np.diff(order) < 0).any():
        return pa.array(np.lexsort((order, times)))
    return pa.array(np.argsort(times, kind="stable")) if (np.diff(times) < 0).any() else None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _column(kind: pa.DataType, values: Any, count: int) -> pa.Array:
    """A column of that type: of an array, its texts not encoded yet, or of one value for all rows."""
    of_texts = pa.types.is_dictionary(kind)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values.dictionary_encode() if of_texts and values.type != kind else values
    if of_texts and values is not None:
        return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([values], _plain(kind)))
    return pa.repeat(pa.scalar(values, kind), count) if values is not None else pa.nulls(count, kind)
