"""What a newcomer asks first: a GPU node's dry run on a laptop, a very long run, a file from another editor."""

import time
from pathlib import Path
from typing import Any

import pytest

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device
from harness.specs import Machine, resolve
from harness.specs.checks import MOST_PLANS

NONE = Machine(why="no NVIDIA GPU is visible")
H100 = 80 * 2**30


def asked(placement: str, **flags: object) -> dict[str, Any]:
    return {"framework": "skyrl", "placement": placement, **flags}


@pytest.mark.parametrize(("placement", "gpus"), [("colocated", "8"), ("async", "4+4")])
def test_a_dry_run_with_many_gpus_means_cuda(placement: str, gpus: str) -> None:
    found = resolve(asked(placement, gpus=gpus), machine=NONE, dry_run=True)
    assert found.spec.device is Device.CUDA
    (said,) = [note for note in found.notes if note.startswith("device = ")]
    assert "assumed for the dry run" in said
    assert f"--gpus {gpus} is more" in said
    with pytest.raises(SpecError, match="--device cuda --dry-run"):
        resolve(asked(placement, gpus=gpus), machine=NONE)


@pytest.mark.parametrize("more", [{"gpus": "1+1"}, {}, {"gpus": "1+1", "device": "cpu"}])
def test_a_dry_run_that_cpu_can_have_stays_on_cpu(more: dict[str, str]) -> None:
    assert resolve(asked("async", **more), machine=NONE, dry_run=True).spec.device is Device.CPU


def test_cpu_asked_for_by_name_is_not_overruled() -> None:
    with pytest.raises(SpecError, match="on cpu one training process"):
        resolve(asked("async", gpus="4+4", device="cpu"), machine=NONE, dry_run=True)


@pytest.mark.parametrize(
    ("placement", "gpus", "limit"),
    [("async", "3+5", "3 training GPUs of 80 GiB"), ("colocated", "1", "1 shared GPU of 80 GiB")],
)
def test_the_model_is_explained_by_the_pool_that_limits_it(placement: str, gpus: str, limit: str) -> None:
    machine = Machine(gpu_memory_bytes=(H100,) * 8, why="8 NVIDIA GPU(s) visible")
    notes = resolve(asked(placement, gpus=gpus), machine=machine).notes
    (said,) = [note for note in notes if note.startswith("model = ")]
    assert f"fits {limit}" in said


def test_a_very_long_run_is_checked_in_bounded_time_and_says_what_was_not() -> None:
    begin = time.monotonic()
    found = resolve(asked("async", device="cuda", gpus="4+4", model="random:qwen3-4b", steps=10**6), machine=NONE)
    assert time.monotonic() - begin < 30  # all of its plans take half an hour
    (said,) = [note for note in found.notes if note.startswith("context_tokens")]
    assert f"the first {MOST_PLANS // 3 * 3:,} of 24,000,072 plans fit" in said
    assert "longest possible is 52,224" in said


def test_a_very_long_run_whose_longest_possible_plan_fits_is_known_to_fit() -> None:
    found = resolve(asked("async", device="cpu", steps=10**6), machine=NONE)
    assert not [note for note in found.notes if note.startswith("context_tokens")]


def test_a_plan_known_to_be_too_long_is_still_refused() -> None:
    with pytest.raises(SpecError, match="allowed is at least"):
        resolve(asked("async", device="cpu", steps=10**6, context_tokens=200), machine=NONE)


def test_faults_are_not_offered(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(asked("async", device="cpu", stepz=3), machine=NONE)
    assert "faults" not in str(caught.value)
    assert "batch_size" in str(caught.value)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbfsteps = 5\n")
    assert resolve(asked("async", device="cpu"), config=path, machine=NONE).spec.steps == 5
