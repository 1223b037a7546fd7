"""The threads that read the GPUs: lanes for power and state, one for everything slow.

A GPU that blocks (a driver that hangs while it falls off the bus) soon holds up its own thread and no other.
"""

import random
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from harness.telemetry.cadence import Ticks
from harness.telemetry.contamination import Contamination
from harness.telemetry.description import Description
from harness.telemetry.health import ErrorEvents, ProcessMemory, memory_errors, mig_instances
from harness.telemetry.kept_calls import Kept, make_ahead
from harness.telemetry.lanes import Alarm, Lanes
from harness.telemetry.nvml import Gpu, GpuLostError
from harness.telemetry.reader import Emit, Metric, Reader
from harness.telemetry.settling import EmitAll, Settling

LIMIT_PERIOD_S = 1.0
MEMORY_PERIOD_S = 2.0
SLOWEST_PERIOD_S = 4.0  # PCIe calls block 20 ms each, and waking up after it costs more than all else a second asks
CHECK_PERIOD_S = 5.0
RESCAN_PERIOD_S = 5.0
FIRST = -1  # the first look, among the places of the slow work

Fail = Callable[[BaseException], None]
Find = Callable[[Container[str]], Sequence[Gpu]]  # known UUIDs -> GPUs that answer and are not among them


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
        emit_all: EmitAll,
        metric: Metric,
        fail: Fail,
        description: Description,
        versions: Mapping[str, str],
        rng: random.Random,
        ready: Callable[[], None] = lambda: None,
        find: Find = lambda known: (),
        alarm: Alarm = lambda seconds: None,
    ) -> None:
        """`ready` is called once, as soon as every GPU has given a power row or will never give one.

        `find` is asked every few seconds for GPUs that appeared or came back. `alarm` says in how many seconds
        `look` is to be called (0: not), each call instead of the one before.
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
        self._one_at_a_time = threading.Lock()
        self._ready = ready
        self._awaited = {gpu.uuid for gpu in gpus}
        self._joules: dict[str, float] = {}
        self._readers: dict[str, Reader] = {}
        self._settling = Settling(emit_all, self._joules)
        self.settle = self._settling.settle  # has what was read so far be emitted
        self._threads: list[threading.Thread] = []
        self._lanes = Lanes(stop=stop, rng=rng, alarm=alarm)

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

    def look(self) -> None:
        """Has what a GPU holds up be read by another thread; to be called when the alarm goes off."""
        self._lanes.look()

    def join(self, timeout_s: float) -> bool:
        """Waits for the threads to end; False when one is held up inside the driver: its ticks are told, and it left.

        What it reads later is dropped.
        """
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if not self._lanes.join(end):
            self._lanes.give_up()
            return False
        return not any(thread.is_alive() for thread in self._threads)

    def _spawn(self, name: str, target: Callable[..., object], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _errors(self, gpus: Sequence[Gpu]) -> None:
        if gpus:
            thread = ErrorEvents(list(gpus), self._metric, self._stop, self._lost)
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
        """Prepares a GPU, in a thread that it may hold up, and gives it to a lane."""
        reader = Reader(
            gpu,
            hz=self._hz,
            stop=self._stop,
            rng=self._rng,
            emit=self._emit,
            settling=self._settling,
            metric=self._metric,
            describe=self._describe,
            guarded=self._guarded_fast,
            lost=self._lost,
            aside=self._aside,
            begun=self._begun,
            joules=self._joules,
        )
        with self._lock:
            before, self._readers[gpu.uuid] = self._readers.get(gpu.uuid), reader
        if before is not None:  # it was lost, and may still be held up inside the driver
            before.retire()
        if self._guarded(gpu, reader.prepare):
            self._lanes.add(reader)
        else:
            self._begun(gpu)  # it never will

    def _aside(self, gpu: Gpu, work: Callable[[Gpu], object]) -> None:
        """Does work on a GPU that takes a while, beside its lane; on one GPU after the other."""

        def alone() -> None:
            with self._one_at_a_time:
                if not self._stop.is_set() and gpu.uuid not in self._lost:
                    self._guarded(gpu, work)

        self._spawn(f"aside-{gpu.index}", alone)

    def _guarded_fast(self, gpu: Gpu, work: Callable[[Gpu], object]) -> bool:
        """Power and state: nothing more is read so of a GPU that is lost, whoever noticed."""
        if gpu.uuid not in self._lost and self._guarded(gpu, work):
            return True
        self._begun(gpu)  # it may have failed before its first row
        return False

    def _begun(self, gpu: Gpu) -> None:
        with self._lock:
            last = self._awaited == {gpu.uuid}
            self._awaited.discard(gpu.uuid)
        if last:
            self._ready()

    def _slow(self) -> None:
        looked: dict[Gpu, _Looks] = {}
        now = time.monotonic_ns()
        failed: set[tuple[Gpu, int]] = set()
        # When, what calls are made ahead of it, and what is done with each GPU.
        ticks: list[tuple[Ticks, Callable[[Gpu], Sequence[Kept]], Callable[[Gpu], object]]] = [
            (Ticks(LIMIT_PERIOD_S, now, self._rng), Gpu.limit_calls, Gpu.read_limit_again),
            (Ticks(MEMORY_PERIOD_S, now, self._rng), Gpu.memory_calls, self._memory),
            (Ticks(SLOWEST_PERIOD_S, now, self._rng), Gpu.seldom_calls, self._seldom),
            (Ticks(CHECK_PERIOD_S, now, self._rng), Gpu.check_calls, lambda gpu: looked[gpu].check()),
        ]
        self._first_looks(looked, failed)
        due = [tick.next(now) for tick, _, _ in ticks]
        while not self._wait_until(min(due)):
            self._first_looks(looked, failed)  # at GPUs that appeared or came back
            for place, (tick, calls, work) in enumerate(ticks):
                if time.monotonic_ns() < due[place]:
                    continue
                here = [gpu for gpu in self._gpus if gpu in looked and gpu.uuid not in self._lost]
                todo = [gpu for gpu in here if (gpu, place) not in failed]
                make_ahead([call for gpu in todo for call in calls(gpu)], self._stop.is_set)
                for gpu in todo:
                    if gpu.uuid in self._lost or self._stop.is_set():
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

    def _memory(self, gpu: Gpu) -> None:
        self._emit(gpu.uuid, gpu.memory())

    def _seldom(self, gpu: Gpu) -> None:
        self._emit(gpu.uuid, gpu.slow_state())
        if not {"nvlink_tx_bytes", "nvlink_rx_bytes"} <= gpu.unsupported.keys():
            self._emit(gpu.uuid, gpu.nvlink())
        if not {"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"} <= gpu.unsupported.keys():
            self._emit(gpu.uuid, gpu.pcie())

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
        processes = self._gpu.processes()
        self._contamination.check(processes)
        self._memory.check(processes)
        if not {"ecc_corrected_errors", "ecc_uncorrected_errors"} <= self._gpu.unsupported.keys():
            self._emit(self._gpu.uuid, memory_errors(self._gpu))
