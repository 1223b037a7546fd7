"""Reads segments of samples by pieces: millions of small Arrow batches at the speed of a few large ones.

A sampler writes a batch every half second, so a day of samples is hundreds of thousands of them, and decoding one by
one costs far more than the data do. The messages of one file differ in their numbers only (Arrow IPC: flatbuffers
metadata, then the buffers), so the places of those numbers are found once, and a piece of the file is read by them at
once. A message that differs in anything else is read by pyarrow, as is what is damaged.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from pathlib import Path

import numpy as np
import pyarrow as pa

from results.schema import SAMPLES
from results.segment_columns import Bytes, Ints, OddError, Piece, taken
from results.texts import encoded, texts_as

PIECE_BYTES = 16 * 2**20
MANY_NULLS = 2**18
_HEAD = struct.Struct("<iI")  # continuation marker, length of the metadata
_CONTINUATION = -1
_RECORD_BATCH = 3  # MessageHeader of Message.fbs
_KINDS = (pa.string(), pa.int64(), pa.float64())

ENCODED = encoded(SAMPLES)

Data = bytes | bytearray


class CutError(Exception):
    """A segment ends before its last batch does, or holds something else there."""

    def __init__(self, why: object, rows: int) -> None:
        super().__init__(f"cut or damaged after {rows} samples ({why})")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the numbers of a message's metadata lie; all other bytes are the same in each message."""

    size: int
    head: bytes  # what a message begins with, up to the length of its body, if that says where this lies
    fixed: Bytes  # all ones where the bytes of the template are to be, else 0
    template: Bytes
    body: int
    length: int
    nodes: int
    node_count: int
    buffers: int
    buffer_count: int


