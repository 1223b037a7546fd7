"""The workflows on GitHub: valid by its schema, and their commands do here what they say, as they stand."""

import json
import os
import re
import subprocess
import sys
import tarfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from adapters.base import load_adapter
from harness.protocol.spec import Device, Placement
from harness.specs import default_spec

pytestmark = pytest.mark.timeout(600)  # whole nights, on machines that have other things to do
ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent
PATIENCE_S = 500
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
    assert holders == ["An issue for a regression or a failure"]
    assert "github.token" not in str(job["env"])
    (checkout,) = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert checkout["with"]["persist-credentials"] is False


@pytest.mark.parametrize("repeats", ["a[$(touch $HOME/written)]", "0", "-1", "3; true", ""])
def test_repeats_are_a_number_and_nothing_that_bash_would_run(runner, repeats):
    here = runner(**NIGHT)
    (step,) = [step for step in steps_of("nightly.yml", "cell") if step["name"] == "Runs"]
    code, said = here.run(step["run"], REPEATS=repeats)
    assert code == 2
    assert "::error::repeats" in said
    assert not (here.folder / "written").exists()


def test_the_night_covers_every_cell_but_the_refused():
    matrix = load("nightly.yml")["jobs"]["cell"]["strategy"]["matrix"]
    cells = {(framework, placement) for framework in matrix["framework"] for placement in matrix["placement"]}
    assert cells == {(f, p) for f in ("skyrl", "areal", "verl") for p in ("colocated", "disaggregated", "async")}
    refused = []
    for framework, placement in sorted(cells):
        if load_adapter(framework).supports(default_spec(framework, Placement(placement), Device.CUDA)):
            refused.append({"framework": framework, "placement": placement})
    assert matrix["exclude"] == refused


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_of_others_are_pinned_to_a_commit_and_say_which_version_it_is(path):
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for one in used:
        assert re.fullmatch(r"[a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


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


NIGHT = {
    "FRAMEWORK": "simulated",
    "PLACEMENT": "async",
    "DEVICE": "cpu",
    "REPEATS": "2",
    "BASELINE": "baselines",
    "RUN_URL": "https://example.org/actions/runs/7",
    "RUN_FLAGS": "--steps 5",
}
# Keeps what it was told; `gh issue list` answers what $HOME/known holds.
GH = """#!/bin/bash
if [[ "$1 $2" == "issue list" ]]; then cat "$HOME/known" 2>/dev/null; fi
printf "%s\\n" "$@" >"$HOME/told-$1-$2"
"""
# A commit that made training slower: what a framework does, and nothing of what it is asked.
SLOWER = """
from dataclasses import replace

import adapters.simulated.pace as pace

pace.SMALL = replace(pace.SMALL, train_s=1.3 * pace.SMALL.train_s, train_token_s=1.3 * pace.SMALL.train_token_s)
"""


def nightly(named):
    """The command of the nightly step of that name."""
    (found,) = [step["run"] for step in steps_of("nightly.yml", "cell") if step["name"] == named]
    return found


def place_for(folder, **env):
    """A runner's folder, where `gh` writes down what it is told."""
    (folder / "bin").mkdir()
    (folder / "bin" / "gh").write_text(GH)
    (folder / "bin" / "gh").chmod(0o755)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return Runner(folder, {**NIGHT, "BENCH_NIGHTLY": str(folder / "series"), **env})


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A night of the simulated framework, step by step: name -> (exit code, output)."""
    here = place_for(tmp_path_factory.mktemp("night"))
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


ISSUE, LEFT = "An issue for a regression or a failure", "What is left of a night that failed"


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """A runner's folder with a baseline of five simulated runs, two of them of two days before."""
    folder = tmp_path_factory.mktemp("standard")
    # No commit on record: a runner's checkout stands still, and one that somebody works in may not, for so long.
    here = place_for(folder, GIT_DIR=str(folder / ".git"))
    code, said = here.run(nightly("Runs"), REPEATS="5")
    assert code == 0, said
    (here.folder / "runs").rename(here.folder / "first")
    for run in sorted((here.folder / "first").iterdir())[:2]:
        meta = json.loads((run / "meta.json").read_text())
        start = datetime.fromisoformat(meta["started_utc"]) - timedelta(days=2)
        (run / "meta.json").write_text(json.dumps({**meta, "started_utc": start.isoformat()}))
    code, said = here.run("bench baseline accept first/* --why 'two quiet evenings'")
    assert code == 0, said
    (here.folder / "out").mkdir()
    return here


def test_a_night_like_the_baseline_is_green(standard):
    code, said = standard.run(f"rm -rf runs; {nightly('Runs')}")
    assert code == 0, said
    code, said = standard.run(nightly("Against the baseline"))
    assert code == 0, said
    assert "# Regression check: passed: no regression" in said
    assert "2 new runs against 5 baseline runs from 2 occasions" in said
    assert standard.output("code") == "0"


def test_a_slower_framework_fails_the_night_and_opens_one_issue(standard):
    (standard.folder / "sitecustomize.py").write_text(SLOWER)
    code, said = standard.run(f"rm -rf runs; {nightly('Runs')}", PYTHONPATH=str(standard.folder))
    assert code == 0, said
    code, said = standard.run(nightly("Against the baseline"))
    assert code == 1, said
    assert standard.output("code") == "1"
    body = (standard.folder / "out" / "check.md").read_text()
    assert body.startswith("# Regression check: FAILED")
    (row,) = [line for line in body.splitlines() if line.startswith("| phase\\_train\\_s")]
    assert "**failed**" in row
    assert "+30.0%" in row
    code, said = standard.run(nightly(ISSUE), CHECKED=standard.output("code"))
    assert code == 0, said
    told = standard.folder / "told-issue-create"
    assert (standard.folder / "told-label-create").read_text().split() == ["label", "create", "nightly", "--force"]
    assert told.read_text().splitlines() == [
        *("issue", "create", "--title", "Nightly: simulated async", "--label", "nightly"),
        *("--body-file", "out/check.md"),
    ]
    told.unlink()
    (standard.folder / "known").write_text("17\n")  # the next night finds it, and writes below it
    code, said = standard.run(nightly(ISSUE), CHECKED="1")
    assert code == 0, said
    assert not told.exists()
    words = (standard.folder / "told-issue-comment").read_text().split()
    assert words == ["issue", "comment", "17", "--body-file", "out/check.md"]
    asked = (standard.folder / "told-issue-list").read_text()
    assert 'select(.title == "Nightly: simulated async")' in asked


def test_runs_that_fail_leave_their_logs_and_open_an_issue_too(tmp_path):
    here = place_for(tmp_path, RUN_FLAGS="--steps 5 --fault raise=2")
    code, said = here.run(nightly("Runs"))
    assert code == 4, said
    steps = {step["name"]: step for step in load("nightly.yml")["jobs"]["cell"]["steps"] if "name" in step}
    assert steps[LEFT]["if"] == "failure()"
    assert steps[ISSUE]["if"] == "failure() && steps.check.outputs.code != '5'"
    code, said = here.run(nightly(LEFT))
    assert code == 0, said
    with tarfile.open(here.folder / "out" / "left" / "runs.tar.gz") as tar:
        names = [name.split("/", 2)[2] for name in tar.getnames()]
    assert {"logs/worker.log", "spec.json", "meta.json", "tables/failures.parquet"} <= set(names)
    code, said = here.run(nightly(ISSUE), CHECKED="")
    assert code == 0, said
    words = (here.folder / "told-issue-create").read_text().splitlines()
    assert words[words.index("--body-file") + 1] == "out/left/failed.md"
    body = (here.folder / "out" / "left" / "failed.md").read_text()
    assert body.startswith("# Nightly: simulated async failed before it was checked")
    assert NIGHT["RUN_URL"] in body
    assert "planted failure in step 2" in body


def test_a_night_without_any_run_still_says_why(tmp_path):
    here = place_for(tmp_path)
    for named in ("The series of nights", LEFT):
        code, said = here.run(nightly(named))
        assert code == 0, f"{named}\n{said}"
    code, said = here.run(nightly(ISSUE), CHECKED="1")  # the check broke before it wrote its page
    assert code == 0, said
    assert "out/left/failed.md" in (here.folder / "told-issue-create").read_text()
