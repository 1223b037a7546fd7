"""The readings of each GPU, from samples that are read part by part: a day of them is too much for one table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class GpuReadings:
    """The readings of one GPU: `first_ns` of any kind, and a series of each kind."""

    first_ns: int | None = None
    series: dict[str, Series] = field(default_factory=dict)


def readings_of(run: RunTables, gpus: Sequence[str]) -> dict[str, GpuReadings]:
    """The readings of those GPUs over the whole run."""
    place = {gpu: number for number, gpu in enumerate(gpus)}
    parts: list[dict[str, list[tuple[Ints, Floats]]]] = [{} for _ in gpus]
    found = {gpu: GpuReadings() for gpu in gpus}
    for batch in run.batches("samples", COLUMNS, text=("gpu",)):
        encoded = batch.column("gpu")
        known = [place.get(name, -1) for name in encoded.dictionary.to_pylist()]
        codes = np.array([*known, -1])[encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(gpus) + 1))
        times = batch.column("mono_ns").to_numpy()[order]
        columns = {name: floats(batch.column(name))[order] for name in (*_PLAIN, *_OF_CLOCK)}
        clock, reasons, used = (columns.pop(name) for name in _OF_CLOCK)
        columns[BUSY_CLOCK] = busy_clock(clock, reasons, used)
        for number, gpu in enumerate(gpus):
            rows = slice(edges[number], edges[number + 1])
            if rows.start == rows.stop:
                continue
            first = int(times[rows].min())
            before = found[gpu].first_ns
            found[gpu].first_ns = first if before is None else min(before, first)
            for name, values in columns.items():
                there = ~np.isnan(values[rows])
                if there.any():
                    parts[number].setdefault(name, []).append((times[rows][there], values[rows][there]))
    for gpu, pieces in zip(gpus, parts, strict=True):
        shared: list[Ints] = []
        for name in (*_PLAIN, BUSY_CLOCK):
            found[gpu].series[name] = _joined(pieces.pop(name, []), shared)
    return found


def busy_clock(clock: Floats, reasons: Floats, used: Floats) -> Floats:
    """The SM clock where the GPU is known not to idle: by the clock's own reasons, else by its utilisation."""
    told = ~np.isnan(reasons)
    busy = np.where(told, np.nan_to_num(reasons).astype(np.int64) & IDLE_REASON == 0, np.nan_to_num(used) > 0)
    return np.where(busy, clock, np.nan)


def floats(column: pa.Array) -> Floats:
    """A column as numbers, NaN where there is none."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _joined(pieces: list[tuple[Ints, Floats]], shared: list[Ints]) -> Series:
    """One series; its times are those of a series before, where they are the same: readings of one call have one."""
    if not pieces:
        return Series.of(np.empty(0, dtype=np.int64), np.empty(0))
    series = Series.of(np.concatenate([times for times, _ in pieces]), np.concatenate([values for _, values in pieces]))
    for times in shared:
        if np.array_equal(times, series.times):
            return Series(times, series.values)
    shared.append(series.times)
    return series
