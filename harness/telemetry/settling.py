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
            taken = [self._power.popleft() for _ in range(len(self._power))]
            if taken and not self._take_at_once(taken):
                sources = list(dict.fromkeys(one[0] for one in taken))
                for source in sources:  # what is odd is mostly one GPU's
                    its = [one for one in taken if one[0] is source]
                    if len(sources) == 1 or not self._take_at_once(its):
                        for one in its:
                            source.take(*one[1:])
            for _ in range(len(self._states)):
                source, answers = self._states.popleft()
                source.take_state(answers)

    def _take_at_once(self, taken: Sequence[Taken]) -> bool:
        """Those of the same sensors together; False, and nothing done, where there is anything odd."""
        groups: dict[tuple[str, ...], list[Taken]] = {}
        for one in taken:
            groups.setdefault(one[1].names, []).append(one)
        found: list[tuple[list[str], list[int], list[int], Columns]] = []
        counted: list[tuple[int, str, float]] = []
        for alike in groups.values():
            sources, all_asked, _, begin, end, left, limits = zip(*alike, strict=True)
            try:
                columns = all_asked[0].columns(left)
            except Exception:  # what no one foresaw is one GPU's: taken down alone, it ends that one's, and is told
                return False
            if columns is None:
                return False
            uuids = [source.gpu.uuid for source in sources]
            moments = [(before + after) // 2 for before, after in zip(begin, end, strict=True)]
            doubts = [(after - before + 1) // 2 for before, after in zip(begin, end, strict=True)]
            counted += zip(moments, uuids, columns.get(COUNTER, ()), strict=False)
            found.append((uuids, moments, doubts, {**columns, "power_limit_watts": limits}))
        joules = dict(self._joules)
        for _, uuid, value in sorted(counted) if len(groups) > 1 else counted:  # a counter is read in several groups
            if value < joules.get(uuid, 0.0):
                return False  # it fell
            joules[uuid] = value
        self._joules.update(joules)
        for source, _, tick, before, after, _, _ in taken:
            source.turns += 1
            if (before + after) // 2 - tick > source.period_s * 5e8:
                source.late += 1
        for its in found:
            self._emit_all(*its)
        return True
