"""Events files line by line: every event checked against its declared types, every damaged line counted.

A file has one part per process that wrote to it (a process id can be used again), each begun by its `Hello`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from harness.protocol.events import (
    EVENT_TYPES,
    Bye,
    Event,
    Failure,
    Gate,
    Hello,
    Metric,
    Open,
    Scalar,
    Span,
    Step,
    Trajectory,
    decode,
)

_CACHED_BYTES = 2**18  # looked through at once
INT_LIMIT = 2**62  # differences of two such integers fit 64 bits
OnAxis = Callable[[str, Event], Event]  # host, event -> the event with its times on the run's axis
_FILE_NAME = re.compile(r"^(?P<host>.+)-(?P<pid>\d{1,18})$")


@dataclass(slots=True)
class Process:
    """What one process recorded, so far. Times are monotonic ns of its host."""

    file: str
    host: str
    pid: int
    hello: Hello | None = None
    bye: Bye | None = None
    events: int = 0
    damaged: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def role(self) -> str | None:
        """Its role; None when its first line was lost."""
        return self.hello.role if self.hello else None

    def saw(self, event: Event) -> None:
        """Counts one event that belongs to this process."""
        self.saw_all(1, *event_times(event))

    def saw_all(self, events: int, begin: int, end: int) -> None:
        """Counts events that belong to this process, from the first instant to the last of them."""
        self.events += events
        self.first_ns = begin if self.first_ns is None else min(self.first_ns, begin)
        self.last_ns = end if self.last_ns is None else max(self.last_ns, end)


@dataclass(slots=True)
class EventFile:
    """One events file being read; `processes` and the damage are complete when `events` is exhausted."""

    path: Path
    on_axis: OnAxis | None = None
    processes: list[Process] = field(default_factory=list)
    lines: int = 0
    damaged: int = 0
    first_damage: str | None = None  # "line 7: why"
    _first_damaged: int = 0

    def events(self) -> Iterator[tuple[Process, Event]]:
        """Every whole event with the process that wrote it, in the order of the file."""
        with self.path.open("rb") as file:
            for raw in file:
                self.lines += 1
                found = self.line(raw, self.lines)
                if found is not None:
                    yield found

    def blocks(self, size: int) -> Iterator[tuple[int, pa.LargeBinaryArray]]:
        """The lines of the file, `size` bytes at a time: number of the first, lines.

        Each line comes with the newline that ends it. The lines lie in a buffer that the next block is read into:
        what is to stay must be copied.
        """
        buffer, held = bytearray(size), 0
        with self.path.open("rb", buffering=0) as file:
            while True:
                if held == len(buffer):
                    buffer = buffer + bytes(len(buffer))  # one line is longer
                with memoryview(buffer) as view, view[held:] as free:
                    more = file.readinto(free)
                if not more:
                    break
                end = buffer.rfind(b"\n", held, held + more) + 1
                held += more
                if end:
                    lines = lines_of(buffer, end)
                    yield self.lines + 1, lines
                    self.lines += len(lines)
                    held -= end
                    buffer[:held] = buffer[end : end + held]
        if held:
            yield self.lines + 1, lines_of(buffer, held)
            self.lines += 1

    def line(self, raw: bytes, number: int) -> tuple[Process, Event] | None:
        """The event of one line; None where it is none: then it is counted as damaged, or is empty."""
        if not raw.strip():
            return None  # a line cut to nothing by a full disk: its writer counted it as lost
        found = checked(raw)
        if self.on_axis is not None and not isinstance(found, str):
            host = found.host if isinstance(found, Hello) else self.host
            found = self.on_axis(host, found)
        if isinstance(found, Hello):
            self._begin(found.host, found.pid, found)
        if isinstance(found, str):
            self._damage(self.process(), found, number)
            return None
        process = self.process()
        process.saw(found)
        if isinstance(found, Bye):
            process.bye = found
        return process, found

    @property
    def host(self) -> str:
        """Where the process of the next line runs, unless that is a `Hello`."""
        return self.processes[-1].host if self.processes else self._named()[0]

    def process(self) -> Process:
        """The process of the next line, unless that is a `Hello`."""
        return self.processes[-1] if self.processes else self._begin(*self._named(), None)

    def _begin(self, host: str, pid: int, hello: Hello | None) -> Process:
        process = Process(self.path.name, host, pid, hello)
        self.processes.append(process)
        return process

    def _named(self) -> tuple[str, int]:
        """Host and pid as the file's name has them: all that is left when the first line is lost."""
        match = _FILE_NAME.match(self.path.stem)
        return (match["host"], int(match["pid"])) if match else (self.path.stem, -1)

    def _damage(self, process: Process, why: str, number: int) -> None:
        self.damaged += 1
        process.damaged += 1
        if self.first_damage is None or number < self._first_damaged:
            self.first_damage, self._first_damaged = f"line {number}: {why}", number


