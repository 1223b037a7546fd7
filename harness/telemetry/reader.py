"""The fast readings of one GPU: power and energy at every tick, state at some of them."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.protocol.events import Scalar
from harness.telemetry.cadence import MINIMUM_CHANGES, Refresh, poll, refresh_of
from harness.telemetry.nvml import Gpu
from harness.telemetry.values import Timed

STATE_PERIOD_S = 0.4  # NVML averages utilisation over 1/6 to 1 s, by product
MEASURE_S = 1.2  # ten refreshes of a counter that has a tenth of a second
MEASURE_STEP_S = 0.002
LEARN_S = 6.0  # a counter that was too slow for the measurement is watched so long by the ordinary readings
LONGEST_PERIOD_S = 1.0  # power is read at least this often, whatever its counter does

POWER_NAMES = ("power_instant_watts", "power_average_watts", "energy_joules")

Metric = Callable[[str, float | None, str, Mapping[str, Scalar]], None]
Emit = Callable[[str, Timed], None]  # gpu uuid, readings
Describe = Callable[[Gpu, Mapping[str, Any]], None]
Guard = Callable[[Gpu, Callable[[Gpu], object]], bool]  # runs work on a GPU; False when that failed or it is lost
Polls = dict[str, list[tuple[int, float | None]]]


class Reader:
    """A member of a lane. What is emitted carries the middle of its call and how far off that may be."""

    def __init__(
        self,
        gpu: Gpu,
        *,
        hz: float,
        stop: threading.Event,
        emit: Emit,
        metric: Metric,
        describe: Describe,
        guarded: Guard,
        begun: Callable[[Gpu], None],
        joules: dict[str, float],
    ) -> None:
        """`begun` is called after the first power reading. `joules`: the last reading of each GPU's energy counter."""
        self.gpu = gpu
        self.period_s = 1 / hz
        self._hz = hz
        self._stop = stop
        self._emit = emit
        self._metric = metric
        self._describe = describe
        self._guarded = guarded
        self._begun = begun
        self._joules = joules
        self._refresh: dict[str, Refresh] = {}
        self._learnt: Polls | None = None
        self._learn_until_ns = 0
        self._state_ns = 0
        self._due_ns = 0
        self._turns = 0
        self._late = 0
        self._skipped = 0

    def prepare(self, gpu: Gpu) -> None:
        """Finds out how this GPU gives power, and how often that is new; takes a second or so.

        Raises:
            GpuLostError: the GPU is gone.
        """
        gpu.prepare()
        gpu.read_limit()
        self._refresh = self._measure(gpu)
        slow = any(map(_slow_one, self._refresh.values()))
        self._learnt = {name: [] for name in POWER_NAMES} if slow else None
        if not slow:
            self.period_s = _period_s(self._refresh, self._hz)
        now = time.monotonic_ns()
        self._learn_until_ns = now + round(LEARN_S * 1e9)
        self._state_ns = now + gpu.index % 4 * round(STATE_PERIOD_S / 4 * 1e9)  # not all of them at the same ticks
        self._tell_refresh(gpu)

    def read_at(self, period_s: float) -> None:
        """It will be read at this period, which is nearly its own."""
        self.period_s = period_s
        self._tell_refresh(self.gpu)

    def power(self, due_ns: int) -> bool:
        """Reads power for the tick at `due_ns`; False when the GPU is lost."""
        self._due_ns = due_ns
        return self._guarded(self.gpu, self._power)

    def due(self) -> bool:
        """Whether it is time for `state`."""
        return time.monotonic_ns() >= self._state_ns

    def state(self) -> bool:
        """Reads state; False when the GPU is lost."""
        return self._guarded(self.gpu, self._state)

    def missed(self, ticks: int) -> None:
        """Ticks that passed without a reading."""
        self._skipped += ticks

    def end(self) -> None:
        """Tells how many readings were made, how many of them late, and how many ticks were skipped."""
        labels: dict[str, Scalar] = {"gpu": self.gpu.uuid, "skipped": self._skipped, "late": self._late}
        self._metric("telemetry.ticks", float(self._turns), "ticks", labels)

    def _power(self, gpu: Gpu) -> None:
        reading = gpu.power()
        values, at = reading.values, reading.mono_ns
        joules = values["energy_joules"]
        if joules is not None:
            before = self._joules.get(gpu.uuid)
            if before is not None and joules < before:
                labels: dict[str, Scalar] = {"gpu": gpu.uuid, "before_joules": before}
                self._metric("telemetry.energy_counter_fell", float(joules), "J", labels)
            self._joules[gpu.uuid] = float(joules)
        if self._learnt is not None:
            for name in POWER_NAMES:
                self._learnt[name].append((at, values[name]))
        if at - self._due_ns > self.period_s * 5e8:
            self._late += 1
        self._emit(gpu.uuid, reading)
        self._turns += 1
        if self._turns == 1:
            self._begun(gpu)

    def _state(self, gpu: Gpu) -> None:
        reading = gpu.state()
        self._emit(gpu.uuid, reading)
        self._state_ns += max(round(STATE_PERIOD_S * 1e9), reading.end_ns - self._state_ns)
        if self._learnt is not None and reading.end_ns >= self._learn_until_ns:
            self._refresh, self._learnt = _learn(self._refresh, self._learnt), None
            self.period_s = _period_s(self._refresh, self._hz)
            self._tell_refresh(gpu)

    def _measure(self, gpu: Gpu) -> dict[str, Refresh]:
        """How often power and energy refresh, by polling them densely for a moment."""

        def read() -> list[tuple[int, float | None]]:
            reading = gpu.power()
            return [(reading.mono_ns, reading.values[name]) for name in POWER_NAMES]

        series = poll(read, duration_s=MEASURE_S, step_s=MEASURE_STEP_S, wait=self._stop.wait, now_ns=time.monotonic_ns)
        return dict(zip(POWER_NAMES, map(refresh_of, series), strict=False))

    def _tell_refresh(self, gpu: Gpu) -> None:
        facts = {**_refresh_facts(self._refresh), **_source_facts(gpu), "sample_period_s": self.period_s}
        self._describe(gpu, facts)


