"""GPUs by UUID: what a framework calls a GPU, as the driver knows it."""

import subprocess
from collections.abc import Sequence


class UnknownGpuError(RuntimeError):
    """A framework names a GPU that the driver does not list: no pool is claimed for any."""


def physical_uuids() -> list[str]:
    """UUIDs in the driver's order (PCI bus), in which CUDA counts too: the launch sets CUDA_DEVICE_ORDER.

    Empty on a machine without a driver.
    """
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in output.splitlines() if line.strip()]


def uuid_of(gpu_id: object, physical: Sequence[str]) -> str:
    """The UUID of a GPU named by an entry of CUDA_VISIBLE_DEVICES: the driver's index, or (the head of) the UUID.

    Raises:
        UnknownGpuError: no GPU of this machine, or more than one, has that name.
    """
    text = str(gpu_id)
    if text.startswith(("GPU-", "MIG-")):
        matches = [uuid for uuid in physical if uuid.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if text.startswith("MIG-"):
            return text  # an instance: the driver's list has whole GPUs, and the tables know which one it is a part of
    elif text.isdigit() and int(text) < len(physical):
        return physical[int(text)]
    raise UnknownGpuError(f"the framework names GPU {text}, the driver lists {len(physical)}")