def lines_of(data: bytes | bytearray, end: int) -> pa.LargeBinaryArray:
    """The lines before `end`, each with its newline; no Python object is made of any, and nothing is copied."""
    letters = np.frombuffer(data, np.uint8, end)
    parts = range(0, end, _CACHED_BYTES)
    found = [np.flatnonzero(letters[at : at + _CACHED_BYTES] == ord("\n")) + (at + 1) for at in parts]
    last = [] if data[end - 1 : end] == b"\n" else [end]
    offsets = np.concatenate(([0], *found, last)).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), offsets.size - 1, buffers)


def checked(raw: bytes) -> Event | str:
    """The event of one line, or why it is none: not JSON, unknown kind, or a field of the wrong type."""
    try:
        event = decode(raw.decode("utf-8"))
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)[:200]
    return misfit(event) or _plain(event)


def _plain(event: Event) -> Event:
    """The event, its attributes and labels scalars that can be written: of anything else there, what it looks like."""
    for name in _MAPPINGS[type(event)]:
        said = getattr(event, name)
        if not all(map(_is_plain, said.values())):
            changed: dict[str, Any] = {name: {key: _plainly(value) for key, value in said.items()}}
            event = replace(event, **changed)
    return event


def _is_plain(value: object) -> bool:
    kind = type(value)
    return (kind is not str and kind in _SCALARS) or (kind is str and _storable(value))


def _plainly(value: Any) -> Scalar:
    if type(value) in _SCALARS:
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return json.dumps(value)


def misfit(event: Event) -> str | None:
    """What does not fit the event's declared types (or a number that is beyond 62 bits or not finite), or None."""
    for name, kinds, inner in _CHECKS[type(event)]:
        value = getattr(event, name)
        if type(value) not in kinds:
            return f"{event.kind}.{name} = {str(value)[:40]!r} has type {type(value).__name__}"
        if inner is None:
            if not _storable(value):
                return f"{event.kind}.{name} = {str(value)[:40]!r} cannot be stored"
            continue
        for item in value or ():
            if type(item) not in inner or not _storable(item):
                return f"{event.kind}.{name} holds {str(item)[:40]!r} of type {type(item).__name__}"
    begin, end = event_times(event)
    return f"{event.kind} ends {begin - end} ns before it begins" if end < begin else None


def event_times(event: Event) -> tuple[int, int]:
    """First and last instant an event speaks of, monotonic ns."""
    match event:
        case Hello() | Metric() | Gate() | Failure() | Bye():
            return event.mono_ns, event.mono_ns
        case Open():
            return event.start_ns, event.start_ns
        case Span() | Trajectory() | Step():
            return event.start_ns, event.end_ns


def _storable(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(-INT_LIMIT <= value < INT_LIMIT)
    if kind is float:
        return isfinite(value)
    if kind is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
    return True


def _kinds(hint: Any) -> frozenset[type]:
    """The exact types a JSON value may have for a hint: an int will do for a float, a bool never for an int."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds: set[type] = set()
    for option in options:
        kind: type = get_origin(option) or option
        kinds.add(dict if kind is Mapping else kind)
        if kind is float:
            kinds.add(int)
    return frozenset(kinds)


def _inner(hint: Any) -> frozenset[type] | None:
    """The types a tuple's items may have; None when the hint is no tuple. Mappings become JSON as they are."""
    for option in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if get_origin(option) is tuple:
            return _kinds(get_args(option)[0])
    return None


def _checks(kind: type) -> tuple[tuple[str, frozenset[type], frozenset[type] | None], ...]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "kind"}
    return tuple((name, _kinds(hint), _inner(hint)) for name, hint in hints.items())


_SCALARS = frozenset({str, int, float, bool, NoneType})
_MAPPINGS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(name for name, hint in get_type_hints(kind).items() if get_origin(hint) is Mapping)
    for kind in EVENT_TYPES.values()
}
_CHECKS: Mapping[type, tuple[tuple[str, frozenset[type], frozenset[type] | None], ...]] = {
    kind: _checks(kind) for kind in EVENT_TYPES.values()
}
