"""What a digest must, and must not, depend on; and what RunSpec.check refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_specs import SPEC

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
    Policy,
    RunSpec,
    Thinking,
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
    "preset_definition": "{}",
    "reward": "probe",
    "reward_digest": "0",
    "policy": Policy.SCRIPTED,
    "thinking": Thinking.STRIP,
    "max_turns": 3,
    "turn_tokens": 77,
    "dataset": "corpus",
    "dataset_digest": "1",
    "columns": {"prompt": "q"},
    "corpus": "generated:2000",
    "corpus_digest": "2",
    "trace": "/t.parquet",
    "trace_digest": "3",
    "web_cache": "off",
    "allow_private": True,
    "record": "/r.parquet",
}

# What each load and each kind of tools do not look at.
UNUSED_BY_LOAD = {
    Load.FIXED: {"policy", "thinking", "max_turns", "turn_tokens"},
    Load.LIVE: {"preset", "preset_definition"},
}
UNUSED_BY_TOOLS = {
    "mock": {"corpus_digest", "trace_digest", "web_cache", "allow_private"},
    "local": {"latency_scale", "trace_digest", "web_cache", "allow_private"},
    "replay": {"corpus_digest", "web_cache", "allow_private"},
    "web:brave": {"latency_scale", "corpus_digest", "trace_digest"},
}


def test_every_field_is_covered() -> None:
    assert set(OTHER) == set(FIELD_NAMES)


@pytest.mark.parametrize("tools", sorted(UNUSED_BY_TOOLS))
@pytest.mark.parametrize("load", list(Load))
def test_digests_depend_on_exactly_what_decides_something(load: Load, tools: str) -> None:
    spec = replace(SPEC, load=load, tools=tools, dataset_digest="generated")
    unused = UNUSED_BY_LOAD[load] | UNUSED_BY_TOOLS[tools]
    for name, value in OTHER.items():
        if name in ("load", "tools"):
            continue
        changed = replace(spec, **{name: value})
        assert (changed.work_digest != spec.work_digest) == (name in WORK_FIELDS and name not in unused), name
        assert (changed.spec_digest != spec.spec_digest) == (name in WORK_FIELDS + SYSTEM_FIELDS and name not in unused)


def test_loads_and_tools_are_works_of_their_own() -> None:
    specs = [replace(SPEC, load=load, tools=tools) for load in Load for tools in UNUSED_BY_TOOLS]
    assert len({spec.work_digest for spec in specs}) == len(specs) == len({spec.spec_digest for spec in specs})


def test_data_sets_without_a_digest_of_their_own_are_told_apart() -> None:
    specs = [replace(SPEC, dataset=name) for name in ("generated", "corpus", "/x.jsonl")]
    assert len({spec.work_digest for spec in specs}) == 3


def test_measuring_choices_are_outside_both_digests() -> None:
    outside = {"sample_hz", "dcgm", "ray_address", "timeout", "unverified", "record", "corpus", "trace", "columns"}
    assert not outside & set(WORK_FIELDS + SYSTEM_FIELDS)
    assert not set(WORK_FIELDS) & set(SYSTEM_FIELDS)


def test_digests_are_fixed_for_ever() -> None:
    # Baselines are keyed by these: a change of the sums needs a new protocol version.
    assert (SPEC.work_digest, SPEC.spec_digest) == ("1d988af6016a", "c1215c228d67")


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
