"""One run under way: hears the supervisor, follows the events, keeps the limits, and says at the end how it went."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from harness.live import Display
from harness.progress import Progress
from harness.protocol.errors import EnvError
from harness.protocol.events import Failure
from harness.protocol.recorder import Recorder, RecorderFullError
from harness.run_folder import RunFolder
from harness.supervisor.handle import Report, SupervisorHandle
from harness.supervisor.orders import Orders
from harness.tail import Tail
from harness.watchdog import Limits, Watchdog

TICK_S = 0.25
DISK_PERIOD_S = 1.0
MOST_OPEN_PHASES = 40
LOG_TAIL_BYTES = 8192
LOG_TAIL_LINES = 20
DISK_SIGNS = ("RecorderFullError", "No space left on device", "Disk quota exceeded")
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run went. `ended_ns` and `started_ns` are monotonic; `started_ns` is None when the child never started."""

    status: str
    reason: str
    exit_code: int
    started_ns: int | None
    started_wall_ns: int | None
    ended_ns: int
    ended_wall_ns: int
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Interrupts:
    """Counts the requests to end (Ctrl-C, SIGTERM, SIGHUP) instead of letting them tear the run apart."""

    count: int = 0
    number: int = signal.SIGINT

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """The block in which they are counted. Only a main thread can catch them; elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heeded = [number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, `&`
        before = {number: signal.signal(number, self._on_signal) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.number = number


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why the harness ended the run, when it was the harness that did."""

    status: str
    reason: str
    exit_code: int


