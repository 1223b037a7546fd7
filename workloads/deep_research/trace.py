"""Traces of tool calls: what was asked and answered, when and how fast, in one Parquet file.

While it is recorded, a trace is a file of JSON lines beside its place (`NAME.parquet.part`), one line a call, flushed
to the system at each call and to the disk once a second. So a server that is killed loses no call that it had
answered (a line that was cut is dropped), and a host that crashes loses the last second. `close` turns the lines into
Parquet: under a temporary name, fsynced, renamed, and only then is the `.part` removed. `read_trace` reads either.
"""

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError
from harness.protocol.unfinished import made_whole
from workloads.deep_research.trace_facts import FACTS_KEY, VERSION, VERSION_KEY, facts_in
from workloads.deep_research.trace_names import PART, part_of

_SYNC_S = 1.0  # a crash of the host loses at most this
_BATCH = 1_000  # calls that are held in memory while JSON lines become Parquet
_LINKS = pa.list_(pa.struct([pa.field("title", pa.string()), pa.field("url", pa.string())]))
_PYTHON: Mapping[Any, type | tuple[type, ...]] = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): (int, float),
    _LINKS: list,
}


def _field(name: str, kind: pa.DataType, nullable: bool, unit: str, doc: str) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"unit": unit, "doc": doc})


