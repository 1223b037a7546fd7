"""CUDA_VISIBLE_DEVICES: which GPUs a CUDA program sees, by index, by UUID and by MIG instance.

NVML's index, CUDA's index and the minor number of /dev/nvidiaN are three numberings. NVML counts in PCI bus order.
CUDA does so only with CUDA_DEVICE_ORDER=PCI_BUS_ID; its default puts the fastest GPU first, which on GPUs of one model
is the bus order again. The minor number follows neither (CUDA C++ Programming Guide, "CUDA Environment Variables").
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
_OLD_MIG = re.compile(r"^MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)$")  # drivers before R470


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: its own UUID, GPU instance and compute instance."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as NVML lists it; the place in a list of devices is NVML's index."""

    uuid: str
    name: str = ""
    mig: tuple[Instance, ...] = ()
    mig_mode: bool = False  # it is on: without an instance, CUDA can't use this GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What a program sees: (UUID of the GPU, UUID of the MIG instance or None) in CUDA's order.

    `doubt` says why an index may mean another GPU than the one given here; `ignored` are entries that CUDA does not
    reach, because one before them names nothing.
    """

    gpus: tuple[tuple[str, str | None], ...]
    doubt: str | None = None
    ignored: tuple[str, ...] = ()


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Visible:
    """The GPUs that a program with this environment sees.

    CUDA reads the list up to the first entry that names nothing; one GPU named twice leaves none at all. Whether or not
    there is a list: a program sees at most one MIG instance, the first of those it could see, and beside it no whole
    GPU (CUDA C++ Programming Guide; MIG User Guide, "CUDA Device Enumeration").
    """
    text = environ.get(VARIABLE)
    if text is None:
        return Visible(gpus=tuple(_mig_alone(devices, [(device.uuid, None) for device in devices])))
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    found: list[tuple[str, str | None]] = []
    for place, entry in enumerate(entries):
        one = _named(devices, entry)
        if one is None or one in found:
            kept = () if one is not None else tuple(_mig_alone(devices, found))
            return Visible(gpus=kept, doubt=_doubt(devices, entries, environ), ignored=tuple(entries[place:]))
        found.append(one)
    return Visible(gpus=tuple(_mig_alone(devices, found)), doubt=_doubt(devices, entries, environ))


def _named(devices: Sequence[Device], entry: str) -> tuple[str, str | None] | None:
    if entry.isdigit():
        return (devices[int(entry)].uuid, None) if int(entry) < len(devices) else None
    if old := _OLD_MIG.match(entry):
        gi, ci = int(old[2]), int(old[3])
        matches = [
            (device.uuid, one.uuid)
            for device in devices
            for one in device.mig
            if device.uuid == old[1] and (one.gpu_instance, one.compute_instance) == (gi, ci)
        ]
    elif entry.startswith("MIG-"):
        matches = [(device.uuid, one.uuid) for device in devices for one in device.mig if one.uuid.startswith(entry)]
    elif entry.startswith("GPU-"):
        return _single([(device.uuid, None) for device in devices if device.uuid.startswith(entry)])
    else:
        return None
    return _single(matches)


def _single(matches: "Sequence[tuple[str, str | None]]") -> tuple[str, str | None] | None:
    return matches[0] if len(matches) == 1 else None  # the head of two UUIDs names neither


def _mig_alone(devices: Sequence[Device], found: Sequence[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """A GPU that is cut into instances is its first one; none of it without."""
    cut = {device.uuid: device for device in devices if device.mig or device.mig_mode}
    left: list[tuple[str, str | None]] = []
    for gpu, instance in found:
        if instance is not None or gpu not in cut:
            left.append((gpu, instance))
        elif cut[gpu].mig:
            left.append((gpu, cut[gpu].mig[0].uuid))
    return [one for one in left if one[1] is not None][:1] or left


def _doubt(devices: Sequence[Device], entries: Sequence[str], environ: Mapping[str, str]) -> str | None:
    by_index = any(entry.isdigit() for entry in entries)
    if not by_index or environ.get(ORDER_VARIABLE) == "PCI_BUS_ID" or len({device.name for device in devices}) < 2:
        return None
    return f"GPUs of several models, named by index without {ORDER_VARIABLE}=PCI_BUS_ID: CUDA counts the fastest first"
