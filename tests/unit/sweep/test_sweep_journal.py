import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sweep_files import leave_run, make_folder, plan_of

from harness.protocol.errors import SpecError
from harness.sweep.folder import SweepFolder
from harness.sweep.journal import Journal, read_journal


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert read_journal(journal.path) == ([], 0)
    journal.add("cell_started", entry=1, run="runs/a b")
    journal.add("cell_ended", entry=1, status="finished", reason="two\nlines")
    lines, damaged = read_journal(journal.path)
    assert [line.kind for line in lines] == ["cell_started", "cell_ended"]
    assert lines[1].data == {"entry": 1, "status": "finished", "reason": "two\nlines"}
    assert damaged == 0


def test_a_line_cut_anywhere_spoils_no_other(tmp_path: Path) -> None:
    whole = Journal(tmp_path / "whole.jsonl")
    whole.add("cell_started", entry=1)
    whole.add("cell_ended", entry=1, status="finished")
    raw = whole.path.read_bytes()
    first = raw.index(b"\n") + 1
    for cut in range(first, len(raw)):
        journal = Journal(tmp_path / f"cut-{cut}.jsonl")
        journal.path.write_bytes(raw[:cut])
        journal.add("cell_started", entry=2)
        lines, damaged = read_journal(journal.path)
        assert lines[0].data == {"entry": 1}
        assert lines[-1].data == {"entry": 2}
        torn = first < cut < len(raw) - 1  # the last cut takes the line's end only: the line is whole
        assert (len(lines), damaged) == ((2, 1) if torn else (3, 0) if cut == len(raw) - 1 else (2, 0))


def test_the_state_is_what_the_journal_and_the_run_folders_say(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, repeats=3)
    folder = make_folder(tmp_path, plan)
    specs = [plan.cells[entry.cell].spec for entry in plan.entries]
    assert all(specs)
    names = ["done", "killed", "finished-unsaid", "never-made"]
    for name, status, spec in zip(names, ("finished", "running", "finished"), specs, strict=False):
        assert spec is not None
        leave_run(tmp_path / "runs" / name, spec, status)
    journal = folder.journal
    for number, name in enumerate(names, start=1):
        journal.add("cell_started", entry=number, run=f"../runs/{name}")
        if name == "done":
            journal.add("cell_ended", entry=number, run=f"../runs/{name}", status="finished", took_s=3.5)
    journal.add("cell_ended", entry=99, status="finished")  # of no plan: ignored
    state = SweepFolder.open(folder.path).state()
    assert [each.status for each in state] == [
        "finished",
        "interrupted",
        "finished",
        "interrupted",
        "pending",
        "pending",
    ]
    assert state[0].took_s == 3.5
    assert state[1].run_dir == (tmp_path / "runs" / "killed").resolve()
    assert folder.cut_off() == [2, 3, 4]


def test_a_sweep_that_was_moved_finds_its_runs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    folder = make_folder(tmp_path, plan)
    spec = plan.cells[plan.entries[0].cell].spec
    assert spec is not None
    leave_run(tmp_path / "runs" / "a", spec, "finished")
    folder.journal.add("cell_started", entry=1, run="../runs/a")
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "deep"
    folder.path.rename(moved)
    assert SweepFolder.open(moved, tmp_path / "runs").state()[0].status == "finished"


def test_only_one_process_runs_a_sweep(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, plan_of(tmp_path))
    with folder.held(), pytest.raises(SpecError, match="another `bench sweep`"), folder.held():
        pass
    with folder.held():
        pass


def test_a_folder_in_use_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "notes.txt").write_text("mine")
    with pytest.raises(SpecError, match="not empty"):
        make_folder(tmp_path, plan_of(tmp_path))
    with pytest.raises(SpecError, match="not a sweep folder"):
        SweepFolder.open(tmp_path / "sweep")


def test_a_folder_that_was_being_made_when_its_process_was_killed_is_made_again(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from sweep_files import make_folder, plan_of

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
make_folder(Path(sys.argv[1]), plan_of(Path(sys.argv[1])))
"""
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parent, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "sweep").iterdir()
    assert left.name != "sweep.json"
    folder = make_folder(tmp_path, plan_of(tmp_path))
    assert [path.name for path in folder.path.iterdir()] == ["sweep.json"]
    assert SweepFolder.open(folder.path).plan == folder.plan
