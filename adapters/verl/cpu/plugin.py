"""Imported by every verl process (VERL_USE_EXTERNAL_MODULES): registers the CPU platform and the CPU engine.

verl ships platforms for CUDA, NPU and ROCm only and calls their memory functions unconditionally.
"""

import contextlib
import functools
import types
from typing import Any

import torch
import verl.utils.distributed as distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.replica import RolloutReplicaRegistry

from adapters.child.track import require

ENGINE = "bench_transformers"


def _zero(*_: Any, **__: Any) -> int:
    return 0


# torch.cpu lacks the memory functions that verl calls on torch.<device>.
_DEVICE = types.SimpleNamespace(
    is_available=lambda: False,
    empty_cache=_zero,
    synchronize=_zero,
    memory_allocated=_zero,
    memory_reserved=_zero,
    max_memory_allocated=_zero,
    max_memory_reserved=_zero,
    reset_peak_memory_stats=_zero,
    mem_get_info=lambda *_: (0, 1),
    current_device=lambda: "cpu",
    device_count=lambda: 1,
    set_device=_zero,
    get_device_name=lambda *_: "CPU",
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    manual_seed=torch.manual_seed,
)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """Chosen by VERL_PLATFORM=cpu, never detected."""

    device_name = "cpu"
    vendor_name = "generic"
    device_module = _DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> Any:
        return "cpu"  # verl hands it to tensor.to()

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None: ...

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # Ray only counts them: ray.init(num_gpus=N) needs no hardware

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _replica() -> Any:
    from adapters.verl.cpu.engine import Replica

    return Replica


def _one_backend() -> None:
    """verl asks for "cpu:gloo,<device>:<backend>", which is cpu twice here, and torch refuses that."""
    real: Any = require(distributed, "initialize_global_process_group_ray")

    @functools.wraps(real)
    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return real(timeout_second, backend or "cpu:gloo")

    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray


RolloutReplicaRegistry.register(ENGINE, _replica)
_classes: Any = require(rollout_base, "_ROLLOUT_REGISTRY")  # a plain dict: there is no function to register with
_classes[ENGINE, "async"] = "adapters.verl.cpu.engine.ServerAdapter"
_one_backend()
