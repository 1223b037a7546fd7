"""What must hold in real frameworks' runs that `bench run` left in the folder $BENCH_RUNS."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.protocol.spec import Placement, RunSpec
from harness.run_folder import list_runs, run_status
from results.adherence import check_adherence
from results.metrics import compute
from results.staleness import staleness
from results.store import RunTables, load_run
from results.sync_proof import prove_sync

pytestmark = pytest.mark.framework
VARIABLE = "BENCH_RUNS"


@dataclass(frozen=True)
class Checked:
    """The newest finished run of a framework in a placement."""

    folder: Path
    run: RunTables

    @property
    def placement(self) -> Placement:
        """Of the run."""
        return self.run.spec.placement


def _cells() -> list[tuple[str, str]]:
    """SkyRL in every placement, and whatever else was run; the folder is asked when the tests are collected."""
    cells = {("skyrl", placement.value) for placement in Placement}
    place = os.environ.get(VARIABLE)
    if place:
        for folder in list_runs(Path(place)):
            spec = RunSpec.load_file(folder / "spec.json")
            cells.add((spec.framework, spec.placement.value))
    return sorted(cells)


_LOADED: dict[tuple[str, str], Checked] = {}


@pytest.fixture(params=_cells(), ids="-".join)
def checked(request: pytest.FixtureRequest) -> Checked:
    """Fails, and does not skip, when there is no such run: these checks were asked for."""
    cell: tuple[str, str] = request.param
    if cell not in _LOADED:
        place = os.environ.get(VARIABLE)
        assert place, f"{VARIABLE} must name the runs folder"
        found = []
        for folder in list_runs(Path(place)):
            spec = RunSpec.load_file(folder / "spec.json")
            if (spec.framework, spec.placement.value) == cell and run_status(folder) == "finished":
                found.append(folder)
        assert found, f"no finished run of {' '.join(cell)} in {place}"
        _LOADED[cell] = Checked(found[-1], load_run(found[-1]))
    return _LOADED[cell]


def test_it_ended_as_it_should(checked: Checked) -> None:
    meta = json.loads((checked.folder / "meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("finished", 0)
    assert (checked.folder / "sealed").exists()
    assert checked.run.tables["steps"].num_rows == checked.run.spec.steps
    assert checked.run.tables["failures"].to_pylist() == []


def test_the_plan_was_kept(checked: Checked) -> None:
    found = check_adherence(checked.run)
    assert found.deviations == ()
    assert found.content_ratio == 1.0
    assert found.undercut == 0
    assert found.loss_tokens_match is True
    assert found.consumed == checked.run.spec.steps * checked.run.spec.trajectories_per_step


def test_every_second_has_a_name(checked: Checked) -> None:
    account = compute(checked.run).account
    assert account is not None
    worst = account.worst
    assert account.covered, (
        f"{worst.unit}: {worst.other_s:.3f} s of {account.window_s:.1f} s are `other`,"
        f" allowed are {account.allowed_other_s:.3f} s"
    )
    assert account.overlaps == 0


def test_staleness_is_that_of_the_placement(checked: Checked) -> None:
    found = staleness(checked.run)
    assert found.negative == 0
    assert found.at_start.n == found.consumed  # known for every trajectory
    assert found.at_start.max is not None
    if checked.placement is Placement.ASYNC:
        assert found.at_start.max > 0
    else:
        assert (found.at_start.max, found.violations) == (0, 0)


def test_weight_sync_is_proven(checked: Checked) -> None:
    proof = prove_sync(checked.run)
    assert proof.proven, f"fresh: {proof.fresh}; changed: {proof.changed}; follows: {proof.follows}"


def test_every_trained_trajectory_has_its_turns_and_calls(checked: Checked) -> None:
    trajectories = checked.run.frame("trajectories")
    trained = trajectories[trajectories["step_consumed"].notna()].set_index("trajectory_id")
    named = {name for step in checked.run.tables["steps"].to_pylist() for name in step["trajectory_ids"]}
    assert set(trained.index) == named
    turns = checked.run.frame("turns").groupby("trajectory_id")
    calls = checked.run.frame("tool_calls").groupby("trajectory_id")
    for name, row in trained.iterrows():
        assert turns.size().get(name, 0) == row["turns"] == row["planned_turns"], name
        assert calls.size().get(name, 0) == row["tool_calls"] == row["planned_tool_calls"], name
        assert turns["generated_tokens"].sum().get(name, 0) == row["planned_generated_tokens"], name


def test_the_report_is_there(checked: Checked) -> None:
    text = (checked.folder / "report.md").read_text(encoding="utf-8")
    assert "functional check on CPU" in text or checked.run.spec.device == "cuda"
    assert checked.run.spec.framework in text
    pictures = {path.suffix for path in (checked.folder / "figures").iterdir()}
    assert {".png", ".svg"} <= pictures


def test_all_did_the_same_work() -> None:
    place = os.environ.get(VARIABLE)
    assert place, f"{VARIABLE} must name the runs folder"
    specs = [RunSpec.load_file(folder / "spec.json") for folder in list_runs(Path(place))]
    assert {spec.placement for spec in specs} == set(Placement)
    assert len({spec.work_digest for spec in specs}) == 1
