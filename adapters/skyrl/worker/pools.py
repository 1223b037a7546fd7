"""Which GPU belongs to which pool and engine, asked of SkyRL's own actors once the models are built."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.child.gpus import UnknownGpuError, physical_uuids, uuid_of
from adapters.child.track import require
from harness.protocol.phases import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOf:
    """One GPU of the run."""

    uuid: str
    pool: str
    engine: str | None  # the server that generates on it


def gpus_of_run(trainer: Any, server_groups: Iterable[Any]) -> list[GpuOf]:
    """The GPUs that train and those that generate; empty on a machine without a driver.

    Raises:
        TapError: SkyRL's actor group or server group lost what is asked.
        UnknownGpuError: an id that no GPU of this machine has.
    """
    physical = physical_uuids()
    if not physical:
        return []
    import ray

    handlers: Any = require(require(trainer, "policy_model"), "_actor_handlers")
    training = [uuid_of(each, physical) for each in ray.get([actor.get_gpu_id.remote() for actor in handlers])]
    engines: dict[str, str] = {}
    for group in server_groups:
        ids: Any = require(group, "_get_gpu_ids_for_server")
        infos: Any = require(group, "server_infos")
        for index, info in enumerate(infos):
            engines |= {uuid_of(each, physical): info.url for each in ids(index) or ()}
    return assign(training, engines, colocated=bool(trainer.colocate_all))


def assign(training: Sequence[str], engines: dict[str, str], *, colocated: bool) -> list[GpuOf]:
    """Pools of UUIDs: `engines` maps those that generate to their server.

    Raises:
        UnknownGpuError: separate pools that share a GPU, or a colocated run whose two sides do not.
    """
    if colocated and set(training) != set(engines):
        raise UnknownGpuError("colocated, but training and engines hold different GPUs")
    if not colocated and set(training) & set(engines):
        raise UnknownGpuError("separate pools, but a GPU both trains and generates")
    train_pool = Pool.BOTH if colocated else Pool.TRAIN
    found = [GpuOf(uuid=uuid, pool=train_pool.value, engine=engines.get(uuid)) for uuid in training]
    if not colocated:
        found += [GpuOf(uuid=uuid, pool=Pool.ROLLOUT.value, engine=engine) for uuid, engine in engines.items()]
    return found
