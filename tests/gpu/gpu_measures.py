"""What is measured on a real GPU: counter against integral, call costs, and the load that is run meanwhile.

Nothing here needs a GPU to be imported; tests/unit/telemetry/test_gpu_measures.py runs it against the stand-in.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.telemetry.nvml import Gpu
from results.gpu_energy import counter_difference, power_integral
from results.gpu_sensors import sensors_of
from results.gpu_series import BUSY_CLOCK, GpuReadings
from results.power import Series

COLUMNS = ("energy_joules", "power_instant_watts", "power_average_watts", "power_limit_watts")

# Run by a Python that has torch: device, then phases as "name:data:busy:idle:seconds". Prints a JSON line per phase.
LOAD = """
import json, sys, time
import torch

device, size = sys.argv[1], int(sys.argv[2])
dtype = torch.bfloat16 if device != "cpu" else torch.float32


def wait():
    if device != "cpu":
        torch.cuda.synchronize()


def matrices(data):
    if data == "zeros":
        return torch.zeros(size, size, dtype=dtype, device=device), torch.zeros(size, size, dtype=dtype, device=device)
    torch.manual_seed(1)
    return torch.randn(size, size, dtype=dtype, device=device), torch.randn(size, size, dtype=dtype, device=device)


for phase in sys.argv[3:]:
    name, data, busy_s, idle_s, seconds = phase.split(":")
    a, b = matrices(data)
    torch.matmul(a, b)
    wait()
    begin = time.monotonic_ns()
    end = begin + int(float(seconds) * 1e9)
    products = 0
    while time.monotonic_ns() < end:
        until = min(end, time.monotonic_ns() + int(float(busy_s) * 1e9))
        while time.monotonic_ns() < until:
            for _ in range(4):
                torch.matmul(a, b)
            products += 4
            wait()
        time.sleep(float(idle_s))
    wait()
    print(json.dumps({"name": name, "data": data, "begin_ns": begin, "end_ns": time.monotonic_ns(),
                      "products": products}), flush=True)
"""
PHASES = ("bursts:random:0.7:0.5:60", "random:random:15:0:15", "zeros:zeros:15:0:15")


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The energy counter and the integral of instant power over the same seconds. `k`: counter / integral."""

    counter_joules: float | None
    integral_joules: float | None
    k: float | None
    seconds: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """How long a call takes, in seconds; `refused`: the driver does not answer it."""

    median_s: float
    most_s: float
    calls: int
    refused: str | None


def series(table: pa.Table, uuid: str) -> dict[str, Series]:
    """The sampler's readings of one GPU, by column."""
    mine = table.filter(pc.fill_null(pc.equal(table["gpu"], uuid), False))
    found = {}
    for column in COLUMNS:
        rows = mine.filter(pc.is_valid(mine[column]))
        found[column] = Series.of(rows["mono_ns"].to_numpy(), rows[column].to_numpy())
    return found


def agreement(table: pa.Table, described: Mapping[str, Any], low: int, high: int) -> Agreement:
    """As the energy account makes it, over [low, high] monotonic ns."""
    read = series(table, str(described["uuid"]))
    empty = Series(np.empty(0, dtype=np.int64), np.empty(0))
    told = {name: value for name, value in described.items() if value is not None}
    sensors = sensors_of(GpuReadings(first_ns=low, series={**read, BUSY_CLOCK: empty}), told)
    counted, why = counter_difference(sensors, low, high)
    integral, gaps = power_integral(sensors.instant, low, high, sensors.instant_refresh_s)
    return Agreement(
        counter_joules=counted,
        integral_joules=integral,
        k=counted / integral if counted is not None and integral else None,
        seconds=(high - low) / 1e9,
        reasons=(*why, *gaps),
    )


def mean_watts(table: pa.Table, uuid: str, low: int, high: int) -> float | None:
    """Instant power over [low, high] monotonic ns; None where it is not covered."""
    integral, _ = power_integral(series(table, uuid)["power_instant_watts"], low, high)
    return None if integral is None else integral / ((high - low) / 1e9)


def call_costs(gpu: Gpu, repeats: int = 50) -> dict[str, Cost]:
    """Of each call that the sampler makes of a GPU (`Gpu.power.prepare` was called)."""
    calls: dict[str, Callable[[], object]] = {
        "power": gpu.power.read,
        "state": gpu.state,
        "memory": gpu.memory,
        "memory clock, temperature": gpu.slow_state,
        "limit": gpu.read_limit,
        "processes": gpu.processes,
        "nvlink": gpu.nvlink,
        "pcie": gpu.pcie,
    }
    found = {}
    for name, call in calls.items():
        took = []
        for _ in range(repeats):
            begin = time.monotonic_ns()
            call()
            took.append((time.monotonic_ns() - begin) / 1e9)
        refused = "; ".join(sorted({f"{field}: {why}" for field, why in gpu.unsupported.items()}))
        found[name] = Cost(median_s=statistics.median(took), most_s=max(took), calls=repeats, refused=refused or None)
    return found


def phases(lines: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the load said, by the name of its phase."""
    told = [json.loads(line) for line in lines if line.startswith("{")]
    return {one["name"]: one for one in told}


def record(
    folder: Path, described: Mapping[str, Any], found: Agreement, costs: Mapping[str, Cost], watts: Mapping[str, Any]
) -> Path:
    """Writes a small fixture of this kind of GPU: no UUID, no host."""
    kept = ("name", "driver", "compute_capability", "power_limit_watts", "sample_period_s", "refresh_measured_while")
    sensors = {
        name: value
        for name, value in described.items()
        if name in kept or "_refresh_" in name or name.endswith("_source")
    }
    facts = {
        "gpu": sensors,
        "counter_and_integral": asdict(found),
        "call_seconds": {name: asdict(cost) for name, cost in costs.items()},
        "mean_watts_by_data": dict(watts),
    }
    name = "".join(letter if letter.isalnum() else "-" for letter in str(described.get("name", "gpu")).lower())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(facts, indent=1) + "\n")
    return path
