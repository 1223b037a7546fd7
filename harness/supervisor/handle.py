"""The harness's side of the supervisor: starts it, hears its reports, and does its work when it was killed."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.protocol.errors import WorkerError
from harness.protocol.recorder import RUN_ID_VARIABLE
from harness.supervisor.orders import Orders
from harness.supervisor.processes import (
    KILL_PATIENCE_S,
    Ended,
    Process,
    all_processes,
    descendants,
    marked,
    read_process,
    sweep,
)
from harness.supervisor.scratch import clear_scratch

SNAPSHOT_PERIOD_S = 2.0
Report = dict[str, Any]


class SupervisorHandle:
    """A running supervisor. Leaving the `with` block, however it is left, leaves no process of the run behind."""

    def __init__(self, orders: Orders, log: Path) -> None:
        """Starts the supervisor and hands it its orders; its own messages go to `log`.

        Raises:
            WorkerError: it could not be started.
        """
        self.orders = orders
        self.over = False  # it has reported everything it will, or is gone
        self.done = False  # it ended as it should
        self.lost: str | None = None  # how it ended when it didn't
        self.ended = Ended()  # what this side had to end itself
        self._known: dict[tuple[int, int], Process] = {}
        self._next_snapshot = 0.0
        self._deadline: float | None = None
        self._buffer = b""
        environment = {key: value for key, value in os.environ.items() if key != RUN_ID_VARIABLE}
        try:
            with log.open("ab") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "harness.supervisor"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C in the terminal is the harness's to act on
                )
        except OSError as error:
            raise WorkerError(f"the supervisor can't be started: {error}") from error
        assert self.process.stdout is not None
        self._reports = self.process.stdout.fileno()
        self._send(orders.to_json())

    def __enter__(self) -> "SupervisorHandle":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.over:
            self.kill()
        while not self.over:
            self.reports(0.5)
        self._clean_up()

    def reports(self, timeout_s: float) -> list[Report]:
        """What it reported, after waiting at most `timeout_s` seconds; `over` is set when there will be no more."""
        self._snapshot()
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.process.kill()  # it hangs: its own end closes the pipe, and `_clean_up` does its work
        ready, _, _ = select.select([self._reports], [], [], timeout_s)
        if not ready:
            return []
        data = os.read(self._reports, 65536)
        if not data:
            self.over = True
            self.process.wait()
            self._clean_up()
            return []
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        found: list[Report] = [json.loads(line) for line in lines]
        self.done |= any(report["kind"] == "done" for report in found)
        return found

    def stop(self) -> None:
        """Asks the run to end: the child is asked first, and killed after its grace."""
        self._send("stop")
        orders = self.orders
        patience = orders.grace_s + orders.leftover_grace_s + orders.settle_s + orders.tail_s + 3 * KILL_PATIENCE_S
        patience += orders.service_grace_s + KILL_PATIENCE_S if orders.service else 0.0
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + patience)

    def kill(self) -> None:
        """Ends the run at once."""
        self._send("kill")
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + 3 * KILL_PATIENCE_S)

    def processes(self) -> dict[int, Process]:
        """Live processes of the run as far as this side can tell: those seen under the supervisor, and the marked."""
        table = all_processes()
        known = {
            pid: process
            for pid, process in table.items()
            if process.live and process.key in self._known and pid != self.process.pid
        }
        found = known | marked(RUN_ID_VARIABLE, self.orders.run_id, table)
        found |= descendants(found, table)
        return {pid: process for pid, process in found.items() if pid not in _ancestry()}

    def _snapshot(self) -> None:
        now = time.monotonic()
        if now >= self._next_snapshot:
            self._next_snapshot = now + SNAPSHOT_PERIOD_S
            seen = descendants([self.process.pid], all_processes())
            # Those seen before stay known while they live: an orphan may have left the tree with the supervisor.
            self._known = {key: p for key, p in self._known.items() if _same(p)} | _by_key(seen.values())

    def _clean_up(self) -> None:
        """Does the supervisor's work if it was killed, and closes the pipes."""
        if not self.done:
            self.ended.add(sweep(self.processes, grace_s=self.orders.leftover_grace_s))
            clear_scratch(Path(self.orders.scratch), Path(self.orders.logs))
            self.done = True
            self.lost = _how(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # gone: its reports end, and that is noticed there
            self.process.stdin.write(line.encode() + b"\n")


def _same(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.key == process.key


def _by_key(processes: Iterable[Process]) -> dict[tuple[int, int], Process]:
    return {process.key: process for process in processes}


def _how(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"


def _ancestry() -> set[int]:
    """This process and everything above it: never to be swept, whatever marks they carry."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        process = read_process(pid)
        pid = process.parent if process else 0
    return found
