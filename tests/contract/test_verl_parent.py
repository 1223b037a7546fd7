"""verl's parent half: its rows of the fairness table."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.base import FAIRNESS
from adapters.child.gpus import UnknownGpuError
from adapters.verl.adapter import ADAPTER
from adapters.verl.worker import pools
from harness.protocol.spec import Device, Placement


def told(placement: Placement, device: Device = Device.CPU, **changes: Any) -> dict[str, str]:
    spec = replace(make_spec("verl", placement, device), **changes)
    return dict(ADAPTER.launch(spec, Path("run")).fairness)


@pytest.mark.parametrize("device", list(Device))
def test_placements_differ_only_where_a_placement_must(device: Device) -> None:
    colocated, asynchronous = told(Placement.COLOCATED, device), told(Placement.ASYNC, device)
    assert list(colocated) == list(FAIRNESS)
    differing = {key for key in colocated if colocated[key] != asynchronous[key]}
    assert differing <= {"in_flight", "kv_at_sync", "staleness", "max_num_seqs", "sync", "optimizer"}


def test_the_fairness_rows_follow_a_users_override_and_what_is_shipped() -> None:
    changed = {"algorithm.rollout_correction.rollout_is_threshold": "4", "actor_rollout_ref.actor.use_kl_loss": "True"}
    assert told(Placement.ASYNC, overrides=changed)["loss"].endswith("truncated at 4, nothing masked, with KL")
    assert told(Placement.ASYNC)["polls"] == "replay buffer 0.03 s (verl ships 2 s)"
    assert told(Placement.ASYNC, as_shipped=True)["polls"] == "replay buffer 2 s"
    assert "no importance correction" in told(Placement.ASYNC, as_shipped=True)["loss"]


def test_sglang_differs_from_vllm_only_by_its_name_and_its_poll() -> None:
    for placement in Placement:
        vllm = told(placement, Device.CUDA)
        sglang = told(placement, Device.CUDA, engine="sglang")
        polls = {"polls"} if placement is Placement.ASYNC else set()
        assert {key for key in vllm if vllm[key] != sglang[key]} == {"engine", "graphs"} | polls
        assert (sglang["engine"], sglang["graphs"]) == ("sglang, CUDA, bfloat16", "sglang's default")
    asynchronous = told(Placement.ASYNC, Device.CUDA, engine="sglang")
    assert (asynchronous["prefix_cache"], asynchronous["sync"]) == ("on", "NCCL broadcast")
    assert asynchronous["polls"].endswith("a sync's abort 1 s (sglang)")


@pytest.mark.parametrize(
    ("key", "value", "row", "said"),
    [
        ("disable_radix_cache", "True", "prefix_cache", "off"),
        ("max_running_requests", "7", "max_num_seqs", "7"),
        ("mem_fraction_static", "0.5", "memory", "0.5"),
        ("disable_cuda_graph", "True", "graphs", "off"),
    ],
)
def test_the_fairness_rows_follow_sglangs_own_arguments(key: str, value: str, row: str, said: str) -> None:
    changed = {f"+actor_rollout_ref.rollout.engine_kwargs.sglang.{key}": value}
    assert told(Placement.ASYNC, Device.CUDA, engine="sglang", overrides=changed)[row] == said
    assert told(Placement.ASYNC, Device.CUDA, overrides=changed)[row] != said  # vllm does not read them


def test_the_loss_is_told_in_the_same_words_as_skyrls() -> None:
    from adapters.skyrl.adapter import ADAPTER as SKYRL

    theirs = SKYRL.launch(make_spec("skyrl", Placement.ASYNC), Path("run")).fairness
    assert told(Placement.ASYNC)["loss"] == theirs["loss"]
    assert told(Placement.ASYNC)["logprobs"] == theirs["logprobs"]


def test_gpus_are_given_to_pools_by_what_the_workers_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "physical_uuids", lambda: ["GPU-aa", "GPU-bb", "GPU-cc"])
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda held: held))

    def worker(*ids: object) -> Any:
        return SimpleNamespace(__ray_call__=SimpleNamespace(remote=lambda ask: list(ids)))

    assert pools.gpu_pools([worker(1)], [worker("GPU-c")]) == {"GPU-bb": "train", "GPU-cc": "rollout"}
    assert pools.gpu_pools([worker(0, 1)], []) == {"GPU-aa": "both", "GPU-bb": "both"}
    with pytest.raises(UnknownGpuError, match="names GPU 7"):
        pools.gpu_pools([worker(7)], [])
