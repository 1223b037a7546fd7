"""Takes down the readings of all GPUs, twice a second and not one by one.

What comes after a call (its numbers, their check, the row) would each time have to be fetched into the caches again:
for one reading that costs several times what it costs for each of many. So the lanes only copy what the driver left.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from harness.telemetry.gpu_power import Asked
from harness.telemetry.nvml import Gpu, StateAnswers
from harness.telemetry.refresh import COUNTER
from harness.telemetry.values import Columns

# GPU uuids, moments and uncertainties (monotonic ns), values of each column: as many of each.
EmitAll = Callable[[Sequence[str], Sequence[int], Sequence[int], Columns], None]


class Source(Protocol):
    """Whose readings they are."""

    gpu: Gpu
    period_s: float
    turns: int  # readings taken down
    late: int  # of those, how many more than half a period after their tick

    def take(
        self, asked: Asked, due_ns: int, begin_ns: int, end_ns: int, answer: object, limit: float | None
    ) -> object:
        """Takes down one reading that has something odd."""

    def take_state(self, answers: StateAnswers) -> object:
        """Takes down a state."""


# Whose it is, what was asked, the tick, begin and end of the call (monotonic ns), what it left, the limit (W) then.
Taken = tuple[Source, Asked, int, int, int, bytes, float | None]


class Settling:
    """What was read and not yet taken down. Anyone may add to it at any time."""

    def __init__(self, emit_all: EmitAll, joules: dict[str, float]) -> None:
        """`joules`: the last reading of each GPU's energy counter."""
        self.lock = threading.Lock()  # held by who takes readings down, of whatever GPU
        self._emit_all = emit_all
        self._joules = joules
        self._power: deque[Taken] = deque()
        self._states: deque[tuple[Source, StateAnswers]] = deque()
        self.add: Callable[[Taken], None] = self._power.append
        self.add_state: Callable[[tuple[Source, StateAnswers]], None] = self._states.append

    def settle(self) -> None:
        """Takes all of it down."""
        with self.lock:
            groups: dict[tuple[str, ...], list[Taken]] = {}
            for _ in range(len(self._power)):
                one = self._power.popleft()
                groups.setdefault(one[1].names, []).append(one)
            for alike in groups.values():
                self._take(alike)
            for _ in range(len(self._states)):
                source, answers = self._states.popleft()
                source.take_state(answers)

    def _take(self, alike: Sequence[Taken]) -> None:
        if self._take_at_once(alike):
            return
        sources = list(dict.fromkeys(one[0] for one in alike))
        for source in sources:  # what is odd is mostly one GPU's
            its = [one for one in alike if one[0] is source]
            if len(sources) == 1 or not self._take_at_once(its):
                for one in its:
                    source.take(*one[1:])

    def _take_at_once(self, alike: Sequence[Taken]) -> bool:
        """Readings of the same sensors; False, and nothing done, where there is anything odd."""
        sources, all_asked, due, begin, end, left, limits = zip(*alike, strict=True)
        try:
            columns = all_asked[0].columns(left)
        except Exception:  # what no one foresaw is one GPU's: taken down alone, it ends that one's readings and is told
            return False
        if columns is None:
            return False
        uuids = [source.gpu.uuid for source in sources]
        joules = dict(self._joules)
        for uuid, value in zip(uuids, columns.get(COUNTER, ()), strict=False):
            if value < joules.get(uuid, 0.0):
                return False  # the counter fell
            joules[uuid] = value
        self._joules.update(joules)
        moments, doubts = [], []
        for source, tick, before, after in zip(sources, due, begin, end, strict=True):
            at = (before + after) // 2
            moments.append(at)
            doubts.append((after - before + 1) // 2)
            source.turns += 1
            if at - tick > source.period_s * 5e8:
                source.late += 1
        self._emit_all(uuids, moments, doubts, {**columns, "power_limit_watts": limits})
        return True
