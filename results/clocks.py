"""One time axis for a run of several hosts: the controller's. What other hosts recorded is brought to it.

Each host's offset was measured all along the run (harness.nodes.clock); an instant is moved by the offset of its
moment, and the uncertainty that is left goes into the table `hosts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.nodes.clock import METRIC, Clock, Offset
from harness.nodes.gather import BEGIN, END, LOST, RETURNED
from harness.protocol.events import Bye, Event, Failure, Gate, Hello, Metric, Open, Scalar, Span, Step, Trajectory
from harness.protocol.events import read_events as read_lines
from results.rows import Rows

GATHERERS = "gatherer-*.jsonl"  # the files of the processes that compared clocks
INSTANTS = ("submitted_ns",)  # attributes of spans that are instants; others in ns are durations
UNFINISHED = "the gathering ended before the host had handed over its last files"
NOT_COMPARED = "its clock was not compared with the controller's: its times are its own"

EventT = TypeVar("EventT", bound=Event)
Instants = npt.NDArray[np.int64]


@dataclass(slots=True)
class Clocks:
    """The clocks of a run's other hosts, and what became of those hosts. `reference` is None where nothing gathered."""

    reference: str | None = None
    clocks: dict[str, Clock] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # host -> why, where it was lost and did not come back
    unfinished: set[str] = field(default_factory=set)  # hosts of which not all files are known to be here
    damaged: int = 0

    @classmethod
    def read(cls, events: Path) -> "Clocks":
        """From the events folder of a run; empty for a run on one host."""
        found = cls()
        offsets: dict[str, list[Offset]] = {}
        for path in sorted(events.glob(GATHERERS)):
            for event in read_lines(path):
                if isinstance(event, Hello):
                    found.reference = event.host
                elif isinstance(event, Metric):
                    found._note(event, offsets)
        for host in found.unfinished:
            found.lost.setdefault(host, UNFINISHED)
        offsets.pop(found.reference or "", None)
        found.clocks = {host: Clock(measured) for host, measured in offsets.items()}
        return found

    def event(self, host: str, event: Event) -> Event:
        """`event` of `host` with its instants on the controller's axis."""
        clock = self.clocks.get(host)
        if clock is None:
            return event
        match event:
            case Hello() | Metric() | Gate() | Failure() | Bye():
                return _with(event, mono_ns=clock.here(event.mono_ns))
            case Open():
                return _with(event, start_ns=clock.here(event.start_ns))
            case Span():
                start, end = _both(clock, event.start_ns, event.end_ns)
                return _with(event, start_ns=start, end_ns=end, attributes=_attributes(clock, event.attributes))
            case Trajectory() | Step():
                start, end = _both(clock, event.start_ns, event.end_ns)
                return _with(event, start_ns=start, end_ns=end)

    def table(self, table: pa.Table) -> pa.Table:
        """A table with columns `host` and `mono_ns`, all of it on the controller's axis, sorted by time."""
        if not self.clocks or not table.num_rows:
            return table
        times = table["mono_ns"].to_numpy().copy()
        for host, clock in self.clocks.items():
            rows = pc.equal(table["host"], host).to_numpy(zero_copy_only=False)
            if rows.any():
                times[rows] -= offsets_at(clock, times[rows])
        place = table.schema.get_field_index("mono_ns")
        return table.set_column(place, table.schema.field(place), pa.array(times)).sort_by("mono_ns")

    def hosts(
        self, processes: pa.Table, sampled: Mapping[str, tuple[int, int, int]], controller: str | None
    ) -> pa.Table:
        """The table `hosts`, from what is on the controller's axis. `controller`: its host without gatherer.

        `sampled`: first and last instant, and number, of the samples of each host.
        """
        reference = self.reference or controller
        spans: dict[str, list[int]] = {}
        for row in processes.select(["host", "first_ns", "last_ns"]).to_pylist():
            spans.setdefault(row["host"], []).extend(t for t in (row["first_ns"], row["last_ns"]) if t is not None)
        counts: dict[str, int] = {}
        for host, (first, last, count) in sampled.items():
            spans.setdefault(host, []).extend((first, last))
            counts[host] = count
        for host in (*self.clocks, *self.lost):
            spans.setdefault(host, [])
        rows = Rows("hosts")
        for host in sorted(spans):
            rows.add(*self._row(host, host == reference, spans[host], counts.get(host, 0)))
        return rows.table()

    def _row(self, host: str, reference: bool, instants: list[int], samples: int) -> tuple[Any, ...]:
        first, last = (min(instants), max(instants)) if instants else (None, None)
        lost = self.lost.get(host)
        if reference:
            return (host, True, 0, 0, None, None, None, 0, None, samples, first, last, lost is not None, lost)
        clock = self.clocks.get(host)
        if clock is None:
            reason = lost or NOT_COMPARED
            return (host, False, None, None, None, None, None, 0, None, samples, first, last, lost is not None, reason)
        begin, end = clock.offsets[0], clock.offsets[-1]
        middle, _ = clock.offset_at((begin.mono_ns + begin.offset_ns + end.mono_ns + end.offset_ns) // 2)
        # The instants are on this axis by now: back to the host's own clock, to ask how well they were known.
        own = [one + middle for one in (first, last) if one is not None] or [begin.mono_ns + begin.offset_ns]
        uncertainty = clock.uncertainty_between(min(own), max(own))
        drift = clock.drift_ppm or (None, None)
        round_trip = min(one.round_trip_ns for one in clock.offsets)
        measured = (middle, uncertainty, round_trip, *drift, len(clock.offsets), clock.steady)
        return (host, False, *measured, samples, first, last, lost is not None, lost)

    def _note(self, event: Metric, offsets: dict[str, list[Offset]]) -> None:
        host = event.labels.get("host")
        if not isinstance(host, str):
            return
        if event.name == METRIC:
            offset = _offset(event.labels)
            if offset is None:
                self.damaged += 1
            else:
                offsets.setdefault(host, []).append(offset)
        elif event.name == BEGIN:
            self.unfinished.add(host)
        elif event.name == LOST:
            self.lost[host] = str(event.labels.get("reason"))
        elif event.name == RETURNED:
            self.lost.pop(host, None)
        elif event.name == END and event.labels.get("complete") is True:
            self.lost.pop(host, None)
            self.unfinished.discard(host)


def offsets_at(clock: Clock, times: Instants) -> Instants:
    """What `Clock.here` takes away, for many instants of the other clock at once."""
    at = np.array([one for one, _ in clock.line], dtype=np.int64)
    offsets = np.array([one for _, one in clock.line], dtype=np.int64)
    # Both relative, so that doubles hold them to the nanosecond.
    moved = np.interp((times - at[0]).astype(np.float64), (at - at[0]).astype(np.float64), offsets - offsets[0])
    found: Instants = offsets[0] + np.rint(moved).astype(np.int64)
    return found


def _with(event: EventT, **changes: Any) -> EventT:
    """`dataclasses.replace`, at a fraction of its cost: every event of another host goes through it."""
    kind = type(event)
    new = object.__new__(kind)
    for name in kind.__slots__:
        object.__setattr__(new, name, changes[name] if name in changes else getattr(event, name))
    return new


def _both(clock: Clock, start_ns: int, end_ns: int) -> tuple[int, int]:
    start = clock.here(start_ns)
    return start, max(start, clock.here(end_ns))


def _attributes(clock: Clock, attributes: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    moved = {name: clock.here(value) for name in INSTANTS if type(value := attributes.get(name)) is int}
    return {**attributes, **moved} if moved else attributes


def _offset(labels: Mapping[str, Scalar]) -> Offset | None:
    names = ("at_ns", "offset_ns", "uncertainty_ns", "round_trip_ns", "rounds")
    values = [value for name in names if type(value := labels.get(name)) is int]
    if len(values) != len(names):
        return None
    at, offset, uncertainty, round_trip, rounds = values
    return Offset(mono_ns=at, offset_ns=offset, uncertainty_ns=uncertainty, round_trip_ns=round_trip, rounds=rounds)
