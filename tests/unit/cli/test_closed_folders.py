"""Run folders that may not be looked into: named in one line, and left out where many are shown."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import call

CLOSED = "20990101T000000Z-closed"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a simulated run, and with a copy of it that is closed to all."""
    folder = tmp_path_factory.mktemp("closed") / "runs"
    arguments = ["run", "--framework", "simulated", "--placement", "colocated", "--steps", "4"]
    assert call([*arguments, "--latency-scale", "0.2", "--runs-dir", str(folder)]) == 0
    (run,) = folder.iterdir()
    shutil.copytree(run, folder / CLOSED)
    (folder / CLOSED).chmod(0)
    yield folder
    (folder / CLOSED).chmod(0o755)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command without the superuser's power to read everything."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("verb", ["report", "lint", "logs", "collect", "export"])
def test_a_closed_run_is_one_line(verb: str, runs: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "out")]
    more = {"report": out, "export": ["--to", "perfetto", *out]}.get(verb, [])
    said = bench(verb, str(runs / CLOSED), *more)
    assert said.returncode == 2, said.stderr
    assert said.stderr.count("\n") == 1
    assert CLOSED in said.stderr
    assert "Permission denied" in said.stderr
    assert "defect" not in said.stderr


def test_a_closed_run_is_compared_with_none(runs: Path) -> None:
    run = next(path for path in runs.iterdir() if path.name != CLOSED)
    said = bench("compare", str(run), str(runs / CLOSED))
    assert said.returncode == 2
    assert CLOSED in said.stderr
    assert "defect" not in said.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "runs", "--runs-dir", "{runs}"],
        ["query", "SELECT run_id FROM runs", "--runs-dir", "{runs}"],
        ["lint", "{runs}"],
        ["lint", "latest", "--runs-dir", "{runs}"],
    ],
)
def test_the_other_runs_are_shown(arguments: list[str], runs: Path) -> None:
    run = next(path for path in runs.iterdir() if path.name != CLOSED)
    said = bench(*(one.replace("{runs}", str(runs)) for one in arguments))
    assert said.returncode == 0, said.stderr
    assert run.name[:16] in said.stdout
    if "latest" not in arguments:
        assert f"left out: {runs / CLOSED}: cannot be read: Permission denied" in said.stderr


def test_closed_tables_of_a_run_that_can_be_read(runs: Path) -> None:
    run = next(path for path in runs.iterdir() if path.name != CLOSED)
    (run / "tables").chmod(0)
    try:
        for arguments in (["report", str(run)], ["lint", str(run)], ["query", "SELECT 1", "--runs-dir", str(runs)]):
            said = bench(*arguments)
            assert said.returncode == 2, said.stderr
            assert run.name in said.stderr
            assert "defect" not in said.stderr
    finally:
        (run / "tables").chmod(0o755)
