"""A spec.json whose values are of other types than their fields': an error in one line that names the field."""

import json
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec

SPEC = RunSpec(
    framework="simulated",
    placement=Placement.ASYNC,
    workload="deep-research",
    preset="deep-research-smoke",
    load=Load.FIXED,
    tools="mock",
    model="tiny",
    gpus=Gpus(train=1, rollout=1),
    nodes=1,
    steps=4,
    warmup_steps=1,
    batch_size=2,
    group_size=2,
    max_staleness=1,
    seed=7,
    device=Device.CPU,
    engine="none",
    rollout_tp=1,
    context_tokens=4096,
    micro_batch_tokens=4096,
    offload=Offload.NONE,
    timeout=None,
    sample_hz=10.0,
    overrides={"a": "1"},
    faults=("x",),
    record="calls.jsonl",
)
RAW: dict[str, Any] = json.loads(SPEC.to_json())
FIELDS = [name for name in RAW if not name.endswith(("work_digest", "spec_digest"))]


def test_what_was_written_is_read() -> None:
    assert RunSpec.from_json(json.dumps(RAW)) == SPEC


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_of_another_type(name: str) -> None:
    text = isinstance(RAW[name], str)
    for odd in ({"a": 1}, [["x"]], 3 if text else "x", -1, 10**40, float("nan"), 1e400, "\ud800"):
        with pytest.raises(SpecError, match=r"^spec\.json cannot be read: [^\n]+$"):
            RunSpec.from_json(json.dumps({**RAW, name: odd}))


@pytest.mark.parametrize("odd", ["x", None, True, -1, 1.5, 10**7, [1]])
def test_a_number_of_gpus_that_is_none(odd: object) -> None:
    with pytest.raises(SpecError, match=r"spec\.json cannot be read: train = "):
        RunSpec.from_json(json.dumps({**RAW, "gpus": {"train": odd, "rollout": 1}}))


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", "null", '"x"', "{"])
def test_a_file_that_holds_no_object(text: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.json cannot be read: "):
        RunSpec.from_json(text)
