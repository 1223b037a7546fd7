"""The recorder: appends events of one process to one file, and knows what that cost.

A line is written with a single unbuffered write; a background thread fsyncs what was written within a second, so a
killed process loses nothing and a crashed host at most the last second. Where nothing is written it does not wake up.
"""

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.clock import now_ns, wall_ns
from harness.protocol.errors import NO_SPACE
from harness.protocol.events import (
    Bye,
    Event,
    Failure,
    Gate,
    Hello,
    Metric,
    Open,
    Scalar,
    Step,
    encode,
    to_json,
    without_nan,
)

FSYNC_PERIOD_S = 1.0
CLOSED = -1  # no descriptor: that of a closed file may soon be another file's, which a late line must not get into
# A sync that fails so has lost what was written; the kernel says it once, and later syncs succeed (fsync(2)).
NOT_WRITTEN = NO_SPACE | {errno.EIO}
RUN_ID_VARIABLE = "BENCH_RUN_ID"
EVENTS_VARIABLE = "BENCH_EVENTS"
RUN_DIR_VARIABLE = "BENCH_RUN_DIR"  # the run's folder, where the events' own lies elsewhere
HOST_VARIABLE = "BENCH_HOST"  # what a host is called, where its own name doesn't tell it apart from the others
HOST_MARK = "{host}"  # in BENCH_EVENTS: replaced by the host's name, and the folder is made
# "steps" keeps only what tells how long steps took: the other half of an on/off pair that measures recording's cost.
DETAIL_VARIABLE = "BENCH_RECORD"
STEPS_ONLY = (Hello, Step, Failure, Bye)

_quote = lru_cache(maxsize=4096)(json.dumps)  # phase, pool and tool names repeat


def _text(value: str | None) -> str:
    return "null" if value is None else _quote(value)


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)


class RecorderFullError(OSError):
    """The events file cannot grow (disk full, quota): what follows would be lost, so the run must stop."""


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """The handle of something begun; pass it to `Recorder.close`."""

    id: int
    start_ns: int
    phase: str | None
    native_name: str
    pool: str | None
    unit: str | None
    step: int | None
    trajectory_id: str | None
    turn: int | None


