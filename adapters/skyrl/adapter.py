"""SkyRL's parent half: what it can do, and how its process is started."""

from collections.abc import Mapping
from pathlib import Path

from adapters.base import Environment, Launch
from adapters.skyrl.environment import ENGINE, environment
from adapters.skyrl.fairness import fairness
from adapters.skyrl.overrides import overrides
from adapters.skyrl.phases import PHASES
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Load, Placement, RunSpec

NEVER_ON_GPU = "never on GPU"
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # Ray starts its workers lazily; importing torch and vLLM can take a minute each on a busy machine.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_DEDUP_LOGS": "0",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # Ray's GPU ids then are the driver's, which name UUIDs
}
CPU_ENV = {
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


class SkyRL:
    """The adapter of skyrl 0.4.0."""

    name = "skyrl"
    framework_version = "0.4.0"
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
        """vLLM, the one that SkyRL is run with here."""
        return (ENGINE,)

    def environment(self, device: Device, engine: str) -> Environment | None:
        """The virtual environment with SkyRL's pins for that device."""
        return environment(device, engine)

    def supports(self, spec: RunSpec) -> str | None:
        """None when SkyRL can do what is asked, else the reason it can't."""
        if spec.engine != "vllm":
            return f"engine = {spec.engine}: skyrl 0.4.0 generates with vllm only"
        speculative = [key for key in spec.overrides if "speculative" in key or key.startswith("trainer.mtp")]
        if speculative and spec.load is Load.FIXED:
            return f"override {speculative[0]}: load = fixed imposes lengths, so speculative decoding is refused"
        if spec.gpus.train % spec.nodes:
            return f"gpus.train = {spec.gpus.train}: must divide evenly over nodes = {spec.nodes}"
        if spec.device is Device.CPU and (spec.gpus.train, spec.gpus.rollout) != (1, 1):
            return f"gpus = {spec.gpus}: on cpu one training process and one engine are run, so --gpus 1 or 1+1"
        if spec.trajectories_per_step % spec.gpus.train:
            return (
                f"batch_size x group_size = {spec.trajectories_per_step}: skyrl needs a multiple of the "
                f"{spec.gpus.train} training GPUs"
            )
        return None

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """How to start SkyRL's process for a run."""
        env = {**ENV, **(CPU_ENV if spec.device is Device.CPU else {})}
        settings = overrides(spec, run_dir)
        return Launch(
            arguments=("-m", "adapters.skyrl.worker", str(run_dir / "spec.json")),
            env=env,
            notes=(*settings, f"trainer.policy.model.path=<{spec.model}, resolved at start>"),
            fairness=fairness(spec, settings),
        )


ADAPTER = SkyRL()
