"""Laws from what was recorded: a column of a Parquet file, or the trajectories of a measured run."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError

MOST_ROWS = 10_000_000


def column_values(file: str, column: str, where: str) -> tuple[float, ...]:
    """The numbers in a column of a Parquet file; rows without one are left out.

    Raises:
        SpecError: it can't be read, has no such column, or the column has no numbers.
    """
    values = _column(file, column, where).drop_null()
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise SpecError(f"{where}: column {column} of {file} holds {values.type}, no numbers")
    if not len(values):
        raise SpecError(f"{where}: column {column} of {file} holds no number")
    return tuple(float(value) for value in values.to_pylist())


def rows_per(file: str, column: str, where: str) -> tuple[int, ...]:
    """How many rows each value of a column has: turns per session, say.

    Raises:
        SpecError: it can't be read, or has no such column.
    """
    counts = Counter(value for value in _column(file, column, where).to_pylist() if value is not None)
    if not counts:
        raise SpecError(f"{where}: column {column} of {file} holds nothing")
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


def _column(file: str, column: str, where: str) -> Any:
    column_found = _read(file, [column], where).column(column).combine_chunks()
    return column_found.dictionary_decode() if pa.types.is_dictionary(column_found.type) else column_found


def _read(file: str, columns: list[str], where: str) -> pa.Table:
    try:
        parquet = pq.ParquetFile(Path(file).expanduser())
        missing = [name for name in columns if name not in parquet.schema_arrow.names]
        if missing:
            known = ", ".join(parquet.schema_arrow.names)
            raise SpecError(f"{where}: {file} has no column {missing[0]}; it has {known}")
        if parquet.metadata.num_rows > MOST_ROWS:
            raise SpecError(f"{where}: {file} has {parquet.metadata.num_rows} rows; allowed is at most {MOST_ROWS}")
        return parquet.read(columns)
    except (OSError, pa.ArrowException) as error:
        raise SpecError(f"{where}: {file} cannot be read as Parquet: {error}") from None