class Recorder:
    """Thread-safe, append-only. One per process; a forked child must make its own."""

    def __init__(self, path: Path, hello: Hello) -> None:
        """Opens `path` (created, never truncated) and writes `hello`.

        Raises:
            OSError: the file cannot be opened.
            RecorderFullError: it cannot be written.
        """
        self.path = path
        self.run_id = hello.run_id
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._ids = count(1)
        self._torn = False
        self.events = 0
        self.lost_events = 0
        self.cost_ns = 0
        self._steps_only = os.environ.get(DETAIL_VARIABLE) == "steps"
        self._closed = threading.Event()
        self._unwritten: OSError | None = None  # a sync said that lines are lost
        self._unsynced = False  # something was written, or it was closed: the thread that syncs knows
        self._to_sync = threading.Lock()  # free for that thread as soon as there is something for it
        self._to_sync.acquire()
        self.emit(hello)
        threading.Thread(target=self._fsync_forever, name="bench-fsync", daemon=True).start()

    @classmethod
    def from_environment(
        cls,
        role: str,
        *,
        gpu_uuids: tuple[str, ...] = (),
        pool: str | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> "Recorder":
        """The recorder of this process, placed by BENCH_RUN_ID and BENCH_EVENTS (a folder).

        Raises:
            KeyError: one of the two variables is not set.
        """
        folder = events_folder(os.environ[EVENTS_VARIABLE])
        hello = make_hello(os.environ[RUN_ID_VARIABLE], role, gpu_uuids=gpu_uuids, pool=pool, versions=versions or {})
        return cls(folder / f"{hello.host}-{hello.pid}.jsonl", hello)

    def emit(self, event: Event) -> None:
        """Appends any event. A number that is none (NaN, infinite) becomes unknown, with a failure beside it."""
        if self._steps_only and not isinstance(event, STEPS_ONLY):
            return
        begin = time.perf_counter_ns()
        try:
            line = encode(event)
        except ValueError:
            event, gone = without_nan(event)
            self._write(encode(event), begin)
            which = f" {event.step}" if isinstance(event, Step) else ""
            self.failure(
                "worker", f"{event.kind}{which}: {', '.join(gone)} is NaN or infinite, and unknown in the record"
            )
            return
        self._write(line, begin)

    def open(
        self,
        phase: str | None,
        native_name: str,
        *,
        pool: str | None = None,
        unit: str | None = None,
        step: int | None = None,
        trajectory_id: str | None = None,
        turn: int | None = None,
        announce: bool = True,
    ) -> OpenSpan:
        """Begins a span now. `announce=False` writes no `Open` line (for short, frequent spans)."""
        span = OpenSpan(next(self._ids), now_ns(), phase, native_name, pool, unit, step, trajectory_id, turn)
        if announce:
            self.emit(
                Open(
                    id=span.id,
                    start_ns=span.start_ns,
                    phase=phase,
                    native_name=native_name,
                    pool=pool,
                    unit=unit,
                    step=step,
                    trajectory_id=trajectory_id,
                    turn=turn,
                )
            )
        return span

    def close(
        self,
        span: OpenSpan,
        *,
        container: bool = False,
        attributes: Mapping[str, Scalar] | None = None,
    ) -> int:
        """Ends a span now and records it; returns its end, in monotonic ns."""
        end_ns = now_ns()
        self.span(
            span.phase,
            span.native_name,
            span.start_ns,
            end_ns,
            pool=span.pool,
            unit=span.unit,
            step=span.step,
            trajectory_id=span.trajectory_id,
            turn=span.turn,
            container=container,
            open_id=span.id,
            attributes=attributes,
        )
        return end_ns

    def span(
        self,
        phase: str | None,
        native_name: str,
        start_ns: int,
        end_ns: int,
        *,
        pool: str | None = None,
        unit: str | None = None,
        step: int | None = None,
        trajectory_id: str | None = None,
        turn: int | None = None,
        container: bool = False,
        open_id: int | None = None,
        attributes: Mapping[str, Scalar] | None = None,
    ) -> None:
        """Records a span whose ends are known. Written by format, not by a serialiser: this is the hot path."""
        if self._steps_only:
            return
        begin = time.perf_counter_ns()
        extra = f',"attributes":{to_json(attributes)}' if attributes else ""
        self._write(
            f'{{"k":"span","phase":{_text(phase)},"native_name":{_quote(native_name)},'
            f'"start_ns":{start_ns},"end_ns":{end_ns},"pool":{_text(pool)},"unit":{_text(unit)},'
            f'"step":{_number(step)},"trajectory_id":{_text(trajectory_id)},"turn":{_number(turn)},'
            f'"container":{"true" if container else "false"},"open_id":{_number(open_id)}{extra}}}',
            begin,
        )

    @contextmanager
    def timed(
        self,
        phase: str | None,
        native_name: str,
        *,
        pool: str | None = None,
        unit: str | None = None,
        step: int | None = None,
        container: bool = False,
    ) -> Iterator[None]:
        """Records the block as a span, however it ends."""
        span = self.open(phase, native_name, pool=pool, unit=unit, step=step)
        try:
            yield
        finally:
            self.close(span, container=container)

    def metric(
        self,
        name: str,
        value: float | None = None,
        *,
        values: tuple[float, ...] | None = None,
        unit: str = "",
        step: int | None = None,
        labels: Mapping[str, Scalar] | None = None,
    ) -> None:
        """Records a number or a short vector, now."""
        self.emit(
            Metric(
                name=name,
                mono_ns=now_ns(),
                value=value,
                values=values,
                unit=unit,
                step=step,
                labels=labels or {},
            )
        )

    def gate(self, is_open: bool, why: str, *, in_flight: int | None = None, cap: int | None = None) -> None:
        """Records that admission opened or closed, now."""
        self.emit(Gate(mono_ns=now_ns(), open=is_open, why=why, in_flight=in_flight, cap=cap))

    def failure(self, boundary: str, error: BaseException | str) -> None:
        """Records a failure at a boundary, now."""
        kind = "message" if isinstance(error, str) else type(error).__name__
        self.emit(Failure(mono_ns=now_ns(), boundary=boundary, type=kind, message=str(error)[:4000]))

    def bye(self) -> None:
        """Records a clean end, makes it durable and closes the file."""
        self.emit(
            Bye(
                mono_ns=now_ns(),
                wall_ns=wall_ns(),
                events=self.events,
                lost_events=self.lost_events,
                recorder_ns=self.cost_ns,
            )
        )
        self.shut()

    def shut(self) -> None:
        """Makes what was recorded durable and closes the file, without a `Bye`."""
        self._closed.set()
        with self._lock:
            fd, self._fd = self._fd, CLOSED
            if fd == CLOSED:
                return
            self._have_synced()
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _write(self, line: str, begin_ns: int) -> None:
        with self._lock:
            # A line cut by a full disk is ended first, so that it costs itself and not its successor.
            data = (("\n" if self._torn else "") + line + "\n").encode()
            try:
                if self._unwritten is not None:
                    raise OSError(self._unwritten.errno, self._unwritten.strerror)
                written = os.write(self._fd, data)
            except OSError as error:
                self.lost_events += 1
                raise RecorderFullError(error.errno, f"cannot record to {self.path}: {error.strerror}") from error
            if not self._unsynced:  # after the write: a sync that was begun before may miss it
                self._have_synced()
            if written != len(data):
                self._torn = True
                self.lost_events += 1
                raise RecorderFullError(28, f"cannot record to {self.path}: the line was cut (disk full?)")
            self._torn = False
            self.events += 1
            self.cost_ns += time.perf_counter_ns() - begin_ns

    def _have_synced(self) -> None:
        """To be called with the lock."""
        if not self._unsynced:
            self._unsynced = True
            self._to_sync.release()

    def _fsync_forever(self) -> None:
        while self._to_sync.acquire() and not self._closed.wait(FSYNC_PERIOD_S):
            self._unsynced = False
            if self._closed.is_set():  # `shut` may have seen no need to wake this thread
                return
            try:
                os.fsync(self._fd)
            except OSError as error:
                if error.errno in NOT_WRITTEN:
                    self._unwritten = error  # for the next line: this thread can't stop the run
                return  # else closed under us, or a descriptor that cannot sync: writes themselves still report errors


def make_hello(
    run_id: str,
    role: str,
    *,
    gpu_uuids: tuple[str, ...] = (),
    pool: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Hello:
    """A `Hello` for this process, its two clocks read together."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        run_id=run_id,
        host=host_name(),
        pid=os.getpid(),
        role=role,
        wall_ns=wall_ns(),
        mono_ns=now_ns(),
        gpu_uuids=gpu_uuids,
        pool=pool,
        versions=versions or {},
    )


def host_name() -> str:
    """What this host is called in the record: BENCH_HOST, else its own name."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


def events_folder(text: str) -> Path:
    """The folder that BENCH_EVENTS names. Where it is one per host, on disks that no one shares, it is made.

    Raises:
        OSError: it can't be made.
    """
    folder = Path(text.replace(HOST_MARK, host_name()))
    if HOST_MARK in text:
        folder.mkdir(parents=True, exist_ok=True)
    return folder
