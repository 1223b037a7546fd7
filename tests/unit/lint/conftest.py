"""Recorded runs for the tests of the lint: simulated ones, and played ones on GPUs."""

import sys
from pathlib import Path

import pytest

from harness.cli import call

sys.path.append(str(Path(__file__).parents[1] / "reports"))  # the played runs on GPUs

from played_gpus import write_gpu_run
from played_runs import make_spec

from harness.protocol.spec import Device, Gpus
from results.collect import collect
from results.store import RunTables


@pytest.fixture(scope="session")
def simulated_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each placement of the simulated framework."""
    folder = tmp_path_factory.mktemp("lint") / "runs"
    for placement in ("colocated", "disaggregated", "async"):
        arguments = ["run", "--framework", "simulated", "--placement", placement, "--steps", "5"]
        assert call([*arguments, "--latency-scale", "0.2", "--runs-dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def gpu_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunTables]:
    """A played run on GPUs for each placement, collected."""
    runs = {}
    for placement in ("colocated", "disaggregated", "async"):
        gpus = Gpus(train=2, rollout=2)
        spec = make_spec(placement, device=Device.CUDA, gpus=gpus, batch_size=4, group_size=2, steps=7)
        folder = tmp_path_factory.mktemp("gpu") / f"20261129T150000Z-skyrl-{placement}-abc123"
        runs[placement] = collect(write_gpu_run(folder, spec))
    return runs
