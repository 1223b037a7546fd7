"""The import contracts of pyproject.toml notice what they are there for: each planted import breaks one by name."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("harness", "adapters", "workloads", "results", "reports")
COMMAND = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]

STANDARD_LIBRARY = "the protocol, workloads and parent halves"
INDEPENDENT = "the frameworks' adapters don't import each other"
FRAMEWORKS = "only the children's modules import a framework"
CHILDREN = "nothing that runs in the harness imports a child's module"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages and of the contracts."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken(checkout: Path) -> list[str]:
    """Names of the contracts that don't hold, as far as they fit on a line."""
    done = subprocess.run(
        [*COMMAND, "--no-cache"], cwd=checkout, capture_output=True, text=True, timeout=100, check=False
    )
    text = " ".join(done.stdout.split())
    assert "Contracts" in text, done.stdout + done.stderr
    head = text.partition("Contracts: ")[0]
    names = [name for name in (STANDARD_LIBRARY, INDEPENDENT, FRAMEWORKS, CHILDREN) if name in head]
    assert len(names) == 4, text
    verdict = {
        name: head[head.index(name) :].replace("BROKEN", "\0BROKEN").replace("KEPT", "\0KEPT").split("\0")[1].split()[0]
        for name in names
    }
    return [name for name, word in verdict.items() if word == "BROKEN"]


@pytest.mark.parametrize(
    ("place", "line", "contract"),
    [
        ("adapters/simulated/engine.py", "import adapters.skyrl.phases", INDEPENDENT),
        ("adapters/skyrl/worker/session.py", "import adapters.verl.phases", INDEPENDENT),
        ("results/energy.py", "import torch", FRAMEWORKS),
        ("harness/machine.py", "import aiohttp", FRAMEWORKS),
        ("harness/envs/probe.py", "import vllm.envs", FRAMEWORKS),
        ("adapters/verl/phases.py", "import ray", FRAMEWORKS),
        ("adapters/skyrl/adapter.py", "import adapters.skyrl.worker.session", CHILDREN),
        ("adapters/verl/adapter.py", "import pyarrow", STANDARD_LIBRARY),
    ],
)
def test_a_planted_import_breaks_its_contract(checkout: Path, place: str, line: str, contract: str) -> None:
    path = checkout / place
    path.write_text(f"{path.read_text()}\n\ndef planted() -> None:\n    {line}\n")
    assert contract in broken(checkout)


def test_as_it_is_all_are_kept(checkout: Path) -> None:
    assert broken(checkout) == []
