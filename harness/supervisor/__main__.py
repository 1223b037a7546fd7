"""The supervisor process: starts the child and what runs beside it, and ends everything when told to or left alone."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.protocol.recorder import RUN_ID_VARIABLE
from harness.supervisor.orders import Orders
from harness.supervisor.processes import Ended, Process, all_processes, descendants, marked, read_process, sweep
from harness.supervisor.scratch import clear_scratch

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SAMPLER_GRACE_S = 5.0
READY_PERIOD_S = 0.25  # between two looks for a service that was started again


class Supervisor:
    """One run's processes. Single-threaded: everything happens in `wait`."""

    def __init__(self, orders: Orders, commands: int, reports: int) -> None:
        self.orders = orders
        self.commands = commands
        self.reports = reports
        self.child: Process | None = None
        self.exited_at: float | None = None
        self.sampler: Process | None = None
        self.sampler_pipe: int | None = None
        self.service: Process | None = None
        self.service_pipe: int | None = None
        self.service_starts = 0
        self.service_due: float | None = None  # until when one that was started again has to be ready
        self.child_begun = False  # it was started, or that was tried
        self.restart_at: float | None = None
        self.last_restart = float("-inf")
        self.stopping = False  # the run is to end: the child is asked, then killed
        self.at_once = False  # no more grace
        self.harness_died = False
        self.buffer = b""
        self.wakeup, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write_end)

    def run(self) -> None:
        """The whole life of a run."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with a handler, a child's end wakes the select
        signal.signal(signal.SIGTERM, self._on_terminate)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the harness decides what Ctrl-C means
        self.start_sampler()
        self.start_service()
        self.wait_for_service()
        self.wait_for_readings()
        self.wait_until(time.monotonic() + self.orders.lead_s)
        self._reap()  # a service that has just ended
        if not self.stopping:
            self.start_child()
        while self.child is not None and not self.stopping:
            self.wait(None)
        self.end()
        self.report("done")

    def wait_for_readings(self) -> None:
        """Waits, within limits, until the sampler has power of every GPU: it takes a while to find its cadence."""
        orders = self.orders
        if not (orders.sampler and orders.sampler_ready):
            return
        deadline = time.monotonic() + orders.ready_patience_s
        while not Path(orders.sampler_ready).exists():
            if self.stopping:
                return
            if time.monotonic() >= deadline:
                self.report("no_readings", waited_s=orders.ready_patience_s)
                return
            self.wait(0.05)

    def wait_for_service(self) -> None:
        """Waits until the service says that it can serve; the run ends here when it doesn't."""
        orders = self.orders
        if not orders.service:
            return
        deadline = time.monotonic() + orders.service_patience_s
        while not self.stopping and not Path(orders.service_ready).exists():
            if time.monotonic() >= deadline:
                self._service_failed(f"was not ready after {orders.service_patience_s:g} s")
                return
            self.wait(0.05)

    def end(self) -> None:
        """Ends the child if it still runs, then everything it left, the service and the sampler; then clears up."""
        if self.child is not None:
            ended = self._end_one(self.child, self.orders.grace_s)
        else:
            ended = Ended()
            settled = time.monotonic() + self.orders.settle_s
            while self.others() and not self.at_once and time.monotonic() < settled:
                self.wait(0.1)
        ended.add(sweep(self.others, grace_s=self._grace(self.orders.leftover_grace_s), idle=self.idle))
        if (service := self.service) is not None:
            self.service = None  # from here on its end is no loss
            ended.add(self._end_one(service, self.orders.service_grace_s))
        self._close_service_pipe()
        self.wait_for_tail()
        self.restart_at = None
        if (sampler := self.sampler) is not None:
            self.sampler = None  # from here on its end is no loss
            self._close_sampler_pipe()
            ended.add(self._end_one(sampler, SAMPLER_GRACE_S))
        ended.add(sweep(self.others, grace_s=0.0, idle=self.idle))  # what the sampler left
        self.report("swept", terminated=ended.terminated, killed=ended.killed, survivors=ended.survivors)
        kept = clear_scratch(Path(self.orders.scratch), Path(self.orders.logs))
        self.report("cleared", logs_kept=kept)

    def wait_for_tail(self) -> None:
        """Leaves the sampler its time after the child's end, unless the run is to end at once."""
        if self.exited_at is None:
            return
        end = self.exited_at + self.orders.tail_s
        while self.sampler is not None and not self.at_once and (left := end - time.monotonic()) > 0:
            self.wait(left)

    def others(self) -> dict[int, Process]:
        """Every live process of the run but the sampler, the service and what those two started."""
        self._reap()
        table = all_processes()
        found = descendants([os.getpid()], table) | marked(RUN_ID_VARIABLE, self.orders.run_id, table)
        spared = {os.getpid()}
        for beside in (self.sampler, self.service):
            if beside is not None:
                spared |= {beside.pid, *descendants([beside.pid], table)}
        return {pid: process for pid, process in found.items() if pid not in spared}

    def start_child(self) -> None:
        """Starts the child in a session of its own, its output in its log."""
        orders = self.orders
        self.child_begun = True
        parent = os.getpid()

        def die_with_supervisor() -> None:
            _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

        try:
            self.child = self._start(
                orders.arguments,
                orders.log,
                orders.child_env,
                subprocess.DEVNULL,
                before=die_with_supervisor,
                without=orders.withheld,
            )
        except OSError as error:
            self.report("failed", message=f"{orders.arguments[0]} can't be started: {error}")
            return
        self.report("started", pid=self.child.pid)

    def start_sampler(self) -> None:
        """Starts the sampler; it ends when the read end of its standard input sees the end."""
        if not self.orders.sampler:
            return
        try:
            self.sampler, self.sampler_pipe = self._start_beside(self.orders.sampler, self.orders.sampler_log)
            self.report("sampler_started", pid=self.sampler.pid)
        except OSError as error:
            self._sampler_lost(f"can't be started: {error}")

    def start_service(self) -> None:
        """Starts the service, if there is one; it ends, like the sampler, when its standard input does."""
        if not self.orders.service:
            return
        self.service_starts += 1
        try:
            self.service, self.service_pipe = self._start_beside(self.orders.service, self.orders.service_log)
            self.report("service_started", pid=self.service.pid)
        except OSError as error:
            self._service_lost(f"can't be started: {error}")

    def wait(self, seconds: float | None) -> None:
        """Until something happened or `seconds` have passed: reads commands, reaps, restarts a dead sampler."""
        if self.restart_at is not None and not self.stopping:
            left = max(0.0, self.restart_at - time.monotonic())
            seconds = left if seconds is None else min(seconds, left)
        if self.service_due is not None:
            seconds = READY_PERIOD_S if seconds is None else min(seconds, READY_PERIOD_S)
        watched = [self.wakeup] if self.harness_died else [self.commands, self.wakeup]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self.wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wakeup, 4096)
        if self.commands in ready:
            self._read_commands()
        self._reap()
        self._look_for_service()
        if self.restart_at is not None and time.monotonic() >= self.restart_at and not self.stopping:
            self.restart_at = None
            self.last_restart = time.monotonic()
            self.start_sampler()

    def wait_until(self, moment: float) -> None:
        """Waits, unless the run is to end sooner."""
        while not self.stopping and (left := moment - time.monotonic()) > 0:
            self.wait(left)

    def idle(self, seconds: float) -> bool:
        """Waits between two looks of a sweep; True when there is no more grace."""
        self.wait(seconds)
        return self.at_once

    def report(self, kind: str, **fields: Any) -> None:
        """Tells the harness; nobody to tell is no error."""
        line = json.dumps({"kind": kind, "mono_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **fields}) + "\n"
        with contextlib.suppress(OSError):
            os.write(self.reports, line.encode())

    def _read_commands(self) -> None:
        data = os.read(self.commands, 65536)
        if not data:
            self.harness_died = self.stopping = True
            return
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.stopping = True  # both commands, `stop` and `kill`, end the run
            self.at_once |= line.strip() == b"kill"

    def _reap(self) -> None:
        """Takes the exit of every child that ended, adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            how = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None}
            if self.child is not None and pid == self.child.pid:
                self.child = None
                self.exited_at = time.monotonic()
                self.report("exited", asked=self.stopping, **how)
            elif self.sampler is not None and pid == self.sampler.pid:
                self.sampler = None
                self._close_sampler_pipe()
                self._sampler_lost(f"ended with {'code' if code >= 0 else 'signal'} {abs(code)}")
            elif self.service is not None and pid == self.service.pid:
                self.service = None
                self._close_service_pipe()
                self._service_lost(f"ended with {'code' if code >= 0 else 'signal'} {abs(code)}")

    def _service_lost(self, message: str) -> None:
        """Before the child's start that is the run's end; during its life the service is started once more."""
        self.service_due = None
        if not self.child_begun:
            self._service_failed(message)
            return
        if self.child is None:  # over: nobody calls it any more
            return
        again = self.service_starts == 1 and not self.stopping
        self.report("service_lost", message=message, restarted=again)
        if again:
            with contextlib.suppress(OSError):  # what it made when it was ready, and what no longer holds
                Path(self.orders.service_ready).unlink()
            self.service_due = time.monotonic() + self.orders.service_patience_s
            self.start_service()

    def _service_failed(self, message: str) -> None:
        """Ends a run whose child can't be started for want of the service; one that is ending anyway just ends."""
        if not self.stopping:
            self.stopping = True
            self.report("service_failed", message=f"the {self.orders.service_name} {message}")

    def _look_for_service(self) -> None:
        """Whether a service that was started again is ready; one that is late is lost, as one that ended is."""
        if self.service_due is None or self.service is None:
            return
        if self.stopping or self.child is None or Path(self.orders.service_ready).exists():
            self.service_due = None
        elif time.monotonic() >= self.service_due:
            self._service_lost(f"was not ready after {self.orders.service_patience_s:g} s")

    def _sampler_lost(self, message: str) -> None:
        self.restart_at = max(time.monotonic(), self.last_restart + self.orders.restart_period_s)
        self.report("sampler_lost", message=message, restart_in_s=max(0.0, self.restart_at - time.monotonic()))

    def _close_sampler_pipe(self) -> None:
        if self.sampler_pipe is not None:
            os.close(self.sampler_pipe)
            self.sampler_pipe = None

    def _close_service_pipe(self) -> None:
        if self.service_pipe is not None:
            os.close(self.service_pipe)
            self.service_pipe = None

    def _end_one(self, process: Process, grace_s: float) -> Ended:
        """Ends one process; that it was asked to is the plan and no news, that it had to be killed is."""

        def find() -> Mapping[int, Process]:
            self._reap()
            now = read_process(process.pid)
            return {now.pid: now} if now is not None and now.key == process.key and now.live else {}

        ended = sweep(find, grace_s=self._grace(grace_s), idle=self.idle)
        ended.terminated.clear()
        return ended

    def _grace(self, seconds: float) -> float:
        return 0.0 if self.at_once else seconds

    def _on_terminate(self, *_: object) -> None:
        self.stopping = True

    def _start_beside(self, arguments: tuple[str, ...], log: str) -> tuple[Process, int]:
        """Starts what runs beside the child, and the pipe whose end it waits for."""
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            return self._start(arguments, log, {RUN_ID_VARIABLE: self.orders.run_id}, read_end), write_end
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)

    def _start(
        self,
        arguments: tuple[str, ...],
        log: str,
        env: Mapping[str, str],
        stdin: int,
        *,
        before: Any = None,
        without: tuple[str, ...] = (),
    ) -> Process:
        inherited = {name: value for name, value in os.environ.items() if name not in without}
        with Path(log).open("ab") as output:
            started = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**inherited, **env},
                cwd=self.orders.scratch,
                start_new_session=True,
                preexec_fn=before,
            )
        started.returncode = 0  # reaped in `_reap`, never by subprocess
        process = read_process(started.pid)
        if process is None:  # not reaped yet, so it is there
            raise ProcessLookupError(f"{arguments[0]}: process {started.pid} is not in /proc")
        return process


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Reads the orders from standard input and carries them out."""
    commands, reports = os.dup(0), os.dup(1)  # both close-on-exec: the child must not hold the harness's pipes
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(commands, 1)  # no further than the line: commands follow it
        if not byte:
            return
        line += byte
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # a stray print goes to the log, not into the reports
    Supervisor(Orders.from_json(line.decode()), commands, reports).run()


if __name__ == "__main__":
    main()