def pieces(path: Path, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """The whole batches of a segment, many at a time, in the columns of `ENCODED`, as far as those have a value.

    Raises:
        CutError: after the last whole batch, where the file is cut or damaged.
    """
    rows = 0
    try:
        with path.open("rb", buffering=0) as file:
            for table in _tables(file, piece_bytes):
                yield table
                rows += table.num_rows
    except CutError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        # ArrowInvalid is a ValueError, and a file cut inside a message's length says so as an OSError.
        raise CutError(error, rows) from None


def _tables(file: FileIO, piece_bytes: int) -> Iterator[pa.Table]:
    head = file.read(_HEAD.size)
    if not head:
        raise ValueError("the file is empty")
    begin = head + file.read(_HEAD.unpack(head)[1] if len(head) == _HEAD.size else 0)
    with pa.ipc.open_stream(pa.BufferReader(begin)) as stream:
        schema = stream.schema
    missing = [name for name in ("host", "mono_ns") if name not in schema.names]
    if missing:
        raise ValueError(f"not samples: no column {missing[0]}")
    usual = all(field.type in _KINDS for field in schema)
    layout: _Layout | None = None
    rows = 0
    buffer, left = bytearray(piece_bytes), 0  # kept: a new one for each piece would cost as much as reading it
    while True:
        if left == len(buffer):
            buffer += bytes(len(buffer))  # one message is longer
        with memoryview(buffer) as view:
            more = file.readinto(view[left:])
        size = left + more
        starts, end, whole = _messages(buffer, size, layout)
        if starts:
            try:
                layout = layout or (_layout(buffer, starts[0]) if usual else None)
                if layout is None:
                    raise OddError
                found: Iterable[pa.Table] = [_read(buffer, starts, schema, layout)]
            except OddError:
                found = _plain(begin, bytes(buffer[:end]), rows)
            for table in found:
                yield table
                rows += table.num_rows
        if not (whole and more):
            # The end of the stream, or no whole message: pyarrow says whether anything is wrong with it.
            yield from _plain(begin, bytes(buffer[end:size]) + file.read(), rows)
            return
        left = size - end
        buffer[:left] = buffer[end:size]


def _messages(data: Data, length: int, layout: _Layout | None) -> tuple[list[int], int, bool]:
    """Where the whole messages begin, where they end, and whether what follows may be one."""
    starts: list[int] = []
    at = 0
    head, header, in_header = (b"", 0, 0) if layout is None else (layout.head, layout.size, layout.body)
    header += _HEAD.size
    in_header += _HEAD.size
    while at + _HEAD.size <= length:
        while head and at + header <= length and data.startswith(head, at):
            end = at + header + _I64(data, at + in_header)[0]
            if not at + header <= end <= length:
                break
            starts.append(at)
            at = end
        if at + _HEAD.size > length:
            break
        marker, size = _HEAD.unpack_from(data, at)
        if marker != _CONTINUATION or size <= 0:
            return starts, at, False
        meta = at + _HEAD.size
        if meta + size > length:
            break
        try:
            body = _body_length(data, meta, size)
        except struct.error:
            return starts, at, False
        if body < 0:
            return starts, at, False
        if meta + size + body > length:
            break
        starts.append(at)
        at = meta + size + body
    return starts, at, True


_U16, _I32, _U32, _I64 = (struct.Struct(f"<{code}").unpack_from for code in "HiIq")


def _field(data: Data, table: int, number: int) -> int:
    """Where a field of a flatbuffers table lies; 0: it is not there."""
    vtable = table - _I32(data, table)[0]
    if 4 + 2 * number >= _U16(data, vtable)[0]:
        return 0
    offset = _U16(data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _body_length(data: Data, meta: int, size: int) -> int:
    """Of a message; -1 where its metadata cannot be right.

    Raises:
        struct.error: a place lies outside the data.
    """
    place = _field(data, meta + _U32(data, meta)[0], 3)
    if not place:
        return 0
    return int(_I64(data, place)[0]) if meta <= place <= meta + size - 8 else -1


def _layout(data: Data, start: int) -> _Layout:
    meta, size = start + _HEAD.size, _HEAD.unpack_from(data, start)[1]
    try:
        root = meta + _U32(data, meta)[0]
        kind, header, body = _field(data, root, 1), _field(data, root, 2), _field(data, root, 3)
        if not (kind and header and body) or data[kind] != _RECORD_BATCH or _field(data, root, 4):
            raise OddError
        batch = header + _U32(data, header)[0]
        length, nodes, buffers = (_field(data, batch, number) for number in range(3))
        if not (length and nodes and buffers) or _field(data, batch, 3) or _field(data, batch, 4):
            raise OddError  # compressed, or with columns of a variable number of buffers
        nodes, buffers = nodes + _U32(data, nodes)[0], buffers + _U32(data, buffers)[0]
        counts = _U32(data, nodes)[0], _U32(data, buffers)[0]
    except (struct.error, IndexError):
        raise OddError from None
    numbers = [(body, 8), (length, 8), (nodes + 4, 16 * counts[0]), (buffers + 4, 16 * counts[1])]
    fixed = np.full(size, 255, dtype=np.uint8)
    for place, width in numbers:
        if not meta <= place <= meta + size - width:
            raise OddError
        fixed[place - meta : place - meta + width] = 0
    tables = (root, root - _I32(data, root)[0])
    found_by_head = all(meta <= place < body for place in tables) and body < min(place for place, _ in numbers[1:])
    return _Layout(
        size=size,
        head=bytes(data[start:body]) if found_by_head else b"",
        fixed=fixed,
        template=np.frombuffer(data, np.uint8, size, meta).copy(),
        body=body - meta,
        length=length - meta,
        nodes=nodes + 4 - meta,
        node_count=counts[0],
        buffers=buffers + 4 - meta,
        buffer_count=counts[1],
    )


def _plain(begin: bytes, part: bytes, rows: int) -> Iterator[pa.Table]:
    """Messages as pyarrow reads them, until there are none.

    Raises:
        CutError: one is damaged; `rows` came before.
    """
    found: list[pa.RecordBatch] = []
    trouble: Exception | None = None
    try:
        with pa.ipc.open_stream(pa.BufferReader(begin + part)) as stream:
            for batch in stream:
                batch.validate(full=True)  # a damaged batch may decode and yet point outside itself
                found.append(fit(batch))
    except (pa.ArrowException, OSError, ValueError) as error:
        trouble = error
    if found:
        yield texts_as(pa.Table.from_batches(found, schema=SAMPLES), ENCODED)
    if trouble is not None:
        raise CutError(trouble, rows + sum(batch.num_rows for batch in found))


def whole(tables: Iterable[pa.Table], schema: pa.Schema = SAMPLES) -> pa.Table:
    """Pieces as one table with every column of `schema`: one that a piece lacks is null there."""
    begin = schema.empty_table().select(["host", "mono_ns"])
    table = pa.concat_tables([begin, *(texts_as(one, schema) for one in tables)], promote_options="default")
    there = set(table.column_names)
    columns = [
        table[field.name] if field.name in there else _nulls(field.type, table.num_rows).slice(0, table.num_rows)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@lru_cache(maxsize=8)
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(MANY_NULLS, kind)


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    """At least so many: shared by the columns without a value, of which there are many."""
    return _many_nulls(kind) if count <= MANY_NULLS else pa.nulls(count, kind)


def fit(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in the columns of today: one that an older sampler did not write is null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SAMPLES
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SAMPLES)


def _read(part: Data, starts: Sequence[int], schema: pa.Schema, layout: _Layout) -> pa.Table:
    """Whole messages of one layout as a table.

    Raises:
        OddError: one is of another layout, or its numbers do not fit together.
    """
    data = np.frombuffer(part, np.uint8)
    at = np.array(starts, dtype=np.int64) + _HEAD.size
    sizes = data[at[:, None] - 4 + np.arange(4)].view("<u4").ravel()
    if (sizes != layout.size).any():
        raise OddError
    meta = taken(data, at, layout.size)

    def numbers(place: int, count: int) -> Ints:
        return meta[:, place : place + 8 * count].copy().view("<i8")

    rows, body = numbers(layout.length, 1).ravel(), numbers(layout.body, 1).ravel()
    nodes = numbers(layout.nodes, 2 * layout.node_count).reshape(len(starts), -1, 2)
    buffers = numbers(layout.buffers, 2 * layout.buffer_count).reshape(len(starts), -1, 2)
    meta ^= layout.template
    meta &= layout.fixed
    if meta.max():
        raise OddError
    offsets, lengths = buffers[:, :, 0], buffers[:, :, 1]
    good = (rows >= 0).all() and (nodes[:, :, 0] == rows[:, None]).all() and layout.node_count == len(schema)
    good = good and ((nodes[:, :, 1] >= 0) & (nodes[:, :, 1] <= rows[:, None])).all()
    good = good and ((offsets >= 0) & (lengths >= 0) & (offsets & 7 == 0) & (offsets + lengths <= body[:, None])).all()
    wanted = sum(3 if field.type == pa.string() else 2 for field in schema)
    if not good or wanted != layout.buffer_count:
        raise OddError
    piece = Piece(data, rows, (at + layout.size)[:, None] + offsets, lengths)
    columns: dict[str, pa.Array] = {}
    without: dict[pa.DataType, list[int]] = {}  # a value, by type: the numbers of their first buffers
    numeric: list[tuple[pa.Field, int, Ints]] = []
    number = 0
    of_columns = np.ascontiguousarray((rows[:, None] - nodes[:, :, 1]).T)
    count = int(rows.sum())
    for field, known, total in zip(schema, of_columns, of_columns.sum(axis=1).tolist(), strict=True):
        if not total:
            if count and not field.nullable:
                raise OddError
            without.setdefault(field.type, []).append(number)
        elif field.type == pa.string():
            columns[field.name] = piece.texts(number, known)
        else:
            numeric.append((field, number, known))
        number += 3 if field.type == pa.string() else 2
    for kind, begins in without.items():
        piece.nothing(begins, kind)
    if numeric:
        places, counts = [begin for _, begin, _ in numeric], np.array([known for *_, known in numeric])
        for (field, _, known), found in zip(numeric, piece.numbers(places, counts), strict=True):
            columns[field.name] = pa.Array.from_buffers(field.type, count, found, count - int(known.sum()))
    fields = [field for field in ENCODED if field.name in columns]
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in fields], schema=pa.schema(fields))
