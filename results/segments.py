"""Reads segments of samples by pieces: millions of small Arrow batches at the speed of a few large ones.

A sampler writes a batch every half second, so a day of samples is hundreds of thousands of them, and decoding one by
one costs far more than the data do. The messages of one file differ in their numbers only (Arrow IPC: flatbuffers
metadata, then the buffers), so the places of those numbers are found once, and a piece of the file is read by them at
once. A message that differs in anything else is read by pyarrow, as is what is damaged.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from results.schema import SAMPLES

PIECE_BYTES = 16 * 2**20
_HEAD = struct.Struct("<iI")  # continuation marker, length of the metadata
_CONTINUATION = -1
_RECORD_BATCH = 3  # MessageHeader of Message.fbs
_NUMBERS = {pa.int64(): np.dtype("<i8"), pa.float64(): np.dtype("<f8")}

Data = bytes | bytearray
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class CutError(Exception):
    """A segment ends before its last batch does, or holds something else there."""

    def __init__(self, why: object, rows: int) -> None:
        super().__init__(f"cut or damaged after {rows} samples ({why})")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the numbers of a message's metadata lie; all other bytes are the same in each message."""

    size: int
    fixed: Ints  # places
    template: Bytes  # what is there
    body: int
    length: int
    nodes: int
    node_count: int
    buffers: int
    buffer_count: int


class _OddError(Exception):
    """Not a message of the usual layout."""


