"""`.ci/run` itself, in a folder where every tool it calls is a stand-in: what it counts, names and starts."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "run"
ENVIRONMENTS = "tests/framework/test_in_their_environments.py"
# Notes its words, and leaves what the tool would. `bench run` of a placement in $FAIL_ONCE ends with 4 once.
TOOL = r"""#!/bin/bash
name=$(basename "$0"); echo "$name $*" >>"$CALLS"
if read -r -t 5 line || (( $? > 128 )); then echo "standard input is open"; exit 9; fi
case "$name $*" in
"pytest -n auto"*)
    if [[ -n $PYTEST_ADDOPTS ]]; then
        echo "again with $PYTEST_ADDOPTS" >>"$CALLS"
        if [[ -n $TESTS_FAIL_AGAIN ]]; then echo "1 failed in 0.10s"; exit 1; fi
        echo "${TESTS_FAIL_ONCE:-0} passed in 0.10s"
    elif [[ -n $TESTS_FAIL_ONCE ]]; then
        for ((k = 0; k < TESTS_FAIL_ONCE; k++)); do echo "FAILED tests/unit/test_a.py::test_$k - AssertionError"; done
        echo "$TESTS_FAIL_ONCE failed, 2 passed in 0.10s"
        exit 1
    else echo "3 passed in 0.10s"; fi ;;
"pytest"*) echo "3 passed in 0.10s" ;;
*" -m venv "*) mkdir -p "$3/bin"; for tool in pip bench; do cp "$0" "$3/bin/$tool"; done ;;
*"--dry-run"*) ;;
"bench report latest"*) mkdir -p report/figures; touch report/report.md report/report.html ;;
"bench run"*)
    for placement in $FAIL_ONCE $FAIL; do
        case "$*" in *"--framework skyrl --placement $placement "*)
            if [[ $placement == "$FAIL" || ! -e $CALLS.$placement ]]; then touch "$CALLS.$placement"; exit 4; fi ;;
        esac
    done ;;
esac
"""
TOOLS = ("python", "pip", "pytest", "bench", "ruff", "mypy", "lint-imports", "chromium")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the script and its stand-ins."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in TOOLS:
        (tmp_path / ".venv" / "bin" / name).write_text(TOOL)
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f"PATH={tmp_path}/.venv/bin:$PATH\n")
    (tmp_path / "tmp").mkdir()
    return tmp_path


def ci(clone: Path, *words: str, **environ: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of output, and the tools' calls. Standard input stays open, as in a terminal."""
    calls = clone / "calls"
    env = {"FAIL_ONCE": "", "FAIL": "", "DAY": "1", "PYTHON": str(clone / ".venv/bin/python"), **environ}
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            ["bash", str(clone / ".ci/run"), *words],
            env={**os.environ, "CI": "true", "TMPDIR": str(clone / "tmp"), "CALLS": str(calls), **env},
            stdin=reading,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, lines, calls.read_text().splitlines() if calls.exists() else []


def test_all_of_it(clone: Path) -> None:
    code, lines, calls = ci(clone)
    assert code == 0, "\n".join(lines)
    # 3 tests five times; format, lint, types, layers, wheel; three environments, each twice; six runs; a report
    assert lines[-1] == "36 passed, 0 failed"
    assert "FLAKY: 0 (passed only when tried again)" in lines
    asked = " ".join(call for call in calls if call.startswith("pytest -m framework"))
    there = [path.name for path in (SCRIPT.parents[1] / "tests/framework").glob("test_*.py")]
    assert len(there) >= 2
    assert [name for name in there if name not in asked] == []
    assert not list((clone / "tmp").iterdir())


