"""The threads that read the GPUs: one per GPU for power and state, one for everything slow.

A GPU that blocks (a driver that hangs while it falls off the bus) holds up its own thread and no other.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.protocol.events import Scalar
from harness.telemetry.cadence import Refresh, Ticks, poll, refresh_of
from harness.telemetry.contamination import Contamination
from harness.telemetry.description import Description
from harness.telemetry.nvml import Gpu, GpuLostError
from harness.telemetry.values import Timed

STATE_PERIOD_S = 0.2  # NVML averages utilisation over 1/6 s or more
SLOW_PERIOD_S = 1.0  # each PCIe call blocks 20 ms
LIMIT_PERIOD_S = 10.0
CHECK_PERIOD_S = 5.0
MEASURE_S = 1.2  # ten refreshes of a counter that has a tenth of a second
MEASURE_STEP_S = 0.002
LONGEST_PERIOD_S = 1.0  # power is read at least this often, whatever its counter does

Metric = Callable[[str, float | None, str, Mapping[str, Scalar]], None]
Fail = Callable[[BaseException], None]
Emit = Callable[[str, Timed], None]  # gpu uuid, readings


class GpuWatch:
    """Reads GPUs until `stop` is set. Rows go to `emit`, numbers about sensors to `metric`, losses to `fail`."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        run_id: str,
        hz: float,
        stop: threading.Event,
        emit: Emit,
        metric: Metric,
        fail: Fail,
        description: Description,
        versions: Mapping[str, str],
        rng: random.Random,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`ready` is called once, as soon as every GPU has given a power row or will never give one."""
        self._gpus = gpus
        self._run_id = run_id
        self._hz = hz
        self._stop = stop
        self._emit = emit
        self._metric = metric
        self._fail = fail
        self._description = description
        self._versions = versions
        self._rng = rng
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._ready = ready
        self._awaited = {gpu.uuid for gpu in gpus}
        self._energy: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Starts the threads."""
        for gpu in self._gpus:
            self._spawn(f"gpu-{gpu.index}", self._watch, gpu)
        self._spawn("slow", self._slow)

    def join(self, timeout_s: float) -> bool:
        """Waits for the threads to end; False when one is held up inside the driver."""
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _spawn(self, name: str, target: Callable[..., object], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, gpu: Gpu, work: Callable[[Gpu], object]) -> bool:
        """Runs work on a GPU; False when that failed. A loss is recorded once and ends this GPU's rows only."""
        try:
            work(gpu)
        except GpuLostError as error:
            with self._lock:
                known = gpu.uuid in self._lost
                self._lost.add(gpu.uuid)
            if not known:
                self._fail(error)
            return False
        except Exception as error:  # what no one foresaw ends this work on this GPU, and is in the record
            self._fail(error)
            return False
        return True

    def _watch(self, gpu: Gpu) -> None:
        self._guarded(gpu, self._fast)
        self._begun(gpu)  # it may have failed before its first row

    def _begun(self, gpu: Gpu) -> None:
        with self._lock:
            last = self._awaited == {gpu.uuid}
            self._awaited.discard(gpu.uuid)
        if last:
            self._ready()

    def _fast(self, gpu: Gpu) -> None:
        gpu.prepare()
        gpu.read_limit()
        period_s = self._measure(gpu)
        # State is read with every n-th power reading: one waking up for both halves what the sampler costs.
        every = max(1, round(STATE_PERIOD_S / period_s))
        now = time.monotonic_ns()
        ticks, turn = Ticks(period_s, now, self._rng), 0
        due = ticks.next(now)
        while not self._wait_until(due):
            if gpu.uuid in self._lost:
                return
            self._power(gpu)
            if turn == 0:
                self._begun(gpu)
            if turn % every == 0:
                self._emit(gpu.uuid, gpu.state())
            turn += 1
            due = ticks.next(time.monotonic_ns())
        self._metric("telemetry.ticks", float(turn), "ticks", {"gpu": gpu.uuid, "skipped": ticks.skipped})

    def _power(self, gpu: Gpu) -> None:
        reading = gpu.power()
        energy, before = reading.values["energy_joules"], self._energy.get(gpu.uuid)
        if energy is not None:
            if before is not None and energy < before:
                labels: dict[str, Scalar] = {"gpu": gpu.uuid, "before_joules": before}
                self._metric("telemetry.energy_counter_fell", float(energy), "J", labels)
            self._energy[gpu.uuid] = float(energy)
        self._emit(gpu.uuid, reading)

    def _measure(self, gpu: Gpu) -> float:
        """Polls power and energy densely, writes how often they refresh, and returns the period to read them at."""
        names = ("power_instant_watts", "power_average_watts", "energy_joules")

        def read() -> list[tuple[int, float | None]]:
            reading = gpu.power()
            return [(reading.mono_ns, reading.values[name]) for name in names]

        series = poll(read, duration_s=MEASURE_S, step_s=MEASURE_STEP_S, wait=self._stop.wait, now_ns=time.monotonic_ns)
        refresh = dict(zip(names, map(refresh_of, series), strict=False))
        # One call reads them all, so it is made as often as the quickest of them has something new.
        known = [r.period_s for r in refresh.values() if r.period_s is not None]
        unresolved = any(r.period_s is None and r.changes for r in refresh.values())
        period_s = 1 / self._hz
        if known and not unresolved:
            period_s = max(period_s, min(*known, LONGEST_PERIOD_S))
        self._describe(gpu, {**_refresh_facts(refresh), **_source_facts(gpu), "sample_period_s": period_s})
        return period_s

    def _slow(self) -> None:
        checks: dict[str, Contamination] = {}
        for gpu in self._gpus:
            self._guarded(gpu, lambda gpu: self._first_look(gpu, checks))
        now = time.monotonic_ns()
        failed: set[tuple[str, int]] = set()
        ticks: list[tuple[Ticks, Callable[[Gpu], object]]] = [
            (Ticks(SLOW_PERIOD_S, now, self._rng), self._traffic),
            (Ticks(LIMIT_PERIOD_S, now, self._rng), Gpu.read_limit),
            (Ticks(CHECK_PERIOD_S, now, self._rng), lambda gpu: checks[gpu.uuid].check()),
        ]
        due = [tick.next(now) for tick, _ in ticks]
        while not self._wait_until(min(due)):
            for place, (tick, work) in enumerate(ticks):
                if time.monotonic_ns() < due[place]:
                    continue
                for gpu in self._gpus:
                    if gpu.uuid in self._lost or (gpu.uuid, place) in failed or self._stop.is_set():
                        continue
                    if not self._guarded(gpu, work):
                        failed.add((gpu.uuid, place))
                due[place] = tick.next(time.monotonic_ns())

    def _first_look(self, gpu: Gpu, checks: dict[str, Contamination]) -> None:
        facts = gpu.describe()
        self._describe(gpu, {**facts, **self._versions})
        checks[gpu.uuid] = Contamination(gpu, self._run_id, self._metric, facts["sm_clock_max_hz"])
        checks[gpu.uuid].check()

    def _traffic(self, gpu: Gpu) -> None:
        if not {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"} <= gpu.unsupported.keys():
            self._emit(gpu.uuid, gpu.pcie())
        if not {"nvlink_tx_bytes", "nvlink_rx_bytes"} <= gpu.unsupported.keys():
            self._emit(gpu.uuid, gpu.nvlink())

    def _describe(self, gpu: Gpu, facts: Mapping[str, Any]) -> None:
        try:
            self._description.put(gpu.uuid, {**facts, "unsupported": dict(gpu.unsupported)})
        except OSError as error:
            self._fail(error)

    def _wait_until(self, due_ns: int) -> bool:
        return self._stop.wait(max(0, due_ns - time.monotonic_ns()) / 1e9)


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
