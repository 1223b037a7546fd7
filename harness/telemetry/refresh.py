"""How often each power sensor of a GPU is new, as far as that is known by now, and how often it is read therefore.

It is measured before the run starts, by polling. An idle GPU tells too little: power that does not change shows no
refresh, and power that drifts shows one that is too long. So it is measured again while the GPU works, a few times, and
what is known only gets better: a shorter period that was really seen replaces a longer one.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.telemetry.cadence import MINIMUM_CHANGES, Refresh, Ticks, poll, refresh_of
from harness.telemetry.gpu_power import POWER_NAMES, PowerSensors

MEASURE_S = 1.2  # ten refreshes of a counter that has a tenth of a second
MEASURE_STEP_S = 0.002
LONGER_S = 6.0  # for a sensor that was too slow for it
LONGER_STEP_S = 0.02
LONGEST_PERIOD_S = 1.0  # each is read at least this often
SAME_PERIOD = 0.05  # periods that differ by less count as one
COUNTER = "energy_joules"  # which counts on an idle GPU too

Polls = dict[str, list[tuple[int, float | None]]]
_UNKNOWN = Refresh(period_s=None, resolution_s=None, changes=0, reason="not measured")


class Refreshes:
    """Of one GPU. Not thread-safe."""

    def __init__(self, hz: float) -> None:
        self._hz = hz
        self._known: dict[str, Refresh] = dict.fromkeys(POWER_NAMES, _UNKNOWN)
        self.working = False  # whether the GPU was at work when this was last measured

    def take(self, found: Mapping[str, Refresh], *, working: bool) -> None:
        """Takes up what was measured, where it is better than what was known."""
        self._known |= {name: one for name, one in found.items() if _better(self._known[name], one)}
        self.working = working

    def slow(self) -> set[str]:
        """Sensors that give readings, but gave too few new ones for their period to be known."""
        return {name for name, one in self._known.items() if is_slow(one)}

    @property
    def period_s(self) -> float:
        """Seconds between ticks: the quickest sensor has something new at each."""
        known = [one.period_s for one in self._known.values() if one.period_s is not None]
        unresolved = any(one.period_s is None and one.changes >= MINIMUM_CHANGES for one in self._known.values())
        return max(1 / self._hz, min(*known, LONGEST_PERIOD_S)) if known and not unresolved else 1 / self._hz

    def own_periods_s(self, tick_s: float) -> dict[str, float]:
        """Of the sensors that are slower than the ticks: seconds between their readings."""
        periods = {name: min(one.period_s or 0.0, LONGEST_PERIOD_S) for name, one in self._known.items()}
        return {name: own for name, own in periods.items() if own > (1 + SAME_PERIOD) * tick_s}

    def facts(self, tick_s: float) -> dict[str, Any]:
        """What a description says of it."""
        facts: dict[str, Any] = {
            "sample_period_s": tick_s,
            "refresh_measured_while": "working" if self.working else "idle",
        }
        own = self.own_periods_s(tick_s)
        for name, one in self._known.items():
            stem = name.rpartition("_")[0]
            facts[f"{stem}_refresh_s"] = one.period_s
            facts[f"{stem}_refresh_resolution_s"] = one.resolution_s
            facts[f"{stem}_refresh_reason"] = one.reason
            facts[f"{stem}_sample_period_s"] = own.get(name, tick_s)
        return facts


class Turns:
    """Which sensors are read at a tick: each slower one once in each of its own periods, at a random place in it."""

    def __init__(self, periods_s: Mapping[str, float], start_ns: int, rng: random.Random) -> None:
        self._ticks = {name: Ticks(period_s, start_ns, rng) for name, period_s in periods_s.items()}
        self._due = {name: ticks.next(start_ns) for name, ticks in self._ticks.items()}

    def at(self, due_ns: int) -> tuple[str, ...]:
        """Those of the tick at `due_ns`."""
        names = tuple(name for name in POWER_NAMES if self._due.get(name, due_ns) <= due_ns)
        for name in names:
            if name in self._ticks:
                self._due[name] = self._ticks[name].next(due_ns)
        return names


def measure(
    sensors: PowerSensors, wait: Callable[[float], bool], duration_s: float = MEASURE_S, step_s: float = MEASURE_STEP_S
) -> dict[str, Refresh]:
    """Polls the sensors densely for a moment. `wait(seconds)` returns True when the sampler is told to stop.

    Raises:
        GpuLostError: the GPU is gone.
    """

    def read() -> list[tuple[int, float | None]]:
        reading = sensors.read()
        return [(reading.mono_ns, reading.values.get(name)) for name in POWER_NAMES]

    series = poll(read, duration_s=duration_s, step_s=step_s, wait=wait, now_ns=time.monotonic_ns)
    return dict(zip(POWER_NAMES, map(refresh_of, series), strict=False))


def measure_longer(sensors: PowerSensors, wait: Callable[[float], bool]) -> dict[str, Refresh]:
    """As `measure`, and longer where a sensor was too slow for it; takes up to 8 s.

    Raises:
        GpuLostError: the GPU is gone.
    """
    found = measure(sensors, wait)
    slow = {name for name, one in found.items() if is_slow(one)}
    longer = measure(sensors, wait, LONGER_S, LONGER_STEP_S) if slow else {}
    return found | {name: one for name, one in longer.items() if name in slow}


def learnt(polls: Polls, names: set[str]) -> dict[str, Refresh]:
    """The refreshes of those sensors, from their ordinary readings."""
    return {name: refresh_of(polls[name]) for name in names}


def is_slow(refresh: Refresh) -> bool:
    """Whether a sensor gives readings, but too few new ones for its period to be known."""
    return refresh.period_s is None and refresh.resolution_s is not None and refresh.changes < MINIMUM_CHANGES


def _better(before: Refresh, now: Refresh) -> bool:
    """Values that stay equal hide refreshes and none are made up: the shortest that was seen is the nearest."""
    if now.at_most_s is None:  # nothing was seen of it
        return before.at_most_s is None and before.changes <= now.changes
    return before.at_most_s is None or now.at_most_s < before.at_most_s
