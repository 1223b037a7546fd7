"""The processes of a run: found in /proc by descent or by mark, ended by TERM and then KILL.

A process is (pid, start time), so that a reused pid is never taken for the process it replaced. Linux only.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
KILL_PATIENCE_S = 15.0  # after KILL; only a process stuck in the kernel outlives it


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, told apart from any later user of its pid by `start_ticks` (clock ticks since boot)."""

    pid: int
    start_ticks: int
    parent: int
    name: str
    state: str  # R, S, D, T, Z, X: letters of /proc/PID/stat

    @property
    def key(self) -> tuple[int, int]:
        """What names it for good."""
        return self.pid, self.start_ticks

    @property
    def live(self) -> bool:
        """False for a zombie: it has ended and only waits to be reaped."""
        return self.state not in "ZX"


@dataclass(slots=True)
class Ended:
    """What a sweep had to do: names with pids."""

    terminated: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)

    def add(self, other: "Ended") -> None:
        """Joins another sweep's result to this one."""
        self.terminated += other.terminated
        self.killed += other.killed
        self.survivors = other.survivors


def read_process(pid: int) -> Process | None:
    """The process of that pid as it is now; None when there is none."""
    try:
        raw = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = raw.rpartition(")")  # the name stands in brackets and may hold spaces and brackets itself
    fields = tail.split()
    return Process(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
    )


def all_processes() -> dict[int, Process]:
    """Every process that /proc shows, by pid."""
    with os.scandir(PROC) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    found = map(read_process, pids)
    return {process.pid: process for process in found if process is not None}


def descendants(roots: Iterable[int], table: Mapping[int, Process]) -> dict[int, Process]:
    """All live descendants of `roots`, the roots themselves excluded."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    todo = list(roots)
    seen = set(todo)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                todo.append(child.pid)
                found[child.pid] = child
    return {pid: process for pid, process in found.items() if process.live}


def marked(variable: str, value: str, table: Mapping[int, Process]) -> dict[int, Process]:
    """Live processes whose environment at their start carried `variable=value`.

    A process that renamed itself (setproctitle) has overwritten what /proc shows: descent finds those.
    """
    mark = f"{variable}={value}".encode()
    found = {}
    for process in table.values():
        with contextlib.suppress(OSError):
            if process.live and mark in (PROC / str(process.pid) / "environ").read_bytes().split(b"\0"):
                found[process.pid] = process
    return found


def send(process: Process, number: signal.Signals) -> bool:
    """Signals that process, never another one that got its pid. False when it has ended or can't be signalled."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)  # the handle is open: what is read here is what will be signalled
        if now is None or now.key != process.key:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def sweep(
    find: Callable[[], Mapping[int, Process]],
    *,
    grace_s: float,
    idle: Callable[[float], bool] | None = None,
) -> Ended:
    """Ends what `find` finds, again and again until it finds nothing: TERM first, KILL after `grace_s` seconds.

    `idle(seconds)` waits between two looks; when it returns True the grace is over at once.
    """
    ended = Ended()
    asked: set[tuple[int, int]] = set()
    forced: set[tuple[int, int]] = set()
    begin = time.monotonic()
    deadline = begin + grace_s
    pause = 0.01
    while live := find():
        now = time.monotonic()
        for process in live.values():
            label = f"{process.name} ({process.pid})"
            if now >= deadline:
                if send(process, signal.SIGKILL) and process.key not in forced:
                    forced.add(process.key)
                    ended.killed.append(label)
            elif process.key not in asked and send(process, signal.SIGTERM):
                asked.add(process.key)
                ended.terminated.append(label)
                if process.state == "T":  # a stopped process handles nothing until it is continued
                    send(process, signal.SIGCONT)
        if now >= deadline + KILL_PATIENCE_S:
            ended.survivors = [f"{process.name} ({process.pid})" for process in live.values()]
            break
        wait = min(pause, max(deadline - now, 0.01))
        if (idle or _sleep)(wait):
            deadline = min(deadline, time.monotonic())
        pause = min(pause * 1.5, 0.2)
    return ended


def _sleep(seconds: float) -> bool:
    select.select([], [], [], seconds)
    return False
