"""The example of docs/adapters.md, taken from the page and run: as a reader would, by its own commands."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adapters.base import FAIRNESS
from harness.protocol.phases import Phase
from results.store import load_run
from results.sync_proof import prove_sync

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
BENCH = ["-c", "from harness.cli import main; main()"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
FILES = ("toy.py", "bench_toy/adapter.py", "bench_toy/worker.py")
SECONDS = 100  # for one command; a hang is what it is for
pytestmark = pytest.mark.timeout(4 * SECONDS)
FAST = ("--latency-scale", "0.05")


def block(kind: str, head: str) -> str:
    """The one block of the page that begins with `head`."""
    found = [text for language, text in BLOCKS if language == kind and text.startswith(head)]
    assert len(found) == 1, f"{len(found)} blocks of the page begin with {head!r}"
    return found[0]


def call(arguments: list[str], environment: dict[str, str], folder: Path) -> str:
    """Everything a command printed; it must end with 0."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds the example installed, as pip would leave it."""
    site = tmp_path_factory.mktemp("site")
    whole = tomllib.loads(block("toml", "[project]"))
    project, built = whole["project"], whole["tool"]["setuptools"]
    for package in built["packages"]:
        (site / package).mkdir()
        (site / package / "__init__.py").touch()
    for path in FILES:
        assert path.partition("/")[0] in (*built["packages"], *(f"{module}.py" for module in built["py-modules"]))
        (site / path).write_text(block("python", f'"""{path}: '), encoding="utf-8")
    info = site / f"bench_toy-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BENCH_", "PYTEST_"))}
    return {**environment, "PYTHONPATH": str(site), "BENCH_ADAPTERS": "toy"}


@pytest.fixture(scope="module")
def runs(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two runs that the page asks for."""
    folder = tmp_path_factory.mktemp("toy")
    control = block("toml", 'framework = "toy"')
    assert tomllib.loads(control)["faults"] == ["no-sync"]
    (folder / "control.toml").write_text(control, encoding="utf-8")
    command = re.search(r"^    bench (run --framework toy .*?) --runs-dir RUNS", PAGE, flags=re.MULTILINE)
    assert command is not None
    for arguments in (command[1].split(), ["run", "-c", "control.toml"]):
        call([*BENCH, *arguments, *FAST, "--runs-dir", "RUNS"], installed, folder)
    return folder / "RUNS"


def test_the_contract_suite_passes_for_the_example(installed: dict[str, str]) -> None:
    suite = [*PYTEST, "tests/contract/test_adapters.py"]
    assert "BENCH_ADAPTERS=toy pytest tests/contract/test_adapters.py" in PAGE
    printed = call(suite, installed, ROOT)
    assert " passed" in printed
    assert "skipped" not in printed


def test_what_must_hold_in_runs_holds_in_the_examples(installed: dict[str, str], runs: Path) -> None:
    suite = [*PYTEST, "-m", "framework", "tests/framework/test_framework_runs.py"]
    assert "BENCH_ADAPTERS=toy BENCH_RUNS=RUNS pytest -m framework tests/framework/test_framework_runs.py" in PAGE
    printed = call(suite, {**installed, "BENCH_RUNS": str(runs)}, ROOT)
    assert " passed" in printed
    assert "skipped" not in printed


def test_the_proof_is_what_the_fault_turns(runs: Path) -> None:
    proven = {bool(run.spec.faults): prove_sync(run).proven for run in map(load_run, sorted(runs.iterdir()))}
    assert proven == {False: True, True: False}


def test_the_runs_name_the_example_s_own_engine(installed: dict[str, str], runs: Path, tmp_path: Path) -> None:
    assert {run.spec.engine for run in map(load_run, sorted(runs.iterdir()))} == {"toy"}
    asked = ["run", "--framework", "toy", "--placement", "colocated", "--device", "cpu", "--engine", "vllm"]
    with pytest.raises(AssertionError, match="engine = vllm: allowed with toy on cpu is toy"):
        call([*BENCH, *asked, "--dry-run"], installed, tmp_path)


def test_a_setting_that_does_not_exist_is_refused_before_the_start(installed: dict[str, str], tmp_path: Path) -> None:
    run = ["run", "--framework", "toy", "--placement", "colocated", "--device", "cpu", "-o", "speed=9"]
    with pytest.raises(AssertionError, match=r"framework = toy.*speed"):
        call([*BENCH, *run, "--runs-dir", "RUNS"], installed, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_page_names_only_phases_and_rows_that_exist() -> None:
    named = set(re.findall(r"Phase\.([A-Z_]+)", PAGE))
    assert named <= set(Phase.__members__)
    told = re.search(r"fairness=\{(.*?)\n            \},", block("python", '"""bench_toy/adapter.py'), flags=re.DOTALL)
    assert told is not None
    assert set(re.findall(r'^ +"(\w+)":', told[1], flags=re.MULTILINE)) <= set(FAIRNESS)
