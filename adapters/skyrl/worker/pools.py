"""Which GPU belongs to which pool, asked of Ray once the models are built."""

import subprocess
from typing import Any

import ray

from adapters.child.track import require
from harness.protocol.phases import Pool


def gpu_uuids() -> list[str]:
    """UUIDs of the GPUs this process may see, in CUDA's order of device ids; empty without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return []
    return [f"GPU-{torch.cuda.get_device_properties(i).uuid}" for i in range(torch.cuda.device_count())]


def gpu_pools(trainer: Any) -> dict[str, str]:
    """UUID -> pool. The training actors are asked which GPU they hold; with separate pools the rest generate."""
    uuids = _physical_uuids()
    if not uuids:
        return {}
    require(trainer.policy_model, "_actor_handlers")
    held = ray.get([actor.get_gpu_id.remote() for actor in trainer.policy_model._actor_handlers])
    training = {int(index) for index in held}
    if trainer.colocate_all:
        return {uuids[index]: Pool.BOTH.value for index in training if index < len(uuids)}
    used = len(training) + trainer.spec.gpus.rollout
    return {
        uuid: (Pool.TRAIN if index in training else Pool.ROLLOUT).value
        for index, uuid in enumerate(uuids[: max(used, len(training))])
    }


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
