"""Which GPU belongs to which pool, asked of verl's workers once the models are built."""

from typing import Any

from adapters.child.gpus import physical_uuids, uuid_of
from harness.protocol.phases import Pool


def gpu_pools(train_workers: list[Any], rollout_workers: list[Any]) -> dict[str, str]:
    """UUID -> pool; empty without a GPU. Without rollout workers of their own the training GPUs do both.

    Raises:
        UnknownGpuError: a worker's GPU that this machine's driver does not list.
    """
    uuids = physical_uuids()
    if not uuids:
        return {}
    import ray

    pools: dict[str, str] = {}
    train = Pool.TRAIN if rollout_workers else Pool.BOTH
    for workers, pool in ((rollout_workers, Pool.ROLLOUT), (train_workers, train)):
        held = ray.get([worker.__ray_call__.remote(lambda self: ray.get_gpu_ids()) for worker in workers])
        for gpu_id in (gpu_id for ids in held for gpu_id in ids):
            pools[uuid_of(gpu_id, uuids)] = pool.value
    return pools
