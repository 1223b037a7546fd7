"""A plan held against a run that followed it."""

import json

import pytest

from harness.cli import call
from results.planner.score import SCORED


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A colocated run to plan from, and an async one with another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for placement, seed in (("colocated", "1"), ("async", "2")):
        words = ["--framework", "simulated", "--placement", placement, "--steps", "10", "--seed", seed]
        assert call(["run", *words, "--runs-dir", str(folder)]) == 0
    return {path.name.split("-")[2]: path for path in folder.iterdir()}


def test_the_run_s_own_candidate_is_scored(runs, tmp_path, capsys):
    out = tmp_path / "plan"
    words = ["--max-staleness", "1", "--draws", "8", "--updates", "20", "-o", str(out)]
    assert call(["plan", str(runs["colocated"]), *words]) == 0
    capsys.readouterr()
    assert call(["score", str(out), str(runs["async"])]) == 0
    said = capsys.readouterr().out
    assert "async 1+1, staleness 1, predicted and measured" in said
    rows = [line for line in said.splitlines() if line.startswith(("| step_s", "| step\\_s"))]
    assert len(rows) == 1
    assert "%" in rows[0]
    assert {name for name in SCORED if f"| {name}" in said.replace("\\", "")} == set(SCORED)


def test_a_run_that_the_plan_does_not_know_is_refused(runs, tmp_path, capsys):
    out = tmp_path / "plan"
    words = ["--max-staleness", "2", "--draws", "2", "--updates", "10", "-o", str(out)]
    assert call(["plan", str(runs["colocated"]), *words]) == 0
    capsys.readouterr()
    assert call(["score", str(out), str(runs["async"])]) == 2
    assert "not among the plan's candidates" in capsys.readouterr().err
    document = json.loads((out / "plan.json").read_text())
    document["calibration"]["batch_size"] = 99
    (out / "plan.json").write_text(json.dumps(document))
    assert call(["score", str(out), str(runs["async"])]) == 2
    assert "its work is not that of" in capsys.readouterr().err
