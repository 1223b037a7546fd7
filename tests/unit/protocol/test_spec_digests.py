"""What a digest must, and must not, depend on; and what RunSpec.check refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from harness.protocol.spec import (
    FIELD_NAMES,
    SYSTEM_FIELDS,
    WORK_FIELDS,
    Device,
    Gpus,
    Load,
    Offload,
    Placement,
    RunSpec,
)

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
COLOCATED = replace(SPEC, placement=Placement.COLOCATED, gpus=Gpus(train=8, rollout=8), max_staleness=0)

OTHER: dict[str, Any] = {
    "framework": "skyrl",
    "placement": Placement.DISAGGREGATED,
    "workload": "other",
    "preset": "deep-research",
    "load": Load.LIVE,
    "tools": "replay",
    "model": "random:qwen3-4b",
    "gpus": Gpus(train=6, rollout=2),
    "nodes": 2,
    "steps": 9,
    "warmup_steps": 4,
    "batch_size": 5,
    "group_size": 3,
    "max_staleness": 2,
    "seed": 2,
    "device": Device.CUDA,
    "engine": "vllm",
    "rollout_tp": 2,
    "context_tokens": 4096,
    "micro_batch_tokens": 4096,
    "offload": Offload.FULL,
    "timeout": 60.0,
    "sample_hz": 5.0,
    "dcgm": "dmon",
    "ray_address": "10.0.0.1:6379",
    "latency_scale": 0.5,
    "as_shipped": True,
    "unverified": True,
    "overrides": {"lr": "1e-6"},
    "faults": ("die",),
}


def test_every_field_is_covered() -> None:
    assert set(OTHER) == set(FIELD_NAMES)


@pytest.mark.parametrize("name", sorted(OTHER))
def test_digest_depends_on_exactly_its_fields(name: str) -> None:
    changed = replace(SPEC, **{name: OTHER[name]})
    assert (changed.work_digest != SPEC.work_digest) == (name in WORK_FIELDS)
    assert (changed.spec_digest != SPEC.spec_digest) == (name in WORK_FIELDS + SYSTEM_FIELDS)


def test_measuring_choices_are_outside_both_digests() -> None:
    assert not {"sample_hz", "dcgm", "ray_address", "timeout", "unverified"} & set(WORK_FIELDS + SYSTEM_FIELDS)
    assert not set(WORK_FIELDS) & set(SYSTEM_FIELDS)


def test_digests_are_fixed_for_ever() -> None:
    # Baselines are keyed by these: a change of the sums needs a new protocol version.
    assert (SPEC.work_digest, SPEC.spec_digest) == ("321eb777742d", "cdd292079737")


def test_order_of_overrides_does_not_matter() -> None:
    one = replace(SPEC, overrides={"a": "1", "b": "2"})
    two = replace(SPEC, overrides={"b": "2", "a": "1"})
    assert one.spec_digest == two.spec_digest


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, **OTHER), COLOCATED], ids=["plain", "everything", "colocated"])
def test_json_round_trip(spec: RunSpec) -> None:
    again = RunSpec.from_json(spec.to_json())
    assert again == spec
    assert json.loads(spec.to_json())["spec_digest"] == again.spec_digest


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"framework": "x"}', SPEC.to_json().replace('"seed"', '"sed"')]
)
def test_unreadable_json_is_a_spec_error(text: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.json cannot be read"):
        RunSpec.from_json(text)


def test_unreadable_file_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=str(tmp_path / "spec.json")):
        RunSpec.load_file(tmp_path / "spec.json")


def test_sizes() -> None:
    assert (SPEC.total_gpus, COLOCATED.total_gpus) == (8, 8)
    assert SPEC.trajectories_per_step == 8
    assert SPEC.prompts == (8 + 1 + 2) * 4


def test_fault() -> None:
    spec = replace(SPEC, faults=("die", "sleep=0.5"))
    assert (spec.fault("die"), spec.fault("sleep"), spec.fault("hang")) == ("", "0.5", None)


def test_good_specs_pass() -> None:
    SPEC.check()
    COLOCATED.check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": -3}, "steps = -3"),
        ({"nodes": 0}, "nodes = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"group_size": -1}, "group_size = -1"),
        ({"rollout_tp": 0}, "rollout_tp = 0"),
        ({"context_tokens": 0}, "context_tokens = 0"),
        ({"micro_batch_tokens": -1}, "micro_batch_tokens = -1"),
        ({"max_staleness": -1}, "max_staleness = -1"),
        ({"seed": -1}, "seed = -1"),
        ({"warmup_steps": -1}, "warmup_steps = -1"),
        ({"warmup_steps": 8}, "warmup_steps = 8"),
        ({"gpus": Gpus(train=0, rollout=4)}, r"gpus \(train pool\) = 0"),
        ({"gpus": Gpus(train=4, rollout=0)}, r"gpus \(rollout pool\) = 0"),
        ({"gpus": Gpus(train=4, rollout=-4)}, r"gpus \(rollout pool\) = -4"),
        ({"rollout_tp": 3}, "rollout_tp = 3"),
        ({"sample_hz": 0.0}, r"sample_hz = 0\.0"),
        ({"sample_hz": 1000.0}, r"sample_hz = 1000\.0"),
        ({"latency_scale": 0.0}, r"latency_scale = 0\.0"),
        ({"timeout": -1.0}, r"timeout = -1\.0"),
        ({"max_staleness": 0}, "max_staleness = 0"),
        ({"placement": Placement.DISAGGREGATED}, "max_staleness = 1"),
        ({"placement": Placement.COLOCATED, "max_staleness": 0, "gpus": Gpus(train=4, rollout=2)}, r"gpus = 4\+2"),
        ({"faults": ("Die!",)}, "faults = Die!"),
    ],
)
def test_check_names_key_value_and_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}: allowed is .+"):
        replace(SPEC, **change).check()
