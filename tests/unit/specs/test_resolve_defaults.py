"""Defaults, and what was chosen for the user."""

from pathlib import Path

import pytest

from harness.protocol.errors import SpecError
from harness.protocol.models import SHAPES
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement
from harness.specs import Machine, Resolved, check_machine, default_spec, resolve
from harness.specs.defaults import gpu_bytes_needed

H100 = 81_559 * 2**20  # what NVML reports for an 80 GB H100
NONE = Machine(why="no NVIDIA GPU is visible (NVML: Driver Not Loaded)")
NODE = Machine(gpu_memory_bytes=(H100,) * 8, why="8 NVIDIA GPU(s) visible")


def skyrl(placement: str, machine: Machine, **flags: object) -> Resolved:
    return resolve({"framework": "skyrl", "placement": placement, **flags}, machine=machine)


@pytest.mark.parametrize(
    ("placement", "gpus", "total", "staleness"),
    [
        ("colocated", Gpus(train=8, rollout=8), 8, 0),
        ("disaggregated", Gpus(train=4, rollout=4), 8, 0),
        ("async", Gpus(train=4, rollout=4), 8, 1),
    ],
)
def test_an_8_gpu_node_gets_the_study(placement: str, gpus: Gpus, total: int, staleness: int) -> None:
    found = skyrl(placement, NODE)
    spec = found.spec
    assert (spec.device, spec.model, spec.preset) == (Device.CUDA, "random:qwen3-14b", "deep-research")
    assert (spec.gpus, spec.total_gpus, spec.max_staleness) == (gpus, total, staleness)
    assert (spec.batch_size, spec.group_size, spec.steps) == (8, 3, 12)
    assert spec.warmup_steps == staleness + 2
    assert (spec.context_tokens, spec.micro_batch_tokens) == (40_960, 40_960)
    assert any("model = random:qwen3-14b" in note and "fits" in note for note in found.notes)
    assert any(note == "device = cuda: 8 NVIDIA GPU(s) visible" for note in found.notes)


@pytest.mark.parametrize(("placement", "staleness"), [("colocated", 0), ("disaggregated", 0), ("async", 1)])
def test_a_machine_without_a_gpu_gets_the_smoke_run_and_says_why(placement: str, staleness: int) -> None:
    found = skyrl(placement, NONE)
    spec = found.spec
    assert (spec.device, spec.model, spec.preset) == (Device.CPU, "tiny", "deep-research-smoke")
    assert (spec.gpus, spec.max_staleness) == (Gpus(train=1, rollout=1), staleness)
    assert (spec.batch_size, spec.group_size, spec.steps) == (4, 2, 8)
    assert spec.warmup_steps == staleness + 2
    assert (spec.context_tokens, spec.engine) == (2_048, "vllm")
    assert "device = cpu: no NVIDIA GPU is visible (NVML: Driver Not Loaded)" in found.notes


def test_defaults_that_no_device_changes() -> None:
    for machine in (NONE, NODE):
        spec = skyrl("async", machine).spec
        assert (spec.workload, spec.load, spec.tools) == ("deep-research", Load.FIXED, "mock")
        assert (spec.nodes, spec.seed, spec.sample_hz, spec.rollout_tp) == (1, 1, 10.0, 1)
        assert (spec.offload, spec.timeout, spec.latency_scale, spec.as_shipped) == (Offload.NONE, None, 1.0, False)
        assert (dict(spec.overrides), spec.faults) == ({}, ())


def test_placements_of_one_machine_offer_the_same_work() -> None:
    for machine in (NONE, NODE, Machine(gpu_memory_bytes=(24 * 2**30,) * 4), Machine(gpu_memory_bytes=(H100,) * 2)):
        digests = {skyrl(placement.value, machine).spec.work_digest for placement in Placement}
        assert len(digests) == 1


def test_the_model_is_the_largest_that_fits() -> None:
    sizes = [
        skyrl("async", Machine(gpu_memory_bytes=(gib * 2**30,) * 8)).spec.model for gib in (8, 12, 24, 48, 80, 141)
    ]
    assert sizes == [
        "random:qwen3-0.6b",
        "random:qwen3-1.7b",
        "random:qwen3-4b",
        "random:qwen3-8b",
        "random:qwen3-14b",
        "random:qwen3-14b",  # never 32b by itself
    ]
    with pytest.raises(SpecError, match=r"none of .*qwen3-0\.6b fits 2 GPU\(s\) of 4 GiB"):
        skyrl("async", Machine(gpu_memory_bytes=(4 * 2**30,) * 2))


