"""The samples of a run on their way to Parquet: merged by time, written as they come, never all in memory."""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from results.clocks import Clocks
from results.segments import ENCODED, CutError, pieces, whole
from results.store import read_table
from results.table_writing import TableWriter

SLACK_NS = (
    10_000_000_000  # a reading is appended when its calls are over: later than one of another GPU that began later
)
PIECES_BYTES = 32 * 2**20  # of all files together
LEAST_BYTES = 3 * 2**20  # of one file: a piece costs some milliseconds, whatever is in it
ROWS_PER_GROUP = 2**17
TEXTS = ("host", "gpu")


@dataclass(slots=True)
class Samples:
    """What was written."""

    rows: int = 0
    problems: tuple[str, ...] = ()  # "<file>: why, what is lost"
    by_host: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # first and last instant, rows

    def saw(self, table: pa.Table) -> None:
        """Counts rows."""
        self.rows += table.num_rows
        for batch in table.select(["host", "mono_ns"]).to_batches():
            hosts, times = batch.column(0), batch.column(1).to_numpy()
            if not times.size:
                continue
            codes = hosts.indices.fill_null(-1).to_numpy()
            # Integers of 16 bits are sorted by their digits, in a fraction of the time.
            order = np.argsort(codes.astype(np.int16) if len(hosts.dictionary) < 2**15 else codes, kind="stable")
            begins = np.flatnonzero(np.diff(codes[order], prepend=-2))
            lows, highs = (extreme.reduceat(times[order], begins).tolist() for extreme in (np.minimum, np.maximum))
            counts = np.diff(begins, append=codes.size).tolist()
            names = hosts.take(pa.array(order[begins])).to_pylist()
            for host, low, high, count in zip(names, lows, highs, counts, strict=True):
                before = self.by_host.get(host, (low, high, 0))
                self.by_host[host] = (min(before[0], low), max(before[1], high), before[2] + count)


def write_samples(folder: Path, target: Path, run_id: str, clocks: Clocks, stop: Event | None = None) -> Samples:
    """Writes all segments of `folder` as the table `samples`, on the controller's axis, oldest first.

    Raises:
        CancelledError: `stop` was set by another thread.
        OSError: the table cannot be written; one that was at `target` is left as it was.
    """
    made, late = Samples(), list[pa.Table]()
    problems: list[str] = []
    # Written by another thread: neither Arrow's encoding nor most of the decoding holds Python's lock.
    with TableWriter(target, "samples", run_id, TEXTS) as writer, ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        sources = [_Source(path, clocks, problems) for path in sorted(folder.glob("*.arrows"))]
        for table in _grouped(_merged(sources, late, stop or Event())):
            made.saw(table)
            if writing is not None:
                writing.result()
            writing = pool.submit(writer.write, table)
        if writing is not None:
            writing.result()
    if late:
        # Readings that came later than the slack allows: rare (a call that hung), and put in their places.
        everything = whole([read_table(target, "samples").replace_schema_metadata(None), *late], ENCODED)
        with TableWriter(target, "samples", run_id, TEXTS) as writer:
            writer.write(_sorted(everything))
        for table in late:
            made.saw(table)
    made.problems = tuple(problems)
    return made


class _Source:
    """One segment: its next piece, and up to when no more is to come."""

    def __init__(self, path: Path, clocks: Clocks, problems: list[str]) -> None:
        self._path = path
        self._clocks = clocks
        self._problems = problems
        self._pieces: Iterator[pa.Table] | None = None
        self.until_ns = -(2**63)
        self.span_ns = 0  # of the last piece
        self.held: list[pa.Table] = []

    def read(self, piece_bytes: int) -> None:
        """Takes the next piece; after the last one, `until_ns` is for ever."""
        if self._pieces is None:
            self._pieces = pieces(self._path, piece_bytes)
        try:
            table = next(self._pieces, None)
        except CutError as cut:
            self._problems.append(f"{self._path.name}: {cut}")
            table = None
        if table is None:
            self.until_ns = 2**63 - 1
            return
        table = _sorted(self._clocks.table(table))
        self.held.append(table)
        if table.num_rows:
            first, last = (int(table["mono_ns"][at].as_py()) for at in (0, -1))
            self.span_ns = last - first
            self.until_ns = max(self.until_ns, last - SLACK_NS)


def _merged(sources: Sequence[_Source], late: list[pa.Table], stop: Event) -> Iterator[pa.Table]:
    """All rows by time, rows of one instant in the order of the files; those that come too late go to `late`."""
    piece_bytes = max(LEAST_BYTES, PIECES_BYTES // max(1, len(sources)))
    done_ns, live = -(2**63), list(sources)
    while live:
        # Those that the slowest will overtake are read with it: else all that is held is gone through for each piece.
        bound = min(source.until_ns + source.span_ns for source in live)
        for source in live:
            if stop.is_set():
                raise CancelledError
            if source.until_ns <= bound:
                source.read(piece_bytes)
        live = [source for source in live if source.until_ns < 2**63 - 1]
        bound = min((source.until_ns for source in live), default=2**63 - 1)
        if bound > done_ns or not live:
            yield from _ready(sources, done_ns, bound, late, last=not live)
            done_ns = max(done_ns, bound)


def _ready(
    sources: Sequence[_Source], done_ns: int, bound: int, late: list[pa.Table], *, last: bool
) -> Iterator[pa.Table]:
    """The rows from `done_ns` until before `bound` (all that are left, when `last`), which then are held no more."""
    ready: list[pa.Table] = []
    for source in sources:
        held: list[pa.Table] = []
        for table in source.held:
            times = table["mono_ns"].to_numpy()  # sorted
            first = int(np.searchsorted(times, done_ns))
            end = times.size if last else int(np.searchsorted(times, bound))
            if first:
                late.append(table.slice(0, first))
            if end > first:
                ready.append(table.slice(first, end - first))
            if end < times.size:
                held.append(table.slice(max(end, first)))
        source.held = held
    if ready:
        yield _sorted(pa.concat_tables(ready, promote_options="default"))


def _sorted(table: pa.Table) -> pa.Table:
    times = table["mono_ns"].to_numpy()
    return table.take(pa.array(np.argsort(times, kind="stable"))) if (np.diff(times) < 0).any() else table


def _grouped(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of about ROWS_PER_GROUP, with every column."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        for begin in range(0, table.num_rows, ROWS_PER_GROUP):
            held.append(table.slice(begin, ROWS_PER_GROUP))
            count += held[-1].num_rows
            if count >= ROWS_PER_GROUP:
                yield whole(held, ENCODED).unify_dictionaries()
                held, count = [], 0
    yield whole(held, ENCODED).unify_dictionaries()
