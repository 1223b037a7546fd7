"""The columns of many Arrow messages at once, from where their buffers lie (`results.segments` finds the places).

The buffers of a column are copied one behind the other, all those of one length by one call: a copy of some hundred
bytes costs no more than the taking of one number does.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class OddError(Exception):
    """Not a message of the usual layout."""


class Piece:
    """The bytes of some messages, and where the buffers of each lie in them."""

    def __init__(self, data: Bytes, rows: Ints, places: Ints, lengths: Ints) -> None:
        """`rows` by message, which may not all be 0; `places` and `lengths` by message and buffer."""
        self._data = data
        self._rows = rows
        self._places = places
        self._lengths = lengths
        self._begins = np.cumsum(rows) - rows
        self._count = int(rows.sum())
        self._alike = list(_alike(rows))

    def column(self, buffer: int, kind: pa.DataType, known: Ints) -> pa.Array:
        """The column whose buffers begin with number `buffer`. `known`: how many values each message has of it.

        Raises:
            OddError: its buffers do not fit together.
        """
        bits = self._bits(buffer, known)
        if kind == pa.string():
            values = self._texts(buffer + 1)
        else:
            values = [pa.py_buffer(self._blocks(self._places[:, buffer + 1], 8 * self._rows, buffer + 1))]
        array = pa.Array.from_buffers(kind, self._count, [bits, *values], self._count - int(known.sum()))
        if kind == pa.string():
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                raise OddError from None
        return array

    def nothing(self, buffer: int, kind: pa.DataType) -> None:
        """Makes sure that a column without a value is whole, as one that has some.

        Raises:
            OddError: it is not.
        """
        if kind == pa.string():
            self._texts(buffer + 1)
        elif (self._lengths[:, buffer + 1] < 8 * self._rows).any():
            raise OddError
        self._bits(buffer, np.zeros_like(self._rows))

    def _bits(self, buffer: int, known: Ints) -> pa.Buffer | None:
        """Which rows have a value; None: all. A message all of whose rows have one may have no bits."""
        lacking = known < self._rows
        if not lacking.any():
            return None
        width = -(-self._rows // 8)
        if (self._lengths[lacking, buffer] < width[lacking]).any():
            raise OddError
        empty = not known.any()
        valid = np.ones(0 if empty else self._count, dtype=np.uint8)
        for rows, those in self._alike:
            those = those[lacking[those]]
            packed = _taken(self._data, self._places[those, buffer], -(-rows // 8))
            if empty and not packed.any():
                continue
            each = np.unpackbits(packed, axis=1, count=rows, bitorder="little")
            if (each.sum(axis=1, dtype=np.int64) != known[those]).any():
                raise OddError
            if not empty:  # bits past the last row are of no row
                _put(valid, self._begins[those], each)
        return None if empty else pa.py_buffer(np.packbits(valid, bitorder="little"))

    def _blocks(self, places: Ints, widths: Ints, buffer: int) -> Bytes:
        """The first `widths` bytes from `places` of each message, one behind the other: they lie in that buffer."""
        if (self._lengths[:, buffer] < places - self._places[:, buffer] + widths).any():
            raise OddError
        begins = np.cumsum(widths) - widths
        found = np.empty(int(widths.sum()), dtype=np.uint8)
        for width, those in _alike(widths):
            _put(found, begins[those], _taken(self._data, places[those], width))
        return found

    def _texts(self, buffer: int) -> list[pa.Buffer]:
        """The offsets and the letters of a column of texts."""
        if (self._lengths[:, buffer] < 4 * (self._rows + 1)).any():
            raise OddError
        first = np.empty_like(self._rows)
        sizes = np.zeros_like(self._rows)
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        within: list[tuple[Ints, npt.NDArray[np.int32]]] = []
        for rows, those in self._alike:
            each = _taken(self._data, self._places[those, buffer], 4 * (rows + 1)).view("<i4")
            if (np.diff(each, axis=1) < 0).any() or (each[:, 0] < 0).any():
                raise OddError
            first[those] = each[:, 0]
            sizes[those] = each[:, -1] - each[:, 0]
            within.append((those, each[:, 1:] - each[:, :1]))
        first[self._rows == 0] = 0
        letters = self._blocks(self._places[:, buffer + 1] + first, sizes, buffer + 1)
        if letters.size >= 2**31:
            raise OddError
        begins = np.cumsum(sizes) - sizes
        for those, each in within:
            ends = (each + begins[those, None]).astype(np.int32)
            _put(offsets[1:].view(np.uint8), 4 * self._begins[those], ends.view(np.uint8))
        return [pa.py_buffer(offsets), pa.py_buffer(letters)]


def _alike(sizes: Ints) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Which messages have each size; none of size 0."""
    for size in np.unique(sizes):
        if size:
            yield int(size), np.flatnonzero(sizes == size)


def _everywhere(data: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """What lies in each place of the data, `width` bytes long."""
    return np.ndarray(max(0, data.size - width + 1), f"V{width}", data, strides=(1,))


def _taken(data: Bytes, places: Ints, width: int) -> Bytes:
    """The bytes of each place, a row each."""
    if not places.size:
        return np.empty((0, width), dtype=np.uint8)
    return _everywhere(data, width)[places].view(np.uint8).reshape(-1, width)


def _put(data: Bytes, places: Ints, rows: Bytes) -> None:
    """Lays rows of bytes into their places, which do not overlap."""
    if places.size:
        width = rows.shape[1]
        _everywhere(data, width)[places] = np.ascontiguousarray(rows).view(f"V{width}").ravel()
