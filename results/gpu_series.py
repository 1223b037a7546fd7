"""The readings of each GPU, from samples that are read part by part: a day of them is too much for one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from results.power import Series
from results.store import RunTables

IDLE_REASON = 1  # nvmlClocksEventReasonGpuIdle
BUSY_CLOCK = "busy_clock"  # the SM clock where the GPU is known not to idle

_PLAIN = ("energy_joules", "power_instant_watts", "power_average_watts", "power_limit_watts")
_OF_CLOCK = ("sm_clock_hz", "throttle_reasons", "util_ratio")
COLUMNS = ("mono_ns", "gpu", *_PLAIN, *_OF_CLOCK)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class GpuReadings:
    """The readings of one GPU: `first_ns` of any kind, and a series of each kind."""

    first_ns: int | None = None
    series: dict[str, Series] = field(default_factory=dict)


def readings_of(run: RunTables, gpus: Sequence[str]) -> tuple[dict[str, GpuReadings], int | None]:
    """The readings of those GPUs over the whole run, and when any GPU was last read; None: none ever was."""
    parts = [_Parts() for _ in gpus]
    latest: int | None = None
    for batch in run.batches("samples", COLUMNS, text=("gpu",)):
        read = pc.max(batch.column("mono_ns").filter(batch.column("gpu").is_valid())).as_py()
        latest = read if latest is None or (read is not None and read > latest) else latest
        times = batch.column("mono_ns").to_numpy()
        columns = {name: floats(batch.column(name)) for name in (*_PLAIN, *_OF_CLOCK)}
        clock, reasons, used = (columns.pop(name) for name in _OF_CLOCK)
        columns[BUSY_CLOCK] = busy_clock(clock, reasons, used)
        for number, rows in _by_gpu(batch, gpus):
            parts[number].take(times[rows], {name: values[rows] for name, values in columns.items()})
    found = {}
    for gpu, part in zip(gpus, parts, strict=True):
        shared: list[Ints] = []
        series = {name: part.joined(name, shared) for name in (*_PLAIN, BUSY_CLOCK)}
        found[gpu] = GpuReadings(first_ns=part.first_ns, series=series)
    return found, latest


def series_of(run: RunTables, gpus: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, Series]]:
    """The readings of some columns, by GPU and column."""
    parts = [_Parts() for _ in gpus]
    for batch in run.batches("samples", ("mono_ns", "gpu", *columns), text=("gpu",)):
        filled = {
            name: floats(batch.column(name)) for name in columns if batch.column(name).null_count < batch.num_rows
        }
        for number, rows in _by_gpu(batch, gpus) if filled else ():
            values = {name: values[rows] for name, values in filled.items()}
            parts[number].take(batch.column("mono_ns").to_numpy()[rows], values)
    return {gpu: {name: part.joined(name, []) for name in columns} for gpu, part in zip(gpus, parts, strict=True)}


class _Parts:
    """The readings of one GPU on their way to series."""

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self._pieces: dict[str, list[tuple[Ints, Floats]]] = {}

    def take(self, times: Ints, columns: Mapping[str, Floats]) -> None:
        """Adds rows; NaN is no reading."""
        first = int(times.min())
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        before: tuple[npt.NDArray[np.bool_], Ints] | None = None
        for name, values in columns.items():
            there = ~np.isnan(values)
            if there.any():
                if before is None or not np.array_equal(before[0], there):  # readings of one call have one time
                    before = there, times[there]
                self._pieces.setdefault(name, []).append((before[1], values[there]))

    def joined(self, name: str, shared: list[Ints]) -> Series:
        """One series. Its times are one of `shared` where they are the same: readings of one call have one time."""
        pieces = self._pieces.pop(name, [])
        if not pieces:
            return Series(np.empty(0, dtype=np.int64), np.empty(0))
        series = Series.of(
            np.concatenate([times for times, _ in pieces]), np.concatenate([values for _, values in pieces])
        )
        for times in shared:
            if np.array_equal(times, series.times):
                return Series(times, series.values)
        shared.append(series.times)
        return series


def _by_gpu(batch: pa.RecordBatch, gpus: Sequence[str]) -> Iterator[tuple[int, Ints]]:
    """The rows of each GPU that has any."""
    encoded, place = batch.column("gpu"), {gpu: number for number, gpu in enumerate(gpus)}
    known = [place.get(name, len(gpus)) for name in encoded.dictionary.to_pylist()]
    codes = np.array([*known, len(gpus)])[encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(gpus) + 1))
    for number in range(len(gpus)):
        if edges[number] < edges[number + 1]:
            yield number, order[edges[number] : edges[number + 1]]


def busy_clock(clock: Floats, reasons: Floats, used: Floats) -> Floats:
    """The SM clock where the GPU is known not to idle: by the clock's own reasons, else by its utilisation."""
    told = ~np.isnan(reasons)
    busy = np.where(told, np.nan_to_num(reasons).astype(np.int64) & IDLE_REASON == 0, np.nan_to_num(used) > 0)
    return np.where(busy, clock, np.nan)


def floats(column: pa.Array) -> Floats:
    """A column as numbers, NaN where there is none."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
