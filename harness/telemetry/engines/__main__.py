"""`python -m harness.telemetry.engines`: scrapes the engines of a run until its standard input ends.

Rows go to one file of JSON lines, each written whole as it is made: a killed scraper loses nothing it has read, and
needs no Arrow in memory. Engines may come late, restart or vanish: each has a thread of its own, which asks less often
while nobody answers.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import select
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from harness.protocol.events import Failure, Metric
from harness.protocol.recorder import Recorder, RecorderFullError, make_hello
from harness.telemetry.cadence import Ticks
from harness.telemetry.engines.exposition import READINGS
from harness.telemetry.engines.scrape import Endpoint, Scrape, ScrapeError
from harness.telemetry.engines.targets import Announcements, Target

POLL_S = 1.0  # between two looks for new engines: a look costs more than a GPU's reading
FSYNC_S = 1.0
SLOWEST_S = 5.0  # between two calls to an engine that does not answer
JOIN_S = 1.0


class Rows:
    """The file of readings, made with the first one. Thread-safe."""

    def __init__(self, folder: Path, host: str) -> None:
        self._path = folder / f"{host}-{os.getpid()}-{time.time_ns()}.jsonl"
        self._host = host
        self._fd: int | None = None
        self._lock = threading.Lock()
        self.rows = 0
        self.lost = 0

    def put(self, target: Target, scrape: Scrape) -> None:
        """One row. A full disk loses it, and is counted."""
        reading = scrape.reading
        row: dict[str, Any] = {
            "host": self._host,
            "engine": target.engine,
            "mono_ns": scrape.mono_ns,
            "uncertainty_ns": scrape.uncertainty_ns,
            "family": None if reading is None else reading.family,
            **({} if reading is None else {name: reading.values[name] for name in READINGS}),
            "reason": scrape.reason if reading is None else reading.why,
        }
        data = json.dumps(row, allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                if self._fd is None:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
                if os.write(self._fd, data) != len(data):
                    raise OSError(28, "the line was cut (disk full?)")
                self.rows += 1
            except OSError:
                self.lost += 1

    def sync(self) -> None:
        """Makes the rows durable."""
        with self._lock:
            fd = self._fd
        if fd is not None:
            with contextlib.suppress(OSError):  # what cannot sync may still be written; a lost row is counted
                os.fsync(fd)


class Watch(threading.Thread):
    """One engine, asked once a period at a random moment in it."""

    def __init__(self, target: Target, rows: Rows, period_s: float) -> None:
        super().__init__(name=f"engine-{target.engine}", daemon=True)
        self.target = target
        self._rows = rows
        self._period_s = period_s
        self._finished = threading.Event()
        self.calls = self.failed = self.size_bytes = self.skipped = 0
        self.busy_ns = self.longest_ns = 0

    def end(self) -> None:
        """No call begins after this."""
        self._finished.set()

    def run(self) -> None:
        assert self.target.url is not None
        try:
            endpoint = Endpoint(self.target.url)
        except ScrapeError as error:
            self._put(_no_call(str(error)))
            return
        wait_s = self._period_s
        ticks = Ticks(wait_s, time.monotonic_ns(), random.Random())
        self._put(endpoint.scrape())  # at once: its counters before the first request
        while not self._finished.wait(max(0.0, (ticks.next(time.monotonic_ns()) - time.monotonic_ns()) / 1e9)):
            scrape = endpoint.scrape()
            if self._finished.is_set() and scrape.reading is None:
                break  # the engine went with the run
            self._put(scrape)
            if scrape.reading is not None:
                wait_s = self._period_s
            elif self._finished.wait(wait_s):
                break
            else:
                wait_s = min(SLOWEST_S, 2 * wait_s)
        self.skipped = ticks.skipped
        endpoint.close()

    def _put(self, scrape: Scrape) -> None:
        self.calls += 1
        if scrape.reading is None:
            self.failed += 1
        else:
            self.size_bytes = scrape.size_bytes
            self.busy_ns += 2 * scrape.uncertainty_ns
            self.longest_ns = max(self.longest_ns, 2 * scrape.uncertainty_ns)
        self._rows.put(self.target, scrape)


class Scraper:
    """The process: follows the announcements, one `Watch` per engine."""

    def __init__(self, *, run_id: str, out: Path, events: Path, period_s: float) -> None:
        self._hello = make_hello(run_id, "sampler")
        self._events = events
        self._rows = Rows(out, self._hello.host)
        self._period_s = period_s
        self._recorder: Recorder | None = None
        self._watches: dict[str, Watch] = {}
        self._ended: list[Watch] = []

    def run(self) -> int:
        """Until standard input ends, or SIGTERM."""
        stopping = threading.Event()

        def stop(_number: int, _frame: FrameType | None) -> None:
            stopping.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        announced = Announcements(self._events)
        synced = time.monotonic()
        while not stopping.is_set():
            for target in announced.poll():
                self._take(target)
            if time.monotonic() - synced >= FSYNC_S:
                self._rows.sync()
                synced = time.monotonic()
            ready, _, _ = select.select([0], [], [], POLL_S)
            if ready and os.read(0, 4096) == b"":
                break
        return self._end()

    def _take(self, target: Target) -> None:
        if self._recorder is None:  # a run without engines leaves no file of this process
            self._recorder = Recorder(self._events / f"{self._hello.host}-{self._hello.pid}.jsonl", self._hello)
        before = self._watches.get(target.engine)
        if before is not None:
            if before.target.url == target.url:
                return
            before.end()  # it listens somewhere else now
            self._ended.append(self._watches.pop(target.engine))
        if target.url is None:
            self._rows.put(target, _no_call(target.reason or "", target.mono_ns))
            return
        watch = self._watches[target.engine] = Watch(target, self._rows, self._period_s)
        watch.start()

    def _end(self) -> int:
        watches = [*self._ended, *self._watches.values()]
        for watch in watches:
            watch.end()
        deadline = time.monotonic() + JOIN_S
        for watch in watches:
            watch.join(max(0.0, deadline - time.monotonic()))
        self._rows.sync()
        if self._recorder is None:
            return 0
        used = resource.getrusage(resource.RUSAGE_SELF)
        try:
            for watch in watches:
                self._tell(watch)
            self._metric("telemetry.engines.cpu", used.ru_utime + used.ru_stime, "s", {"rows": self._rows.rows})
            if self._rows.lost:
                message = f"{self._rows.lost} readings of engines could not be written (disk full?)"
                now = time.monotonic_ns()
                self._recorder.emit(Failure(mono_ns=now, boundary="telemetry", type="OSError", message=message))
            self._recorder.bye()
        except RecorderFullError as error:
            print(f"engine scraper: {error}", file=sys.stderr)
            return 1
        return 1 if self._rows.lost else 0

    def _tell(self, watch: Watch) -> None:
        good = watch.calls - watch.failed
        labels = {
            "engine": watch.target.engine,
            "calls": watch.calls,
            "failed": watch.failed,
            "skipped": watch.skipped,
            "answer_bytes": watch.size_bytes,
            "longest_s": watch.longest_ns / 1e9,
            "period_s": self._period_s,
        }
        self._metric("telemetry.engines.call", watch.busy_ns / good / 1e9 if good else None, "s", labels)

    def _metric(self, name: str, value: float | None, unit: str, labels: dict[str, Any]) -> None:
        assert self._recorder is not None
        self._recorder.emit(Metric(name=name, mono_ns=time.monotonic_ns(), value=value, unit=unit, labels=labels))


def _no_call(reason: str, mono_ns: int | None = None) -> Scrape:
    at = time.monotonic_ns() if mono_ns is None else mono_ns
    return Scrape(mono_ns=at, uncertainty_ns=0, reading=None, reason=reason, size_bytes=0)


def main(arguments: list[str] | None = None) -> int:
    """The command; see `--help`."""
    parser = argparse.ArgumentParser(prog="python -m harness.telemetry.engines", description=__doc__)
    parser.add_argument("--run-id", required=True, help="id of the run")
    parser.add_argument("--out", required=True, type=Path, help="folder for the rows")
    parser.add_argument("--events", required=True, type=Path, help="folder in which the adapters announce engines")
    parser.add_argument(
        "--period", type=float, default=1.0, help="seconds between two calls to an engine, 1 if not given"
    )
    options = parser.parse_args(arguments)
    if not 0.05 <= options.period <= 60:
        parser.error(f"--period {options.period:g}: allowed is from 0.05 to 60")
    return Scraper(run_id=options.run_id, out=options.out, events=options.events, period_s=options.period).run()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a call that hangs must not hold up the end of the run
