"""The readings of each GPU, from samples that are read part by part: a day of them is too much for one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from results.power import Series
from results.store import RunTables

IDLE_REASON = 1  # nvmlClocksEventReasonGpuIdle
BUSY_CLOCK = "busy_clock"  # the SM clock where the GPU is known not to idle

_PLAIN = ("energy_joules", "power_instant_watts", "power_average_watts", "power_limit_watts")
_OF_CLOCK = ("sm_clock_hz", "throttle_reasons", "util_ratio")
COLUMNS = ("mono_ns", "gpu", *_PLAIN, *_OF_CLOCK)
_ROOM = 1_024  # readings, beyond an equal share of the rows

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]  # of whatever kind a column is


@dataclass(slots=True)
class GpuReadings:
    """The readings of one GPU: `first_ns` of any kind, and a series of each kind."""

    first_ns: int | None = None
    series: dict[str, Series] = field(default_factory=dict)


def readings_of(run: RunTables, gpus: Sequence[str]) -> tuple[dict[str, GpuReadings], int | None]:
    """The readings of those GPUs over the whole run, and when any GPU was last read; None: none ever was."""
    stores = [_Store(run.rows("samples") // max(len(gpus), 1) + _ROOM) for _ in gpus]
    first: list[int | None] = [None for _ in gpus]
    latest: int | None = None
    for batch in run.batches("samples", COLUMNS, text=("gpu",)):
        times, codes = batch.column("mono_ns").to_numpy(), _codes(batch, gpus)
        told = _told(batch.column("gpu"))
        read = times if told is None else times[told]
        latest = latest if read.size == 0 else max(int(read.max()), latest if latest is not None else int(read.max()))
        _first(times, codes, first)
        for columns, there in _together(batch, _PLAIN):
            _take(stores, times, codes, {name: _raw(batch.column(name)) for name in columns}, there)
        _take(stores, times, codes, {BUSY_CLOCK: _raw(batch.column("sm_clock_hz"))}, _busy(batch))
    found = {}
    for place, gpu in enumerate(gpus):
        series = {name: stores[place].series(name) for name in (*_PLAIN, BUSY_CLOCK)}
        found[gpu] = GpuReadings(first_ns=first[place], series=series)
    return found, latest


def series_of(run: RunTables, gpus: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, Series]]:
    """The readings of some columns, by GPU and column."""
    stores = [_Store(_ROOM) for _ in gpus]
    for batch in run.batches("samples", ("mono_ns", "gpu", *columns), text=("gpu",), known=columns):
        times, codes = batch.column("mono_ns").to_numpy(), _codes(batch, gpus)
        for names, there in _together(batch, columns):
            _take(stores, times, codes, {name: _raw(batch.column(name)) for name in names}, there)
    return {gpu: {name: stores[place].series(name) for name in columns} for place, gpu in enumerate(gpus)}


class _Growing:
    """Numbers of 8 bytes, added piece by piece in one place from the start: what is not filled yet takes no memory."""

    def __init__(self, dtype: "npt.DTypeLike", room: int) -> None:
        self._all = _untouched(dtype, room)
        self.size = 0

    def add(self, values: Numbers, rows: Ints) -> None:
        """Adds the values of some rows."""
        end = self.size + rows.size
        if end > self._all.size:
            larger = _untouched(self._all.dtype, max(end, 2 * self._all.size))
            larger[: self.size] = self._all[: self.size]
            self._all = larger
        if values.dtype == self._all.dtype:
            np.take(values, rows, out=self._all[self.size : end], mode="clip")  # "raise" would copy first
        else:
            self._all[self.size : end] = values[rows]
        self.size = end

    @property
    def filled(self) -> Numbers:
        """What was added."""
        return self._all[: self.size]

    def copy(self) -> "_Growing":
        """The same numbers in a place of their own."""
        other = _Growing(self._all.dtype, self._all.size)
        other._all[: self.size] = self.filled
        other.size = self.size
        return other


def _untouched(dtype: "npt.DTypeLike", room: int) -> Numbers:
    """Memory as the system gives it: numpy asks for huge pages, and to make them a busy machine first moves others."""
    return np.frombuffer(mmap(-1, 8 * max(room, 1), flags=MAP_PRIVATE | MAP_ANONYMOUS), dtype=dtype)


class _Store:
    """The readings of one GPU on their way to series. Columns that were always read together share their times."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._times: dict[str, _Growing] = {}
        self._values: dict[str, _Growing] = {}

    def add(self, times: Ints, columns: Mapping[str, Numbers], rows: Ints) -> None:
        """Adds the readings of some rows, in which all of these columns have a value."""
        new: _Growing | None = None
        for name in columns:
            if name not in self._times:
                new = new or _Growing(np.int64, self._room)
                self._times[name] = new
                self._values[name] = _Growing(np.float64, self._room)
        for shared in {id(self._times[name]): self._times[name] for name in columns}.values():
            users = [name for name, theirs in self._times.items() if theirs is shared]
            mine = [name for name in users if name in columns]
            own = shared if len(mine) == len(users) else shared.copy()
            own.add(times, rows)
            self._times.update(dict.fromkeys(mine, own))
        for name, values in columns.items():
            self._values[name].add(values, rows)

    def series(self, name: str) -> Series:
        """One series."""
        if name not in self._times:
            return Series(np.empty(0, dtype=np.int64), np.empty(0))
        times, values = self._times[name].filled, self._values.pop(name).filled
        return Series.of(times.view(np.int64), values.view(np.float64))


