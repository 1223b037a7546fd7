"""Tables on disk: written whole or not at all, read with their schema checked, older versions brought up to date."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from results.migrations import MIGRATIONS, Migration
from results.schema import RUN_KEY, SCHEMA_VERSION, TABLE_KEY, TABLES, VERSION_KEY, conform, empty, with_metadata
from results.status import read_meta
from results.table_parts import Parts, parts_in, parts_of
from results.table_problems import check_columns, is_file, unreadable
from results.table_types import check_nulls, check_types
from results.table_writing import TableWriter

VERSION = re.compile(r"[0-9]{1,9}")  # of a schema
BATCH_ROWS = 2**18  # of a table that is read part by part
KEPT_ROWS = 2**20  # of a table whose columns are kept once they were read
COMPUTED = (
    "metrics",
    "gpu_energy",
    "class_energy",
)  # tables that are written after the collection, by what computes from it
ADDED = ("engine_samples", "hosts")  # tables that runs collected before they were there have not: without rows then

# Nullable types of pandas, so that an unknown integer stays <NA> and no integer becomes a float.
_PANDAS: Mapping[pa.DataType, Any] = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """A collected run. `meta` is meta.json, its status corrected for a harness that was killed."""

    spec: RunSpec
    meta: Mapping[str, Any]
    run_dir: Path
    tables: Mapping[str, pa.Table] = field(repr=False)

    @property
    def run_id(self) -> str:
        """The run's name."""
        return run_id_of(self.run_dir, self.meta)

    def frame(self, name: str) -> pd.DataFrame:
        """Table `name` as a new frame: integers and flags in pandas' nullable types, unknown floats as NaN.

        Raises:
            SpecError: there is no such table.
        """
        if name not in self.tables:
            raise SpecError(f"table {name!r}: allowed is one of {', '.join(sorted(self.tables))}")
        return self.tables.frame(name) if isinstance(self.tables, StoredTables) else frame_of(self.tables[name])

    def part(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Some columns of table `name`: of a large one, what is not asked for is not read.

        Raises:
            SpecError: the table cannot be read.
        """
        if isinstance(self.tables, StoredTables):
            return self.tables.part(name, columns)
        return self.tables[name].select(list(columns))

    def rows(self, name: str) -> int:
        """How many rows table `name` has."""
        if isinstance(self.tables, StoredTables):
            return self.tables.rows(name)
        return int(self.tables[name].num_rows)

    def batches(self, name: str, columns: Sequence[str], **which: Unpack[Parts]) -> Iterator[pa.RecordBatch]:
        """Some columns of table `name`, part by part; of a large table, the parts that `which` asks for.

        Raises:
            SpecError: the table cannot be read.
        """
        if isinstance(self.tables, StoredTables):
            yield from self.tables.batches(name, columns, **which)
            return
        yield from parts_in(self.tables[name].select(list(columns)), which.get("text", ()), BATCH_ROWS)

    def where(
        self, name: str, columns: Sequence[str], keep: Callable[[pa.RecordBatch], pa.Array], **which: Unpack[Parts]
    ) -> pa.Table:
        """Some columns of the rows of table `name` that `keep` says True of, part by part; `which` as in `batches`.

        Raises:
            SpecError: the table cannot be read.
        """
        schema = schema_of(name, columns)
        kept = [
            pa.Table.from_batches([part]).cast(schema)
            for batch in self.batches(name, columns, **which)
            if (part := batch.filter(keep(batch))).num_rows
        ]
        return pa.concat_tables([schema.empty_table(), *kept])


def schema_of(name: str, columns: Sequence[str]) -> pa.Schema:
    """Some columns of a table's schema."""
    return pa.schema([TABLES[name].field(column) for column in columns])


class StoredTables(Mapping[str, pa.Table]):
    """The tables of a run folder, each read when it is first asked for; SpecError where one cannot be read."""

    def __init__(self, run_dir: Path, names: Collection[str], ready: Mapping[str, pa.Table]) -> None:
        """`names` lie in the folder; `ready` are the others, and what was read already."""
        self._run_dir = run_dir
        self._names = tuple(names)
        self._ready = dict(ready)
        self._frames: dict[str, pd.DataFrame] = {}
        self._columns: dict[str, dict[str, pa.ChunkedArray]] = {}

    def frame(self, name: str) -> pd.DataFrame:
        """A table as a new frame. One that is not large is made once, and its columns are those of all of them."""
        if name not in self._frames:
            made = frame_of(self[name])
            if len(made) > BATCH_ROWS:
                return made
            self._frames[name] = made
        return self._frames[name].copy(deep=False)

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._ready:
            if name not in self._names:
                raise KeyError(name)
            self._ready[name] = read_table(table_path(self._run_dir, name), name)
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._names, *self._ready)))

    def __len__(self) -> int:
        return len({*self._names, *self._ready})

    def part(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Some columns of a table."""
        if name in self._ready or name not in self._names:
            return self[name].select(list(columns))
        kept, path = self._columns.setdefault(name, {}), table_path(self._run_dir, name)
        wanted = [column for column in columns if column not in kept]
        if wanted and self.rows(name) > KEPT_ROWS:
            return read_table(path, name, columns=columns)
        kept.update(zip(wanted, read_table(path, name, columns=wanted).columns, strict=True) if wanted else ())
        return pa.Table.from_arrays([kept[column] for column in columns], schema=schema_of(name, columns))

    def rows(self, name: str) -> int:
        """How many rows a table has."""
        if name in self._ready or name not in self._names:
            return int(self[name].num_rows)
        path = table_path(self._run_dir, name)
        check_table(path, name)
        return int(pq.read_metadata(path).num_rows)

    def batches(self, name: str, columns: Sequence[str], **which: Unpack[Parts]) -> Iterator[pa.RecordBatch]:
        """Some columns of a table, part by part: the next part is read while one is used."""
        path = table_path(self._run_dir, name)
        if name in self._ready or name not in self._names or check_table(path, name) != SCHEMA_VERSION:
            yield from parts_in(self.part(name, columns), which.get("text", ()), BATCH_ROWS)
            return
        for part in parts_of(path, columns, **which):
            check_nulls(path, name, part)
            yield part


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A table as a new frame: integers and flags in pandas' nullable types, unknown floats as NaN."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_PANDAS.get)
    return frame


def tables_dir(run_dir: Path) -> Path:
    """Where a run's tables lie."""
    return run_dir / "tables"


def table_path(run_dir: Path, name: str) -> Path:
    """The file of one table of a run."""
    return tables_dir(run_dir) / f"{name}.parquet"


def run_id_of(run_dir: Path, meta: Mapping[str, Any]) -> str:
    """The run's name: as meta.json has it, else the folder's."""
    name = meta.get("run_id")
    return name if isinstance(name, str) else run_dir.resolve().name


def write_table(path: Path, name: str, table: pa.Table, run_id: str) -> None:
    """Writes table `name` to `path`: temporary name, fsync, rename, fsync of the folder. Texts may come encoded.

    Raises:
        SpecError: the table does not fit its schema.
        OSError: it cannot be written; a file that was at `path` is left as it was.
    """
    texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    with TableWriter(path, name, run_id, texts) as writer:
        writer.write(table)


def read_table(
    path: Path,
    name: str,
    *,
    migrations: Mapping[int, Migration] = MIGRATIONS,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Table `name` (or some columns) from `path`, brought to this version's schema by `migrations` where it is older.

    Raises:
        SpecError: missing, not a table of that name, damaged, or written by a newer `bench`.
    """
    schema, version = _described(path, name, migrations)
    there = columns if version == SCHEMA_VERSION else None  # a migration may need them all
    if there is not None:
        check_columns(path, schema, there)
    try:
        table = pq.read_table(path, partitioning=None, columns=None if there is None else list(there))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None
    if version == SCHEMA_VERSION:
        check_nulls(path, name, table)
    if there is not None:
        return table.select(list(there)).replace_schema_metadata(None)
    run_id = said_in(table.schema, RUN_KEY)
    for old in range(version, SCHEMA_VERSION):
        table = migrations[old](name, table)
    whole = with_metadata(name, conform(name, table, where=str(path)), run_id)
    return whole if columns is None else whole.select(list(columns)).replace_schema_metadata(None)


def check_table(path: Path, name: str, *, migrations: Mapping[int, Migration] = MIGRATIONS) -> int:
    """The schema version of table `name` at `path`, of which only what describes it is read.

    Raises:
        SpecError: missing, not a table of that name, damaged there, of a version that cannot be read, or with a column
            of another type.
    """
    return _described(path, name, migrations)[1]


def said_in(schema: pa.Schema, key: bytes) -> str:
    """What the metadata of a table's file say; "" where they don't. Bytes that are no text become marks."""
    said: bytes = (schema.metadata or {}).get(key, b"")
    return said.decode("utf-8", "replace")


def _described(path: Path, name: str, migrations: Mapping[int, Migration]) -> tuple[pa.Schema, int]:
    """The schema of a table's file, and the version of its tables; raises as `check_table`."""
    try:
        schema = pq.read_schema(path)
    except FileNotFoundError:
        raise SpecError(f"{path}: missing; run `bench collect {path.parent.parent}`") from None
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None
    stored, version = said_in(schema, TABLE_KEY), said_in(schema, VERSION_KEY)
    if stored != name or not VERSION.fullmatch(version):
        raise SpecError(f"{path}: table {stored!r} of schema version {version!r}, expected {name!r} of a known version")
    for old in range(int(version), SCHEMA_VERSION):
        if old not in migrations:
            raise SpecError(
                f"{path}: schema version {old} has no reader any more; run `bench collect {path.parent.parent}`"
            )
    if int(version) > SCHEMA_VERSION:
        raise SpecError(
            f"{path}: schema version {version} was written by a newer bench (this one knows {SCHEMA_VERSION});"
            " upgrade bench, or collect the run again with this one"
        )
    if int(version) == SCHEMA_VERSION:
        check_types(path, name, schema)
    return schema, int(version)


def is_run_folder(run_dir: Path) -> bool:
    """Whether `run_dir` holds a run, collected or not.

    Raises:
        SpecError: it may not be looked into.
    """
    return is_file(run_dir, run_dir / "spec.json")


def is_collected(run_dir: Path) -> bool:
    """Whether every table that a collection writes is there.

    Raises:
        SpecError: the folder may not be looked into.
    """
    return not _lacking(run_dir)


def _lacking(run_dir: Path) -> list[str]:
    """Tables that a collection has always written and that are not there."""
    return [
        name for name in TABLES if name not in (*COMPUTED, *ADDED) and not is_file(run_dir, table_path(run_dir, name))
    ]


def load_run(run_dir: Path) -> RunTables:
    """The tables of a run that was collected. `metrics` has no rows when nothing was computed yet.

    Raises:
        SpecError: not a run folder, not collected, or a table cannot be read: says which and what to do.
    """
    spec = load_spec(run_dir)
    if missing := _lacking(run_dir):
        raise SpecError(f"{run_dir}: not collected (no table {', '.join(missing)}); run `bench collect {run_dir}`")
    meta, _ = read_meta(run_dir)
    ready, there = {}, []
    for name in TABLES:
        path = table_path(run_dir, name)
        if name in (*COMPUTED, *ADDED) and not path.is_file():
            ready[name] = with_metadata(name, empty(name), run_id_of(run_dir, meta))
        else:
            check_table(path, name)
            there.append(name)
    return RunTables(spec=spec, meta=meta, run_dir=run_dir, tables=StoredTables(run_dir, there, ready))


def load_spec(run_dir: Path) -> RunSpec:
    """The spec of a run folder.

    Raises:
        SpecError: not a run folder, or its spec.json cannot be read.
    """
    if not is_run_folder(run_dir):
        what = "no such folder" if not run_dir.exists() else "not a run folder (it has no spec.json)"
        raise SpecError(f"{run_dir}: {what}; give the folder of a run, as `bench list` shows it")
    return RunSpec.load_file(run_dir / "spec.json")
