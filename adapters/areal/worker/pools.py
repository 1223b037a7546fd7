"""Which GPU belongs to which pool and engine, read off what AReaL's scheduler has handed out."""

from collections.abc import Iterator, Sequence
from typing import Any

from adapters.child.gpus import physical_uuids, uuid_of
from adapters.child.track import require
from harness.protocol.events import Scalar
from harness.protocol.phases import Pool


def gpu_labels(scheduler: Any, engines: Sequence[str], *, colocated: bool) -> list[dict[str, Scalar]]:
    """Labels of one `gpu.pool` metric per GPU; empty on a machine without a driver.

    Args:
        scheduler: AReaL's LocalScheduler; a worker's `gpu_devices` are the driver's indices.
        engines: address of the engine of each rollout worker, in order.

    Raises:
        TapError: the scheduler lost its table of workers.
        UnknownGpuError: an index that this machine's driver does not list.
    """
    workers: Any = require(scheduler, "_workers")
    physical = physical_uuids()
    if not physical:
        return []
    found: dict[str, dict[str, Scalar]] = {}
    for worker in workers.get("actor", ()):
        for uuid in _uuids(worker, physical):
            found[uuid] = {"uuid": uuid, "pool": (Pool.BOTH if colocated else Pool.TRAIN).value}
    for worker, engine in zip(workers.get("rollout", ()), engines, strict=True):
        for uuid in _uuids(worker, physical):
            found.setdefault(uuid, {"uuid": uuid, "pool": Pool.ROLLOUT.value})["engine"] = engine
    return list(found.values())


def _uuids(worker: Any, physical: Sequence[str]) -> Iterator[str]:
    for index in require(worker, "gpu_devices"):  # type: ignore[attr-defined]
        yield uuid_of(index, physical)
