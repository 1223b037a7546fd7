"""When to read a sensor: jittered ticks, and how often a counter refreshes.

Ticks are stratified: one per period, at a uniformly random place inside it. The average rate is kept exactly, and a
workload that repeats in phase with the period is seen at all of its phases instead of always the same one.
"""

import copy
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

NS = 1_000_000_000
MINIMUM_CHANGES = 4  # fewer say nothing about a period
MINIMUM_LEVELS = 3  # a reading that goes to and fro between two values shows the load's changes, not the sensor's


class Stop(threading.Event):
    """An event to wait for with a limit of time, at half the cost: `Event.wait` makes a lock for each wait."""

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        """To be called once."""
        if not self.is_set():
            super().set()
            self._gate.release()

    def wait(self, timeout: float | None = None) -> bool:
        """True as soon as it is set."""
        if self._gate.acquire(timeout=-1 if timeout is None else timeout):
            self._gate.release()  # for the others who wait
            return True
        return False


class Ticks:
    """The ticks of one sensor. Late ticks are skipped, never bunched: at most one tick falls into a period."""

    def __init__(self, period_s: float, start_ns: int, rng: random.Random) -> None:
        """Ticks every `period_s` seconds on average, the first within one period of `start_ns` (monotonic)."""
        self.period_ns = round(period_s * NS)
        self._start_ns = start_ns
        self._rng = rng
        self._stratum = -1
        self.drawn = 0
        self.skipped = 0
        self.due_ns = start_ns  # the last that was drawn

    def next(self, now_ns: int) -> int:
        """The monotonic ns of the next tick, in a period that was not used before."""
        stratum = self._stratum + 1
        current = (now_ns - self._start_ns) // self.period_ns
        if current > stratum:
            self.skipped += current - stratum
            stratum = current
        self._stratum = stratum
        begin = self._start_ns + stratum * self.period_ns
        # In the period that is under way only what is left of it can still be drawn from.
        earliest = max(begin, now_ns)
        self.drawn += 1
        self.due_ns = earliest + int(self._rng.random() * (begin + self.period_ns - earliest))
        return self.due_ns

    def behind(self, now_ns: int) -> int:
        """Periods without a tick that have passed since the last that was drawn: what `next` would skip."""
        return max(0, (now_ns - self._start_ns) // self.period_ns - self._stratum - 1)

    def ahead(self, at_ns: int) -> int:
        """Periods from that of `at_ns` to that of the last tick that was drawn; less than 0 when it lies before."""
        return self._stratum - (at_ns - self._start_ns) // self.period_ns

    def end_ns(self) -> int:
        """When the period of the last tick that was drawn ends (monotonic ns)."""
        return self._start_ns + (self._stratum + 1) * self.period_ns

    def after(self, at_ns: int) -> "Ticks":
        """The ticks in the same periods, from the one after that of `at_ns` on."""
        ticks = copy.copy(self)
        ticks._stratum = (at_ns - self._start_ns) // self.period_ns
        return ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How often a counter takes a new value. `period_s` None: unknown, and `reason` says why."""

    period_s: float | None
    resolution_s: float | None  # median distance of the polls: a shorter period cannot be seen
    changes: int
    reason: str | None = None
    at_most_s: float | None = None  # of a period that is too short to be seen


def refresh_of(polls: Sequence[tuple[int, float | None]]) -> Refresh:
    """The refresh period of a counter from polls (monotonic ns, value), densely made.

    The moments at which the value changed lie whole periods apart: the median distance gives the period roughly,
    and the total distance over the number of periods in it gives it well, even where a refresh left the value equal.
    """
    known = [(at, value) for at, value in polls if value is not None]
    if len(known) < 2:
        return Refresh(period_s=None, resolution_s=None, changes=0, reason="not readable")
    resolution_s = median(b[0] - a[0] for a, b in pairwise(known)) / NS
    changed = [b[0] for a, b in pairwise(known) if a[1] != b[1]]
    levels = len({b[1] for a, b in pairwise(known) if a[1] != b[1]})
    if len(changed) < MINIMUM_CHANGES:
        span_s = (known[-1][0] - known[0][0]) / NS
        reason = f"changed {len(changed)} times in {span_s:.2f} s"
        return Refresh(period_s=None, resolution_s=resolution_s, changes=len(changed), reason=reason)
    if levels < MINIMUM_LEVELS:
        reason = f"kept to {levels} values: the load's, not the sensor's"
        return Refresh(period_s=None, resolution_s=resolution_s, changes=len(changed), reason=reason)
    gaps = [b - a for a, b in pairwise(changed)]
    rough = median(gaps)
    period_s = sum(gaps) / sum(max(1, round(gap / rough)) for gap in gaps) / NS
    if period_s < 2 * resolution_s:
        reason = f"new at each poll: at most {period_s:.4f} s"
        return Refresh(
            period_s=None, resolution_s=resolution_s, changes=len(changed), reason=reason, at_most_s=period_s
        )
    return Refresh(period_s=period_s, resolution_s=resolution_s, changes=len(changed), at_most_s=period_s)


def poll(
    read: Callable[[], Sequence[tuple[int, float | None]]],
    *,
    duration_s: float,
    step_s: float,
    wait: Callable[[float], bool],
    now_ns: Callable[[], int],
) -> list[list[tuple[int, float | None]]]:
    """Reads densely for `duration_s` and returns one series per value that `read` gives.

    `wait(seconds)` returns True when the sampler is told to stop; the poll then ends early.
    """
    series: list[list[tuple[int, float | None]]] = []
    end_ns = now_ns() + round(duration_s * NS)
    while now_ns() < end_ns:
        for place, point in enumerate(read()):
            if place == len(series):
                series.append([])
            series[place].append(point)
        if wait(step_s):
            break
    return series