def pieces(path: Path, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """The whole batches of a segment, many at a time, in the columns of today, as far as those have a value.

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
    usual = all(field.type in _NUMBERS or field.type == pa.string() for field in schema)
    layout: _Layout | None = None
    names, rows = _Names(), 0
    buffer, left = bytearray(piece_bytes), 0  # kept: a new one for each piece would cost as much as reading it
    while True:
        if left == len(buffer):
            buffer += bytes(len(buffer))  # one message is longer
        with memoryview(buffer) as view:
            more = file.readinto(view[left:])
        size = left + more
        starts, end, whole = _messages(buffer, size)
        if starts:
            try:
                layout = layout or (_layout(buffer, starts[0]) if usual else None)
                if layout is None:
                    raise _OddError
                found: Iterable[pa.Table] = [_read(buffer, starts, schema, layout, names)]
            except _OddError:
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


def _messages(data: Data, length: int) -> tuple[list[int], int, bool]:
    """Where the whole messages begin, where they end, and whether what follows may be one."""
    starts: list[int] = []
    at = 0
    while at + _HEAD.size <= length:
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
            raise _OddError
        batch = header + _U32(data, header)[0]
        length, nodes, buffers = (_field(data, batch, number) for number in range(3))
        if not (length and nodes and buffers) or _field(data, batch, 3) or _field(data, batch, 4):
            raise _OddError  # compressed, or with columns of a variable number of buffers
        nodes, buffers = nodes + _U32(data, nodes)[0], buffers + _U32(data, buffers)[0]
        counts = _U32(data, nodes)[0], _U32(data, buffers)[0]
    except (struct.error, IndexError):
        raise _OddError from None
    numbers = [(body, 8), (length, 8), (nodes + 4, 16 * counts[0]), (buffers + 4, 16 * counts[1])]
    fixed = np.ones(size, dtype=np.bool_)
    for place, width in numbers:
        if not meta <= place <= meta + size - width:
            raise _OddError
        fixed[place - meta : place - meta + width] = False
    template = np.frombuffer(data, np.uint8, size, meta).copy()
    places = np.flatnonzero(fixed)
    return _Layout(
        size=size,
        fixed=places,
        template=template[places],
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
        yield pa.Table.from_batches(found, schema=SAMPLES)
    if trouble is not None:
        raise CutError(trouble, rows + sum(batch.num_rows for batch in found))


def whole(tables: Iterable[pa.Table]) -> pa.Table:
    """Pieces as one table with every column: one that a piece lacks is null there."""
    return pa.concat_tables([SAMPLES.empty_table(), *tables], promote_options="default")


def fit(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch in the columns of today: one that an older sampler did not write is null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SAMPLES
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SAMPLES)


def _read(part: Data, starts: Sequence[int], schema: pa.Schema, layout: _Layout, names: "_Names") -> pa.Table:
    """Whole messages of one layout as a table.

    Raises:
        _OddError: one is of another layout, or its numbers do not fit together.
    """
    data = np.frombuffer(part, np.uint8)
    at = np.array(starts, dtype=np.int64) + _HEAD.size
    sizes = data[at[:, None] - 4 + np.arange(4)].view("<u4").ravel()
    if (sizes != layout.size).any():
        raise _OddError
    meta = np.lib.stride_tricks.sliding_window_view(data, layout.size)[at]
    if not (meta[:, layout.fixed] == layout.template).all():
        raise _OddError

    def numbers(place: int, count: int) -> Ints:
        return meta[:, place : place + 8 * count].copy().view("<i8")

    rows, body = numbers(layout.length, 1).ravel(), numbers(layout.body, 1).ravel()
    nodes = numbers(layout.nodes, 2 * layout.node_count).reshape(len(starts), -1, 2)
    buffers = numbers(layout.buffers, 2 * layout.buffer_count).reshape(len(starts), -1, 2)
    offsets, lengths = buffers[:, :, 0], buffers[:, :, 1]
    good = (rows >= 0).all() and (nodes[:, :, 0] == rows[:, None]).all() and layout.node_count == len(schema)
    good = good and ((nodes[:, :, 1] >= 0) & (nodes[:, :, 1] <= rows[:, None])).all()
    good = good and ((offsets >= 0) & (lengths >= 0) & (offsets % 8 == 0) & (offsets + lengths <= body[:, None])).all()
    wanted = sum(3 if field.type == pa.string() else 2 for field in schema)
    if not good or wanted != layout.buffer_count:
        raise _OddError
    piece = _Piece(data, rows, (at + layout.size)[:, None] + offsets, lengths, names)
    columns: dict[str, pa.Array] = {}
    number = 0
    for place, field in enumerate(schema):
        text = field.type == pa.string()
        known = rows - nodes[:, place, 1]
        if known.any():
            valid = piece.valid(number, known)
            if text:
                codes = pa.array(piece.texts(number + 1), mask=None if valid is None else ~valid)
                columns[field.name] = pa.DictionaryArray.from_arrays(codes, pa.array(names.texts, pa.string()))
            else:
                values = piece.numbers(number + 1, _NUMBERS[field.type])
                columns[field.name] = pa.array(values, mask=None if valid is None else ~valid)
        elif rows.any():
            if not field.nullable:
                raise _OddError
            piece.nothing(number, text)
        number += 3 if text else 2
    known_names = [field.name for field in SAMPLES if field.name in columns]
    fields = [SAMPLES.field(name) for name in known_names]
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in fields], schema=pa.schema(fields))


class _Piece:
    """The bytes of some messages, and where the buffers of each lie in them."""

    def __init__(self, data: Bytes, rows: Ints, places: Ints, lengths: Ints, names: "_Names") -> None:
        self._data = data
        self._names = names
        self._rows = rows
        self._places = places  # by message and buffer
        self._lengths = lengths
        self._count = int(rows.sum())
        begins = np.cumsum(rows) - rows
        self._byte: Ints | None = None  # a count of the bytes of a column's bits
        self._bit: Ints | None = None  # each row's place among the bits of a column
        self._within = np.arange(self._count) - np.repeat(begins, rows)  # each row's place in its message

    def valid(self, buffer: int, known: Ints) -> npt.NDArray[np.bool_] | None:
        """Which rows have a value; None: all. `known`: how many of each message have one.

        Raises:
            _OddError: the bits do not say as many.
        """
        if (known == self._rows).all():
            return None
        bits = known < self._rows
        width = -(-self._rows // 8)
        if (self._lengths[bits, buffer] < width[bits]).any():
            raise _OddError
        # A message all of whose rows have a value may have no bits: the place is then of no use, and is not used.
        places = np.where(bits, self._places[:, buffer], 0)
        begins = np.cumsum(width) - width
        bytes_ = self._data[np.repeat(places - begins, width) + np.arange(int(width.sum()))]
        if self._bit is None:
            self._bit = np.repeat(8 * begins, self._rows) + self._within
        valid = np.unpackbits(bytes_, bitorder="little")[self._bit].view(np.bool_)
        if not bits.all():
            valid[np.repeat(~bits, self._rows)] = True
        some = self._rows > 0
        counted = np.add.reduceat(valid, (np.cumsum(self._rows) - self._rows)[some], dtype=np.int64)
        if (counted != known[some]).any():
            raise _OddError
        return valid

    def nothing(self, buffer: int, text: bool) -> None:
        """Makes sure that a column without a value is whole, as one that has some.

        Raises:
            _OddError: it is not.
        """
        width = -(-self._rows // 8)
        whole = (self._lengths[:, buffer] >= width).all()
        if text:
            self.texts(buffer + 1)
        else:
            whole = whole and (self._lengths[:, buffer + 1] >= 8 * self._rows).all()
        if not whole:
            raise _OddError
        begins = np.cumsum(width) - width
        if self._byte is None:
            self._byte = np.arange(int(width.sum()))
        if self._data[np.repeat(self._places[:, buffer] - begins, width) + self._byte].any():
            self.valid(buffer, np.zeros_like(self._rows))  # bits past the last row are of no row

    def numbers(self, buffer: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The values of a column of 64 bits.

        Raises:
            _OddError: there are too few.
        """
        if (self._lengths[:, buffer] < 8 * self._rows).any() or (self._places[:, buffer] % 8).any():
            raise _OddError
        words = self._data[: self._data.size // 8 * 8].view(kind)
        found: npt.NDArray[Any] = words[np.repeat(self._places[:, buffer] // 8, self._rows) + self._within]
        return found

    def texts(self, buffer: int) -> npt.NDArray[np.int32]:
        """The texts of a column: the place of each among the different ones of the file.

        Raises:
            _OddError: their offsets do not fit.
        """
        if (self._lengths[:, buffer] < 4 * (self._rows + 1)).any() or (self._places[:, buffer] % 4).any():
            raise _OddError
        words = self._data[: self._data.size // 4 * 4].view("<i4")
        where = np.repeat(self._places[:, buffer] // 4, self._rows) + self._within
        begins, ends = words[where].astype(np.int64), words[where + 1].astype(np.int64)
        if (
            (begins < 0).any()
            or (ends < begins).any()
            or (ends > np.repeat(self._lengths[:, buffer + 1], self._rows)).any()
        ):
            raise _OddError
        at = np.repeat(self._places[:, buffer + 1], self._rows) + begins
        widths = ends - begins
        low, high = (int(widths.min()), int(widths.max())) if widths.size else (0, 0)
        if low == high:
            return self._names.codes(self._data, at, low)
        codes = np.zeros(self._count, dtype=np.int32)
        for width in np.unique(widths):
            these = widths == width
            codes[these] = self._names.codes(self._data, at[these], int(width))
        return codes


class _Names:
    """The different texts of a file so far, and where each is among them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._keys: dict[int, npt.NDArray[np.uint64]] = {}  # by width, sorted
        self._words: dict[int, npt.NDArray[np.uint64]] = {}
        self._codes: dict[int, npt.NDArray[np.int32]] = {}

    def codes(self, data: Bytes, at: Ints, width: int) -> npt.NDArray[np.int32]:
        """Of the texts of `width` bytes that begin at those places.

        Raises:
            _OddError: one is not UTF-8, or two are taken for one.
        """
        letters = np.zeros((at.size, max(8, -(-width // 8) * 8)), dtype=np.uint8)
        if width:
            everywhere = np.ndarray(data.size - width + 1, f"V{width}", data.data, strides=(1,))
            letters[:, :width] = everywhere[at].view(np.uint8).reshape(-1, width)
        words = letters.view("<u8")
        # A sum of the words tells most texts apart; that it told these apart is checked word by word.
        keys = (words * _ODD[np.arange(words.shape[1]) % _ODD.size]).sum(axis=1, dtype=np.uint64)
        place = self._find(keys, width)
        if place is None:
            self._learn(keys, words, width)
            place = self._find(keys, width)
        if place is None or not (words == self._words[width][place]).all():
            raise _OddError
        return self._codes[width][place]

    def _find(self, keys: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.int64] | None:
        known = self._keys.get(width)
        if known is None or not known.size:
            return None
        place = np.minimum(np.searchsorted(known, keys), known.size - 1)
        return place if (known[place] == keys).all() else None

    def _learn(self, keys: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64], width: int) -> None:
        _, first = np.unique(keys, return_index=True)
        known = self._keys.get(width, np.empty(0, dtype=np.uint64))
        first = first[~np.isin(keys[first], known)]
        try:
            names = [words[one].tobytes()[:width].decode() for one in first]
        except UnicodeDecodeError:
            raise _OddError from None
        codes = np.arange(len(self.texts), len(self.texts) + len(names), dtype=np.int32)
        self.texts += names
        all_keys = np.concatenate((known, keys[first]))
        order = np.argsort(all_keys)
        before = self._words.get(width, np.empty((0, words.shape[1]), dtype=np.uint64))
        self._words[width] = np.concatenate((before, words[first]))[order]
        self._codes[width] = np.concatenate((self._codes.get(width, np.empty(0, dtype=np.int32)), codes))[order]
        self._keys[width] = all_keys[order]


_ODD = np.random.default_rng(0).integers(0, 2**63, 64, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
