"""SkyRL's FSDP workers on CPU: gloo instead of NCCL, "cpu" where the code says "cuda".

The patches are applied inside each training actor, and fail by name when a patch point is gone.
"""

import contextlib
import datetime
import os
from typing import Any

import ray
import torch

from adapters.child.track import require
from adapters.skyrl.worker.client import tap_actor_client

CPU = torch.device("cpu")


def patch_torch_cuda() -> None:
    """SkyRL moves tensors to torch.cuda.current_device() and synchronises unconditionally (worker, fsdp_strategy).

    device_count() is left alone: a fake one makes torch.accelerator available, and AdamW then initialises CUDA.
    """
    cuda: Any = torch.cuda
    cuda.current_device = lambda: CPU
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed_all"):
        require(cuda, name)
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.mem_get_info = lambda *args: (0, 1)
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *args, **kwargs: self  # fsdp_utils moves non-persistent buffers with .cuda()


def patch_device_mesh() -> None:
    """SkyRL builds its device meshes with a literal "cuda"."""
    import torch.distributed.device_mesh as device_mesh
    from skyrl.backends.skyrl_train.distributed import fsdp_utils

    real: Any = require(device_mesh, "init_device_mesh")
    require(fsdp_utils, "init_device_mesh")

    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return real("cpu", *args, **kwargs)

    device_mesh.init_device_mesh = init_device_mesh
    fsdp_utils.init_device_mesh = init_device_mesh


def patch_autocast() -> None:
    """Workers wrap the forward in torch.autocast("cuda"); the CPU run is fp32 throughout."""
    real: Any = torch.autocast

    class Autocast(real):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return contextlib.nullcontext()

    torch.autocast = Autocast


class CPUWorkerMixin:
    """Put before an FSDP worker base: its process group is gloo's, and nothing is pinned to a GPU's NUMA node."""

    cfg: Any
    strategy: Any
    optimizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        patch_torch_cuda()
        patch_device_mesh()
        patch_autocast()
        super().__init__(*args, **kwargs)
        if not self.cfg.placement.colocate_all:
            tap_actor_client()

    def init_worker_process_group(self) -> None:
        """As the base's, which asks for "cpu:gloo,cuda:nccl" unless a group is there."""
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
        super().init_worker_process_group()  # type: ignore[misc]

    def offload_to_cpu(self, offload_optimizer: bool = True, offload_model: bool = True) -> None:
        """As the base's, without NUMA pinning, which divides by torch.cuda.device_count()."""
        module = self._get_module_for_offload()  # type: ignore[attr-defined]
        self.strategy.offload_to_cpu(
            module, self.optimizer, offload_optimizer=offload_optimizer, offload_model=offload_model
        )


def install_workers() -> None:
    """Replaces the worker classes that SkyRL's entry point is about to import by name.

    Raises:
        TapError: a worker class is gone.
    """
    from skyrl.backends.skyrl_train.workers.fsdp import fsdp_worker

    for role in ("Policy", "Critic", "Ref"):
        base: Any = require(fsdp_worker, f"FSDP{role}WorkerBase")
        require(fsdp_worker, f"{role}Worker")
        subclass = type(f"CPU{base.__name__}", (CPUWorkerMixin, base), {"__module__": __name__})
        setattr(fsdp_worker, f"{role}Worker", ray.remote(num_gpus=1)(subclass))


def declare_logical_gpus(count: int) -> None:
    """Makes ray.init declare `count` GPUs: SkyRL's placement groups ask for GPU bundles, and Ray only counts them."""
    real: Any = require(ray, "init")

    def init(**kwargs: Any) -> Any:
        return real(num_cpus=16, num_gpus=count, include_dashboard=False, **kwargs)

    ray.init = init
