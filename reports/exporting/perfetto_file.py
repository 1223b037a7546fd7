"""A Perfetto trace as it is written: processes, tracks, slices that nest, instants, counters, one clock.

Format: https://perfetto.dev/docs/reference/trace-packet-proto. Packets are built by Perfetto's own Python package
(extra `export`) and written one by one, so a trace needs no memory of its own size.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import pack
from typing import IO, Any

from harness.protocol.errors import EnvError

MONOTONIC, BOOTTIME, REALTIME = 3, 6, 1  # BuiltinClock
EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type
LENGTH, FIXED64 = 2, 1  # wire types of protobuf
SEQUENCE = 1  # all packets are of one: the order of those of one instant is that of the file
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

    def values(self, track: int, values: Iterable[tuple[int, float]]) -> None:
        """Values of a counter: time, value."""
        begin, event = self._frame(track, COUNTER)
        fields = event.DESCRIPTOR.fields_by_name
        tag = _varint(fields["double_counter_value"].number << 3 | FIXED64)
        inside = event.SerializeToString() + tag
        self._put(begin, inside, 8, ((at, pack("<d", value)) for at, value in values))

    def _end(self, track: int, open_: list[Slice], until: int | None) -> None:
        """Ends what ends before `until` (None: all that ends), the innermost first."""
        ended: list[tuple[int, bytes]] = []
        while open_ and (end := open_[-1].end) is not None and (until is None or end <= until):
            ended.append((end, b""))
            open_.pop()
        if ended:
            begin, event = self._frame(track, END)
            self._put(begin, event.SerializeToString(), 0, ended)

    def _frame(self, track: int, kind: int) -> tuple[bytes, Any]:
        """What packets of one track and kind have in common: the fields outside the event, and the event."""
        packet = self._event(None, track, kind)
        event = packet.track_event
        begin = self._new()
        begin.trusted_packet_sequence_id, begin.timestamp_clock_id = SEQUENCE, MONOTONIC
        return begin.SerializeToString(), event

    def _put(self, begin: bytes, inside: bytes, more: int, events: Iterable[tuple[int, bytes]]) -> None:
        """Packets that differ in their time, and in `more` bytes at the end of their event.

        A sampled run has millions of them: put together from what protobuf made once, each takes a tenth of the time.
        """
        fields = self._new.DESCRIPTOR.fields_by_name
        time = bytes([fields["timestamp"].number << 3])
        middle = bytes([fields["track_event"].number << 3 | LENGTH]) + _varint(len(inside) + more) + inside
        for at, end in events:
            data = begin + time + _varint(at) + middle + end
            self._file.write(b"\x0a" + _varint(len(data)) + data)

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


# 14 bits at a time: the two bytes of each such part of a longer number, and all of a short one.
_PARTS = tuple(bytes((value & 127 | 128, value >> 7 | 128)) for value in range(1 << 14))
_SHORT = tuple(bytes((v,)) if v < 128 else bytes((v & 127 | 128, v >> 7)) for v in range(1 << 14))


def _varint(value: int) -> bytes:
    """A number as protobuf writes it: 7 bits a byte, the lowest first, all but the last with their high bit set."""
    if value < 1 << 14:
        return _SHORT[value]
    parts = b""
    while value >= 1 << 14:
        parts += _PARTS[value & 0x3FFF]
        value >>= 14
    return parts + _SHORT[value]
