"""verl's configuration: what a spec becomes, and what is refused."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract_specs import make_spec

from adapters.verl.adapter import ADAPTER, NEVER_ON_GPU
from adapters.verl.environment import environment
from adapters.verl.overrides import (
    CPU_DIFFERENCES,
    DIFFERENCES,
    LOSS,
    SGLANG_DIFFERENCES,
    SGLANG_KEEPS_BACK,
    longest_tokens,
    overrides,
)
from harness.envs.pins import read_pins
from harness.protocol.spec import Device, Gpus, Placement


def pairs(placement: Placement, device: Device, tmp_path: Path, **changes: Any) -> dict[str, str]:
    spec = replace(make_spec("verl", placement, device), **changes)
    return dict(item.split("=", 1) for item in overrides(spec, tmp_path))


@pytest.mark.parametrize("device", list(Device))
def test_all_placements_train_the_same_way(device: Device, tmp_path: Path) -> None:
    def settings(placement: Placement) -> dict[str, str]:
        found = pairs(placement, device, tmp_path)
        chosen = {
            key: value
            for key, value in found.items()
            if key.startswith(("algorithm", "actor_rollout_ref.actor", "actor_rollout_ref.model"))
        }
        # Colocated on GPUs moves its training state away while the engine runs: listed in DIFFERENCES.
        return {key: value for key, value in chosen.items() if not key.endswith("_offload")}

    colocated = settings(Placement.COLOCATED)
    assert settings(Placement.DISAGGREGATED) == colocated
    assert settings(Placement.ASYNC) == colocated
    assert colocated["algorithm.rollout_correction.rollout_is"] == "token"
    assert colocated["algorithm.rollout_correction.bypass_mode"] == "False"
    assert any("parameters and optimizer are moved" in text for text in DIFFERENCES)


def test_as_shipped_leaves_the_loss_and_the_poll_alone(tmp_path: Path) -> None:
    found = overrides(replace(make_spec("verl", Placement.ASYNC), as_shipped=True), tmp_path)
    assert not set(LOSS[1:]) & set(found)
    assert not [item for item in found if "custom_sampler" in item]


@pytest.mark.parametrize(("max_staleness", "threshold"), [(1, "2"), (3, "4")])
def test_the_bound_and_the_run_ahead_come_from_max_staleness(
    tmp_path: Path, max_staleness: int, threshold: str
) -> None:
    found = pairs(Placement.ASYNC, Device.CUDA, tmp_path, max_staleness=max_staleness)
    assert found["trainer.v1.sampler.max_off_policy_threshold"] == threshold
    assert found["trainer.v1.separate_async.num_warmup_batches"] == str(max_staleness)
    assert found["trainer.v1.separate_async.parameter_sync_step"] == "1"


def test_disaggregated_is_a_true_split_that_trains_on_nothing_stale(tmp_path: Path) -> None:
    found = pairs(Placement.DISAGGREGATED, Device.CUDA, tmp_path)
    assert found["actor_rollout_ref.hybrid_engine"] == "False"
    assert found["trainer.v1.separate_async.num_warmup_batches"] == "0"
    assert found["trainer.v1.sampler.max_off_policy_threshold"] == "1"


def test_the_rollout_tp_is_the_specs_and_not_verls_two(tmp_path: Path) -> None:
    found = pairs(Placement.COLOCATED, Device.CUDA, tmp_path, rollout_tp=4)
    assert found["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "4"


@pytest.mark.parametrize("device", list(Device))
def test_what_differs_is_printed_with_the_launch(device: Device, tmp_path: Path) -> None:
    launch = ADAPTER.launch(make_spec("verl", Placement.ASYNC, device), tmp_path)
    said = "\n".join(launch.notes)
    assert all(text in said for text in DIFFERENCES)
    assert all((text in said) == (device is Device.CPU) for text in CPU_DIFFERENCES)
    assert not any(text in said for text in SGLANG_DIFFERENCES)
    assert ("VERL_PLATFORM" in launch.env) == (device is Device.CPU)


def test_what_nobody_has_run_is_said_with_sglang(tmp_path: Path) -> None:
    spec = replace(make_spec("verl", Placement.ASYNC, Device.CUDA), engine="sglang")
    said = "\n".join(ADAPTER.launch(spec, tmp_path).notes)
    assert all(text in said for text in (*DIFFERENCES, *SGLANG_DIFFERENCES))
    assert "never run on a GPU" in said
    assert all(text.startswith(NEVER_ON_GPU) for (_, device), text in ADAPTER.verified_on.items() if device == "cuda")


def test_the_cpu_environment_is_named_for_the_engine_that_runs_there() -> None:
    cpu = environment(Device.CPU, "vllm")
    assert cpu is not None
    assert cpu.name == "verl-cpu-transformers"
    assert environment(Device.CPU, "transformers") is cpu
    assert environment(Device.CPU, "sglang") is None


@pytest.mark.parametrize(("engine", "pins"), [("vllm", {"vllm": "0.24.0"}), ("sglang", {"sglang": "0.5.12"})])
def test_each_engine_has_pins_of_its_own_on_cuda(engine: str, pins: dict[str, str]) -> None:
    cuda = environment(Device.CUDA, engine)
    assert cuda is not None
    assert cuda.name == f"verl-cuda-{engine}"
    assert cuda.status.startswith("resolved, not installed here")
    assert engine in cuda.imports
    found = {pin.name: pin.version for pin in read_pins(cuda.requirements)}
    assert len(found) > 200
    wanted = {"verl": "0.9.1", "torch": "2.11.0", "transformers": "5.9.0", "cupy-cuda13x": "14.0.1", **pins}
    assert {name: found.get(name) for name in wanted} == wanted
    assert not {"vllm", "sglang"} - {engine} & set(found)
    assert "flash-attn-4" not in found  # its files are flash-attn's


def test_no_environment_is_known_for_another_engine() -> None:
    assert environment(Device.CUDA, "transformers") is None
    assert environment(Device.CUDA, "tgi") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"engine": "sglang"}, "engine = sglang: the SGLang that verl 0.9.1 pins"),
        ({"engine": "tgi"}, "engine = tgi"),
        ({"device": Device.CUDA, "engine": "sglang", "faults": ("no-sync",)}, "no-sync"),
        ({"gpus": Gpus(train=2, rollout=2)}, "gpus = 2+2"),
        ({"device": Device.CUDA, "gpus": Gpus(train=3, rollout=3)}, "batch_size x group_size = 8"),
        ({"device": Device.CUDA, "engine": "transformers"}, "engine = transformers"),
        ({"device": Device.CUDA, "faults": ("no-sync",)}, "no-sync"),
        ({"nodes": 2}, "nodes = 2"),
    ],
)
def test_what_verl_cannot_do_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    reason = ADAPTER.supports(replace(make_spec("verl", Placement.DISAGGREGATED), **change))
    assert reason is not None
    assert named in reason


@pytest.mark.parametrize("placement", list(Placement))
@pytest.mark.parametrize("device", list(Device))
def test_every_placement_is_honoured(placement: Placement, device: Device) -> None:
    assert ADAPTER.supports(make_spec("verl", placement, device)) is None


@pytest.mark.parametrize("placement", list(Placement))
def test_sglang_is_taken_on_cuda_in_every_placement(placement: Placement) -> None:
    assert ADAPTER.supports(replace(make_spec("verl", placement, Device.CUDA), engine="sglang")) is None


def test_sglang_gets_what_vllm_gets(tmp_path: Path) -> None:
    def settings(engine: str) -> dict[str, str]:
        return pairs(Placement.ASYNC, Device.CUDA, tmp_path, engine=engine)

    vllm, sglang = settings("vllm"), settings("sglang")
    own = "+actor_rollout_ref.rollout.engine_kwargs.sglang."
    assert {key for key in sglang if vllm.get(key) != sglang[key]} == {
        "actor_rollout_ref.rollout.name",
        f"{own}disable_radix_cache",
        f"{own}chunked_prefill_size",
        f"{own}context_length",
        f"{own}enable_metrics",
        f"{own}decode_log_interval",
    }
    assert set(vllm) <= set(sglang)
    rollout = "actor_rollout_ref.rollout."
    assert sglang[f"{rollout}name"] == "sglang"
    assert sglang[f"{rollout}checkpoint_engine.backend"] == "nccl"
    assert (sglang[f"{own}disable_radix_cache"], vllm[f"{rollout}enable_prefix_caching"]) == ("False", "True")
    assert sglang[f"{own}chunked_prefill_size"] == vllm[f"{rollout}max_num_batched_tokens"]
    assert sglang[f"{own}context_length"] == vllm[f"{rollout}max_model_len"]
    assert (sglang[f"{own}enable_metrics"], vllm[f"{rollout}disable_log_stats"]) == ("True", "False")


def test_a_context_that_sglang_would_cut_is_refused_with_the_room_it_needs() -> None:
    spec = replace(make_spec("verl", Placement.ASYNC, Device.CUDA), engine="sglang")
    needed = longest_tokens(spec) + SGLANG_KEEPS_BACK
    assert ADAPTER.supports(replace(spec, context_tokens=needed)) is None
    reason = ADAPTER.supports(replace(spec, context_tokens=needed - 1))
    assert reason is not None
    assert reason.endswith(f"at least {needed:,}")
    assert ADAPTER.supports(replace(spec, context_tokens=needed - 1, engine="vllm")) is None


def test_the_parents_half_needs_no_framework() -> None:
    assert not {"verl", "torch", "ray"} & set(sys.modules)
