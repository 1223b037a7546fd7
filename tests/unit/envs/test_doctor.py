from dataclasses import replace
from pathlib import Path

import pytest

from adapters.base import load_adapter
from adapters.skyrl.environment import CPU, CUDA
from harness.doctor import Check, Facts, Gpu, diagnose, judge_frameworks, judge_machine, look
from harness.envs.reachable import Reachable

TORCH = Reachable(pin="torch==2.13.0+cpu", found=True)
GOOD = Facts(
    cores=8,
    memory_bytes=64_000_000_000,
    available_bytes=60_000_000_000,
    shm_bytes=32_000_000_000,
    disk_path=Path("/cache"),
    disk_free_bytes=500_000_000_000,
    libnuma=True,
    compiler="/usr/bin/cc",
    driver="580.82.07",
    driver_error="",
    gpus=(Gpu(name="H100", memory_bytes=80_000_000_000),) * 8,
    pythons={"3.11": "/p311", "3.12": "/p312"},
    built=frozenset(),
    special_pins={"skyrl-cpu-vllm": (TORCH,)},
    own_pythons={},
)
NO_GPU = replace(GOOD, driver=None, driver_error="no library", gpus=())


def machine(facts: Facts, name: str) -> Check:
    (row,) = [row for row in judge_machine(facts, [CPU, CUDA]) if row.name == name]
    return row


def cell(facts: Facts, name: str) -> Check:
    (row,) = [
        row for row in judge_frameworks(facts, [load_adapter("skyrl"), load_adapter("simulated")]) if row.name == name
    ]
    return row


def test_a_good_node_has_nothing_to_do() -> None:
    rows = judge_machine(GOOD, [CPU, CUDA])
    assert all(row.ok is True and row.action == "" for row in rows)
    assert machine(GOOD, "GPUs").found == "8 x H100, 80 GB"


@pytest.mark.parametrize(
    ("name", "changes", "ok", "action"),
    [
        ("cores", {"cores": 1}, False, "minutes"),
        ("memory", {"available_bytes": 3_000_000_000}, False, "larger machine"),
        ("/dev/shm", {"shm_bytes": 64_000_000}, False, "--shm-size"),
        ("/dev/shm", {"shm_bytes": None}, False, "--shm-size"),
        ("disk", {"disk_free_bytes": 20_000_000_000}, False, "BENCH_CACHE"),
        ("Python 3.12", {"pythons": {"3.11": "/p"}}, False, "python3.12-venv"),
        ("C compiler", {"compiler": None}, None, "gcc"),
        ("NVIDIA driver", {"driver": "570.10"}, False, "newer driver"),
        ("libnuma", {"libnuma": False}, False, "libnuma"),
    ],
)
def test_what_is_missing_is_named_with_what_to_do(name: str, changes: dict, ok: bool | None, action: str) -> None:
    row = machine(replace(GOOD, **changes), name)
    assert row.ok is ok
    assert action in row.action


def test_without_a_gpu_what_only_gpus_need_is_no_fault() -> None:
    bare = replace(NO_GPU, libnuma=False, pythons={"3.11": "/p"}, disk_free_bytes=5_000_000_000)
    for name in ("NVIDIA driver", "GPUs", "libnuma", "Python 3.12"):
        assert machine(bare, name).ok is None, name
    assert machine(bare, "disk").ok is True  # 3.9 GB for the CPU environment; the GPU one is not counted
    assert machine(bare, "NVIDIA driver").found == "none (no library)"


def test_gpus_of_unknown_memory_are_not_shown_as_zero() -> None:
    facts = replace(GOOD, gpus=(Gpu(name="A", memory_bytes=None), Gpu(name="B", memory_bytes=80_000_000_000)))
    assert machine(facts, "GPUs").found == "1 x A, memory unknown; 1 x B, 80 GB"


def test_each_cell_says_all_that_is_missing() -> None:
    assert cell(GOOD, "skyrl async on cuda").ok is True
    poor = replace(GOOD, gpus=GOOD.gpus[:1], driver="550.1", libnuma=False, pythons={}, disk_free_bytes=1_000_000_000)
    row = cell(poor, "skyrl async on cuda")
    assert row.ok is False
    for part in ("2 GPUs", "driver r580", "libnuma", "Python 3.12", "21.0 GB of disk"):
        assert part in row.action
    assert "2 GPUs" not in cell(poor, "skyrl colocated on cuda").action


def test_cpu_needs_no_gpu_and_says_what_the_first_run_costs() -> None:
    row = cell(NO_GPU, "skyrl async on cpu")
    assert row.ok is True
    assert "2.6 GB, about 3 min" in row.found
    assert cell(NO_GPU, "skyrl async on cuda").action == "no NVIDIA GPU"
    assert cell(replace(NO_GPU, built=frozenset({"skyrl-cpu-vllm"})), "skyrl async on cpu").found == "environment ready"
    small = replace(NO_GPU, available_bytes=1_000_000_000)
    assert cell(small, "skyrl async on cpu").ok is False
    assert cell(small, "simulated async on cpu").ok is True  # it starts no framework


def test_a_pin_that_pip_must_be_told_of_is_checked_before_the_download() -> None:
    assert machine(GOOD, TORCH.pin).found == "pip finds it"
    lost = replace(NO_GPU, special_pins={"skyrl-cpu-vllm": (replace(TORCH, found=False),)})
    row = machine(lost, TORCH.pin)
    assert row.ok is False
    assert "PIP_EXTRA_INDEX_URL" in row.action
    assert "PIP_FIND_LINKS" in row.action
    assert cell(lost, "skyrl async on cpu").ok is False
    assert TORCH.pin in cell(lost, "skyrl async on cpu").action
    blind = replace(NO_GPU, special_pins={"skyrl-cpu-vllm": (replace(TORCH, found=None, why="no answer"),)})
    assert machine(blind, TORCH.pin).ok is None
    assert cell(blind, "skyrl async on cpu").ok is True


def test_a_python_of_the_users_own_needs_no_build() -> None:
    facts = replace(NO_GPU, pythons={}, disk_free_bytes=0, own_pythons={"skyrl": "/container/python"})
    row = cell(facts, "skyrl async on cpu")
    assert (row.ok, row.found) == (True, "BENCH_SKYRL_PYTHON=/container/python")


def test_looking_at_this_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_SKYRL_PYTHON", "/own/python")
    facts = look([CPU])
    assert facts.disk_path == cache.parent  # the cache itself is not there yet
    assert facts.memory_bytes >= facts.available_bytes > 0
    assert facts.built == frozenset()
    assert facts.own_pythons == {"skyrl": "/own/python"}
    assert (facts.driver is None) == (facts.driver_error != "")


@pytest.mark.usefixtures("cache")
def test_diagnose_covers_every_framework_placement_and_device() -> None:
    names = [row.name for row in diagnose()]
    assert len(set(names)) == len(names)
    assert {"memory", "skyrl colocated on cpu", "skyrl async on cuda", "simulated async on cpu"} <= set(names)
