"""A plan held against a run that followed it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from harness.cli import call
from harness.protocol.errors import SpecError
from reports.planned.planned import score_page
from results.comparing.kept import measures_of
from results.comparing.measures import Value
from results.planner.score import FORMAT, SCORED, score


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
    assert "async 1+1, staleness 1, predicted and simulated: " in said
    assert "measured" not in said.replace("Nothing here was measured", "")
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
    sizes = document["calibration"]
    for about, said in (
        (sizes | {"batch_size": 99}, "(batch_size: 99 and 4)"),
        (
            sizes | {"work": sizes["work"] | {"preset": "deep-research"}},
            "(preset: deep-research and deep-research-smoke)",
        ),
        (sizes | {"framework": "verl"}, "(framework: verl and simulated)"),
    ):
        (out / "plan.json").write_text(json.dumps(document | {"calibration": about}))
        assert call(["score", str(out), str(runs["async"])]) == 2
        error = capsys.readouterr().err
        assert "its work is not that of" in error
        assert said in error


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"device": "cuda"}, "device: cuda and cpu"),
        ({"device": "cpu", "model": "random:qwen3-14b"}, "model: random:qwen3-14b and tiny"),
        ({"device": "cpu", "batch_size": 24, "group_size": 1}, "trajectories a step: 24 and 8"),
    ],
)
def test_a_published_row_s_plan_is_for_its_own_work(runs, about, said):
    """It has no digest: what it does know must be the run's."""
    known = {"source": "published", "name": "row", "model": "", "framework": "", "work_digest": "", **about}
    with pytest.raises(SpecError, match=said):
        score({"format": FORMAT, "calibration": known, "predictions": []}, measures_of(runs["async"]))


def test_groups_that_a_published_row_does_not_tell_are_not_held_against_it(runs):
    known = {"source": "published", "name": "row", "device": "cpu", "batch_size": 8, "group_size": 1}
    with pytest.raises(SpecError, match="not among the plan's candidates"):
        score({"format": FORMAT, "calibration": known, "predictions": []}, measures_of(runs["async"]))


@pytest.mark.parametrize("spoil", [{"predictions": [{}]}, {"predictions": 3}, {"calibration": None}])
def test_a_damaged_plan_is_said(runs, tmp_path, spoil, capsys):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format": FORMAT, "calibration": {}, "predictions": [], **spoil}))
    assert call(["score", str(path), str(runs["async"])]) == 2
    assert "plan: its file is damaged" in capsys.readouterr().err


def test_a_run_that_may_not_be_compared_scores_nothing(runs):
    bad = replace(measures_of(runs["async"]), problems=("did not finish (status killed)",))
    with pytest.raises(SpecError, match="did not finish"):
        score({"format": FORMAT, "calibration": {}, "predictions": []}, bad)


def test_a_prediction_stands_where_the_run_has_no_value(runs):
    scored = scored_of(runs, {"value": 2.0, "low": 1.0, "high": 3.0}, measured=None)
    assert (scored.predicted, scored.measured, scored.inside) == (2.0, None, None)
    assert scored.why
    page = "\n".join(score_page("colocated 1", measures_of(runs["colocated"]), [scored], 40))
    assert "| step_s | 2 (1 to 3) | –" in page
    assert "a run of fewer steps varies more" in page


@pytest.mark.parametrize(("steps", "low"), [(40, 1.0), (10, 2 - np.hypot(1, 1.2815515655446004 * 0.5 * 3**0.5))])
def test_a_shorter_run_s_interval_is_wider(runs, steps, low):
    scored = scored_of(runs, {"value": 2.0, "low": 1.0, "high": 3.0}, measured=2.5, steps=steps, noise=0.5)
    assert scored.low == pytest.approx(low)
    assert scored.high == pytest.approx(4 - low)
    assert scored.inside
    assert scored.widened


def test_a_plan_of_before_has_no_noise_and_says_so(runs):
    scored = scored_of(runs, {"value": 2.0, "low": 1.0, "high": 3.0}, measured=3.5, steps=10)
    assert (scored.low, scored.high, scored.inside, scored.widened) == (1.0, 3.0, False, False)


def scored_of(runs, predicted, *, measured, steps=10, noise=None):
    """Of a plan of 40 updates: its step time beside a run's."""
    run = measures_of(runs["colocated"])
    own = Value(measured, "" if measured is not None else "no steady window")
    run = replace(run, values={**run.values, "step_time_s": own})
    one = {
        "name": "colocated 1",
        "candidate": {"placement": "colocated", "train_gpus": 1, "rollout_gpus": 1, "max_staleness": 0},
        "step_s": predicted,
        "noise": {} if noise is None else {"step_s": noise},
    }
    run = replace(run, steps=steps, placement="colocated", system={**run.system, "gpus": "1+1", "max_staleness": "0"})
    _, scored = score({"format": FORMAT, "updates": 40, "predictions": [one]}, run)
    return next(each for each in scored if each.name == "step_s")