SCHEMA = pa.schema(
    [
        _field("trajectory_id", pa.string(), False, "", "trajectory that asked"),
        _field("call", pa.int64(), True, "", "number of the call within its trajectory, from 0"),
        _field("tool", pa.string(), False, "", "search_engine | web_browser"),
        _field("argument", pa.string(), True, "", "query or address"),
        _field("question", pa.string(), True, "", "what the browser was asked about the page"),
        _field("started_mono_ns", pa.int64(), False, "ns", "when it was asked, monotonic clock of the recording host"),
        _field("started_wall_ns", pa.int64(), True, "ns", "the same by the wall clock, since 1970"),
        _field("latency_s", pa.float64(), False, "s", "inside the tool server, from the request to the answer"),
        _field("served_s", pa.float64(), True, "s", "time inside the tool server"),
        _field("http_status", pa.int64(), True, "", "HTTP status of the page or the provider"),
        _field("size", pa.int64(), True, "byte", "of the page or the provider's answer, as it came over the wire"),
        _field("status", pa.string(), False, "", "ok | timeout | error | refused | empty | not_found"),
        _field("detail", pa.string(), True, "", "why the status is not ok"),
        _field("text", pa.string(), True, "", "the observation; null: it was not recorded, or none came"),
        _field(
            "observation_tokens", pa.int64(), True, "token", "of the observation in the trajectory; null: not known"
        ),
        _field("links", _LINKS, True, "", "results of a search, links of a page"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One recorded call; fields as the columns of `SCHEMA`. Times as their names say, sizes in bytes."""

    trajectory_id: str
    call: int | None
    tool: str
    argument: str | None
    started_mono_ns: int
    latency_s: float
    status: str
    question: str | None = None
    started_wall_ns: int | None = None
    served_s: float | None = None
    http_status: int | None = None
    size: int | None = None
    detail: str | None = None
    text: str | None = None
    observation_tokens: int | None = None
    links: tuple[tuple[str, str], ...] | None = None

    def row(self) -> dict[str, Any]:
        """The call as a row of the table."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        row = {name: _clean(value) if isinstance(value, str) else value for name, value in row.items()}
        if self.links is not None:
            row["links"] = [{"title": _clean(title), "url": _clean(url)} for title, url in self.links]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was read: its calls in the order in which they were asked."""

    path: Path
    table: pa.Table  # of SCHEMA
    facts: Mapping[str, Any]  # of its source, as the writer was told
    complete: bool  # False: its recording was killed, `damaged_lines` of it can't be read
    damaged_lines: int = 0

    def calls(self) -> Iterator[Call]:
        """Its calls, one after the other."""
        for batch in self.table.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                yield call_of(row)


def call_of(row: Mapping[str, Any]) -> Call:
    """A row of the table as a call."""
    links = row["links"]
    pairs = None if links is None else tuple((link["title"] or "", link["url"] or "") for link in links)
    return Call(**{**row, "links": pairs})


class TraceWriter:
    """Records calls into a trace. Thread-safe; after an error it goes on refusing, and `lost` counts."""

    def __init__(self, path: Path, facts: Mapping[str, Any] | None = None) -> None:
        """Begins `path`.part; `path` itself appears at `close`.

        Args:
            facts: of the source (tools, versions, run): JSON values, in the trace's metadata.

        Raises:
            SpecError: there is a trace of that name, or the rest of one that was killed; or no file can be made there.
        """
        self.path = path
        self.calls = 0
        self.lost = 0
        self.error: str | None = None
        self._part = part_of(path)
        if path.exists():
            raise SpecError(f"record = {str(path)!r}: there is such a file; a trace is never written over")
        try:
            self._file = self._part.open("xb")
        except FileExistsError:
            raise SpecError(
                f"record = {str(path)!r}: {self._part.name} is there, of a recording that was killed or still runs;"
                f" keep it with `bench tools trace {self._part} -o FILE`, or remove it"
            ) from None
        except OSError as error:
            raise SpecError(f"record = {str(path)!r}: cannot be written: {error.strerror}") from None
        with suppress(OSError):  # whoever would seal it for us knows by this that we are alive; not all disks can
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._dirty = False
        self._write({"trace_version": VERSION, "facts": dict(facts or {})})
        self._syncer = threading.Thread(target=self._keep_durable, name="trace-sync", daemon=True)
        self._syncer.start()

    def append(self, call: Call) -> bool:
        """Records a call; False when it could not be (the disk is full, the writer is closed): counted in `lost`."""
        with self._lock:
            if self._write(call.row()):
                self.calls += 1
                return True
            self.lost += 1
            return False

    def close(self) -> None:
        """Turns what was recorded into the Parquet file, if a call was. Does nothing the second time.

        Raises:
            OSError: it can't be written; the `.part` stays, as readable as before.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._syncer.join()
        try:  # every line was flushed as it was written, or counted as lost
            if self.calls or self.lost:  # else it is of no use: a server that could not start left it, say
                seal_trace(self._part, self.path, lost=self.lost)
            self._part.unlink()
        finally:
            with suppress(OSError):
                self._file.close()  # and with it the lock

    def _write(self, row: Mapping[str, Any]) -> bool:
        if self._closed.is_set() or self.error is not None:
            return False
        try:
            self._file.write(_line(row))
            self._file.flush()
        except OSError as error:
            self.error = f"{type(error).__name__}: {error}"
            return False
        self._dirty = True
        return True

    def _keep_durable(self) -> None:
        """Syncs in a thread of its own: it can take a while, and no call waits for it."""
        while not self._closed.wait(_SYNC_S):
            if self._dirty:
                self._dirty = False
                with suppress(OSError):
                    os.fdatasync(self._file.fileno())


def write_trace(path: Path, calls: Iterable[Call], facts: Mapping[str, Any]) -> int:
    """Writes a whole trace at once: temporary name, fsync, rename. Returns the number of calls.

    Raises:
        SpecError: there is such a file, or it can't be written.
    """
    if path.exists():
        raise SpecError(f"{path}: there is such a file; a trace is never written over")
    try:
        return _write_parquet(path, (call.row() for call in calls), facts)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror or error}") from None


def seal_trace(part: Path, path: Path, *, lost: int = 0) -> int:
    """Turns a recording's lines (`part`, left as it is) into the Parquet file `path`; the number of calls.

    Raises:
        SpecError: `part` is not a recording.
        OSError: `path` can't be written.
    """
    facts, rows, damaged = _read_part(part)
    if lost:
        facts["lost_calls"] = lost

    def counted() -> Iterator[dict[str, Any]]:
        yield from rows
        if damaged:
            facts["damaged_lines"] = len(damaged)

    return _write_parquet(path, counted(), facts)


def read_trace(path: Path) -> Trace:
    """Reads a trace; where only its `.part` is there, what was recorded before it was killed.

    Raises:
        SpecError: missing, not a trace, damaged, or of a newer version; says which and what to do.
    """
    part = path if path.suffix == PART else part_of(path)
    if path.suffix == PART or (not path.exists() and part.exists()):
        return _killed(part)
    try:
        file = pq.ParquetFile(path)
        metadata = file.metadata.metadata or {}
        facts = facts_in(metadata, path)
        table = _conform(file.read(), path)
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such trace; `--record FILE` of a run makes one") from None
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{path}: cannot be read as a trace: {' '.join(str(error).split())}") from None
    return Trace(path=path, table=_ordered(table), facts=facts, complete=True)


def read_facts(path: Path) -> dict[str, Any]:
    """What a trace says of its source, without reading its calls.

    Raises:
        SpecError: as `read_trace`.
    """
    if path.suffix == PART or not path.exists():
        return dict(read_trace(path).facts)
    try:
        return facts_in(pq.read_metadata(path).metadata or {}, path)
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{path}: cannot be read as a trace: {' '.join(str(error).split())}") from None


def _conform(table: pa.Table, path: Path) -> pa.Table:
    columns = []
    for field in SCHEMA:
        if field.name not in table.column_names:
            raise SpecError(f"{path}: column {field.name} is missing; record it again")
        column = table[field.name]
        if column.type != field.type:
            raise SpecError(f"{path}: column {field.name} is {column.type}, expected {field.type}")
        if column.null_count and not field.nullable:
            raise SpecError(f"{path}: column {field.name} has {column.null_count} values that are null")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([("started_mono_ns", "ascending"), ("trajectory_id", "ascending")])


def _killed(part: Path) -> Trace:
    facts, rows, damaged = _read_part(part)
    batches = [pa.RecordBatch.from_pylist(list(batch), schema=SCHEMA) for batch in _batched(rows)]
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    return Trace(path=part, table=_ordered(table), facts=facts, complete=False, damaged_lines=len(damaged))


def _read_part(part: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]], list[int]]:
    """(facts, rows, numbers of the damaged lines); the last is filled while the rows are read."""
    try:
        with part.open("rb") as file:
            head = json.loads(file.readline())
        version, facts = head["trace_version"], head["facts"]
    except FileNotFoundError:
        raise SpecError(f"{part}: there is no such recording") from None
    except OSError as error:
        raise SpecError(f"{part}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise SpecError(f"{part}: is not the rest of a recording: its first line says no trace version") from None
    if version != VERSION:
        raise SpecError(f"{part}: trace version {version!r} is not known (this bench knows {VERSION})")
    damaged: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        with part.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    continue
                try:
                    row = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    row = None
                if isinstance(row, dict) and _sound(row):
                    yield row
                else:
                    damaged.append(number)

    return facts, rows(), damaged


def _sound(row: Mapping[str, Any]) -> bool:
    """Whether a line that was read is a row of the table."""
    if set(row) != set(SCHEMA.names):
        return False
    for field in SCHEMA:
        value = row[field.name]
        if value is None:
            if not field.nullable:
                return False
        elif not isinstance(value, _PYTHON[field.type]) or isinstance(value, bool):
            return False
    links = row["links"] or []
    return all(isinstance(link, dict) and set(link) == {"title", "url"} for link in links)


def _batched(rows: Iterable[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _write_parquet(path: Path, rows: Iterable[dict[str, Any]], facts: Mapping[str, Any]) -> int:
    count = 0
    with (
        made_whole(path, durable=True) as temporary,
        temporary.open("wb") as file,
        pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
    ):
        for batch in _batched(rows):
            writer.write_batch(pa.RecordBatch.from_pylist(list(batch), schema=SCHEMA))
            count += len(batch)
        # Last, so that what was found out while the rows were read is among them.
        writer.add_key_value_metadata({VERSION_KEY: str(VERSION), FACTS_KEY: json.dumps(facts, sort_keys=True)})
    return count


def _clean(text: str) -> str:
    """Without what has no UTF-8 (half a surrogate pair, of a broken page)."""
    return text.encode("utf-8", "replace").decode()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"
