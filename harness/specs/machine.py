"""The GPUs a run could use here: a count and their memory, read from NVML without loading a framework."""

import os
from dataclasses import dataclass

from harness.protocol.visible import VARIABLE, Device, Instance, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Visible GPUs. `gpu_memory_bytes` has one entry per GPU, None where the driver does not say."""

    gpu_memory_bytes: tuple[int | None, ...] = ()
    why: str = ""  # what was seen, for the line that says which device was chosen

    @property
    def gpus(self) -> int:
        """Visible GPUs."""
        return len(self.gpu_memory_bytes)

    @property
    def smallest_gpu_bytes(self) -> int | None:
        """Memory of the smallest visible GPU; None without one, or when any is unknown."""
        known = [memory for memory in self.gpu_memory_bytes if memory is not None]
        return min(known) if known and len(known) == self.gpus else None


def probe_machine() -> Machine:
    """Asks NVML, and honours CUDA_VISIBLE_DEVICES as the frameworks will. Never raises: no driver means no GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Machine(why=f"no NVIDIA GPU is visible (NVML: {error})")
    try:
        devices, memory = _listed()
    except pynvml.NVMLError as error:
        return Machine(why=f"no NVIDIA GPU can be used (NVML: {error})")
    finally:
        pynvml.nvmlShutdown()
    seen = visible(devices, os.environ)
    found = tuple(memory[instance or gpu] for gpu, instance in seen.gpus)
    why = f"{len(found)} NVIDIA GPU(s) visible"
    if VARIABLE in os.environ and len(found) < len(devices):
        why = f"{VARIABLE} leaves {len(found)} of {len(devices)} NVIDIA GPU(s) visible"
    if any(instance for _, instance in seen.gpus):
        why = "MIG is on: a program sees one instance, and no whole GPU beside it"
    return Machine(gpu_memory_bytes=found, why=f"{why}; {seen.doubt}" if seen.doubt else why)


def _listed() -> tuple[list[Device], dict[str, int | None]]:
    """The GPUs in NVML's order, and the memory (bytes) of each GPU and MIG instance by UUID."""
    import pynvml

    devices, memory = [], {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        memory[uuid] = _memory_bytes(handle)
        instances, mig_mode = [], _mig_mode(handle)
        for one in _mig_handles(handle) if mig_mode else ():
            name = str(pynvml.nvmlDeviceGetUUID(one))
            places = pynvml.nvmlDeviceGetGpuInstanceId(one), pynvml.nvmlDeviceGetComputeInstanceId(one)
            instances.append(Instance(uuid=name, gpu_instance=places[0], compute_instance=places[1]))
            memory[name] = _memory_bytes(one)
        name = str(pynvml.nvmlDeviceGetName(handle))
        devices.append(Device(uuid=uuid, name=name, mig=tuple(instances), mig_mode=mig_mode))
    return devices, memory


def _mig_mode(handle: object) -> bool:
    import pynvml

    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:  # a GPU that has no such mode
        return False


def _mig_handles(handle: object) -> list[object]:
    import pynvml

    try:
        count = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return []
    found = []
    for place in range(count):
        try:
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
        except pynvml.NVMLError:  # no instance in this place
            continue
    return found


def _memory_bytes(handle: object) -> int | None:
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # integrated memory reports "not supported"
        return None
