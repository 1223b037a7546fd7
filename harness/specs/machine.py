"""The GPUs a run could use here: a count and their memory, read from NVML without loading a framework."""

import os
from dataclasses import dataclass


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
        devices = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            devices.append((str(pynvml.nvmlDeviceGetUUID(handle)), _memory_bytes(handle)))
    except pynvml.NVMLError as error:
        return Machine(why=f"no NVIDIA GPU can be used (NVML: {error})")
    finally:
        pynvml.nvmlShutdown()
    visible = _visible(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if len(visible) == len(devices):
        return Machine(gpu_memory_bytes=tuple(visible), why=f"{len(visible)} NVIDIA GPU(s) visible")
    return Machine(
        gpu_memory_bytes=tuple(visible),
        why=f"CUDA_VISIBLE_DEVICES leaves {len(visible)} of {len(devices)} NVIDIA GPU(s) visible",
    )


def _memory_bytes(handle: object) -> int | None:
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:  # integrated memory reports "not supported"
        return None


def _visible(devices: list[tuple[str, int | None]], variable: str | None) -> list[int | None]:
    """CUDA's own rule: indices or UUID prefixes, read up to the first that names nothing."""
    if variable is None:
        return [memory for _, memory in devices]
    chosen: list[int | None] = []
    for name in (part.strip() for part in variable.split(",")):
        if name.isdigit() and int(name) < len(devices):
            chosen.append(devices[int(name)][1])
            continue
        match = [memory for uuid, memory in devices if name.startswith("GPU-") and uuid.startswith(name)]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return chosen
