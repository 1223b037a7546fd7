"""The readings of each GPU, from samples that are read part by part: a day of them is too much for one table."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
LIMIT = "power_limit_watts"

AVERAGE = "power_average_watts"
_PLAIN = ("energy_joules", "power_instant_watts", LIMIT)
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


@dataclass(frozen=True, slots=True)
class Readings:
    """What the samples hold of some GPUs, and when any GPU, and any host, was last read; None: none ever was."""

    gpus: dict[str, GpuReadings]
    latest: int | None
    latest_host: int | None


def readings_of(
    run: RunTables, gpus: Sequence[str], also: Sequence[str] = (), wanted: Callable[[], bool] = lambda: True
) -> Readings:
    """The readings of those GPUs over the whole run; `also`: further columns of the samples, each a series.

    Average power is none of them unless asked for: it is needed where neither the counter nor instant power serves.

    Of the power limit, a setting, only the first and the last of readings that are alike in a row are kept. Where
    `wanted` has become False, what was read so far is all.
    """
    columns = tuple(dict.fromkeys((*COLUMNS, *also)))
    series = tuple(dict.fromkeys((*_PLAIN, *also)))
    stores = [_Store(run.rows("samples") // max(len(gpus), 1) + _ROOM) for _ in gpus]
    first: list[int | None] = [None for _ in gpus]
    latest: int | None = None
    latest_host: int | None = None
    in_order, before = True, np.empty(0, dtype=np.int64)
    for batch in run.batches("samples", columns, text=("gpu",)):
        if not wanted():
            break
        times, codes = batch.column("mono_ns").to_numpy(), _codes(batch, gpus)
        in_order = in_order and _ordered(before) and _ordered(np.concatenate((before[-1:], times[:1])))
        before = times
        told = _told(batch.column("gpu").indices)
        latest = _latest(latest, times if told is None else times[told])
        latest_host = latest_host if told is None else _latest(latest_host, times[~told])
        _first(times, codes, first)
        for names, there in _together(batch, series):
            _take(stores, times, codes, {name: _raw(batch.column(name)) for name in names}, there, {LIMIT})
        _take(stores, times, codes, {BUSY_CLOCK: _raw(batch.column("sm_clock_hz"))}, _busy(batch))
    found = {}
    for place, gpu in enumerate(gpus):
        found[gpu] = GpuReadings(first_ns=first[place], series=stores[place].series((*series, BUSY_CLOCK)))
    if not (in_order and _ordered(before)):  # which of them are alike in a row of time is another question then
        for gpu, limit in series_of(run, gpus, (LIMIT,)).items():
            found[gpu].series |= limit
    return Readings(found, latest, latest_host)


def series_of(run: RunTables, gpus: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, Series]]:
    """The readings of some columns, by GPU and column."""
    stores = [_Store(_ROOM) for _ in gpus]
    for batch in run.batches("samples", ("mono_ns", "gpu", *columns), text=("gpu",), known=columns):
        times, codes = batch.column("mono_ns").to_numpy(), _codes(batch, gpus)
        for names, there in _together(batch, columns):
            _take(stores, times, codes, {name: _raw(batch.column(name)) for name in names}, there)
    return {gpu: stores[place].series(columns) for place, gpu in enumerate(gpus)}


def _latest(before: int | None, times: Ints) -> int | None:
    if not times.size:
        return before
    return int(times.max()) if before is None else max(before, int(times.max()))


def _ordered(times: Ints) -> bool:
    return bool((times[1:] >= times[:-1]).all())


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

    def series(self, names: Sequence[str]) -> dict[str, Series]:
        """The series of these; those that were always read together have the same times."""
        seen: dict[int, Ints] = {}
        found: dict[str, Series] = {}
        for name in names:
            if name not in self._times:
                found[name] = Series(np.empty(0, dtype=np.int64), np.empty(0))
                continue
            shared = self._times[name]
            times = seen.setdefault(id(shared), shared.filled.view(np.int64))
            found[name] = Series.of(times, self._values[name].filled.view(np.float64))
        return found


def _take(
    stores: Sequence[_Store],
    times: Ints,
    codes: Numbers,
    columns: Mapping[str, Numbers],
    rows: Ints | None,
    settings: Collection[str] = (),
) -> None:
    """Gives each GPU its rows of these columns, in the order of the table; `rows`: those that have a value.

    Of settings, the first and the last of those alike in a row.
    """
    mine = codes if rows is None else codes[rows]
    order = np.argsort(mine, kind="stable")  # of 8 or 16 bits: a radix sort
    edges = np.concatenate(([0], np.cumsum(np.bincount(mine, minlength=len(stores)))[: len(stores)]))
    order = order if rows is None else rows[order]
    readings = {name: values for name, values in columns.items() if name not in settings}
    if readings:
        _give(stores, times, readings, order, edges)
    for name in columns.keys() & set(settings):
        ends = _ends(columns[name][order[: edges[-1]]], edges)
        _give(stores, times, {name: columns[name]}, order[ends], np.searchsorted(ends, edges))


def _give(stores: Sequence[_Store], times: Ints, columns: Mapping[str, Numbers], rows: Ints, edges: Ints) -> None:
    places = edges.tolist()
    for store, begin, end in zip(stores, places[:-1], places[1:], strict=True):
        if begin < end:
            store.add(times, columns, rows[begin:end])


def _ends(values: Numbers, edges: Ints) -> Ints:
    """Where stretches of equal values begin and end; they begin anew at each of the edges."""
    ends = np.zeros(values.size, dtype=np.bool_)
    change = values[1:] != values[:-1]
    ends[1:] |= change
    ends[:-1] |= change
    begun = edges[:-1][edges[:-1] < edges[1:]]
    ends[begun] = True
    ends[edges[1:][edges[:-1] < edges[1:]] - 1] = True
    return np.flatnonzero(ends)


def _codes(batch: pa.RecordBatch, gpus: Sequence[str]) -> Numbers:
    """The number of each row's GPU; that of none of them is how many there are."""
    encoded, place = batch.column("gpu"), {gpu: number for number, gpu in enumerate(gpus)}
    names = encoded.dictionary.to_pylist()
    kind = next((kind for kind in (np.int8, np.int16) if len(gpus) < np.iinfo(kind).max), np.int64)
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