@dataclass(slots=True)
class Control:
    """The harness's part of one run, from the supervisor's start to the judgement."""

    folder: RunFolder
    orders: Orders
    limits: Limits
    steps: int
    display: Display
    recorder: Recorder
    watts: Callable[[], float | None] = lambda: None
    progress: Progress = field(default_factory=Progress)
    cause: _Cause | None = None
    started: Report | None = None
    exited: Report | None = None
    start_failure: str | None = None
    service_failure: str | None = None  # why the child was never started
    service_lost: _Cause | None = None
    telemetry_gap: str | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        """Runs the child to its end, whichever that is; no process of the run is left when this returns."""
        interrupts = Interrupts()
        tail = Tail(self.folder.path / "events")
        watchdog = Watchdog(self.limits, time.monotonic())
        killed = False
        next_disk_look = 0.0
        with interrupts.caught(), SupervisorHandle(self.orders, self._log("supervisor.log")) as supervisor:
            while not supervisor.over:
                for report in supervisor.reports(TICK_S):
                    self._hear(report)
                self._follow(tail)
                self.display.update(self.progress, self.steps, self.watts())
                now = time.monotonic()
                if interrupts.count > 1 and not killed:
                    killed = True
                    self.display.stage("killing the run")
                    supervisor.kill()
                if self.cause is not None or self.exited is not None:
                    continue
                self.cause = (
                    self._interrupted(interrupts)
                    or self.service_lost
                    or self._overrun(watchdog, now)
                    or self._recorder_full()
                )
                if self.cause is None and now >= next_disk_look:
                    next_disk_look = now + DISK_PERIOD_S
                    self.cause = self._disk_full()
                if self.cause is not None:
                    again = " (once more kills it at once)" if interrupts.count else ""
                    self.display.stage(f"stopping: {self.cause.reason}{again}")
                    supervisor.stop()
            self._follow(tail)
            ended_ns, ended_wall_ns = time.monotonic_ns(), time.time_ns()
            self._note_supervisor(supervisor)
        cut = tail.cut()
        if cut:
            self.notes.append(f"the last line was cut in {', '.join(cut)}")
        status, reason, exit_code = self._judge(supervisor)
        return Outcome(
            status=status,
            reason=reason,
            exit_code=exit_code,
            started_ns=self.started["mono_ns"] if self.started else None,
            started_wall_ns=self.started["wall_ns"] if self.started else None,
            ended_ns=self.exited["mono_ns"] if self.exited else ended_ns,
            ended_wall_ns=self.exited["wall_ns"] if self.exited else ended_wall_ns,
            notes=tuple(self.notes),
        )

    def fail(self, boundary: str, kind: str, message: str) -> None:
        """Records a failure; on a full disk the ballast is given up for it."""
        failure = Failure(mono_ns=time.monotonic_ns(), boundary=boundary, type=kind, message=message[:4000])
        try:
            self.recorder.emit(failure)
        except RecorderFullError:
            if self.folder.drop_ballast():
                with contextlib.suppress(RecorderFullError):
                    self.recorder.emit(failure)

    def _hear(self, report: Report) -> None:
        match report["kind"]:
            case "started":
                self.started = report
                self.display.stage(f"started, process {report['pid']}; its output is in {self._log('worker.log')}")
            case "failed":
                self.start_failure = report["message"]
            case "exited":
                self.exited = report
                self.display.stage("the worker has ended")
            case "sampler_lost" if self.exited is None:
                message = f"the telemetry sampler {report['message']}; restarted {_soon(report['restart_in_s'])}"
                self.telemetry_gap = self.telemetry_gap or message
                self.fail("telemetry", "SamplerLost", f"{message}; see {self._log('sampler.log')}")
                self.display.stage(message)
            case "service_failed":
                log = Path(self.orders.service_log)
                self.service_failure = f"{report['message']}: {_last_lines(log) or 'it said nothing'}; see {log}"
            case "service_lost" if self.exited is None:
                self._service_lost(report)
            case "no_readings":
                self.notes.append(f"no power of every GPU after {report['waited_s']:g} s: the idle power is not known")
            case "swept":
                self._note_ended(report)
            case "cleared" if report["logs_kept"]:
                self.notes.append(f"{report['logs_kept']} logs of the framework were kept in logs/scratch")

    def _service_lost(self, report: Report) -> None:
        name = self.orders.service_name
        what = "it was started again, calls in between failed" if report["restarted"] else "it is not started again"
        message = f"the {name} {report['message']}; {what}"
        self.fail("tool", "ServiceLost", f"{message}; see {self.orders.service_log}")
        self.display.stage(message)
        self.notes.append(message)
        if not report["restarted"]:
            reason = f"the {name} was lost twice, the second time it {report['message']}; see {self.orders.service_log}"
            self.service_lost = _Cause("failed", reason, 4)

    def _follow(self, tail: Tail) -> None:
        for source, event in tail.poll():
            if source != self.recorder.path.name:
                self.progress.add(source, event)

    def _interrupted(self, interrupts: Interrupts) -> _Cause | None:
        if interrupts.count == 0:
            return None
        name = "Ctrl-C" if interrupts.number == signal.SIGINT else signal.Signals(interrupts.number).name
        return _Cause("interrupted", f"interrupted by {name}", 128 + interrupts.number)

    def _overrun(self, watchdog: Watchdog, now: float) -> _Cause | None:
        overrun = watchdog.check(self.progress, now)
        if overrun is None:
            return None
        self.fail("worker", overrun.status, overrun.reason)
        phases = self.progress.open_phases()
        now_ns = time.monotonic_ns()
        for phase in phases[:MOST_OPEN_PHASES]:
            text = phase.describe(now_ns)
            self.fail("worker", "open", text)
            self.display.stage(f"  open: {text}")
        if not phases:
            self.fail("worker", "open", f"nothing is open; the worker's last output: {self._last_output()}")
        reason = overrun.reason
        if phases:
            reason += f"; open: {phases[0].describe(now_ns)}"
            reason += f" and {len(phases) - 1} more" if len(phases) > 1 else ""
        return _Cause(overrun.status, reason, 4)

    def _recorder_full(self) -> _Cause | None:
        if not any(failure.type == RecorderFullError.__name__ for failure in self.progress.failures):
            return None
        return self._full("a process of the run could not record")

    def _disk_full(self) -> _Cause | None:
        return self._full("no room for further events") if self.folder.disk_full() else None

    def _full(self, what: str) -> _Cause:
        self.folder.drop_ballast()
        reason = f"disk full: {what} in {self.folder.path}; free some space and run again"
        self.fail("recorder", RecorderFullError.__name__, reason)
        return _Cause("failed", reason, 4)

    def _judge(self, supervisor: SupervisorHandle) -> tuple[str, str, int]:
        if self.service_failure is not None and self.cause is None:
            self.fail("tool", "start", self.service_failure)
            return "failed", self.service_failure, EnvError.exit_code
        problem = self._worker_problem(supervisor)
        by_itself = self.exited is not None and not self.exited["asked"]  # it ended before it heard of the cause
        if self.cause is not None and not (by_itself and problem is None):
            return self.cause.status, self.cause.reason, self.cause.exit_code
        if problem is not None:
            kind, reason = problem
            text = self._last_output(LOG_TAIL_LINES)
            if kind in ("exit", "signal", "no-bye") and self._disk_is_why(text):
                reason = f"disk full: {reason}"
                self.folder.drop_ballast()
            self.fail("worker", kind, f"{reason}\n{text}".strip())
            return "failed", reason, 4
        if self.telemetry_gap is not None:
            return "failed", f"the telemetry has a gap: {self.telemetry_gap}; the worker itself finished", 4
        return "finished", "", 0

    def _worker_problem(self, supervisor: SupervisorHandle) -> tuple[str, str] | None:
        """What was wrong with the worker: (kind, reason); None when it succeeded."""
        log = self._log("worker.log")
        if self.start_failure is not None:
            return "start", self.start_failure
        if self.exited is None:
            return "supervisor", f"the supervisor ended early ({supervisor.lost}); the run was ended with it"
        if (number := self.exited["signal"]) is not None:
            name = signal.Signals(number).name
            hint = "; if nobody killed it, the kernel did for want of memory (dmesg says)" if number == 9 else ""
            return "signal", f"the worker was ended by {name}{hint}; see {log}"
        if self.exited["code"] != 0:
            said = [failure for failure in self.progress.failures if failure.boundary == "worker"]
            why = said[-1].message.splitlines()[0] if said and said[-1].message else self._last_output()
            return "exit", f"the worker ended with exit code {self.exited['code']}: {why}; see {log}"
        if not self.progress.said_bye:
            return "no-bye", f"the worker ended with exit code 0 but before its end (no Bye: os._exit?); see {log}"
        full = any(failure.type == RecorderFullError.__name__ for failure in self.progress.failures)
        if self.progress.lost_events or full:
            return "lost-events", f"disk full: {self.progress.lost_events} events could not be recorded"
        return None

    def _disk_is_why(self, output: str) -> bool:
        return self.folder.disk_full() or any(sign in output for sign in DISK_SIGNS)

    def _note_supervisor(self, supervisor: SupervisorHandle) -> None:
        if supervisor.lost is not None:
            self.fail("supervisor", "SupervisorLost", f"the supervisor ended early ({supervisor.lost})")
            ended = supervisor.ended
            self._note_ended(
                {"terminated": ended.terminated, "killed": ended.killed, "survivors": ended.survivors},
            )

    def _note_ended(self, report: Mapping[str, Any]) -> None:
        for kind, what in (("terminated", "asked to end"), ("killed", "killed"), ("survivors", "could not be ended")):
            names = report[kind]
            if names:
                more = f" and {len(names) - 10} more" if len(names) > 10 else ""
                self.notes.append(f"processes {what} by the supervisor: {', '.join(names[:10])}{more}")
        if report["survivors"]:
            self.fail("supervisor", "Survivors", f"processes could not be ended: {', '.join(report['survivors'])}")

    def _last_output(self, lines: int = 1) -> str:
        return _last_lines(Path(self.orders.log), lines)

    def _log(self, name: str) -> Path:
        return self.folder.path / "logs" / name


def _last_lines(log: Path, lines: int = 1) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def _soon(seconds: float) -> str:
    return f"in {seconds:.0f} s" if seconds >= 1 else "at once"