def collected(*words: str) -> set[str]:
    """Names of the tests in the frameworks' environments that pytest would run with these words."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "framework", *words, ENVIRONMENTS],
        cwd=SCRIPT.parents[1],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.partition("::")[2] for line in done.stdout.splitlines() if line.startswith(ENVIRONMENTS)}


def test_of_the_control_runs_without_syncs_only_skyrls_is_made(clone: Path) -> None:
    _, _, calls = ci(clone)
    (call,) = [call for call in calls if ENVIRONMENTS in call]
    found = re.fullmatch(rf"pytest -m framework -k (.+) {ENVIRONMENTS}", call)
    assert found is not None, call
    control = "test_without_its_syncs_the_proof_fails"
    assert collected() - collected("-k", found[1]) == {f"{control}[areal]", f"{control}[verl]"}


def test_a_flaky_cell_is_named_and_counted(clone: Path) -> None:
    code, lines, _ = ci(clone, FAIL_ONCE="colocated async")
    assert code == 0, "\n".join(lines)
    assert lines[-3] == "FLAKY: 2 (passed only when tried again): skyrl colocated, skyrl async"
    assert lines[-1] == "36 passed, 0 failed"


def test_a_cell_that_fails_twice_has_failed(clone: Path) -> None:
    code, lines, _ = ci(clone, FAIL="async")
    assert code == 1
    assert lines[-1] == "35 passed, 1 failed"
    assert any(line.startswith("left for a look") for line in lines)
    assert "FLAKY: 0 (passed only when tried again)" in lines
    assert any(line.startswith("=== FAILED: skyrl async, exit code 4") for line in lines)


def test_a_test_that_passes_when_tried_again_is_named_and_counted(clone: Path) -> None:
    code, lines, calls = ci(clone, TESTS_FAIL_ONCE="2")
    assert code == 0, "\n".join(lines)
    assert [call for call in calls if "again with" in call] == [
        "again with --last-failed --last-failed-no-failures=none"
    ]
    named = "tests/unit/test_a.py::test_0, tests/unit/test_a.py::test_1"
    assert f"FLAKY: 2 (passed only when tried again): {named}" in lines
    assert lines[-1] == "37 passed, 0 failed"  # 2 + 2 tests in place of 3


def test_a_test_that_fails_again_has_failed(clone: Path) -> None:
    code, lines, _ = ci(clone, TESTS_FAIL_ONCE="1", TESTS_FAIL_AGAIN="1")
    assert code == 1
    assert lines[-1].endswith("passed, 1 failed")
    assert "FLAKY: 0 (passed only when tried again)" in lines


def test_many_tests_that_fail_are_no_flake(clone: Path) -> None:
    code, lines, calls = ci(clone, TESTS_FAIL_ONCE="6")
    assert code == 1
    assert not [call for call in calls if "again with" in call]
    assert lines[-1].endswith("passed, 6 failed")


def test_two_days_cover_all_six_cells_of_three_frameworks(clone: Path) -> None:
    cells = set()
    for day in "01":
        _, _, calls = ci(clone, DAY=day)
        runs = [call.split() for call in calls if call.startswith("bench run --framework") and "--dry-run" not in call]
        runs = [words for words in runs if "live" not in words]
        cells |= {(words[3], words[5]) for words in runs}
    both = {(name, where) for name in ("skyrl", "areal", "verl") for where in ("colocated", "async")}
    assert both | {("skyrl", "disaggregated"), ("simulated", "async")} == cells


def test_three_days_cover_the_live_runs_of_three_frameworks(clone: Path) -> None:
    seen = []
    for day in "012":
        _, _, calls = ci(clone, DAY=day)
        (live,) = {call for call in calls if call.startswith("bench run") and "--load live" in call}
        words = live.split()
        assert words[words.index("--runs-dir") + 1].endswith("/other-runs")
        seen.append(words[3])
        calls_file = clone / "calls"
        calls_file.unlink()
    assert seen == ["skyrl", "areal", "verl"]


def without_a_browser(clone: Path, user: int) -> str:
    """A PATH without Chromium, where this is `user`, and apt-get notes its words and installs nothing."""
    (clone / ".venv" / "bin" / "chromium").unlink()
    shown = clone / "programs"
    shown.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).iterdir() if Path(folder).is_dir() else ():
            link = shown / path.name
            if not path.name.startswith(("chromium", "google-chrome")) and not link.is_symlink():
                link.symlink_to(path)
    for name, text in (("apt-get", 'echo "apt-get $*" >>"$CALLS"'), ("id", f"echo {user}")):
        (shown / name).unlink(missing_ok=True)
        (shown / name).write_text(f"#!/bin/bash\n{text}\n")
        (shown / name).chmod(0o755)
    return str(shown)


@pytest.mark.parametrize("user", [0, 1000], ids=["root", "somebody"])
def test_without_a_browser_its_tests_are_named_as_not_run(clone: Path, user: int) -> None:
    code, lines, calls = ci(clone, "--quick", PATH=without_a_browser(clone, user))
    assert code == 0, "\n".join(lines)
    said = "=== not run: the tests marked browser (no chromium, and it could not be installed)"
    assert said in lines
    asked = [call for call in calls if call.startswith("apt-get install") or "install --yes" in call]
    assert bool(asked) == (user == 0)
    assert not [call for call in calls if "-m browser" in call]


def test_another_python_is_found_where_python311_is_not(clone: Path, tmp_path: Path) -> None:
    names = clone / "names"
    names.mkdir()
    for name, code in (("python3.11", 127), ("python3", 0)):
        (names / name).write_text(f'#!/bin/bash\necho "{name} $*" >>"$CALLS"\nexit {code}\n')
        (names / name).chmod(0o755)
    _, lines, calls = ci(clone, "--quick", PYTHON="", PATH=f"{names}:{os.environ['PATH']}")
    assert any(call.startswith("python3 -m venv") for call in calls), "\n".join(lines)
    code, lines, _ = ci(clone, "--quick", PYTHON=str(names / "python3.11"))
    assert code == 3
    assert any("no Python 3.11 or newer" in line for line in lines)


def test_what_tests_need_is_installed_by_the_extra_that_they_are_run_with() -> None:
    """All extras but Ray's, whose cluster no test starts from this environment."""
    extras = tomllib.loads((SCRIPT.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (own,) = [name for name in extras["dev"] if name.startswith("agentic-rl-bench[")]
    named = set(own.partition("[")[2].rstrip("]").split(","))
    assert named == set(extras) - {"dev", "ray"}
