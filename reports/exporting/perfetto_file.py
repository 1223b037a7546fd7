"""A Perfetto trace as it is written: processes, tracks, slices that nest, instants, counters, one clock.

Format: https://perfetto.dev/docs/reference/trace-packet-proto. Packets are built by Perfetto's own Python package
(extra `export`) and written one by one, so a trace needs no memory of its own size.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from harness.protocol.errors import EnvError

MONOTONIC, BOOTTIME, REALTIME = 3, 6, 1  # BuiltinClock
EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
LENGTH, FIXED64 = 2, 1  # wire types of protobuf
SEQUENCE = 1  # all packets are of one: the order of those of one instant is that of the file
ROWS = 1 << 16  # packets made at once
Instants = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MISSING = "Perfetto's package is not installed: pip install 'agentic-rl-bench[export]'"


@dataclass(frozen=True, slots=True)
class Slice:
    """A stretch of time on a track. `end` None: it never ended, and Perfetto shows it as unfinished.

    `args` is asked when the slice is written: of a million slices, one at a time has its arguments in memory.
    """

    start: int
    end: int | None
    name: str
    category: str
    args: Callable[[], Mapping[str, Any]] = dict
    flows_out: Sequence[int] = ()
    flows_in: Sequence[int] = ()


class TraceFile:
    """Writes packets to a binary file."""

    def __init__(self, file: IO[bytes]) -> None:
        """Raises EnvError when Perfetto's package is not installed."""
        try:
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket
        except ImportError:
            raise EnvError(MISSING) from None
        self._new = TracePacket
        self._file = file
        self._uuid = 0
        self._pid = 0

    def clock(self, mono_ns: int, wall_minus_mono_ns: int | None) -> None:
        """Says that times are the monotonic clock's, and which wall time one of them is, where that is known."""
        packet = self._new()
        packet.trusted_packet_sequence_id = SEQUENCE
        snapshot = packet.clock_snapshot
        snapshot.primary_trace_clock = MONOTONIC
        instants = {MONOTONIC: mono_ns, BOOTTIME: mono_ns}
        if wall_minus_mono_ns is not None:
            instants[REALTIME] = mono_ns + wall_minus_mono_ns
        for clock, instant in instants.items():
            one = snapshot.clocks.add()
            one.clock_id, one.timestamp = clock, instant
        self._write(packet)

    def process(self, name: str) -> int:
        """A new process row; returns its track. Its pid is a number of this file, not one of a machine."""
        self._pid += 1
        packet, descriptor = self._descriptor()
        descriptor.process.pid = self._pid
        descriptor.process.legacy_sort_index = self._pid
        descriptor.process.process_name = name
        self._write(packet)
        return self._uuid

    def track(self, parent: int, name: str, rank: int | None = None) -> int:
        """A new track below another, or below a process; `rank` puts it elsewhere than after those before it."""
        packet, descriptor = self._descriptor(parent, name)
        if rank is not None:
            descriptor.sibling_order_rank = rank
        self._write(packet)
        return self._uuid

    def counter(self, parent: int, name: str, unit: str) -> int:
        """A new counter."""
        packet, descriptor = self._descriptor(parent, name)
        descriptor.counter.unit_name = unit
        self._write(packet)
        return self._uuid

    def slices(self, parent: int, name: str, slices: Iterable[Slice]) -> None:
        """Slices below `parent`: on one track where they nest, else on as many of the same name as it takes."""
        rank = self._uuid + 1
        for lane in lanes(slices):
            track = self.track(parent, name, rank)
            open_: list[Slice] = []
            for one in lane:
                self._end(track, open_, one.start)
                event = self._event(one.start, track, BEGIN)
                event.track_event.name = one.name
                event.track_event.categories.append(one.category)
                event.track_event.flow_ids.extend(one.flows_out)
                event.track_event.terminating_flow_ids.extend(one.flows_in)
                _annotate(event.track_event, one.args())
                self._write(event)
                open_.append(one)
            self._end(track, open_, None)

    def instants(self, track: int, instants: Iterable[tuple[int, str, str, Mapping[str, Any]]]) -> None:
        """Instants on a track: time, name, category, arguments."""
        for at, name, category, args in instants:
            event = self._event(at, track, INSTANT)
            event.track_event.name = name
            event.track_event.categories.append(category)
            _annotate(event.track_event, args)
            self._write(event)

    def values(self, track: int, at: Instants, values: Floats) -> None:
        """Values of a counter: times in ns, and as many finite values.

        A sampled run has millions of them. Packets of one counter are alike but for time and value, so they are put
        together as the rows of a matrix of bytes, from parts that protobuf made.
        """
        event = self._event(None, track, COUNTER).track_event
        tag = event.DESCRIPTOR.fields_by_name["double_counter_value"].number << 3 | FIXED64
        inside = event.SerializeToString() + _varint(tag)
        begin = self._new()
        begin.trusted_packet_sequence_id, begin.timestamp_clock_id = SEQUENCE, MONOTONIC
        fields = begin.DESCRIPTOR.fields_by_name
        before = begin.SerializeToString() + bytes([fields["timestamp"].number << 3])
        after = bytes([fields["track_event"].number << 3 | LENGTH]) + _varint(len(inside) + 8) + inside
        for first in range(0, at.size, ROWS):
            times, found = at[first : first + ROWS], values[first : first + ROWS]
            sizes = _sizes(times)
            for size in np.unique(sizes):  # two at most: times of one run are close to each other
                alike = sizes == size
                head = b"\x0a" + _varint(len(before) + int(size) + len(after) + 8) + before
                self._file.write(_matrix(head, times[alike], int(size), after, found[alike]))

    def _end(self, track: int, open_: list[Slice], until: int | None) -> None:
        """Ends what ends before `until` (None: all that ends), the innermost first."""
        while open_ and (end := open_[-1].end) is not None and (until is None or end <= until):
            self._write(self._event(end, track, END))
            open_.pop()

    def _event(self, at: int | None, track: int, kind: int) -> Any:
        packet = self._new()
        if at is not None:
            packet.timestamp = at
        packet.timestamp_clock_id = MONOTONIC
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet

    def _descriptor(self, parent: int | None = None, name: str | None = None) -> tuple[Any, Any]:
        self._uuid += 1
        packet = self._new()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.track_descriptor.uuid = packet.track_descriptor.sibling_order_rank = self._uuid
        packet.track_descriptor.child_ordering = EXPLICIT  # as written, not by name
        if parent is not None:
            packet.track_descriptor.parent_uuid = parent
        if name is not None:
            packet.track_descriptor.name = name
        return packet, packet.track_descriptor

    def _write(self, packet: Any) -> None:
        data: bytes = packet.SerializeToString()
        self._file.write(b"\x0a" + _varint(len(data)) + data)  # field 1 of Trace, as one of many packets


