"""The time axis of one run's timeline, and how fine its tracks are drawn."""

from dataclasses import dataclass

import numpy as np

from reports.html.packing import packed
from results.intervals import Ns
from results.store import RunTables
from results.tracks import FOREVER, ints

_TICKS = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fineness:
    """How much of one run goes into the page: the file, with all its runs, stays below a few megabytes."""

    bins: int = 4_096  # of a track that is binned
    stretches: int = 20_000  # of a track that is drawn as it was recorded
    items: int = 60_000  # trajectories, turns and tool calls drawn one by one
    letters: int = 600_000  # of queries and addresses
    bars: int = 20_000  # of straggler charts

    def shared(self, runs: int) -> "Fineness":
        """The same, for each of so many runs in one page."""
        return Fineness(
            bins=max(self.bins // runs, 512),
            stretches=max(self.stretches // runs, 500),
            items=max(self.items // runs, 2_000),
            letters=self.letters // runs,
            bars=max(self.bars // runs, 500),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From the first to the last instant that anything was recorded at, in ns; a tick is what times are rounded to."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def tick_ns(self) -> int:
        """1 us, or what lets 32 bits count to the end."""
        return max(1_000, -(-(self.end_ns - self.start_ns) // _TICKS))

    def seconds(self, at_ns: int) -> float:
        """Seconds since the begin, to the us."""
        return round((at_ns - self.start_ns) / 1e9, 6)

    def clipped(self, times: Ns) -> Ns:
        """Times within the axis; what never ended reaches its end."""
        return np.clip(times, self.start_ns, self.end_ns)

    def ticks(self, times: Ns) -> dict[str, str]:
        """Times as packed ticks since the begin."""
        return packed((self.clipped(times) - self.start_ns) // self.tick_ns, "u4")


def axis_of(run: RunTables) -> Axis | None:
    """The axis of a run; None where nothing in it has a time."""
    firsts: list[int] = []
    lasts: list[int] = []
    for name, begin, end in (
        ("spans", "start_ns", "end_ns"),
        ("turns", "start_ns", "end_ns"),
        ("tool_calls", "start_ns", "end_ns"),
        ("steps", "start_ns", "end_ns"),
        ("trajectories", "start_ns", "end_ns"),
        ("opens", "start_ns", "start_ns"),
        ("samples", "mono_ns", "mono_ns"),
        ("failures", "mono_ns", "mono_ns"),
    ):
        table = run.part(name, list(dict.fromkeys((begin, end))))  # samples have many columns, and millions of rows
        started = ints(table.column(begin), FOREVER)
        ended = ints(table.column(end), -FOREVER)
        firsts += [int(started.min())] if started.size else []
        lasts += [int(ended.max())] if ended.size else []
        lasts += [int(started[started != FOREVER].max())] if (started != FOREVER).any() else []
    first, last = min(firsts, default=0), max(lasts, default=0)
    return Axis(start_ns=first, end_ns=last) if last > first and first != FOREVER else None