def _slow_one(refresh: Refresh) -> bool:
    """Whether a sensor gives readings, but too few new ones for its period to be known."""
    return refresh.period_s is None and refresh.resolution_s is not None and refresh.changes < MINIMUM_CHANGES


def _learn(refresh: Mapping[str, Refresh], polls: Polls) -> dict[str, Refresh]:
    """The periods as first measured; where that was too short, as the polls made since then tell."""
    return {name: refresh_of(polls[name]) if _slow_one(before) else before for name, before in refresh.items()}


def _period_s(refresh: Mapping[str, Refresh], hz: float) -> float:
    """Seconds between readings: one call reads all, so as often as the quickest of them has something new."""
    known = [r.period_s for r in refresh.values() if r.period_s is not None]
    unresolved = any(r.period_s is None and r.changes >= MINIMUM_CHANGES for r in refresh.values())
    return max(1 / hz, min(*known, LONGEST_PERIOD_S)) if known and not unresolved else 1 / hz


def _refresh_facts(refresh: Mapping[str, Refresh]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, measured in refresh.items():
        stem = name.rpartition("_")[0]
        facts[f"{stem}_refresh_s"] = measured.period_s
        facts[f"{stem}_refresh_resolution_s"] = measured.resolution_s
        facts[f"{stem}_refresh_reason"] = measured.reason
    return facts


def _source_facts(gpu: Gpu) -> dict[str, Any]:
    return {
        "power_instant_source": gpu.sources.get("power_instant_watts"),
        "power_average_source": gpu.sources.get("power_average_watts"),
        # nvml.h: the average is over one second
        "power_average_window_s": 1.0 if "power_average_watts" in gpu.sources else None,
        "energy_source": gpu.sources.get("energy_joules"),
        "power_scope": "gpu",
    }
