"""What failed, and nothing else, is run again where the environment asks for it, with several workers too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
from pathlib import Path

def test_that_fails_once():
    left = Path("left")
    there = left.exists()
    left.touch()
    assert there

def test_that_passes():
    assert "PYTEST_ADDOPTS" not in os.environ

def test_that_passes_too():
    pass
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_only_what_failed_is_run_again(workers: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(options: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        argv = [sys.executable, "-m", "pytest", "-n", workers]
        done = subprocess.run(
            argv, cwd=tmp_path, env=kept | {"PYTEST_ADDOPTS": options}, capture_output=True, text=True, check=False
        )
        return done.stdout.splitlines()[-1]

    assert "1 failed, 2 passed" in run("-v")
    again = run("--last-failed --last-failed-no-failures=none")
    assert "1 passed" in again
    assert "failed" not in again
