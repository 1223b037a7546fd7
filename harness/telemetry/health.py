"""What a GPU says about itself beside its readings: memory errors, Xid errors, MIG instances, memory by process."""

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import pynvml

from harness.protocol.events import Scalar
from harness.telemetry.kept_calls import function
from harness.telemetry.nvml import Gpu
from harness.telemetry.values import Reading, Timed, reason_of

WAIT_MS = 500  # one wait for an event; the end of the sampler waits for no longer
MEMORY_STEP = 64 * 2**20  # bytes by which the memory of a process must change to be told again

_ECC = {
    "ecc_corrected_errors": pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    "ecc_uncorrected_errors": pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
}
_EVENTS = {
    pynvml.nvmlEventTypeXidCriticalError: "telemetry.xid",
    pynvml.nvmlEventTypeDoubleBitEccError: "telemetry.ecc_uncorrected",
}

Tell = Callable[[str, float | None, str, Mapping[str, Scalar]], None]  # name, value, unit, labels


def memory_errors(gpu: Gpu) -> Timed:
    """Errors of all the GPU's memories since the driver was loaded; None where ECC is off or not there.

    Raises:
        GpuLostError: the GPU is gone.
    """
    begin_ns = time.monotonic_ns()
    wanted = {name: id_ for name, id_ in _ECC.items() if name not in gpu.unsupported}
    answers = gpu.field_values({name: (id_, 0) for name, id_ in wanted.items()})
    values: Reading = dict.fromkeys(_ECC)
    for name, (raw, code) in answers.items():
        if code != pynvml.NVML_SUCCESS:
            gpu.nothing(name, code)
        else:
            values[name] = raw
    return Timed(begin_ns, time.monotonic_ns(), values)


def mig_instances(gpu: Gpu) -> list[dict[str, Any]]:
    """UUID, GPU instance, compute instance and memory (bytes) of each MIG instance; none where MIG is off.

    Raises:
        GpuLostError: the GPU is gone.
    """
    if not gpu.mig_enabled():
        return []
    count = gpu.read("mig_instances", pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
    found = []
    for place in range(count):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, place)
            found.append(
                {
                    "uuid": pynvml.nvmlDeviceGetUUID(handle),
                    "gpu_instance": pynvml.nvmlDeviceGetGpuInstanceId(handle),
                    "compute_instance": pynvml.nvmlDeviceGetComputeInstanceId(handle),
                    "memory_total_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                }
            )
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:  # a place without an instance
                gpu.nothing("mig_instances", error.value)
    return found


class ProcessMemory:
    """GPU memory of each process of one GPU, told when it changes."""

    def __init__(self, gpu: Gpu, tell: Tell) -> None:
        self._gpu = gpu
        self._tell = tell
        self._told: dict[int, int | None] = {}

    def check(self, found: Mapping[int, int | None] | None) -> None:
        """Tells `telemetry.process_memory` (bytes; None: the driver does not say) of what changed; 0: it ended.

        `found`: bytes by pid; None: that cannot be read.
        """
        if found is None:
            return
        for pid, memory in found.items():
            if pid not in self._told or _differ(self._told[pid], memory):
                self._note(pid, memory)
        for pid in set(self._told) - set(found):
            self._note(pid, 0)
            del self._told[pid]

    def _note(self, pid: int, memory: int | None) -> None:
        self._told[pid] = memory
        value = None if memory is None else float(memory)
        self._tell("telemetry.process_memory", value, "byte", {"gpu": self._gpu.uuid, "pid": pid})


class ErrorEvents(threading.Thread):
    """Waits for Xid and double-bit ECC errors of some GPUs, and tells each as a metric when it happens."""

    def __init__(self, gpus: Sequence[Gpu], tell: Tell, stop: threading.Event, lost: Container[str] = ()) -> None:
        """`lost`: UUIDs of GPUs that are. One that comes back is another thread's, which listens to it anew."""
        super().__init__(name="errors", daemon=True)
        self._gpus = gpus
        self._lost = lost
        self._uuids = {_address(gpu.handle): gpu.uuid for gpu in gpus}  # one that fell off the bus tells none
        self._tell = tell
        self._stopped = stop
        self._unseen = False  # a loss ended the last wait, and no one knew yet whose
        self._told_lost = False

    def run(self) -> None:
        """Ends when told to stop, when no GPU can report errors, or when the driver stops answering."""
        gpus = self._gpus
        while gpus and not self._stopped.is_set():
            gpus = self._listen(gpus)

    def _listen(self, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
        """Until one is lost; those of them to listen to then, without it.

        As long as a lost one is among them the driver ends each wait at once, and tells nothing of the others.
        """
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            for gpu in gpus:
                gpu.nothing("xid", error.value)
            return ()
        try:
            listening = [gpu for gpu in gpus if self._register(gpu, events)]
            if self._unseen and len(listening) == len(gpus):
                self._tell_lost()
                self._stopped.wait(WAIT_MS / 1000)
            event = pynvml.c_nvmlEventData_t()
            # Not through nvidia-ml-py: nearly each wait ends with no event, which it makes an exception of.
            wait = functools.partial(function("nvmlEventSetWait_v2"), events, ctypes.byref(event), WAIT_MS)
            while listening and not self._stopped.is_set():
                code = wait()
                if not code:
                    self._take(event)
                elif code in (pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_GPU_IS_LOST):
                    here = [gpu for gpu in listening if gpu.uuid not in self._lost]  # a loss may be seen elsewhere
                    self._unseen = code == pynvml.NVML_ERROR_GPU_IS_LOST and len(here) == len(listening)
                    if self._unseen or len(here) < len(listening):
                        return here
                else:
                    for gpu in listening:
                        gpu.nothing("xid", code)
                    return ()
            return ()
        finally:
            _free(events)

    def _register(self, gpu: Gpu, events: Any) -> bool:
        wanted = sum(_EVENTS)
        try:
            supported = wanted & int(pynvml.nvmlDeviceGetSupportedEventTypes(gpu.handle))
            if not supported & pynvml.nvmlEventTypeXidCriticalError:
                gpu.nothing("xid", pynvml.NVML_ERROR_NOT_SUPPORTED)
                return False
            pynvml.nvmlDeviceRegisterEvents(gpu.handle, supported, events)
        except pynvml.NVMLError as error:
            gpu.nothing("xid", error.value)
            return False
        return True

    def _take(self, event: Any) -> None:
        name = _EVENTS.get(event.eventType)
        if name is not None:
            value = float(event.eventData) if name == "telemetry.xid" else None
            self._tell(name, value, "", {"gpu": self._uuids.get(_address(event.device)) or _uuid(event.device)})

    def _tell_lost(self) -> None:
        """Once: one is lost, and none says that it is the one."""
        if not self._told_lost:
            self._told_lost = True
            reason = reason_of(pynvml.NVML_ERROR_GPU_IS_LOST)
            self._tell("telemetry.unsupported", None, "", {"field": "xid", "reason": reason})


def _differ(before: int | None, now: int | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) >= MEMORY_STEP


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _uuid(device: Any) -> str | None:
    try:
        return str(pynvml.nvmlDeviceGetUUID(device))
    except pynvml.NVMLError:
        return None  # gone with its error


def _free(events: Any) -> None:
    try:
        pynvml.nvmlEventSetFree(events)
    except pynvml.NVMLError:
        return
