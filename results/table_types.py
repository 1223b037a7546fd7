"""Whether the columns of a table's file are as its schema has them: types before any of it is read, nulls as it is."""

from pathlib import Path

import pyarrow as pa

from harness.protocol.errors import SpecError
from results.schema import TABLES


def check_types(path: Path, name: str, schema: pa.Schema) -> None:
    """Whether those columns of table `name` that its file has are of the table's types.

    Raises:
        SpecError: one is not.
    """
    for field in TABLES[name]:
        place = schema.get_field_index(field.name)
        if place >= 0 and schema.field(place).type != field.type:
            raise _wrong(path, f"column {field.name} has type {schema.field(place).type}, it should have {field.type}")


def check_nulls(path: Path, name: str, part: pa.Table | pa.RecordBatch) -> None:
    """Whether a value is known in each row of those columns of table `name` where one must be.

    Raises:
        SpecError: one is not.
    """
    for column in part.schema.names:
        if not TABLES[name].field(column).nullable and (nulls := part.column(column).null_count):
            raise _wrong(path, f"column {column} has {nulls} nulls, none are allowed")


def _wrong(path: Path, what: str) -> SpecError:
    return SpecError(f"{path}: {what}; run `bench collect {path.parent.parent}`")
