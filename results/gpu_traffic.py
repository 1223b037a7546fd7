"""What each GPU held and moved in the window: memory, PCIe, NVLink, power as DCGM reads it; memory by process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from harness.protocol.scalars import whole
from results.energy import run_gpus
from results.gpu_sensors import gpu_pools
from results.gpu_series import series_of
from results.power import Series
from results.store import RunTables
from results.window import Window

GAUGES: Mapping[str, str] = {
    "memory_used_bytes": "memory in use",
    "pcie_tx_bytes_per_s": "PCIe sent, NVML",
    "pcie_rx_bytes_per_s": "PCIe received, NVML",
    "dcgm_pcie_tx_bytes_per_s": "PCIe sent, DCGM",
    "dcgm_pcie_rx_bytes_per_s": "PCIe received, DCGM",
    "dcgm_nvlink_tx_bytes_per_s": "NVLink sent, DCGM",
    "dcgm_nvlink_rx_bytes_per_s": "NVLink received, DCGM",
    "dcgm_power_instant_watts": "power, DCGM",
}
COUNTERS: Mapping[str, str] = {"nvlink_tx_bytes": "NVLink sent, NVML", "nvlink_rx_bytes": "NVLink received, NVML"}
PROCESS_MEMORY = "telemetry.process_memory"  # the sampler's metric: bytes, told when they change; labels gpu, pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One quantity of one GPU over the window, in the column's unit; a counter's is its rate. No interval: see `n`."""

    gpu: str
    column: str
    name: str
    mean: float
    most: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Bytes of GPU memory of one process over the window; `role` None: it is none of the run's recording processes."""

    gpu: str
    host: str
    pid: int
    role: str | None
    mean: float | None  # over the part of the window in which it was known
    most: float | None  # None: the driver does not say, as with MIG


def traffic(run: RunTables, window: Window) -> tuple[Reading, ...]:
    """By GPU and quantity; what a GPU gave fewer than twice in the window is left out."""
    gpus = sorted(gpu_pools(run) or run_gpus(run, {}) or ())
    series = series_of(run, gpus, (*GAUGES, *COUNTERS))
    found = []
    for gpu in gpus:
        for column, name in (*GAUGES.items(), *COUNTERS.items()):
            inside = _inside(series[gpu][column], window)
            values = _rates(inside) if column in COUNTERS else inside.values
            if values.size < (1 if column in COUNTERS else 2):
                continue
            mean = float(values.mean())
            if column in COUNTERS:
                seconds = np.diff(inside.times) / 1e9
                kept = np.diff(inside.values) >= 0
                mean = float(np.diff(inside.values)[kept].sum() / seconds[kept].sum())
            found.append(
                Reading(
                    gpu=gpu, column=column, name=name, mean=mean, most=float(values.max()), n=int(inside.times.size)
                )
            )
    return tuple(found)


def process_memory(run: RunTables, window: Window) -> tuple[ProcessMemory, ...]:
    """Of each process that held memory in the window: the largest first."""
    roles = {(row["host"], row["pid"]): row["role"] for row in run.tables["processes"].to_pylist()}
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes.column("name"), PROCESS_MEMORY)).sort_by("mono_ns").to_pylist()
    told: dict[tuple[str, str, int], list[tuple[int, float | None]]] = {}
    for row in rows:
        labels = json.loads(row["labels_json"])
        key = str(labels.get("gpu")), str(row["host"]), whole(labels.get("pid"), 0) or 0
        told.setdefault(key, []).append((row["mono_ns"], row["value"]))
    found = []
    for (gpu, host, pid), changes in told.items():
        held = _held(changes, window)
        if held is not None:
            role = roles.get((host, pid))
            found.append(ProcessMemory(gpu=gpu, host=host, pid=pid, role=role, mean=held[0], most=held[1]))
    return tuple(sorted(found, key=lambda one: (-(one.most or 0.0), one.gpu, one.pid)))


def _held(changes: list[tuple[int, float | None]], window: Window) -> tuple[float | None, float | None] | None:
    """Mean and most of a quantity that holds until it is told anew; None: it was 0 all through the window."""
    ends = [at for at, _ in changes[1:]] + [window.end_ns]
    weight, total, most, unknown = 0, 0.0, None, False
    for (begin, value), end in zip(changes, ends, strict=True):
        span = min(end, window.end_ns) - max(begin, window.start_ns)
        if span <= 0:
            continue
        if value is None:
            unknown = True
            continue
        weight, total = weight + span, total + value * span
        most = value if most is None else max(most, value)
    if not most:
        return (None, None) if unknown else None
    return total / weight, most


def _inside(series: Series, window: Window) -> Series:
    inside = (series.times >= window.start_ns) & (series.times < window.end_ns)
    return Series(series.times[inside], series.values[inside])


def _rates(counter: Series) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Per second between neighbouring readings; where the counter fell it was reset, and says nothing."""
    steps, seconds = np.diff(counter.values), np.diff(counter.times) / 1e9
    kept = steps >= 0
    return np.asarray(steps[kept] / seconds[kept], dtype=np.float64)
