"""Recorded runs for all tests of exports: simulated ones, one that was cut in its middle, a played one on GPUs."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from harness.cli import call

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))  # the played runs on GPUs

from played_gpus import write_gpu_run
from played_runs import make_spec

from harness.protocol.spec import Device, Gpus


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an async and a colocated run of the simulated framework, made once for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder, done = shared / "exporting-runs", shared / "exporting-runs.done"
    with FileLock(shared / "exporting-runs.lock"):
        if not done.exists():
            for placement in ("async", "colocated"):
                arguments = ["run", "--framework", "simulated", "--placement", placement, "--steps", "4"]
                assert call([*arguments, "--latency-scale", "0.1", "--runs-dir", str(folder)]) == 0
            done.touch()
    return folder


@pytest.fixture(scope="session")
def async_run(runs_dir: Path) -> Path:
    return next(path for path in runs_dir.iterdir() if "-async-" in path.name)


@pytest.fixture(scope="session")
def colocated_run(runs_dir: Path) -> Path:
    return next(path for path in runs_dir.iterdir() if "-colocated-" in path.name)


@pytest.fixture
def cut_run(async_run: Path, tmp_path: Path) -> Path:
    """The async run as a kill in its middle would have left it: the last third of every events file is gone."""
    folder = tmp_path / async_run.name
    shutil.copytree(async_run, folder)
    for path in (folder / "events").glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: max(1, len(lines) * 2 // 3)]))
    shutil.rmtree(folder / "tables")
    assert call(["collect", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def gpu_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A played async run on two GPUs, with samples of what they drew."""
    spec = make_spec("async", device=Device.CUDA, gpus=Gpus(train=1, rollout=1), steps=6)
    folder = write_gpu_run(tmp_path_factory.mktemp("gpu") / "gpu-run", spec)
    assert call(["collect", str(folder)]) == 0
    return folder
