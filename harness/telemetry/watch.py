"""The threads that read the GPUs: one per GPU for power and state, one for everything slow.

A GPU that blocks (a driver that hangs while it falls off the bus) holds up its own thread and no other.
"""

import random
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from harness.protocol.events import Scalar
from harness.telemetry.cadence import MINIMUM_CHANGES, Refresh, Ticks, poll, refresh_of
from harness.telemetry.contamination import Contamination
from harness.telemetry.description import Description
from harness.telemetry.health import ErrorEvents, ProcessMemory, memory_errors, mig_instances
from harness.telemetry.nvml import Gpu, GpuLostError
from harness.telemetry.values import Timed

STATE_PERIOD_S = 0.2  # NVML averages utilisation over 1/6 s or more
SLOW_PERIOD_S = 1.0  # each PCIe call blocks 20 ms
LIMIT_PERIOD_S = 1.0
CHECK_PERIOD_S = 5.0
MEASURE_S = 1.2  # ten refreshes of a counter that has a tenth of a second
MEASURE_STEP_S = 0.002
LEARN_S = 6.0  # a counter that was too slow for the measurement is watched so long by the ordinary readings
RESCAN_PERIOD_S = 5.0
FIRST = -1  # the first look, among the places of the slow work
LONGEST_PERIOD_S = 1.0  # power is read at least this often, whatever its counter does

Metric = Callable[[str, float | None, str, Mapping[str, Scalar]], None]
Fail = Callable[[BaseException], None]
Emit = Callable[[str, Timed], None]  # gpu uuid, readings
Find = Callable[[Container[str]], Sequence[Gpu]]  # known UUIDs -> GPUs that answer and are not among them

