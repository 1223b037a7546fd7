"""The lines of an events file, those of one process and one kind together, parsed while more are looked through."""

from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.events import Hello
from results import bulk
from results.reading import EventFile, checked

BLOCK_BYTES = 8 * 2**20  # of an events file, read at once
PARSERS, AHEAD = 2, 1  # threads; parts that are parsed while the one before them is taken
HELLO = b'"hello"'  # in the line that says which process comes

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Part:
    """Lines of one process. `hello`: the first of them says which. `read` together, or `alone`, with their numbers."""

    hello: bool
    read: list[tuple[bulk.Bulk, pa.LargeBinaryArray]] = field(default_factory=list)
    alone: list[tuple[int, bytes]] = field(default_factory=list)  # in their order


@dataclass(frozen=True, slots=True)
class _Reading:
    """Lines of one kind, or of none that is read together."""

    lines: pa.LargeBinaryArray
    numbers: Numbers
    events: Future[bulk.Bulk | None] | None


def parts(file: EventFile, line_by_line: Collection[str]) -> Iterator[Part]:
    """The file's lines in the order of its processes; those of the hosts `line_by_line` are all alone."""
    waiting: deque[tuple[bool, list[_Reading]]] = deque()
    with ThreadPoolExecutor(PARSERS) as parsers:
        for begun in _begun(file, line_by_line, parsers):
            waiting.append(begun)
            if len(waiting) > AHEAD:
                yield _part(*waiting.popleft())
        while waiting:
            yield _part(*waiting.popleft())


def _begun(
    file: EventFile, line_by_line: Collection[str], parsers: ThreadPoolExecutor
) -> Iterator[tuple[bool, list[_Reading]]]:
    host = file.host
    for first, lines in file.blocks(BLOCK_BYTES):
        kinds = bulk.kinds_of(lines)
        alone = np.flatnonzero(kinds < 0)
        with_hello = pc.match_substring(lines.take(pa.array(alone)), HELLO.decode())
        hellos = alone[with_hello.to_numpy(zero_copy_only=False)].tolist()
        for begin, end in pairwise(sorted({0, *hellos, len(lines)})):
            if begin in hellos:
                found = checked(lines[begin].as_py())
                host = found.host if isinstance(found, Hello) else host
            if host in line_by_line:
                kinds[begin:end] = -1
            readings = []
            for place in range(-1, len(bulk.KINDS)):
                where = np.flatnonzero(kinds[begin:end] == place) + begin
                if where.size:
                    # A copy: the next block is read to where this one lies.
                    those, numbers = lines.take(pa.array(where)), where + first
                    together = place >= 0 and where.size >= bulk.LEAST_LINES
                    events = parsers.submit(bulk.read, bulk.KINDS[place], those, numbers) if together else None
                    readings.append(_Reading(those, numbers, events))
            yield begin in hellos, readings


def _part(hello: bool, readings: list[_Reading]) -> Part:
    part = Part(hello)
    for reading in readings:
        found = None if reading.events is None else reading.events.result()
        if found is None:
            part.alone += zip(reading.numbers.tolist(), reading.lines.to_pylist(), strict=True)
        else:
            part.read.append((found, reading.lines))
    part.alone.sort()
    return part
