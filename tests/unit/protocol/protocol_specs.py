"""A spec for tests of specs."""

from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec

SPEC = RunSpec(
    framework="simulated",
    placement=Placement.ASYNC,
    workload="deep-research",
    preset="deep-research-smoke",
    load=Load.FIXED,
    tools="mock",
    model="tiny",
    gpus=Gpus(train=4, rollout=4),
    nodes=1,
    steps=8,
    warmup_steps=3,
    batch_size=4,
    group_size=2,
    max_staleness=1,
    seed=1,
    device=Device.CPU,
    engine="none",
    rollout_tp=1,
    context_tokens=2048,
    micro_batch_tokens=2048,
    offload=Offload.NONE,
    timeout=None,
    sample_hz=10.0,
)