POWER_NAMES = ("power_instant_watts", "power_average_watts", "energy_joules")
Polls = dict[str, list[tuple[int, float | None]]]


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
        find: Find = lambda known: (),
    ) -> None:
        """`ready` is called once, as soon as every GPU has given a power row or will never give one.

        `find` is asked every few seconds for GPUs that appeared or came back.
        """
        self._gpus = list(gpus)
        self._find = find
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

    def uuids(self) -> set[str]:
        """Of the GPUs that were found so far, lost ones included."""
        with self._lock:
            return {gpu.uuid for gpu in self._gpus}

    def start(self) -> None:
        """Starts the threads."""
        for gpu in list(self._gpus):
            self._spawn(f"gpu-{gpu.index}", self._watch, gpu)
        self._spawn("slow", self._slow)
        self._spawn("rescan", self._rescan)
        self._errors(self._gpus)
        if not self._gpus:
            self._ready()

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

    def _errors(self, gpus: Sequence[Gpu]) -> None:
        if gpus:
            thread = ErrorEvents(list(gpus), self._metric, self._stop)
            self._threads.append(thread)
            thread.start()

    def _rescan(self) -> None:
        """Takes up GPUs that appear, and lost ones that answer again, in a thread that a sick driver may hold up."""
        while not self._stop.wait(RESCAN_PERIOD_S):
            with self._lock:
                here = {gpu.uuid for gpu in self._gpus} - self._lost
            for gpu in self._find(here):
                with self._lock:
                    back = gpu.uuid in self._lost
                    self._lost.discard(gpu.uuid)
                    self._gpus = [one for one in self._gpus if one.uuid != gpu.uuid] + [gpu]
                self._metric("telemetry.gpu_returned" if back else "telemetry.gpu_appeared", 1.0, "", {"gpu": gpu.uuid})
                self._spawn(f"gpu-{gpu.index}", self._watch, gpu)
                self._errors([gpu])

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
        refresh = self._measure(gpu)
        learnt: Polls | None = {name: [] for name in POWER_NAMES} if any(map(_slow_one, refresh.values())) else None
        period_s = _period_s(refresh, self._hz) if learnt is None else 1 / self._hz
        self._describe_refresh(gpu, refresh, period_s)
        now = time.monotonic_ns()
        ticks, turn, skipped, state_ns = Ticks(period_s, now, self._rng), 0, 0, now
        learn_until_ns, due = now + round(LEARN_S * 1e9), ticks.next(now)
        try:
            while not self._wait_until(due):
                if gpu.uuid in self._lost:
                    return
                reading = self._power(gpu)
                if turn == 0:
                    self._begun(gpu)
                # State is read with a power reading: one waking up for both halves what the sampler costs.
                if reading.end_ns >= state_ns:
                    self._emit(gpu.uuid, gpu.state())
                    state_ns += max(round(STATE_PERIOD_S * 1e9), reading.end_ns - state_ns)
                turn += 1
                if learnt is not None:
                    for name in POWER_NAMES:
                        learnt[name].append((reading.mono_ns, reading.values[name]))
                    if reading.end_ns >= learn_until_ns:
                        refresh, learnt = _learn(refresh, learnt), None
                        period_s = _period_s(refresh, self._hz)
                        self._describe_refresh(gpu, refresh, period_s)
                        skipped += ticks.skipped
                        ticks = Ticks(period_s, time.monotonic_ns(), self._rng)
                due = ticks.next(time.monotonic_ns())
        finally:
            self._metric("telemetry.ticks", float(turn), "ticks", {"gpu": gpu.uuid, "skipped": skipped + ticks.skipped})

    def _power(self, gpu: Gpu) -> Timed:
        reading = gpu.power()
        energy, before = reading.values["energy_joules"], self._energy.get(gpu.uuid)
        if energy is not None:
            if before is not None and energy < before:
                labels: dict[str, Scalar] = {"gpu": gpu.uuid, "before_joules": before}
                self._metric("telemetry.energy_counter_fell", float(energy), "J", labels)
            self._energy[gpu.uuid] = float(energy)
        self._emit(gpu.uuid, reading)
        return reading

    def _measure(self, gpu: Gpu) -> dict[str, Refresh]:
        """How often power and energy refresh, by polling them densely for a moment."""

        def read() -> list[tuple[int, float | None]]:
            reading = gpu.power()
            return [(reading.mono_ns, reading.values[name]) for name in POWER_NAMES]

        series = poll(read, duration_s=MEASURE_S, step_s=MEASURE_STEP_S, wait=self._stop.wait, now_ns=time.monotonic_ns)
        return dict(zip(POWER_NAMES, map(refresh_of, series), strict=False))

    def _describe_refresh(self, gpu: Gpu, refresh: Mapping[str, Refresh], period_s: float) -> None:
        self._describe(gpu, {**_refresh_facts(refresh), **_source_facts(gpu), "sample_period_s": period_s})

    def _slow(self) -> None:
        looked: dict[Gpu, _Looks] = {}
        now = time.monotonic_ns()
        failed: set[tuple[Gpu, int]] = set()
        ticks: list[tuple[Ticks, Callable[[Gpu], object]]] = [
            (Ticks(SLOW_PERIOD_S, now, self._rng), self._traffic),
            (Ticks(LIMIT_PERIOD_S, now, self._rng), Gpu.read_limit),
            (Ticks(CHECK_PERIOD_S, now, self._rng), lambda gpu: looked[gpu].check()),
        ]
        self._first_looks(looked, failed)
        due = [tick.next(now) for tick, _ in ticks]
        while not self._wait_until(min(due)):
            self._first_looks(looked, failed)  # at GPUs that appeared or came back
            for place, (tick, work) in enumerate(ticks):
                if time.monotonic_ns() < due[place]:
                    continue
                for gpu in list(self._gpus):
                    if gpu.uuid in self._lost or (gpu, place) in failed or self._stop.is_set() or gpu not in looked:
                        continue
                    if not self._guarded(gpu, work):
                        failed.add((gpu, place))
                due[place] = tick.next(time.monotonic_ns())

    def _first_looks(self, looked: "dict[Gpu, _Looks]", failed: set[tuple[Gpu, int]]) -> None:
        for gpu in list(self._gpus):
            if gpu in looked or (gpu, FIRST) in failed or gpu.uuid in self._lost:
                continue
            if not self._guarded(gpu, lambda gpu: self._first_look(gpu, looked)):
                failed.add((gpu, FIRST))

    def _first_look(self, gpu: Gpu, looked: "dict[Gpu, _Looks]") -> None:
        facts = gpu.describe()
        self._describe(gpu, {**facts, "mig_instances": mig_instances(gpu), **self._versions})
        contamination = Contamination(gpu, self._run_id, self._metric, facts["sm_clock_max_hz"])
        looks = _Looks(gpu, contamination, ProcessMemory(gpu, self._metric), self._emit)
        looks.check()
        looked[gpu] = looks

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


class _Looks:
    """What is looked at now and then of one GPU."""

    def __init__(self, gpu: Gpu, contamination: Contamination, memory: ProcessMemory, emit: Emit) -> None:
        self._gpu = gpu
        self._contamination = contamination
        self._memory = memory
        self._emit = emit

    def check(self) -> None:
        """Raises GpuLostError once the GPU is gone."""
        self._contamination.check()
        self._memory.check()
        if not {"ecc_corrected_errors", "ecc_uncorrected_errors"} <= self._gpu.unsupported.keys():
            self._emit(self._gpu.uuid, memory_errors(self._gpu))


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