def test_bytes_needed_are_those_of_the_formula() -> None:
    parameters = SHAPES["random:qwen3-14b"].parameters
    assert parameters == pytest.approx(14.77e9, rel=1e-3)
    four = Gpus(train=4, rollout=4)
    assert gpu_bytes_needed("random:qwen3-14b", Placement.ASYNC, four, 1) == 16 * parameters // 4
    assert gpu_bytes_needed("random:qwen3-14b", Placement.COLOCATED, four, 2) == 4 * parameters + parameters
    split = Gpus(train=32, rollout=1)
    assert gpu_bytes_needed("random:qwen3-14b", Placement.ASYNC, split, 1) == 2 * parameters


def test_one_gpu_colocates_but_cannot_be_split() -> None:
    one = Machine(gpu_memory_bytes=(H100,), why="1 NVIDIA GPU(s) visible")
    assert skyrl("colocated", one).spec.gpus == Gpus(train=1, rollout=1)
    with pytest.raises(SpecError, match="gpus = 1 visible: --placement async needs at least 2"):
        skyrl("async", one)


def test_an_odd_gpu_trains() -> None:
    three = Machine(gpu_memory_bytes=(H100,) * 3)
    assert skyrl("disaggregated", three).spec.gpus == Gpus(train=2, rollout=1)


def test_unknown_gpu_memory_asks_for_a_model() -> None:
    unknown = Machine(gpu_memory_bytes=(None, None))
    with pytest.raises(SpecError, match="does not say how much memory"):
        skyrl("async", unknown)
    assert skyrl("async", unknown, model="random:qwen3-4b").spec.model == "random:qwen3-4b"


def test_cuda_can_be_asked_for_anywhere_but_not_started() -> None:
    found = skyrl("async", NONE, device="cuda")
    assert (found.spec.gpus, found.spec.model) == (Gpus(train=4, rollout=4), "random:qwen3-14b")
    assert any("defaults are those of 8 GPUs of 80 GiB" in note for note in found.notes)
    with pytest.raises(SpecError, match=r"device = cuda: no NVIDIA GPU is visible"):
        check_machine(found.spec, NONE)
    check_machine(found.spec, NODE)
    check_machine(skyrl("async", NONE).spec, NONE)


def test_more_gpus_than_visible() -> None:
    two = Machine(gpu_memory_bytes=(H100,) * 2, why="2 NVIDIA GPU(s) visible")
    spec = skyrl("async", two, gpus="4+4", model="random:qwen3-4b").spec
    with pytest.raises(SpecError, match=r"gpus = 4\+4: allowed is at most 2 in all \(2 NVIDIA"):
        check_machine(spec, two)
    colocated = skyrl("colocated", two, gpus="4", model="random:qwen3-4b").spec
    with pytest.raises(SpecError, match="gpus = 4: allowed is at most 2"):
        check_machine(colocated, two)


def test_warmup_follows_staleness_and_gives_way_to_few_steps() -> None:
    assert skyrl("async", NONE, max_staleness=3).spec.warmup_steps == 5
    short = skyrl("async", NONE, steps=3)
    assert short.spec.warmup_steps == 2
    assert any(note.startswith("warmup_steps = 2: steps = 3") for note in short.notes)
    assert skyrl("async", NONE, warmup_steps=0).spec.warmup_steps == 0


def test_micro_batches_hold_the_context() -> None:
    assert skyrl("async", NONE, context_tokens=4_096).spec.micro_batch_tokens == 4_096
    assert skyrl("async", NODE, context_tokens=32_000).spec.micro_batch_tokens == 32_768
    assert skyrl("async", NONE, context_tokens=4_096, micro_batch_tokens=2_048).spec.micro_batch_tokens == 2_048


def test_simulated_needs_no_device() -> None:
    found = resolve({"framework": "simulated", "placement": "colocated"}, machine=NODE)
    assert (found.spec.device, found.spec.engine, found.spec.model) == (Device.CPU, "none", "tiny")


def test_default_spec_is_type_correct_everywhere() -> None:
    for placement in Placement:
        for device in Device:
            default_spec("skyrl", placement, device).check()


def test_a_folder_or_hub_name_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert skyrl("async", NONE, model=str(tmp_path)).spec.model == str(tmp_path)
    assert skyrl("async", NONE, model="Qwen/Qwen3-14B").spec.model == "Qwen/Qwen3-14B"
