"""verl's parent half: what it can do, and how its process is started.

Placements are modes of verl's one V1 trainer: `sync` is colocated; `separate_async` with `hybrid_engine` off is a true
split, async with run-ahead and disaggregated without. Its third mode, `colocate_async`, is none of ours: training and
engines share the same GPUs in turn, and what is being generated when training begins is aborted and resumed after it
(partial rollouts), so data may be stale although no pool is separate.
"""

from collections.abc import Mapping
from pathlib import Path

from adapters.base import Environment, Launch
from adapters.verl.environment import CPU_ENGINE, GPU_ENGINES, environment
from adapters.verl.fairness import fairness
from adapters.verl.overrides import (
    AGENT_LOOPS,
    AGENT_LOOPS_TEXT,
    SGLANG_KEEPS_BACK,
    differences,
    longest_tokens,
    overrides,
)
from adapters.verl.phases import PHASES
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Load, Placement, RunSpec

NEVER_ON_GPU = "never on GPU"
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_DEDUP_LOGS": "0",
    # 0.9.1's separate_async logs with an argument that logging refuses, and dies of it unless INFO is off.
    "VERL_LOGGING_LEVEL": "WARN",
    "VERL_USE_EXTERNAL_PLUGINS": "none",
    "TRANSFER_QUEUE_ENABLE": "1",
}
CPU_ENV = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # verl registers its FSDP engine for cuda and npu only; its code runs anywhere
    "VERL_USE_EXTERNAL_MODULES": "adapters.verl.cpu.plugin",
    # Ray runs its workers at nice 15 and starts one per logical CPU beforehand: on a small machine they starve.
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
}


class Verl:
    """The adapter of verl 0.9.1."""

    name = "verl"
    framework_version = "0.9.1"
    phases: Mapping[str, Phase | None] = PHASES
    computes = True
    verified_on: Mapping[tuple[str, str], str] = {
        (placement.value, device.value): (
            "2026-11-29, 2-core CPU" if device is Device.CPU else f"{NEVER_ON_GPU} (configuration validated)"
        )
        for placement in Placement
        for device in Device
    }

    def engines(self, device: Device) -> tuple[str, ...]:
        """vLLM; on GPUs SGLang too, and on CPU transformers, which is what vLLM means there."""
        return GPU_ENGINES if device is Device.CUDA else (GPU_ENGINES[0], CPU_ENGINE)

    def environment(self, device: Device, engine: str) -> Environment | None:
        """The virtual environment with verl's pins for that device and engine."""
        return environment(device, engine)

    def supports(self, spec: RunSpec) -> str | None:
        """None when verl can do what is asked, else the reason it can't."""
        on_cpu = spec.device is Device.CPU
        if (reason := _engine(spec)) is not None:
            return reason
        if spec.gpus.train % spec.nodes:
            return f"gpus.train = {spec.gpus.train}: must divide evenly over nodes = {spec.nodes}"
        if spec.gpus.rollout % spec.nodes:
            return f"gpus.rollout = {spec.gpus.rollout}: must divide evenly over nodes = {spec.nodes}"
        if on_cpu and (spec.gpus.train, spec.gpus.rollout) != (1, 1):
            return f"gpus = {spec.gpus}: on cpu one training process and one engine are run, so --gpus 1 or 1+1"
        if spec.trajectories_per_step % spec.gpus.train:
            return (
                f"batch_size x group_size = {spec.trajectories_per_step}: verl fills up to a multiple of the "
                f"{spec.gpus.train} training GPUs with padding rows"
            )
        if not on_cpu and spec.fault("no-sync") is not None:
            return "faults = no-sync: planted in the CPU engine only"
        return None

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """How to start verl's process for a run."""
        env = {**ENV, **(CPU_ENV if spec.device is Device.CPU else {})}
        settings = overrides(spec, run_dir)
        return Launch(
            arguments=("-m", "adapters.verl.worker", str(run_dir / "spec.json")),
            env=env,
            files={AGENT_LOOPS: AGENT_LOOPS_TEXT},
            notes=(
                *settings,
                f"actor_rollout_ref.model.path=<{spec.model}, resolved at start>",
                *(f"differs: {text}" for text in differences(spec)),
            ),
            fairness=fairness(spec, settings),
        )


def _engine(spec: RunSpec) -> str | None:
    """Why verl can't generate with the engine that is asked for; None where it can."""
    if spec.device is Device.CPU:
        if spec.engine == "sglang":
            return (
                "engine = sglang: the SGLang that verl 0.9.1 pins (0.5.12) is published for CUDA only, so on cpu verl "
                "generates with transformers in its place; leave --engine out"
            )
        if spec.engine not in ("vllm", CPU_ENGINE):
            return f"engine = {spec.engine}: on cpu verl 0.9.1 generates with {CPU_ENGINE}, in vllm's place"
        return None
    if spec.engine not in GPU_ENGINES:
        return f"engine = {spec.engine}: verl 0.9.1 is built here with {' or '.join(GPU_ENGINES)} on cuda"
    keeps_back = spec.engine == "sglang" and spec.load is Load.FIXED  # a live load ends before what is kept back
    if keeps_back and spec.context_tokens - (longest := longest_tokens(spec)) < SGLANG_KEEPS_BACK:
        return (
            f"context_tokens = {spec.context_tokens:,}: SGLang keeps the last {SGLANG_KEEPS_BACK} tokens of a context "
            f"back and would cut the longest planned trajectory ({longest:,} tokens); at least "
            f"{longest + SGLANG_KEEPS_BACK:,}"
        )
    return None


ADAPTER = Verl()
