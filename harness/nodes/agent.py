"""The agent of one node: runs the node's sampler, and answers the side that gathers. It keeps no state of the other."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.nodes.outbox import LIMIT_BYTES, Taken, others, take
from harness.protocol.recorder import EVENTS_VARIABLE, RUN_ID_VARIABLE, host_name

PYTHON_VARIABLE = "BENCH_NODE_PYTHON"  # on a node: the Python that runs its sampler, where it is not the agent's own
RESTART_PERIOD_S = 60.0
GRACE_S = 6.0
MOST_NAMES = 5  # of files that are told at once


class Agent:
    """Not thread-safe: whoever starts it calls it from one thread."""

    def __init__(self, run_id: str, root: Path) -> None:
        """`root`: the node's own folder for this run; made when missing."""
        self.run_id = run_id
        self.root = root
        self._command: tuple[str, ...] = ()
        self._sampler: subprocess.Popen[bytes] | None = None
        self._last_start = float("-inf")
        self._told: str | None = None
        self._left: set[str] = set()  # files that no one asks for, told already
        for folder in ("events", "samples", "logs"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def hello(self) -> dict[str, Any]:
        """Who this is: two agents with the same host and boot would sample the same machine."""
        return {"host": host_name(), "boot": boot_id(), "pid": os.getpid()}

    def clock(self) -> tuple[int, int]:
        """This node's clock, ns: when it was asked and when it answers."""
        asked = time.monotonic_ns()
        return asked, time.monotonic_ns()

    def start_sampler(self, hz: float, dcgm: str) -> None:
        """Starts the sampler, once; it is started again, after a while, when it dies."""
        if self._command:
            return
        python = os.environ.get(PYTHON_VARIABLE) or sys.executable
        module = (python, "-P", "-m", "harness.telemetry.sampler", "--run-id", self.run_id)
        places = ("--out", str(self.root / "samples"), "--events", str(self.root / "events"))
        self._command = (*module, *places, "--hz", f"{hz:g}", "--dcgm", dcgm)
        self._start()

    def take(self, have: Mapping[str, int], limit: int = LIMIT_BYTES) -> tuple[Taken, str | None]:
        """What is new, as `outbox.take`; and what is newly wrong with the sampler, or will not be handed over.

        Raises:
            OSError: a file can't be read.
        """
        troubles = [self._look_after(), self._look_for_others()]
        return take(self.root, have, limit), "; ".join(filter(None, troubles)) or None

    def stop_sampler(self) -> None:
        """Ends the sampler: it flushes what it has."""
        process, self._sampler, self._command = self._sampler, None, ()
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """Ends the sampler and removes what was handed over: the folder, unless something else lies in it."""
        self.stop_sampler()
        left = others(self.root)
        if not left:
            shutil.rmtree(self.root, ignore_errors=True)
        for path in sorted(self.root.rglob("*"), reverse=True) if left else ():
            with contextlib.suppress(OSError):  # a folder that still holds what was not handed over
                if path.is_dir():
                    path.rmdir()
                elif path.relative_to(self.root).as_posix() not in left:
                    path.unlink()
        with contextlib.suppress(OSError):  # the run's, once the last host of a shared machine has left it
            self.root.parent.rmdir()

    def _start(self) -> None:
        self._last_start = time.monotonic()
        # Not marked as one of the run's processes: where this host is the harness's own too, its supervisor would end
        # the sampler before the end of the run is sampled. It ends with this process, by its standard input.
        environment = {name: value for name, value in os.environ.items() if name != RUN_ID_VARIABLE}
        environment[EVENTS_VARIABLE] = str(self.root / "events")
        try:
            with (self.root / "logs" / f"{host_name()}-sampler.log").open("ab") as log:
                self._sampler = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            self._told = f"the sampler can't be started: {error}"

    def _look_after(self) -> str | None:
        trouble, self._told = self._told, None
        if self._sampler is not None and (code := self._sampler.poll()) is not None:
            self._sampler = None
            trouble = f"the sampler ended with {'code' if code >= 0 else 'signal'} {abs(code)}"
        if self._command and self._sampler is None and time.monotonic() - self._last_start >= RESTART_PERIOD_S:
            self._start()
        return trouble

    def _look_for_others(self) -> str | None:
        new = [name for name in others(self.root) if name not in self._left]
        self._left.update(new)
        if not new:
            return None
        more = f" and {len(new) - MOST_NAMES} more" if len(new) > MOST_NAMES else ""
        return f"not handed over, and left in {self.root}: {', '.join(new[:MOST_NAMES])}{more}"


def boot_id() -> str:
    """The kernel's name for this boot of this machine; "" where it is not shown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
