"""The columns of many Arrow messages at once, from where their buffers lie (`results.segments` finds the places).

The buffers of a column are copied one behind the other, all those of one length by one call: a copy of some hundred
bytes costs no more than the taking of one number does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_BITS_OF = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)


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
        self._widths = -(-rows // 8)  # of the bits that say which rows have a value

    def numbers(self, buffers: Sequence[int], known: Ints) -> list[list[pa.Buffer | None]]:
        """The buffers of columns of 64-bit numbers, which begin with these in each message.

        `known`: how many values each message has, by column and message.

        Raises:
            OddError: they do not fit together.
        """
        those = np.array(buffers, dtype=np.intp)
        if (self._lengths[:, those + 1] < 8 * self._rows[:, None]).any():
            raise OddError
        values = np.empty((those.size, 8 * self._count), dtype=np.uint8)
        for rows, alike in self._alike:
            found = taken(self._data, self._places[alike][:, those + 1].T.ravel(), 8 * rows)
            if alike.size == self._rows.size:  # all lie one behind the other already
                values = found.reshape(values.shape)
                continue
            for column, its in zip(values, found.reshape(those.size, alike.size, -1), strict=True):
                _put(column, 8 * self._begins[alike], its)
        return [[bits, pa.py_buffer(column)] for bits, column in zip(self._bits(those, known), values, strict=True)]

    def texts(self, buffer: int, known: Ints) -> pa.DictionaryArray:
        """The column of texts whose buffers begin with this in each message: few of them, and each comes often.

        Raises:
            OddError: its buffers do not fit together.
        """
        (bits,) = self._bits(np.array([buffer]), known[None])
        return self._texts(buffer + 1, bits, self._count - int(known.sum()))

    def nothing(self, buffers: Sequence[int], kind: pa.DataType) -> None:
        """Makes sure that columns of one kind without a value are whole, as those that have some.

        Raises:
            OddError: they are not.
        """
        those = np.array(buffers, dtype=np.intp)
        if kind == pa.string():
            for buffer in buffers:
                self._letters(buffer + 1)
        elif (self._lengths[:, those + 1] < 8 * self._rows[:, None]).any():
            raise OddError
        if (self._lengths[:, those] < self._widths[:, None]).any():
            raise OddError
        for rows, alike in self._alike:
            if _packed(self._data, self._places[alike][:, those].ravel(), rows).any():
                raise OddError

    def _bits(self, buffers: npt.NDArray[np.intp], known: Ints) -> list[pa.Buffer | None]:
        """Which rows of each column have a value; None: all. A message all of whose rows have one may have no bits."""
        lacking = known < self._rows
        some = np.flatnonzero(lacking.any(axis=1))
        those, known, lacking = buffers[some], known[some], lacking[some]
        if (lacking & (self._widths > self._lengths[:, those].T)).any():
            raise OddError
        places = np.where(lacking, self._places[:, those].T, 0)  # of bits that may not be there, others are taken
        valid = np.empty((those.size, self._count), dtype=np.uint8)
        for rows, alike in self._alike:
            packed = _packed(self._data, places[:, alike].ravel(), rows)
            needed = lacking[:, alike].ravel()
            if ((_BITS_OF[packed].sum(axis=1, dtype=np.int64) != known[:, alike].ravel()) & needed).any():
                raise OddError
            each = np.unpackbits(packed, axis=1, count=rows, bitorder="little")
            if not needed.all():
                each[~needed] = 1
            for column, its in zip(valid, each.reshape(those.size, alike.size, rows), strict=True):
                _put(column, self._begins[alike], its)
        found: list[pa.Buffer | None] = [None] * buffers.size
        for place, column in zip(some.tolist(), np.packbits(valid, axis=1, bitorder="little"), strict=True):
            found[place] = pa.py_buffer(column)
        return found

    def _blocks(self, places: Ints, widths: Ints, buffer: int) -> Bytes:
        """The first `widths` bytes from `places` of each message, one behind the other: they lie in that buffer."""
        if (self._lengths[:, buffer] < places - self._places[:, buffer] + widths).any():
            raise OddError
        alike = list(_alike(widths))
        if len(alike) == 1 and alike[0][1].size == widths.size:
            return taken(self._data, places, alike[0][0]).ravel()
        begins = np.cumsum(widths) - widths
        found = np.empty(int(widths.sum()), dtype=np.uint8)
        for width, those in alike:
            _put(found, begins[those], taken(self._data, places[those], width))
        return found

    def _texts(self, buffer: int, bits: pa.Buffer | None, nulls: int) -> pa.DictionaryArray:
        """A column of texts, of which those in `bits` are there (None: all)."""
        letters, within = self._letters(buffer)
        size = letters.size // self._count
        # One text in all rows, as the name of the host: nothing is made of any row.
        alike = all((each == size * np.arange(1, each.shape[1] + 1)).all() for _, each, _ in within)
        if nulls == 0 and alike and (letters[size:] == letters[: letters.size - size]).all():
            try:
                only = pa.array([bytes(letters[:size]).decode()], pa.string())
            except UnicodeDecodeError:
                raise OddError from None
            return pa.DictionaryArray.from_arrays(np.zeros(self._count, np.int32), only)
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        for those, each, begins in within:
            ends = (each + begins[:, None]).astype(np.int32)
            _put(offsets[1:].view(np.uint8), 4 * self._begins[those], ends.view(np.uint8))
        buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(letters)]
        array = pa.Array.from_buffers(pa.string(), self._count, buffers, nulls)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise OddError from None
        return array.dictionary_encode()

    def _letters(self, buffer: int) -> tuple[Bytes, list[tuple[Ints, npt.NDArray[np.int32], Ints]]]:
        """All letters of a column of texts.

        And of the messages of each number of rows: which they are, where the texts of each end within its letters, and
        where its letters begin.
        """
        if (self._lengths[:, buffer] < 4 * (self._rows + 1)).any():
            raise OddError
        first = np.zeros_like(self._rows)
        sizes = np.zeros_like(self._rows)
        within: list[tuple[Ints, npt.NDArray[np.int32]]] = []
        for rows, those in self._alike:
            each = taken(self._data, self._places[those, buffer], 4 * (rows + 1)).view("<i4")
            if (np.diff(each, axis=1) < 0).any() or (each[:, 0] < 0).any():
                raise OddError
            first[those] = each[:, 0]
            sizes[those] = each[:, -1] - each[:, 0]
            within.append((those, each[:, 1:] - each[:, :1]))
        letters = self._blocks(self._places[:, buffer + 1] + first, sizes, buffer + 1)
        if letters.size >= 2**31:
            raise OddError
        begins = np.cumsum(sizes) - sizes
        return letters, [(those, each, begins[those]) for those, each in within]


def _alike(sizes: Ints) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Which messages have each size; none of size 0."""
    for size in np.unique(sizes):
        if size:
            yield int(size), np.flatnonzero(sizes == size)


def _packed(data: Bytes, places: Ints, rows: int) -> Bytes:
    """The bits of so many rows at each place, a row of bytes each; bits past the last are of no row, and 0 here."""
    packed = taken(data, places, -(-rows // 8))
    if rows % 8:
        packed[:, -1] &= (1 << rows % 8) - 1
    return packed


def _everywhere(data: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """What lies in each place of the data, `width` bytes long."""
    return np.ndarray(max(0, data.size - width + 1), f"V{width}", data, strides=(1,))


def taken(data: Bytes, places: Ints, width: int) -> Bytes:
    """The bytes of each place, a row each."""
    if not places.size:
        return np.empty((0, width), dtype=np.uint8)
    return _everywhere(data, width)[places].view(np.uint8).reshape(-1, width)


def _put(data: Bytes, places: Ints, rows: Bytes) -> None:
    """Lays rows of bytes into their places, which do not overlap."""
    if places.size:
        width = rows.shape[1]
        _everywhere(data, width)[places] = np.ascontiguousarray(rows).view(f"V{width}").ravel()
