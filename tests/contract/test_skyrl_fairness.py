"""SkyRL's rows of the fairness table follow what is configured, a user's overrides included."""

from dataclasses import replace
from pathlib import Path

import pytest
from contract_specs import make_spec

from adapters.skyrl.adapter import ADAPTER
from harness.protocol.spec import Device, Placement


def told(placement: Placement, device: Device = Device.CPU, **changes: object) -> dict[str, str]:
    spec = replace(make_spec("skyrl", placement, device), **changes)  # type: ignore[arg-type]
    return dict(ADAPTER.launch(spec, Path("run")).fairness)


@pytest.mark.parametrize("device", list(Device))
def test_placements_differ_only_where_a_placement_must(device: Device) -> None:
    colocated, asynchronous = told(Placement.COLOCATED, device), told(Placement.ASYNC, device)
    differing = {key for key in colocated if colocated[key] != asynchronous[key]}
    allowed = {"in_flight", "kv_at_sync", "staleness", "max_num_seqs", "sync", "optimizer"}
    assert differing <= allowed
    assert colocated["loss"] == asynchronous["loss"]
    assert colocated["logprobs"] == asynchronous["logprobs"] == "on"


def test_a_users_override_is_seen() -> None:
    changed = told(
        Placement.ASYNC,
        overrides={
            "generator.inference_engine.enable_prefix_caching": "false",
            "trainer.algorithm.cispo.cispo_eps_clip_high": "3.0",
        },
    )
    assert changed["prefix_cache"] == "off"
    assert "truncated at 4" in changed["loss"]


def test_as_shipped_says_what_is_shipped() -> None:
    assert told(Placement.ASYNC, as_shipped=True)["loss"] == "rollout_is"
    assert told(Placement.ASYNC, as_shipped=True)["logprobs"].startswith("skipped")
    assert told(Placement.COLOCATED, as_shipped=True)["logprobs"] == "on"


def test_the_staleness_knob_names_its_zero() -> None:
    assert "max_staleness_steps = 1" in told(Placement.ASYNC)["staleness"]
    assert told(Placement.COLOCATED)["staleness"] == "synchronous: 0"
