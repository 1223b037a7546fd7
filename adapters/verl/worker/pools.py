"""Which GPU belongs to which pool, asked of verl's workers once the models are built."""

import subprocess
from typing import Any

from harness.protocol.phases import Pool


def gpu_pools(train_workers: list[Any], rollout_workers: list[Any]) -> dict[str, str]:
    """UUID -> pool; empty without a GPU. Without rollout workers of their own the training GPUs do both."""
    uuids = _physical_uuids()
    if not uuids:
        return {}
    import ray

    pools: dict[str, str] = {}
    train = Pool.TRAIN if rollout_workers else Pool.BOTH
    for workers, pool in ((rollout_workers, Pool.ROLLOUT), (train_workers, train)):
        held = ray.get([worker.__ray_call__.remote(lambda self: ray.get_gpu_ids()) for worker in workers])
        for index in (int(index) for indices in held for index in indices):
            if index < len(uuids):
                pools[uuids[index]] = pool.value
    return pools


def _physical_uuids() -> list[str]:
    """UUIDs by the driver's index, which is what Ray's GPU ids count when no device is hidden."""
    try:
        output = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in output.splitlines() if line.strip()]
