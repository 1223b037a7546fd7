"""A large table read part by part, as it was written: the next part is read while one is used."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from results.table_problems import check_columns, unreadable


class Parts(TypedDict, total=False):
    """Which parts of a table are read, and how.

    Parts are left out, by what the file says of itself: where `known` names columns, those in which none of them has a
    value; where `unknown` does, those in which all of them have one everywhere.
    """

    text: Sequence[str]  # columns that come dictionary-encoded
    known: Sequence[str]
    unknown: Sequence[str]


def parts_in(table: pa.Table, text: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """A table that is in memory, in parts of at most so many rows; the columns `text` dictionary-encoded."""
    for column in text:
        place = table.column_names.index(column)
        table = table.set_column(place, column, table.column(place).dictionary_encode())
    yield from table.to_batches(max_chunksize=rows)


def parts_of(path: Path, columns: Sequence[str], **which: Unpack[Parts]) -> Iterator[pa.RecordBatch]:
    """Some columns of the table at `path`; one without a value in a part, by what the file says, is not read there.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        with pq.ParquetFile(path, read_dictionary=list(which.get("text", ()))) as file, ThreadPoolExecutor(1) as ahead:
            check_columns(path, file.schema_arrow, columns)
            told = _Told(file.metadata)
            groups = iter(told.groups(which.get("known", ()), which.get("unknown", ())))
            schema = pa.schema([file.schema_arrow.field(column) for column in columns])
            text = which.get("text", ())

            def read(group: int) -> pa.Table:
                given = [column for column in columns if column in text or not told.empty(group, column)]
                part = file.read_row_group(group, given or list(columns[:1]))
                if len(given) == len(columns):
                    return part
                arrays = [
                    part[name] if name in given else pa.nulls(len(part), schema.field(name).type) for name in columns
                ]
                return pa.Table.from_arrays(arrays, schema=schema)

            def following() -> Future[pa.Table] | None:
                group = next(groups, None)
                return None if group is None else ahead.submit(read, group)

            reading = following()
            while reading is not None:
                part = reading.result()
                reading = following()
                yield from part.to_batches()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


class _Told:
    """What a file says of the values that its groups of rows have not."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata
        self._places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}

    def _nulls(self, group: int, name: str) -> tuple[int | None, int]:
        """How many of a group's rows have no value in a column (None: the file does not say), and of how many."""
        column = self._metadata.row_group(group).column(self._places[name])
        told = column.statistics
        return (told.null_count if told is not None and told.has_null_count else None), column.num_values

    def empty(self, group: int, name: str) -> bool:
        """Whether none of a group's rows has a value in a column."""
        nulls, rows = self._nulls(group, name) if name in self._places else (None, 0)  # nested: it has several
        return nulls == rows

    def groups(self, known: Sequence[str], unknown: Sequence[str]) -> list[int]:
        """The groups of rows that may hold what is asked for; all where nothing is."""

        def asked(group: int) -> bool:
            of_known, of_unknown = ([self._nulls(group, name) for name in names] for names in (known, unknown))
            may_be = not known or any(missing is None or missing < rows for missing, rows in of_known)
            return may_be and (not unknown or any(missing is None or missing > 0 for missing, _ in of_unknown))

        return [group for group in range(self._metadata.num_row_groups) if asked(group)]
