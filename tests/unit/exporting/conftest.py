"""One recorded run for all tests of exports: simulated, async, with a killed copy beside it."""

import shutil
from pathlib import Path

import pytest

from harness.cli import call


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an async and a colocated run of the simulated framework."""
    folder = tmp_path_factory.mktemp("exporting") / "runs"
    for placement in ("async", "colocated"):
        arguments = ["run", "--framework", "simulated", "--placement", placement, "--steps", "4"]
        assert call([*arguments, "--latency-scale", "0.2", "--runs-dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def async_run(runs_dir: Path) -> Path:
    return next(path for path in runs_dir.iterdir() if "-async-" in path.name)


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