def _together(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[list[str], Ints | None]]:
    """The columns that have a value in the same rows, and in which; None: in all of them."""
    groups: list[tuple[list[str], pa.Array]] = []
    for name in names:
        column = batch.column(name)
        if column.null_count == len(column):
            continue
        group = next((group for group, other in groups if _alike(column, other)), None)
        if group is None:
            groups.append(([name], column))
        else:
            group.append(name)
    for group, column in groups:
        yield group, np.flatnonzero(_filled(column)) if column.null_count else None


def _alike(one: pa.Array, other: pa.Array) -> bool:
    """Whether both have a value in the same rows."""
    if one.null_count != other.null_count or not one.null_count:
        return bool(one.null_count == other.null_count)
    bits, theirs = one.buffers()[0], other.buffers()[0]
    return (one.offset == other.offset and bool(bits.equals(theirs))) or np.array_equal(_filled(one), _filled(other))


def _busy(batch: pa.RecordBatch) -> Ints:
    """Where there is an SM clock and the GPU is known not to idle: by the clock's own reasons, else by its use."""
    clock, reasons, used = (batch.column(name) for name in _OF_CLOCK)
    if clock.null_count == len(clock):
        return np.empty(0, dtype=np.int64)
    rows = np.flatnonzero(_filled(clock))
    idle = _raw(reasons)[rows] & IDLE_REASON
    busy = _raw(used)[rows] > 0
    return rows[np.where(_filled(reasons)[rows], idle == 0, _filled(used)[rows] & busy)]


def _filled(column: pa.Array) -> Mask:
    """Where a column has a value."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    bits = np.frombuffer(column.buffers()[0], dtype=np.uint8)
    end = column.offset + len(column)
    return np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(np.bool_)


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