def _take(
    stores: Sequence[_Store],
    times: Ints,
    codes: Numbers,
    columns: Mapping[str, Numbers],
    there: Mask | None,
) -> None:
    """Gives each GPU its rows of these columns, in the order of the table."""
    rows = None if there is None else np.flatnonzero(there)
    mine = codes if rows is None else codes[rows]
    order = np.argsort(mine, kind="stable")  # of 16 bits: a radix sort
    edges = [0, *np.cumsum(np.bincount(mine, minlength=len(stores)))[: len(stores)].tolist()]
    order = order if rows is None else rows[order]
    for store, begin, end in zip(stores, edges[:-1], edges[1:], strict=True):
        if begin < end:
            store.add(times, columns, order[begin:end])


def _codes(batch: pa.RecordBatch, gpus: Sequence[str]) -> Numbers:
    """The number of each row's GPU; that of none of them is how many there are."""
    encoded, place = batch.column("gpu"), {gpu: number for number, gpu in enumerate(gpus)}
    names = encoded.dictionary.to_pylist()
    kind = np.int16 if len(gpus) < np.iinfo(np.int16).max else np.int64
    known = np.array([*(place.get(name, len(gpus)) for name in names), len(gpus)], dtype=kind)
    indices = encoded.indices.fill_null(len(names)) if encoded.null_count else encoded.indices
    numbers: Numbers = known[indices.to_numpy(zero_copy_only=False)]
    return numbers


def _first(times: Ints, codes: Numbers, first: list[int | None]) -> None:
    """Brings up to date when each GPU was first read; of samples in order only the first ones are looked at."""
    low = int(times.min()) if times.size else 0
    for number, before in enumerate(first):
        if before is None or low < before:
            mine = times[codes == number]
            if mine.size:
                first[number] = int(mine.min()) if before is None else min(before, int(mine.min()))


def _together(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[list[str], Mask | None]]:
    """The columns that have a value in the same rows, and in which; None: in all of them."""
    groups: list[tuple[list[str], Mask | None]] = []
    for name in names:
        column = batch.column(name)
        if column.null_count == len(column):
            continue
        there = _told(column)
        for group, theirs in groups:
            same = there is theirs is None or (
                there is not None and theirs is not None and np.array_equal(there, theirs)
            )
            if same:
                group.append(name)
                break
        else:
            groups.append(([name], there))
    yield from groups


def _busy(batch: pa.RecordBatch) -> Mask:
    """Where there is an SM clock and the GPU is known not to idle: by the clock's own reasons, else by its use."""
    clock, reasons, used = (_filled(batch.column(name)) for name in _OF_CLOCK)
    idle = _raw(batch.column("throttle_reasons")) & IDLE_REASON
    busy = _raw(batch.column("util_ratio")) > 0
    return np.asarray(clock & np.where(reasons, idle == 0, used & busy), dtype=np.bool_)


def _filled(column: pa.Array) -> Mask:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _told(column: pa.Array) -> Mask | None:
    """Where a column has a value; None: everywhere."""
    return _filled(column) if column.null_count else None


def _raw(column: pa.Array) -> Numbers:
    """The numbers of a column as they lie in memory: where it has no value, any."""
    kind = np.dtype(column.type.to_pandas_dtype())
    place = column.buffers()[1]
    if place is None or len(column) == 0:
        return np.zeros(len(column), dtype=kind)
    return np.frombuffer(place, dtype=kind, count=len(column), offset=column.offset * kind.itemsize)
