"""A large table read part by part, as it was written: the next part is read while one is used."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from results.table_problems import check_columns, unreadable


def parts_of(
    path: Path, columns: Sequence[str], *, text: Sequence[str] = (), known: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Some columns of the table at `path`, those of `text` dictionary-encoded.

    Where `known` names columns, parts in which none of them has a value are left out, by what the file says of itself.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        with pq.ParquetFile(path, read_dictionary=list(text)) as file, ThreadPoolExecutor(1) as ahead:
            check_columns(path, file.schema_arrow, columns)
            groups = iter(_groups(file.metadata, known))

            def following() -> Future[pa.Table] | None:
                group = next(groups, None)
                return None if group is None else ahead.submit(file.read_row_group, group, list(columns))

            reading = following()
            while reading is not None:
                part = reading.result()
                reading = following()
                yield from part.to_batches()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def _groups(metadata: pq.FileMetaData, known: Sequence[str]) -> list[int]:
    """The groups of rows in which one of the columns `known` may have a value; all where it names none."""
    every = range(metadata.num_row_groups)
    if not known:
        return list(every)
    places = [place for place in range(metadata.num_columns) if metadata.schema.column(place).path in known]
    return [group for group in every if any(_may_hold(metadata.row_group(group).column(place)) for place in places)]


def _may_hold(column: pq.ColumnChunkMetaData) -> bool:
    told = column.statistics
    return told is None or not told.has_null_count or told.null_count < column.num_values
