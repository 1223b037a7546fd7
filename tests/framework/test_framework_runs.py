"""What must hold in real frameworks' runs that `bench run` left in the folder $BENCH_RUNS.

$BENCH_ADAPTERS (NAME,...) asks for these adapters alone: for a run in each placement that they support on CPU, and for
one with the fault `no-sync`, whose proof must fail.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from one_step import Record, lives_of_bench, of_bench

from adapters.base import load_adapter
from harness.protocol.spec import Device, Placement, RunSpec
from harness.run_folder import list_runs, run_status
from harness.specs import default_spec
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


ASKED = tuple(name.strip() for name in os.environ.get("BENCH_ADAPTERS", "").split(",") if name.strip())


def _finished(place: str | None, *faults: str) -> list[tuple[RunSpec, Path]]:
    """The runs in a folder that finished with these planted faults, oldest first; of $BENCH_ADAPTERS, if it is set."""
    assert place, f"{VARIABLE} must name the runs folder"
    found = [(RunSpec.load_file(folder / "spec.json"), folder) for folder in list_runs(Path(place))]
    return [
        (spec, folder)
        for spec, folder in found
        if spec.faults == faults and spec.framework in (ASKED or (spec.framework,)) and run_status(folder) == "finished"
    ]


def _cells() -> list[tuple[str, str]]:
    """SkyRL in every placement, or what was asked for; and whatever else was run. Asked when tests are collected."""
    cells = {
        (name, placement.value)
        for name in ASKED or ("skyrl",)
        for placement in Placement
        if not ASKED or load_adapter(name).supports(default_spec(name, placement, Device.CPU)) is None
    }
    if os.environ.get(VARIABLE):
        cells |= {(spec.framework, spec.placement.value) for spec, _ in _finished(os.environ[VARIABLE])}
    return sorted(cells)


_LOADED: dict[tuple[str, str], Checked] = {}


@pytest.fixture(params=_cells(), ids="-".join)
def checked(request: pytest.FixtureRequest) -> Checked:
    """Fails, and does not skip, when there is no such run: these checks were asked for."""
    cell: tuple[str, str] = request.param
    if cell not in _LOADED:
        place = os.environ.get(VARIABLE)
        found = [folder for spec, folder in _finished(place) if (spec.framework, spec.placement.value) == cell]
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


def test_the_engines_counted_the_tokens_that_came_back(checked: Checked) -> None:
    rows = checked.run.tables["engine_samples"].to_pylist()
    if any(row["family"] for row in rows):
        check = check_adherence(checked.run).engine_tokens
        assert check.match is True, check.why
        assert check.counted
    else:
        assert checked.run.spec.framework not in ("skyrl", "areal"), "its engines were not read"
        assert all(row["reason"] for row in rows)


def test_every_second_has_a_name(checked: Checked) -> None:
    account = compute(checked.run).account
    assert account is not None
    worst = account.worst
    assert account.covered, (
        f"{worst.unit}: {worst.other_s:.3f} s of {account.window_s:.1f} s are `other`,"
        f" allowed are {account.allowed_other_s:.3f} s"
    )
    assert account.overlaps == 0


def test_steps_recomputed_from_the_raw_events_agree(checked: Checked) -> None:
    window = compute(checked.run).window
    assert window is not None
    record = Record(checked.folder)
    for step in range(window.after_step + 1, window.last_step + 1):
        by_hand, found = record.account(step), of_bench(checked.folder, step)
        assert set(by_hand) == set(found)
        for unit, parts in by_hand.items():
            assert parts == pytest.approx(found[unit], abs=1e-6), (step, unit)
        lives = lives_of_bench(checked.folder, step)
        assert {name: s for name, s in record.lives(step).items() if name in lives} == pytest.approx(lives, abs=1e-6)


def test_the_ledgers_close_and_agree_with_the_rows(checked: Checked) -> None:
    """Each side of a ledger is counted from records of its own; what it says was trained is what the rows say."""
    figures = compute(checked.run)
    window, rates = figures.window, figures.throughput
    assert window is not None
    assert rates is not None
    tokens, counts = rates.token_ledger, rates.trajectory_ledger
    assert tokens.gap == pytest.approx(0, abs=1e-3), tokens
    assert counts.gap == 0, counts
    assert (figures.figures["token_ledger_gap"].verdict, tokens.added > 0) == ("ok", True)
    rows = [
        row
        for row in checked.run.tables["trajectories"].to_pylist()
        if row["consumed_ns"] is not None and window.start_ns < row["consumed_ns"] <= window.end_ns
    ]
    trained = [row for row in rows if row["status"] == "ok"]
    assert (counts.trained, tokens.trained) == (len(trained), sum(row["loss_tokens"] for row in trained))
    assert counts.trained == window.steps * checked.run.spec.trajectories_per_step
    assert counts.failed == counts.dropped_stale == counts.dropped_other == 0
    if checked.placement is not Placement.ASYNC:  # a step takes all that was begun for it
        assert counts.open_at_start == counts.in_flight == counts.queued == 0
    else:
        chosen = figures.selection
        assert chosen is not None
        assert chosen.flagged is not None or chosen.note, "what was selected is told, or why it cannot be"


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
    specs = [spec for spec, _ in _finished(os.environ.get(VARIABLE))]
    assert {spec.placement.value for spec in specs} == {placement for _, placement in _cells()}
    assert len({spec.work_digest for spec in specs}) == 1


if ASKED:  # the project's own adapters each have a test of their own that makes the run

    @pytest.mark.parametrize("name", ASKED)
    def test_without_the_sync_the_proof_fails(name: str) -> None:
        place = os.environ.get(VARIABLE)
        found = [folder for spec, folder in _finished(place, "no-sync") if spec.framework == name]
        assert found, f'no finished run of {name} with faults = ["no-sync"] in {place}'
        proof = prove_sync(load_run(found[-1]))
        assert not proof.proven
        assert proof.follows.passed is False, proof.follows.why
