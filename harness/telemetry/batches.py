"""Rows as the messages of an Arrow stream, made without Arrow's own objects.

Of a batch of some fifty rows in 35 columns, most of them empty, making the objects costs more than all else about it.
The messages of one schema differ in numbers only (rows, nulls, places and lengths of the buffers, length of the body),
so Arrow makes one, the places of those numbers are found in it, and each message is a copy with its own. Formats: the
Arrow columnar format, "Encapsulated message format"; Message.fbs for the fields; FlatBuffers' internals for the places.
"""

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

import pyarrow as pa

Code = Literal["text", "d", "q"]  # the last two: of the module `array`
Pieces = Sequence[tuple[int, Sequence[Any]]]  # where rows begin that have a column, and their values
Column = tuple[int, tuple[bytes, ...]]  # nulls; validity bits, offsets of texts, data

KINDS: Mapping[Code, pa.DataType] = {"text": pa.string(), "d": pa.float64(), "q": pa.int64()}
ALIGNMENT = 8  # of buffers, in bytes
_PADDING = [bytes(-size % ALIGNMENT) for size in range(ALIGNMENT)]
_HEAD = 8  # bytes before the metadata: continuation marker, and their length


class Batches:
    """The batches of one schema, of texts, floats and integers of 64 bits."""

    def __init__(self, schema: pa.Schema) -> None:
        codes = {kind: code for code, kind in KINDS.items()}
        self._fields = tuple((field.name, codes[field.type]) for field in schema)
        nothing = [pa.nulls(1, field.type) for field in schema]
        message = pa.RecordBatch.from_arrays(nothing, schema=schema).serialize().to_pybytes()
        self._template = message[: _HEAD + _U32(message, 4)[0]]
        root = _table(message, _HEAD)
        batch = _table(message, _field(message, root, 2))
        self._body, self._length = _field(message, root, 3), _field(message, batch, 0)
        self._nodes, self._buffers = (_table(message, _field(message, batch, number)) + 4 for number in (1, 2))
        buffers = sum(3 if code == "text" else 2 for _, code in self._fields)
        self._pack_nodes = struct.Struct(f"<{2 * len(self._fields)}q").pack_into
        self._pack_buffers = struct.Struct(f"<{2 * buffers}q").pack_into

    def message(self, count: int, pieces: Mapping[str, Pieces]) -> bytes:
        """The message of a batch of `count` rows; where no piece has a value there is none.

        Raises:
            ValueError: a value does not fit its column.
        """
        nodes: list[int] = []
        places: list[int] = []
        body: list[bytes] = []
        at = 0
        bits, data = (count + 7) // 8, 8 * count  # bytes of a column without a value, which most of them are
        skipped = bits + -bits % ALIGNMENT
        nothing = bytes(skipped + data)
        for name, code in self._fields:
            there = pieces.get(name)
            if there is None and code != "text":
                nodes += count, count
                places += at, bits, at + skipped, data
                body.append(nothing)
                at += skipped + data
                continue
            try:
                nulls, buffers = _MAKE[code](code, count, there or ())
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{name}: {error}") from None
            nodes += count, nulls
            for buffer in buffers:
                size = len(buffer)
                places += at, size
                if size:
                    body += buffer, _PADDING[size % ALIGNMENT]
                    at += size + -size % ALIGNMENT
        head = bytearray(self._template)
        _PUT(head, self._body, at)
        _PUT(head, self._length, count)
        self._pack_nodes(head, self._nodes, *nodes)
        self._pack_buffers(head, self._buffers, *places)
        return b"".join((head, *body))


_U16, _I32, _U32 = (struct.Struct(f"<{code}").unpack_from for code in "HiI")
_PUT = struct.Struct("<q").pack_into


def _table(data: bytes, place: int) -> int:
    """Where the table or vector lies that is pointed to from `place`."""
    return place + int(_U32(data, place)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table lies that is there."""
    vtable = table - _I32(data, table)[0]
    return table + int(_U16(data, vtable + 4 + 2 * number)[0])


def _numbers(code: Code, count: int, pieces: Pieces) -> Column:
    bits, there = 0, 0
    cells = array(code, bytes(8 * count))
    for begin, values in pieces:
        try:
            cells[begin : begin + len(values)] = array(code, values)
            bits |= ((1 << len(values)) - 1) << begin
            there += len(values)
        except TypeError:  # some are None
            for place, value in enumerate(values, begin):
                if value is not None:
                    cells[place] = value
                    bits |= 1 << place
                    there += 1
    return count - there, (_validity(bits, there, count), cells.tobytes())


def _texts(_code: Code, count: int, pieces: Pieces) -> Column:
    bits, there = 0, 0
    texts = [b""] * count
    for begin, values in pieces:
        if None in values:
            known = [(place, value) for place, value in enumerate(values, begin) if value is not None]
            for place, value in known:
                texts[place] = value.encode()
                bits |= 1 << place
            there += len(known)
        else:
            texts[begin : begin + len(values)] = map(str.encode, values)
            bits |= ((1 << len(values)) - 1) << begin
            there += len(values)
    offsets = array("i", accumulate(map(len, texts), initial=0))
    return count - there, (_validity(bits, there, count), offsets.tobytes(), b"".join(texts))


def _validity(bits: int, there: int, count: int) -> bytes:
    return bits.to_bytes((count + 7) // 8, "little") if there < count else b""


_MAKE: Mapping[Code, Callable[[Code, int, Pieces], Column]] = {"text": _texts, "d": _numbers, "q": _numbers}
