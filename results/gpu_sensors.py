"""The power sensors of one GPU: their readings over the run, and what is known of the sensors themselves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from harness.protocol.power_sensors import AVERAGE_WINDOW_S, PowerSensor, sensor_of
from results.gpu_series import AVERAGE, BUSY_CLOCK, LIMIT, GpuReadings
from results.power import Series
from results.samples import described_gpus
from results.stats import quantiles
from results.store import RunTables

CLOCK_STEP = 0.20  # of the higher clock, between the 5th and 95th percentile of the readings of a GPU that is not idle
WRAPS_J = (2**32 / 1000.0,)  # a counter of millijoules in 32 bits
MOST_WATTS = 3000.0  # no GPU draws more: a counter that fell and would have gained more was reset
HOST_DOUBT_S = "host_doubt_s"  # among what is told of a GPU
PAST_LIMIT = 1.5  # of the power limit, for moments


@dataclass(frozen=True, slots=True)
class GpuSensors:
    """Series over the whole run, times in monotonic ns."""

    counter: Series
    instant: Series
    average: Series
    limit: Series
    clock: Series  # SM clock, Hz, while the GPU was not idle
    name: str
    meaning: PowerSensor | None
    average_window_s: float
    counter_refresh_s: float
    instant_refresh_s: float
    wraps: int  # of the counter, put right in `counter`
    mig: bool  # the GPU is cut into instances, and its power is of all of them
    host_doubt_s: float = 0.0  # by how much its host's times may be off against those that cut the classes

    @property
    def power(self) -> tuple[Series, Series, Series]:
        """What power is known from, best first."""
        return self.counter, self.instant, self.average

    @property
    def average_in_time(self) -> Series:
        """Average power at the middle of what each reading is the average of."""
        return self.average.shifted(-int(self.average_window_s / 2 * 1e9))

    @property
    def part_time(self) -> bool:
        """Whether instant power is known to be measured only part of the time."""
        return self.meaning is not None and self.meaning.part_time

    def clock_stepped(self, low: int, high: int) -> bool:
        """Whether the clock stayed at levels more than CLOCK_STEP apart; single odd readings don't count."""
        first = np.searchsorted(self.clock.times, low, side="left")
        seen = self.clock.values[first : np.searchsorted(self.clock.times, high, side="right")]
        slow, fast = quantiles(seen, (0.05, 0.95))
        return slow is not None and fast is not None and fast - slow > CLOCK_STEP * fast


def descriptions(run: RunTables) -> dict[str, Mapping[str, Any]]:
    """What is known of each GPU: meta.json's list, and above it what the samplers described."""
    told: dict[str, Mapping[str, Any]] = {}
    # Where a file is damaged, or says what can't be meant, the defaults stand for it; the collection told.
    for gpu in [*(run.meta.get("gpus") or ()), *described_gpus(run.run_dir / "samples")[0]]:
        uuid = str(gpu.get("uuid"))
        told[uuid] = {**told.get(uuid, {}), **{key: value for key, value in gpu.items() if value is not None}}
    doubts = host_doubts_s(run)
    return {
        uuid: {**gpu, HOST_DOUBT_S: doubts[gpu["host"]]} if gpu.get("host") in doubts else gpu
        for uuid, gpu in told.items()
    }


def host_doubts_s(run: RunTables) -> dict[str, float]:
    """Seconds by which the times of other hosts than the controller's may be off, on the controller's axis."""
    rows = run.tables["hosts"].select(["host", "uncertainty_ns"]).to_pylist()
    return {row["host"]: row["uncertainty_ns"] / 1e9 for row in rows if row["uncertainty_ns"]}


def gpu_pools(run: RunTables) -> dict[str, str]:
    """Which pool each GPU worked in, by the processes and the `gpu.pool` metric. A MIG instance counts as its GPU."""
    pools: dict[str, str] = {}
    for process in run.tables["processes"].select(["gpu_uuids", "pool"]).to_pylist():
        pools.update(dict.fromkeys(process["gpu_uuids"], process["pool"]) if process["pool"] else {})
    probes = run.tables["probes"]
    for text in probes.filter(pc.equal(probes.column("name"), "gpu.pool")).column("labels_json").to_pylist():
        labels = json.loads(text)
        if labels.get("uuid") and labels.get("pool"):
            pools[str(labels["uuid"])] = str(labels["pool"])
    if not any(uuid.startswith("MIG-") for uuid in pools):
        return pools
    told = descriptions(run)
    parents = {str(one["uuid"]): uuid for uuid, gpu in told.items() for one in gpu.get("mig_instances") or ()}
    return {parents.get(uuid, uuid): pool for uuid, pool in pools.items()}


def sensors_of(readings: GpuReadings, told: Mapping[str, Any]) -> GpuSensors:
    """The sensors of a GPU from its readings and its description."""
    counter, instant, limit = (readings.series[name] for name in ("energy_joules", "power_instant_watts", LIMIT))
    average = readings.series.get(AVERAGE, Series(np.empty(0, dtype=np.int64), np.empty(0)))
    if limit.times.size == 0 and readings.first_ns is not None and told.get("power_limit_watts"):
        limit = Series(np.array([readings.first_ns], dtype=np.int64), np.array([float(told["power_limit_watts"])]))
    most = PAST_LIMIT * float(limit.values.max()) if limit.values.size else MOST_WATTS
    counter, wraps = unwrapped(counter, most)
    instant.share_times(counter, average)
    name = str(told.get("name", ""))
    step_s = float(told.get("sample_period_s", 0.0))  # as settled on; the first seconds may have been read faster
    return GpuSensors(
        counter=counter,
        instant=instant,
        average=average,
        limit=limit,
        clock=readings.series[BUSY_CLOCK],
        name=name,
        meaning=sensor_of(told.get("compute_capability"), name),
        average_window_s=float(told.get("power_average_window_s", AVERAGE_WINDOW_S)),
        counter_refresh_s=max(float(told.get("energy_refresh_s", 0.0)), counter.period_s, step_s),
        instant_refresh_s=max(float(told.get("power_instant_refresh_s", 0.0)), instant.period_s, step_s),
        wraps=wraps,
        mig=bool(told.get("mig_instances")),
        host_doubt_s=float(told.get(HOST_DOUBT_S, 0.0)),
    )


def unwrapped(counter: Series, most_watts: float) -> tuple[Series, int]:
    """The counter with its wraps put right, and how many there were.

    A fall is a wrap where adding a known modulus leaves a gain that the GPU could have made since the reading before;
    any other fall is left as it is: a reset.
    """
    falls = np.flatnonzero(counter.values[1:] < counter.values[:-1])
    if not falls.size:
        return counter, 0
    values, wraps = counter.values.copy(), 0
    for place in falls:
        fall = values[place] - values[place + 1]
        most = most_watts * (float(counter.times[place + 1] - counter.times[place]) / 1e9 + 1.0)
        for modulus in WRAPS_J:
            if 0 <= modulus - fall <= most:
                values[place + 1 :] += modulus
                wraps += 1
                break
    return Series(counter.times, values), wraps
