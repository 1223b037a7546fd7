"""The workflows on GitHub: valid by its schema, and their commands do here what they say, as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent
PATIENCE_S = 300
# Steps that this machine does in another way: the suite that runs this test, and what is installed for it already.
ELSEWHERE = {"Tests, types, lint, layers, wheel": ".ci/run --quick", "Install": "pip install"}


def load(name):
    return YAML(typ="safe").load(ROOT / ".github" / "workflows" / name)


def steps_of(name, job):
    return [step for step in load(name)["jobs"][job]["steps"] if "run" in step]


class Runner:
    """Runs steps as a runner does: bash -e, the job's environment, files for outputs, summary and PATH."""

    def __init__(self, folder, env):
        self.folder = folder
        self.told = {name: folder / name for name in ("output", "summary", "path")}
        for path in self.told.values():
            path.write_text("")
        self.env = {
            **os.environ,
            **env,
            "PATH": f"{folder}/bin:{BIN}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self.told["output"]),
            "GITHUB_STEP_SUMMARY": str(self.told["summary"]),
            "GITHUB_PATH": str(self.told["path"]),
            "GITHUB_ACTOR": "runner",
            "HOME": str(folder),
            "CI": "true",
        }

    def run(self, text, **env):
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def output(self, name):
        found = re.findall(rf"^{name}=(.*)$", self.told["output"].read_text(), re.MULTILINE)
        return found[-1] if found else ""


@pytest.fixture
def runner(tmp_path):
    def make(**env):
        (tmp_path / "bin").mkdir(exist_ok=True)
        return Runner(tmp_path, env)

    return make


def test_there_are_two_and_github_s_schema_takes_them():
    assert [path.name for path in WORKFLOWS] == ["nightly.yml", "pull-request.yml"]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*command, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_finds_a_step_that_is_none(tmp_path):
    bad = tmp_path / "bad.yml"
    bad.write_text(WORKFLOWS[0].read_text().replace("timeout-minutes:", "timeout_minutes:"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(bad)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_take_what_they_need_from_the_environment(path):
    """No ${{ }} inside a command: what comes from outside is never a part of a script."""
    for job in YAML(typ="safe").load(path)["jobs"].values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), step["name"]


def test_the_token_is_there_for_the_step_that_writes_the_issue_alone():
    job = load("nightly.yml")["jobs"]["cell"]
    holders = [step["name"] for step in job["steps"] if "github.token" in str(step.get("env", ""))]
    assert holders == ["An issue for a regression"]
    assert "github.token" not in str(job["env"])
    (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert checkout["with"]["persist-credentials"] is False


@pytest.mark.parametrize("repeats", ["a[$(touch $HOME/written)]", "0", "-1", "3; true", ""])
def test_repeats_are_a_number_and_nothing_that_bash_would_run(runner, repeats):
    here = runner(**NIGHT, RUN_FLAGS="")
    (step,) = [step for step in steps_of("nightly.yml", "cell") if step["name"] == "Runs"]
    code, said = here.run(step["run"], REPEATS=repeats)
    assert code == 2
    assert "::error::repeats" in said
    assert not (here.folder / "written").exists()


def test_the_night_covers_every_cell_but_the_refused():
    matrix = load("nightly.yml")["jobs"]["cell"]["strategy"]["matrix"]
    cells = {(framework, placement) for framework in matrix["framework"] for placement in matrix["placement"]}
    assert cells == {(f, p) for f in ("skyrl", "areal", "verl") for p in ("colocated", "async")}
    assert matrix["exclude"] == [{"framework": "areal", "placement": "colocated"}]


def test_the_pull_request_s_checks_are_the_ci_s_own():
    (only,) = steps_of("pull-request.yml", "checks")
    assert only["run"] == ELSEWHERE[only["name"]]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_pull_request_s_smoke_run(runner):
    env = load("pull-request.yml")["jobs"]["smoke"]["env"]
    here = runner(**env)
    for step in steps_of("pull-request.yml", "smoke"):
        if step["name"] in ELSEWHERE:
            assert step["run"].startswith(ELSEWHERE[step["name"]])
            continue
        code, said = here.run(step["run"])
        assert code == 0, f"{step['name']}\n{said}"
    assert "imulated" in here.told["summary"].read_text()
    assert (here.folder / env["OUT"] / "report" / "report.md").is_file()


NIGHT = {"FRAMEWORK": "simulated", "PLACEMENT": "async", "DEVICE": "cpu", "REPEATS": "2", "BASELINE": "baselines"}


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A night of the simulated framework, step by step: name -> (exit code, output)."""
    folder = tmp_path_factory.mktemp("night")
    (folder / "bin").mkdir()
    gh = folder / "bin" / "gh"
    gh.write_text('#!/bin/bash\nprintf "%s\\n" "$@" >"$HOME/$1"\n')
    gh.chmod(0o755)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    here = Runner(folder, {**NIGHT, "RUN_FLAGS": "--steps 5", "BENCH_NIGHTLY": str(folder / "series")})
    seen = {}
    for step in steps_of("nightly.yml", "cell"):
        if step["name"] not in ELSEWHERE and "if" not in step:
            seen[step["name"]] = here.run(step["run"])
    for step in steps_of("nightly.yml", "cell"):
        if step.get("if") == "always()":
            seen[step["name"]] = here.run(step["run"])
    return here, seen


def test_a_night_runs_from_its_first_command_to_its_last(night):
    here, seen = night
    assert list(seen) == [
        "Environment of the framework",
        "Runs",
        "Report",
        "Identities",
        "Against the baseline",
        "The series of nights",
    ]
    for name, (code, said) in seen.items():
        assert code == (5 if name == "Against the baseline" else 0), f"{name}\n{said}"
    assert len(list((here.folder / "runs").iterdir())) == 2
    assert (here.folder / "out" / "report" / "report.md").is_file()
    assert len(list((here.folder / "out").glob("*.html"))) == 2
    assert (here.folder / "out" / "history" / "history.md").is_file()
    assert len(list((here.folder / "series").glob("*.parquet"))) == 1
    summary = here.told["summary"].read_text()
    assert "# Regression check: underpowered" in summary
    assert "# Nights in a row" in summary


def test_a_night_without_a_baseline_warns_and_is_not_green_by_silence(night):
    here, seen = night
    assert "::warning::simulated async: a regression could not have been shown" in seen["Against the baseline"][1]
    assert here.output("code") == "5"


def test_a_regression_fails_the_night_and_writes_an_issue(night):
    here, _ = night
    (check,) = [step for step in steps_of("nightly.yml", "cell") if step.get("id") == "check"]
    stand_in = here.folder / "bin" / "bench"
    stand_in.write_text('#!/bin/bash\nprintf "# Regression check: FAILED\\n" >out/check.md\nexit 1\n')
    stand_in.chmod(0o755)
    try:
        code, _ = here.run(check["run"])
    finally:
        stand_in.unlink()
    assert code == 1
    assert here.output("code") == "1"
    (issue,) = [step for step in steps_of("nightly.yml", "cell") if step.get("if", "").startswith("failure()")]
    assert "steps.check.outputs.code == '1'" in issue["if"]
    code, said = here.run(issue["run"])
    assert code == 0, said
    assert (here.folder / "label").read_text().split() == ["label", "create", "regression", "--force"]
    words = (here.folder / "issue").read_text().splitlines()
    assert words[:2] == ["issue", "create"]
    assert "Nightly: simulated async is slower than its baseline" in words
    body = here.folder / words[words.index("--body-file") + 1]
    assert body.read_text().startswith("# Regression check: FAILED")
