"""A table on its way to disk: written whole or not at all, group of rows by group of rows."""

import base64
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.unfinished import made_whole
from results.schema import conform, empty, with_metadata
from results.texts import encoded, texts_as

_Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
COMPRESSION = "lz4"  # against zstd: a tenth more bytes, written in four fifths of the time, read in half of it


class TableWriter:
    """Writes a table part by part, each a group of rows; it is at its path once all of it is."""

    def __init__(self, path: Path, name: str, run_id: str, texts: Collection[str] = ()) -> None:
        """`texts`: columns that come dictionary-encoded, and are written so; who reads the file sees no difference."""
        self._name = name
        self._stored = with_metadata(name, empty(name), run_id).schema
        self._schema = encoded(self._stored, texts)
        self._writer: pq.ParquetWriter | None = None
        self._path = path

    def __enter__(self) -> "TableWriter":
        with ExitStack() as making:
            self._file = making.enter_context(made_whole(self._path, durable=True)).open("wb")
            making.push(self._end)
            self._making = making.pop_all()
        return self

    def write(self, table: pa.Table) -> None:
        """Adds rows.

        Raises:
            SpecError: they do not fit the table's schema.
            OSError: they cannot be written.
        """
        if table.schema != self._schema or any(
            table.column(field.name).null_count for field in self._schema if not field.nullable
        ):
            # It says what is wrong, if anything is but how the texts come.
            table = texts_as(conform(self._name, texts_as(table, self._stored)), self._schema)
        self._writer = self._writer or self._begun(table)
        self._writer.write_table(table.replace_schema_metadata(None))

    def _begun(self, first: pa.Table) -> pq.ParquetWriter:
        """The file's writer, by what the first rows are like."""
        # Readings and instants hardly repeat: a dictionary of them would be made, and then given up. Instants
        # come in their order, or nearly: their differences are a third of the bytes, and quickly unpacked.
        often = [field.name for field in self._schema if field.type != pa.float64()]
        # Statistics cost a tenth of the writing. Groups of rows are told apart by their instants, by columns that are
        # null throughout, and by whether they are of a GPU.
        told = [name for name in first.column_names if first.column(name).null_count == first.num_rows]
        return pq.ParquetWriter(
            self._file,
            self._schema,
            compression=COMPRESSION,
            use_dictionary=[name for name in often if not name.endswith("_ns")],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in often if name.endswith("_ns")},
            write_statistics=[*told, *(name for name in often if name.endswith("_ns") or name == "gpu")],
            store_schema=False,  # stored at the end: of the table as it is read, its texts plain
        )

    def __exit__(self, *raised: *_Raised) -> None:
        self._making.__exit__(*raised)

    def _end(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                writer = self._writer = self._writer or self._begun(self._schema.empty_table())
                schema = base64.b64encode(self._stored.serialize())
                writer.add_key_value_metadata({**self._stored.metadata, b"ARROW:schema": schema})
                writer.close()
                self._file.close()
        finally:
            if self._writer is not None:
                with suppress(OSError, ValueError, pa.ArrowException):
                    self._writer.close()
                self._writer.is_open = False  # or it would try again when it is forgotten
            with suppress(OSError):
                self._file.close()
