"""Specs that an adapter should take."""

from adapters.base import load_adapter
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec


def make_spec(framework: str, placement: Placement, device: Device = Device.CPU) -> RunSpec:
    """A spec that the adapter should take: the defaults of a CPU machine, or the study's 8 GPUs."""
    staleness = 1 if placement is Placement.ASYNC else 0
    if device is Device.CPU:
        gpus = Gpus(train=1, rollout=1)
    else:
        gpus = Gpus(train=8, rollout=8) if placement is Placement.COLOCATED else Gpus(train=4, rollout=4)
    on_cpu = device is Device.CPU
    spec = RunSpec(
        framework=framework,
        placement=placement,
        workload="deep-research",
        preset="deep-research-smoke" if on_cpu else "deep-research",
        load=Load.FIXED,
        tools="mock",
        model="tiny" if on_cpu else "random:qwen3-14b",
        gpus=gpus,
        nodes=1,
        steps=12,
        warmup_steps=staleness + 2,
        batch_size=4 if on_cpu else 8,
        group_size=2 if on_cpu else 3,
        max_staleness=staleness,
        seed=1,
        device=device,
        engine=load_adapter(framework).engines(device)[0],
        rollout_tp=1,
        context_tokens=2_048 if on_cpu else 40_960,
        micro_batch_tokens=2_048 if on_cpu else 40_960,
        offload=Offload.NONE if on_cpu else Offload.OPTIMIZER,
        timeout=None,
        sample_hz=10.0,
    )
    spec.check()
    return spec