def lanes(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Slices, each lane in order of start, so that within a lane any two are apart or one inside the other."""
    found: list[list[Slice]] = []
    ends: list[list[float]] = []  # by lane: ends of what is open at the latest start
    for one in sorted(slices, key=lambda one: (one.start, -_end_of(one))):
        free = next((number for number, stack in enumerate(ends) if _fits(one, stack)), len(found))
        if free == len(found):
            found.append([])
            ends.append([])
        found[free].append(one)
        ends[free].append(_end_of(one))
    return found


def _fits(one: Slice, stack: list[float]) -> bool:
    while stack and stack[-1] <= one.start:
        stack.pop()
    return not stack or _end_of(one) <= stack[-1]


def _end_of(one: Slice) -> float:
    return float("inf") if one.end is None else one.end


def _annotate(event: Any, args: Mapping[str, Any]) -> None:
    for name, value in args.items():
        note = event.debug_annotations.add()
        note.name = name
        match value:
            case bool():
                note.bool_value = value
            case int():
                note.int_value = value
            case float():
                note.double_value = value
            case _:
                note.string_value = str(value)


def _varint(value: int) -> bytes:
    """A number as protobuf writes it: 7 bits a byte, the lowest first, all but the last with their high bit set."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _sizes(numbers: Instants) -> npt.NDArray[np.int64]:
    """How many bytes each number takes as `_varint` writes it."""
    limits = np.array([1 << 7 * more for more in range(1, 9)], dtype=np.int64)
    return np.searchsorted(limits, numbers, side="right").astype(np.int64) + 1


def _matrix(head: bytes, times: Instants, size: int, middle: bytes, values: Floats) -> bytes:
    """Rows of `head`, a time of `size` bytes, `middle`, a value of 8 bytes."""
    rows = np.empty((times.size, len(head) + size + len(middle) + 8), dtype=np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    for place in range(size):
        more = 128 if place < size - 1 else 0
        rows[:, len(head) + place] = times >> 7 * place & 127 | more
    rows[:, len(head) + size : -8] = np.frombuffer(middle, np.uint8)
    rows[:, -8:] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return rows.tobytes()
