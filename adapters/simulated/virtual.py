"""Virtual time: an event loop whose waits take none. Where nothing else is to do, the clock moves to the next timer."""

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple, Unpack

from harness.protocol import clock
from harness.protocol.spec import Device, RunSpec

Arguments = TypeVarTuple("Arguments")
Found = TypeVar("Found")
OVERRIDE = "clock"
REAL, VIRTUAL = "real", "virtual"
# Tools that wait by the event loop's own timers.
TIMED_TOOLS = ("mock",)


@dataclass(frozen=True, slots=True)
class Choice:
    """The clock of a run, and why it is that one."""

    name: str
    why: str


def choose(spec: RunSpec) -> Choice:
    """What `-o clock=` says; else virtual, but where something outside the loop takes real time.

    Raises:
        ValueError: another clock, or a virtual one for what answers in real time.
    """
    asked = spec.overrides.get(OVERRIDE)
    if asked is not None and asked not in (REAL, VIRTUAL):
        raise ValueError(f"{OVERRIDE} = {asked}: allowed is {VIRTUAL} or {REAL}")
    tools = spec.tools.partition(":")[0]
    outside = None
    if tools not in TIMED_TOOLS:
        outside = f"tools = {tools} answer in real time"
    elif spec.device is Device.CUDA:
        outside = "device = cuda: GPUs are sampled in real time"
    if outside is not None:
        if asked == VIRTUAL:
            raise ValueError(f"{OVERRIDE} = {VIRTUAL}: {outside}; allowed is {REAL}")
        return Choice(REAL, outside)
    if asked is not None:
        return Choice(str(asked), f"{OVERRIDE} = {asked}")
    if spec.faults:
        return Choice(REAL, "faults are planted to drill the harness, which lives in real time")
    return Choice(VIRTUAL, "waits take no time; no machine is sampled, as nothing runs while they pass")


class VirtualClock:
    """A clock that stands still but when it is moved. It begins at the real monotonic clock's moment."""

    def __init__(self) -> None:
        self._began_ns = time.monotonic_ns()
        self._passed_ns = 0

    def now_ns(self) -> int:
        """The virtual moment, on the monotonic axis."""
        return self._began_ns + self._passed_ns

    def passed_s(self) -> float:
        """Seconds since it began: small, and the same in every run, so that their rounding is the same."""
        return self._passed_ns / 1e9

    def advance(self, seconds: float) -> None:
        """Moves on, by at least a nanosecond."""
        self._passed_ns += max(math.ceil(seconds * 1e9), 1)


class VirtualSelector(selectors.DefaultSelector):
    """A selector that never sleeps while a timer waits: it moves the clock by what it would have slept.

    `busy`: work that runs in threads. The clock stands while there is any, so such work takes no virtual time.
    """

    def __init__(self, moving: VirtualClock) -> None:
        super().__init__()
        self.clock = moving
        self.busy = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; else, with a timeout, nothing, that much later."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self.busy:
            return super().select(None)  # a thread's end or a signal wakes it
        self.clock.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock."""

    def __init__(self, moving: VirtualClock) -> None:
        self.virtual = VirtualSelector(moving)
        super().__init__(self.virtual)

    def time(self) -> float:
        """Seconds of the virtual clock."""
        return self.virtual.clock.passed_s()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], Found], *args: *Arguments
    ) -> asyncio.Future[Found]:
        """As a loop does; the clock stands until it has returned."""
        self.virtual.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _future: Any) -> None:
        self.virtual.busy -= 1


def runner(choice: Choice) -> asyncio.Runner:
    """What runs the child's coroutine; with a virtual clock, all events are told by it from now on."""
    if choice.name == REAL:
        return asyncio.Runner()
    moving = VirtualClock()
    clock.use(moving.now_ns)
    return asyncio.Runner(loop_factory=lambda: VirtualLoop(moving))
