"""The columns of many Arrow messages at once, from where their buffers lie (`results.segments` finds the places)."""

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class OddError(Exception):
    """Not a message of the usual layout."""


class Piece:
    """The bytes of some messages, and where the buffers of each lie in them."""

    def __init__(self, data: Bytes, rows: Ints, places: Ints, lengths: Ints, names: "Names") -> None:
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
            OddError: the bits do not say as many.
        """
        if (known == self._rows).all():
            return None
        bits = known < self._rows
        width = -(-self._rows // 8)
        if (self._lengths[bits, buffer] < width[bits]).any():
            raise OddError
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
            raise OddError
        return valid

    def nothing(self, buffer: int, text: bool) -> None:
        """Makes sure that a column without a value is whole, as one that has some.

        Raises:
            OddError: it is not.
        """
        width = -(-self._rows // 8)
        whole = (self._lengths[:, buffer] >= width).all()
        if text:
            self.texts(buffer + 1)
        else:
            whole = whole and (self._lengths[:, buffer + 1] >= 8 * self._rows).all()
        if not whole:
            raise OddError
        begins = np.cumsum(width) - width
        if self._byte is None:
            self._byte = np.arange(int(width.sum()))
        if self._data[np.repeat(self._places[:, buffer] - begins, width) + self._byte].any():
            self.valid(buffer, np.zeros_like(self._rows))  # bits past the last row are of no row

    def numbers(self, buffer: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """The values of a column of 64 bits.

        Raises:
            OddError: there are too few.
        """
        if (self._lengths[:, buffer] < 8 * self._rows).any() or (self._places[:, buffer] % 8).any():
            raise OddError
        words = self._data[: self._data.size // 8 * 8].view(kind)
        found: npt.NDArray[Any] = words[np.repeat(self._places[:, buffer] // 8, self._rows) + self._within]
        return found

    def texts(self, buffer: int) -> npt.NDArray[np.int32]:
        """The texts of a column: the place of each among the different ones of the file.

        Raises:
            OddError: their offsets do not fit.
        """
        if (self._lengths[:, buffer] < 4 * (self._rows + 1)).any() or (self._places[:, buffer] % 4).any():
            raise OddError
        words = self._data[: self._data.size // 4 * 4].view("<i4")
        where = np.repeat(self._places[:, buffer] // 4, self._rows) + self._within
        begins, ends = words[where].astype(np.int64), words[where + 1].astype(np.int64)
        if (
            (begins < 0).any()
            or (ends < begins).any()
            or (ends > np.repeat(self._lengths[:, buffer + 1], self._rows)).any()
        ):
            raise OddError
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


class Names:
    """The different texts of a file so far, and where each is among them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._keys: dict[int, npt.NDArray[np.uint64]] = {}  # by width, sorted
        self._words: dict[int, npt.NDArray[np.uint64]] = {}
        self._codes: dict[int, npt.NDArray[np.int32]] = {}

    def codes(self, data: Bytes, at: Ints, width: int) -> npt.NDArray[np.int32]:
        """Of the texts of `width` bytes that begin at those places.

        Raises:
            OddError: one is not UTF-8, or two are taken for one.
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
            raise OddError
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
            raise OddError from None
        codes = np.arange(len(self.texts), len(self.texts) + len(names), dtype=np.int32)
        self.texts += names
        all_keys = np.concatenate((known, keys[first]))
        order = np.argsort(all_keys)
        before = self._words.get(width, np.empty((0, words.shape[1]), dtype=np.uint64))
        self._words[width] = np.concatenate((before, words[first]))[order]
        self._codes[width] = np.concatenate((self._codes.get(width, np.empty(0, dtype=np.int32)), codes))[order]
        self._keys[width] = all_keys[order]


_ODD = np.random.default_rng(0).integers(0, 2**63, 64, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
