import os
import subprocess
import sys
from pathlib import Path

import pytest
from sweep_files import PAIR, Runs, go, leave_run, make_folder, plan_of

from harness.protocol.errors import EnvError, SpecError, WorkerError
from harness.specs import Machine
from harness.sweep import execute
from harness.sweep.eta import remaining
from harness.sweep.folder import Outcome, SweepFolder
from harness.sweep.journal import read_journal
from harness.sweep.plan import Cell, Entry, Plan


def statuses(folder: SweepFolder) -> list[str]:
    return [outcome.status for outcome in folder.state()]


def test_every_entry_runs_once_in_the_plans_order(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, repeats=3)
    folder, runs = make_folder(tmp_path, plan), Runs()
    result = go(folder, runs)
    assert (result.exit_code, result.interrupted) == (0, False)
    assert runs.made == [plan.cells[entry.cell].label for entry in plan.entries]
    assert statuses(folder) == ["finished"] * 6
    assert tuple(folder.state()) == result.outcomes
    assert len(list((tmp_path / "runs").iterdir())) == 6


def test_failures_are_rows_and_are_run_again_only_when_asked(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, plan_of(tmp_path, repeats=3))
    answers = ["failed", "stalled", EnvError("no room"), RuntimeError("a defect"), SpecError("not here")]
    first = go(folder, Runs(*answers))
    assert first.exit_code == 4
    assert statuses(folder) == ["failed", "stalled", "failed", "failed", "refused", "finished"]
    assert [each.exit_code for each in first.outcomes] == [4, 4, 3, 1, 2, 0]
    assert "no room" in first.outcomes[2].reason
    assert "a defect" in next(folder.path.glob("traceback-*.txt")).read_text()
    again = Runs()
    assert go(folder, again).exit_code == 4
    assert again.made == []
    retried = Runs()
    assert go(folder, retried, retry_failed=True).exit_code == 0
    assert len(retried.made) == 5
    assert [each.attempts for each in folder.state()] == [2, 2, 2, 2, 2, 1]


def test_an_interrupted_run_ends_the_sweep_and_is_run_again(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, plan_of(tmp_path, repeats=2))
    result = go(folder, Runs("finished", "interrupted"))
    assert (result.exit_code, result.interrupted) == (130, True)
    assert statuses(folder) == ["finished", "interrupted", "pending", "pending"]
    runs = Runs()
    assert go(folder, runs).exit_code == 0
    assert len(runs.made) == 3


def test_ctrl_c_before_the_worker_starts(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, plan_of(tmp_path))
    assert go(folder, Runs(KeyboardInterrupt())).exit_code == 130
    assert statuses(folder) == ["interrupted", "pending"]


def test_ctrl_c_after_the_run_has_finished_keeps_the_run(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, plan_of(tmp_path))

    class Collecting(Runs):
        def __call__(self, *arguments: object) -> object:  # type: ignore[override]
            super().__call__(*arguments)  # type: ignore[arg-type]
            raise KeyboardInterrupt

    result = go(folder, Collecting())
    assert (result.exit_code, result.interrupted) == (130, True)
    assert statuses(folder) == ["finished", "pending"]


def test_all_refused_here_is_no_success(tmp_path: Path) -> None:
    text = PAIR.replace('"simulated"', '"skyrl"').replace(
        "[common]", '[common]\ndevice = "cuda"\nmodel = "random:qwen3-0.6b"'
    )
    folder = make_folder(tmp_path, plan_of(tmp_path, text))
    runs = Runs()
    result = go(folder, runs)
    assert (result.exit_code, runs.made) == (2, [])
    assert statuses(folder) == ["refused", "refused"]
    assert "GPU" in result.outcomes[0].reason
    # A machine that has them runs them.
    machine = Machine(gpu_memory_bytes=(80 * 2**30,) * 8)
    assert go(folder, runs, retry_failed=True, machine=machine).exit_code == 0


@pytest.mark.parametrize(("left", "rerun"), [("finished", 1), ("running", 2), ("failed", 1)])
def test_a_run_that_a_kill_cut_off_is_judged_by_its_own_folder(tmp_path: Path, left: str, rerun: int) -> None:
    plan = plan_of(tmp_path)
    folder = make_folder(tmp_path, plan)
    spec = plan.cells[plan.entries[0].cell].spec
    assert spec is not None
    leave_run(tmp_path / "runs" / "cut", spec, left)
    folder.journal.add("cell_started", entry=1, run="../runs/cut")
    runs = Runs()
    result = go(folder, runs)
    assert len(runs.made) == rerun
    assert result.exit_code == (4 if left == "failed" else 0)
    first = next(line for line in read_journal(folder.journal.path)[0] if line.kind == "cell_ended")
    assert first.data["status"] == {"running": "interrupted"}.get(left, left)
    assert not folder.cut_off()


def test_what_a_killed_run_left_running_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path)
    folder = make_folder(tmp_path, plan)
    spec = plan.cells[plan.entries[0].cell].spec
    assert spec is not None
    leave_run(tmp_path / "runs" / "cut", spec, "running")
    folder.journal.add("cell_started", entry=1, run="../runs/cut")
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, "BENCH_RUN_ID": "cut-abc"}
    )
    try:
        monkeypatch.setattr(execute, "LEFTOVER_PATIENCE_S", 0.5)
        with pytest.raises(WorkerError, match=rf"still running: .*\({sleeper.pid}\)"):
            go(folder, Runs())
    finally:
        sleeper.kill()
        sleeper.wait()
    assert go(folder, Runs()).exit_code == 0


def test_one_line_before_and_one_after_each_run(tmp_path: Path) -> None:
    said: list[str] = []
    folder = make_folder(tmp_path, plan_of(tmp_path, shuffle=False))
    go(folder, Runs("finished", "failed"), say=said.append)
    assert said[0] == "[1/2] simulated colocated: starting · left: unknown (no simulated run has finished yet)"
    assert said[1].startswith("[1/2] simulated colocated: finished in 0 s · ")
    assert said[2] == "[2/2] simulated async: starting · left: about 0 s"
    assert said[3].startswith("[2/2] simulated async: failed in 0 s: it failed · ")
    assert len(said) == 4


def test_the_time_left_is_the_median_of_the_same_framework() -> None:
    cells = [
        Cell(number=n, label=name, asked={"framework": name, "placement": "async"}, spec=None)
        for n, name in enumerate(("skyrl", "verl"))
    ]
    entries = tuple(Entry(number=n + 1, round=1, cell=cell) for n, cell in enumerate((0, 0, 0, 0, 1, 1)))
    plan = Plan(cells=tuple(cells), entries=entries, repeats=1, shuffle=None)
    done = [Outcome(status="finished", took_s=took) for took in (100.0, 60.0, 900.0)]
    state = [*done, *[Outcome()] * 3]
    assert remaining(plan, state, entries[3:4]) == "about 1 min 40 s"
    assert remaining(plan, state, entries[3:]) == "more than 1 min 40 s (no verl run has finished yet)"
    assert remaining(plan, [Outcome(status="failed", took_s=5.0)] * 6, entries[4:]) == (
        "unknown (no verl run has finished yet)"
    )
