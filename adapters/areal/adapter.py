"""AReaL's parent half: what it can do, and how its process is started."""

from collections.abc import Mapping
from pathlib import Path

from adapters.areal.environment import ENGINES, environment
from adapters.areal.fairness import fairness
from adapters.areal.overrides import DIFFERENCES, overrides
from adapters.areal.phases import PHASES
from adapters.base import Environment, Launch
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Load, Offload, Placement, RunSpec

NEVER_ON_GPU = "never on GPU"
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # AReaL's GPU numbers then are the driver's, which name UUIDs
}
CPU_ENV = {
    "OMP_NUM_THREADS": "1",
    # AReaL compiles its log-probability kernels; without a GPU that is minutes of C++ for nothing.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
COLOCATED_ON_GPU = (
    "device = cuda: AReaL 1.0.4 sends the new weights to an engine that is still asleep, and whether sleeping engines "
    "keep them is unverified on a GPU; what is missing is a run there whose weight sync is proven. Use --placement "
    "disaggregated or async, or --unverified to make that run"
)


class AReaL:
    """The adapter of areal 1.0.4."""

    name = "areal"
    framework_version = "1.0.4"
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
        """vLLM; on GPUs SGLang too."""
        return ENGINES if device is Device.CUDA else ENGINES[:1]

    def environment(self, device: Device, engine: str) -> Environment | None:
        """The virtual environment with AReaL's pins for that device and engine."""
        return environment(device, engine)

    def supports(self, spec: RunSpec) -> str | None:
        """None when AReaL can do what is asked, else the reason it can't."""
        if spec.engine not in ENGINES:
            return f"engine = {spec.engine}: areal 1.0.4 generates with {' or '.join(ENGINES)}"
        if spec.device is Device.CPU and spec.engine != "vllm":
            return f"engine = {spec.engine}: on cpu only vllm is built and run"
        if environment(spec.device, spec.engine) is None:
            return (
                f"engine = {spec.engine}: no pins of areal with it on {spec.device.value} are kept here yet, use vllm"
            )
        speculative = [key for key in spec.overrides if "speculative" in key]
        if speculative and spec.load is Load.FIXED:
            return f"override {speculative[0]}: load = fixed imposes lengths, so speculative decoding is refused"
        if spec.ray_address:
            return f"ray_address = {spec.ray_address}: areal's local scheduler, the one used here, starts no Ray"
        if spec.nodes != 1:
            return f"nodes = {spec.nodes}: areal's local scheduler, the one used here, has one node"
        if spec.device is Device.CPU and (spec.gpus.train, spec.gpus.rollout) != (1, 1):
            return f"gpus = {spec.gpus}: on cpu one training process and one engine are run, so --gpus 1 or 1+1"
        if spec.device is Device.CPU and spec.offload is not Offload.NONE:
            return f"offload = {spec.offload.value}: nothing to offload on cpu, so none"
        if spec.batch_size % spec.gpus.train:
            return (
                f"batch_size = {spec.batch_size}: areal deals whole groups to its {spec.gpus.train} training GPUs, "
                "so a multiple of them"
            )
        if spec.placement is Placement.COLOCATED:
            if spec.rollout_tp != 1:
                return f"rollout_tp = {spec.rollout_tp}: colocated, areal forks one engine per training GPU, so 1"
            if spec.device is Device.CUDA and not spec.unverified:
                return COLOCATED_ON_GPU
        return None

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """How to start AReaL's controller for a run."""
        env = {**ENV, **(CPU_ENV if spec.device is Device.CPU else {}), "AREAL_CACHE_DIR": f"{run_dir}/scratch/cache"}
        if spec.device is Device.CUDA and spec.placement is Placement.COLOCATED:
            env["VLLM_SERVER_DEV_MODE"] = "1"  # /sleep and /wake_up are routes of vLLM's development mode
        settings = overrides(spec, run_dir)
        return Launch(
            arguments=("-m", "adapters.areal.worker", str(run_dir / "spec.json")),
            env=env,
            notes=(
                *settings,
                f"actor.path=<{spec.model}, resolved at start>",
                *(f"differs: {difference}" for difference in DIFFERENCES),
            ),
            fairness=fairness(spec, settings),
        )


ADAPTER = AReaL()
