"""`simulated`, parent half: plays plans through the real protocol, and computes nothing."""

from collections.abc import Mapping
from pathlib import Path

from adapters.base import FAIRNESS, Environment, Launch
from adapters.simulated.faults import Faults
from adapters.simulated.virtual import OVERRIDE, VIRTUAL, choose
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Load, Placement, Policy, RunSpec
from workloads.deep_research.presets import PRESETS


class SimulatedAdapter:
    """No framework: waits stand for work, in virtual time where they can (`-o clock=real`: not).

    `latency_scale` scales the tools' latencies and no other.
    """

    name: str = "simulated"
    framework_version: str = "simulated 2"
    computes = False
    phases: Mapping[str, Phase | None] = {
        "step": None,
        "trajectory": None,
        "generate": Phase.GENERATION,
        "turn": Phase.GENERATION,
        "tool": Phase.TOOL,
        "reward": Phase.REWARD,
        "wait_for_batch": Phase.WAIT_ROLLOUT,
        "wait_for_groups": Phase.WAIT_ROLLOUT,
        "make_batch": Phase.DATA,
        "load_optimizer": Phase.OFFLOAD,
        "offload_optimizer": Phase.OFFLOAD,
        "logprob": Phase.LOGPROB,
        "advantage": Phase.ADVANTAGE,
        "train": Phase.TRAIN,
        "weight_sync": Phase.WEIGHT_SYNC,
        "update_weights": Phase.WEIGHT_SYNC,
        "probe": Phase.OVERHEAD,
        "log_step": Phase.OVERHEAD,
    }
    verified_on: Mapping[tuple[str, str], str] = {
        (placement.value, device.value): "simulated: computes nothing on any device"
        for placement in Placement
        for device in Device
    }

    def engines(self, device: Device) -> tuple[str, ...]:
        """None: waits stand for what an engine does."""
        return ("none",)

    def environment(self, device: Device, engine: str) -> Environment | None:
        """None: the harness's own Python runs it."""
        return None

    def supports(self, spec: RunSpec) -> str | None:
        """None for every placement and device with a plan or a script to follow; else what is wrong."""
        if spec.load is Load.LIVE and spec.policy is Policy.MODEL:
            return "load = live: there is no model to decide; allowed with it is policy = scripted"
        if spec.preset not in PRESETS and not spec.preset_definition:
            return f"preset = {spec.preset}: allowed is one of {', '.join(PRESETS)}"
        if spec.engine not in (engines := self.engines(spec.device)):
            return f"engine = {spec.engine}: there is no engine in it; allowed is {' or '.join(engines)}"
        if spec.ray_address:
            return f"ray_address = {spec.ray_address}: there is no Ray in it"
        unknown = [name for name in spec.overrides if name != OVERRIDE]
        if unknown:
            return f"overrides = {', '.join(unknown)}: there is no framework to override; allowed is {OVERRIDE}"
        try:
            choose(spec)
            faults = Faults.of(spec)
        except ValueError as error:
            return str(error)
        if faults.overstale and spec.placement is not Placement.ASYNC:
            return f"fault overstale: {spec.placement.value} trains on nothing old; allowed with async"
        return None

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        """The worker module, in the harness's own Python."""
        choice = choose(spec)
        return Launch(
            arguments=("-m", "adapters.simulated.worker", str(run_dir / "spec.json")),
            notes=("simulated: plays the plan and computes nothing", f"{choice.name} time: {choice.why}"),
            virtual_time=choice.name == VIRTUAL,
            fairness=dict.fromkeys(FAIRNESS, "simulated: nothing is computed"),
        )


ADAPTER = SimulatedAdapter()
