"""`python -m harness.telemetry.sampler`: samples GPUs and host into arrow segments until told to stop.

Ends on SIGTERM and when its standard input, if a pipe, reaches EOF (its parent died). SIGINT is ignored: Ctrl-C
reaches the whole terminal group, and the end of the run is to be sampled too.
"""

import argparse
import os
import random
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from harness.protocol.events import Failure, Hello, Metric, Scalar
from harness.protocol.recorder import EVENTS_VARIABLE, Recorder, RecorderFullError, make_hello
from harness.telemetry.cadence import Stop
from harness.telemetry.description import Description
from harness.telemetry.engines.beside import EngineScraper
from harness.telemetry.opening import Opening

if TYPE_CHECKING:
    from harness.telemetry.library import Nvml
    from harness.telemetry.nvml import Gpu
    from harness.telemetry.segment import Segment
    from harness.telemetry.values import Columns, Timed

HOST_HZ = 2.0
OPEN_TIMEOUT_S = 10.0
JOIN_TIMEOUT_S = 1.0
COST_PERIOD_S = 30.0
OFF = "off"  # --dcgm


class Signals:
    """SIGTERM and the parent's end, waited for together with time passing.

    A signal handler that set a threading.Event could deadlock with the wait it interrupts, so the signal arrives
    through a pipe.
    """

    def __init__(self) -> None:
        self.stopped: str | None = None
        self.alarmed: Callable[[], None] = lambda: None
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pipe = reader
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _nothing)
        signal.signal(signal.SIGALRM, _nothing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._watched = [reader]
        if _is_pipe(0):
            self._watched.append(0)

    def wait(self, seconds: float) -> bool:
        """Waits; True as soon as the sampler is to stop."""
        end = time.monotonic() + seconds
        while self.stopped is None:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select(self._watched, [], [], left)
            if not ready:
                return False
            if self._pipe in ready:
                numbers = os.read(self._pipe, 64)
                if signal.SIGTERM in numbers:
                    self.stopped = "SIGTERM"
                elif signal.SIGALRM in numbers:
                    self.alarmed()
            elif 0 in ready and os.read(0, 4096) == b"":
                self.stopped = "end of standard input"
        return True


class Sampler:
    """One sampler process."""

    def __init__(
        self, *, run_id: str, out: Path, events: Path, hz: float, ready: Path | None = None, dcgm: str = OFF
    ) -> None:
        self.run_id = run_id
        self.dcgm = dcgm
        self.ready = ready
        self.out = out
        self.events = events
        self.hz = hz
        self._begun_ns = time.monotonic_ns()
        self._stop = Stop()
        self._recorder: Recorder | None = None
        self._engines = EngineScraper(None)
        self._settle: Callable[[], None] = lambda: None
        self._told_full = False
        self._told: set[type] = set()  # errors of writing

    def run(self, signals: Signals) -> int:
        """Samples until told to stop; returns the exit code.

        Raises:
            OSError: the folders cannot be made or the first lines not be written.
        """
        try:
            return self._run(signals)
        except Exception as error:
            self._fail(error)  # the record says why it has no `Bye`
            raise

    def _run(self, signals: Signals) -> int:
        self.out.mkdir(parents=True, exist_ok=True)
        self.events.mkdir(parents=True, exist_ok=True)
        opening = Opening(self._unsupported)
        opening.start()
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        while opening.is_alive() and time.monotonic() < deadline:
            if signals.wait(0.01):
                break
        silent = opening.is_alive()
        gpus = [] if silent else opening.gpus
        hello = make_hello(self.run_id, "sampler", versions=opening.versions)
        self._recorder = Recorder(self.events / f"{hello.host}-{hello.pid}.jsonl", hello)
        self._start_engines()

        from harness.telemetry.segment import Segment

        segment = Segment(self.out / f"{hello.host}-{hello.pid}-{hello.wall_ns}.arrows")
        reason = opening.reason
        if silent:
            reason = f"NVML did not answer within {OPEN_TIMEOUT_S:g} s, or before the sampler was told to stop"
        self.metric("telemetry.gpus", float(len(gpus)), "GPUs", {"reason": reason})
        rng = random.Random()
        description = Description(self.out, hello.host)
        ended = True
        for index, why in () if silent else opening.bad:
            self._without(index, why)
        if not gpus:
            self._describe_none(description)
        if opening.imported and (silent or opening.nvml is not None):
            ended = self._with_gpus(opening, gpus, segment, hello, description, rng, signals, late=silent)
        else:
            self._say_ready()
            self._host_loop(segment, hello.host, rng, signals)
        return self._end(segment, signals, opening.nvml if ended else None)

    def metric(self, name: str, value: float | None, unit: str, labels: Mapping[str, Scalar]) -> None:
        """Records a number; a full disk is told once on standard error and does not end the sampling."""
        known = {key: label for key, label in labels.items() if label is not None}
        self._record(Metric(name=name, mono_ns=time.monotonic_ns(), value=value, unit=unit, labels=known))

    def _with_gpus(
        self,
        opening: Opening,
        gpus: "list[Gpu]",
        segment: "Segment",
        hello: Hello,
        description: Description,
        rng: random.Random,
        signals: Signals,
        *,
        late: bool,
    ) -> bool:
        """`late`: NVML is not open yet; what it then lists is sampled from that moment on."""
        from harness.telemetry.watch import GpuWatch

        host, add, versions = hello.host, segment.add, dict(hello.versions)

        def find(known: Container[str]) -> "Sequence[Gpu]":
            nonlocal late
            ended = not opening.is_alive()
            found = opening.others(known)
            if late and ended:
                late = False
                versions.update(opening.versions)
                self.metric("telemetry.gpus", float(len(found)), "GPUs", {"reason": opening.reason})
                self._say_ready()
            return found

        def emit(uuid: str, reading: "Timed") -> None:
            begin, end, values = reading
            columns = {name: (value,) for name, value in values.items()}
            add((host, (uuid,), ((begin + end) // 2,), ((end - begin + 1) // 2,), columns))

        def emit_all(uuids: Sequence[str], moments: Sequence[int], doubts: Sequence[int], columns: "Columns") -> None:
            add((host, uuids, moments, doubts, columns))

        watch = GpuWatch(
            gpus,
            run_id=self.run_id,
            hz=self.hz,
            stop=self._stop,
            emit=emit,
            emit_all=emit_all,
            metric=self.metric,
            fail=self._fail,
            description=description,
            versions=versions,
            rng=rng,
            ready=(lambda: None) if late else self._say_ready,  # else once it is open, as long as anyone waits
            find=find,
            alarm=_alarm_in,
        )
        signals.alarmed = watch.look
        self._settle = watch.settle
        watch.start()
        dcgm = None
        if self.dcgm != OFF:
            from harness.telemetry.dcgm.watch import DcgmWatch

            dcgm = DcgmWatch(self.dcgm, emit=emit, metric=self.metric, stop=self._stop, rng=rng, here=watch.uuids)
            dcgm.start()
        self._host_loop(segment, hello.host, rng, signals)
        self._stop.set()
        if dcgm is not None:
            dcgm.end(JOIN_TIMEOUT_S)
        ended = watch.join(JOIN_TIMEOUT_S)
        _alarm_in(0)  # one that rang from here on would end the process
        watch.settle()
        return ended

    def _host_loop(self, segment: "Segment", host: str, rng: random.Random, signals: Signals) -> None:
        """Samples the host and flushes, in this process's main thread, until told to stop."""
        from harness.telemetry.host import HostReader, load_ratio
        from harness.telemetry.segment import FLUSH_PERIOD_S

        self.metric("contamination.host_load", load_ratio(), "ratio", {"why": "load average of the last minute"})
        reader = HostReader()
        now = time.monotonic_ns()
        wake_ns, host_ns, cost_ns = now, now, now
        while not signals.wait(max(0, wake_ns - time.monotonic_ns()) / 1e9):
            begin = time.monotonic_ns()
            if begin >= host_ns:  # with a flush: one waking up for both
                values = reader.read()
                end = time.monotonic_ns()
                row: dict[str, str | int | float | None] = {"host": host, **values}
                row |= {"mono_ns": (begin + end) // 2, "uncertainty_ns": (end - begin + 1) // 2}
                segment.append(row)
                # Half a wake's period early: else one that is a moment too soon would leave it to the next.
                host_ns = begin + round((1 / min(self.hz, HOST_HZ) - FLUSH_PERIOD_S / 2) * 1e9)
            self._flush(segment)
            if begin >= cost_ns:  # now and then: a sampler that is killed has told it too
                self._tell_cost()
                cost_ns = begin + round(COST_PERIOD_S * 1e9)
            wake_ns = begin + round(FLUSH_PERIOD_S * (0.8 + 0.4 * rng.random()) * 1e9)  # jittered, as all readings

    def _flush(self, segment: "Segment") -> None:
        self._settle()
        try:
            segment.flush()
        except (OSError, ValueError) as error:
            if type(error) not in self._told:
                self._told.add(type(error))
                self._fail(error)

    def _start_engines(self) -> None:
        """Starts the engines' scraper: a process, so that parsing text never holds up a tick."""
        try:
            self._engines = EngineScraper.start(run_id=self.run_id, out=self.out, events=self.events)
        except (OSError, ValueError) as error:
            self._fail(error)

    def _end(self, segment: "Segment", signals: Signals, nvml: "Nvml | None") -> int:
        if (trouble := self._engines.stop()) is not None:
            self._fail(OSError(trouble))
        try:
            segment.close()
        except (OSError, ValueError) as error:
            self._fail(error)
        self._tell_cost()
        labels = {"lost": segment.lost_rows, "ended_by": signals.stopped}
        self.metric("telemetry.rows", float(segment.rows), "rows", labels)
        code = 1 if segment.lost_rows or self._told_full else 0
        try:
            if self._recorder is not None:
                self._recorder.bye()
        except OSError as error:
            print(f"sampler: {error}", file=sys.stderr)
            code = 1
        if nvml is not None:
            nvml.close()
        return code

    def _tell_cost(self) -> None:
        """CPU seconds of all threads so far, those of the start included, and the wall seconds they took."""
        wall_s = (time.monotonic_ns() - self._begun_ns) / 1e9
        self.metric("telemetry.cpu", time.process_time(), "s", {"wall_s": wall_s})

    def _say_ready(self) -> None:
        if self.ready is None:
            return
        try:
            self.ready.touch()
        except OSError as error:
            self._fail(error)

    def _without(self, index: int, why: str) -> None:
        """A GPU is counted, and gives no handle."""
        from harness.telemetry.nvml import GpuLostError

        if why == "NO_PERMISSION":  # it was not given to this container, job or user: nvmlDeviceGetCount_v2 counts it
            self.metric("telemetry.unsupported", None, "", {"field": f"gpu {index}", "reason": why})
        else:
            self._fail(GpuLostError(f"GPU {index} does not answer: {why}"))

    def _describe_none(self, description: Description) -> None:
        try:
            description.write_empty()
        except OSError as error:
            self._fail(error)

    def _unsupported(self, uuid: str, field: str, reason: str) -> None:
        self.metric("telemetry.unsupported", None, "", {"gpu": uuid, "field": field, "reason": reason})

    def _fail(self, error: BaseException) -> None:
        self._record(
            Failure(
                mono_ns=time.monotonic_ns(), boundary="telemetry", type=type(error).__name__, message=str(error)[:4000]
            )
        )

    def _record(self, event: Metric | Failure) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.emit(event)
        except RecorderFullError as error:
            if not self._told_full:
                self._told_full = True
                print(f"sampler: {error}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """The command; see `--help`."""
    signals = Signals()  # first: a SIGTERM during the start must end it cleanly too
    parser = argparse.ArgumentParser(prog="python -m harness.telemetry.sampler", description=__doc__)
    parser.add_argument("--run-id", required=True, help="id of the run; GPU processes without it count as foreign")
    parser.add_argument("--out", required=True, type=Path, help="folder for *.arrows segments and gpus.json")
    parser.add_argument("--hz", type=float, default=10.0, help="GPU samples per second, 10 if not given")
    parser.add_argument("--events", type=Path, help=f"events folder; ${EVENTS_VARIABLE}, else OUT/../events")
    parser.add_argument("--ready", type=Path, help="file to make once every GPU has given power, or there is none")
    parser.add_argument("--dcgm", default=OFF, metavar="URL|dmon|off|auto", help="where DCGM's profiling fields are")
    options = parser.parse_args(arguments)
    if not 0 < options.hz <= 100:
        parser.error(f"--hz {options.hz:g}: allowed is more than 0 and at most 100")
    events = options.events or Path(os.environ.get(EVENTS_VARIABLE) or options.out.parent / "events")
    try:
        sampler = Sampler(
            run_id=options.run_id,
            out=options.out,
            events=events,
            hz=options.hz,
            ready=options.ready,
            dcgm=options.dcgm,
        )
        return sampler.run(signals)
    except OSError as error:
        print(f"sampler: cannot sample into {options.out}: {error}", file=sys.stderr)
        return 3


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _alarm_in(seconds: float) -> None:
    """SIGALRM goes to the main thread, which waits for signals; it costs nothing while no GPU holds a lane up."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The wake-up pipe has the signal; without a Python handler nothing would be written to it."""


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread held up inside the driver must not hold up the exit.
    os._exit(code)
