"""Collections that are killed (SIGKILL, a real process): the next one takes away what they left, and nothing else."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of

from harness.cli import call
from harness.run_folder import list_runs
from results.collect import collect
from results.comparing import many
from results.schema import TABLES
from results.store import COMPUTED, is_collected, load_run

COLLECTED = sorted(f"{name}.parquet" for name in TABLES if name not in COMPUTED)

# Stops before the table `runs` is made, when others are written, until its input is closed.
COLLECT = """
import sys
from pathlib import Path
from results import collect as collecting

make = collecting.runs_table

def stay(*given):
    print("here", flush=True)
    sys.stdin.read()
    return make(*given)

collecting.runs_table = stay
collecting.collect(Path(sys.argv[1]))
"""
# Runs `bench`, and stops before a file whose temporary name begins so gets its own.
BENCH = """
import sys
from pathlib import Path
from harness.cli import call

rename = Path.replace

def stay(self, target):
    if self.name.startswith(sys.argv[1]):
        print("here", flush=True)
        sys.stdin.read()
    return rename(self, target)

Path.replace = stay
sys.exit(call(sys.argv[2:]))
"""
# Writes meta.json, and stops before that gets its name.
META = """
import sys
from pathlib import Path
from harness.run_folder import RunFolder

def stay(*_):
    print("here", flush=True)
    sys.stdin.read()

Path.replace = stay
RunFolder(path=Path(sys.argv[1]), run_id="r").write_meta(status="half said")
"""


def a_run(run_dir: Path) -> Path:
    return make_run(run_dir, [hello(), *follow(plan_of(make_spec(), 0, 0), 2_000)])


def in_tables(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "tables").iterdir())


def hidden(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("."))


@contextmanager
def stopped(script: str, *given: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of its work; killed at the end of the block unless it was let go."""
    command = [sys.executable, "-c", script, *map(str, given)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line == "here\n":
                    break
            else:
                pytest.fail("it ended before it came there")
            yield process
        finally:
            process.kill()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def kill_a_collection(run_dir: Path) -> Path:
    with stopped(COLLECT, run_dir):
        pass
    (left,) = hidden(run_dir / "tables")
    assert len(list(left.iterdir())) > 1  # in the middle
    return left


def test_the_next_collection_takes_away_what_a_killed_one_left(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    kill_a_collection(run_dir)
    kill_a_collection(run_dir)  # which takes away the first one's
    assert not is_collected(run_dir)
    collect(run_dir)
    assert in_tables(run_dir) == COLLECTED


def test_what_a_killed_collection_left_is_in_no_ones_way(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    collect(run_dir)
    before, size = load_run(run_dir).tables, many._bytes(run_dir)
    kill_a_collection(run_dir)
    assert is_collected(run_dir)
    assert list_runs(tmp_path) == [run_dir]
    assert many._bytes(run_dir) == size
    after = load_run(run_dir).tables
    assert all(after[name].equals(before[name]) for name in TABLES)
    copy = shutil.copytree(run_dir, tmp_path / "copy")
    assert call(["export", str(run_dir), "--to", "perfetto", "-o", str(tmp_path / "trace.json.gz")]) == 0
    assert len(hidden(copy / "tables")) == 1
    collect(copy)
    assert in_tables(copy) == COLLECTED


def test_a_collection_that_is_still_at_work_keeps_its_folder(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    with stopped(COLLECT, run_dir) as other:
        (its,) = hidden(run_dir / "tables")
        collect(run_dir)
        assert hidden(run_dir / "tables") == [its]
        copy = shutil.copytree(run_dir, tmp_path / "copy")  # no one is at work there
        let_go(other)
    assert in_tables(run_dir) == COLLECTED
    collect(copy)
    assert in_tables(copy) == COLLECTED


def test_two_collections_and_a_dead_one(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    dead = kill_a_collection(run_dir)
    with stopped(COLLECT, run_dir) as first, stopped(COLLECT, run_dir) as second:
        at_work = hidden(run_dir / "tables")
        assert len(at_work) == 2
        assert dead not in at_work
        let_go(second)
        let_go(first)
    assert in_tables(run_dir) == COLLECTED


def test_a_folder_whose_maker_was_killed_before_it_said_so_is_taken_away(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    (run_dir / "tables" / ".new-abc").mkdir(parents=True)
    mine = [run_dir / "tables" / name for name in (".new-notes.txt", ".metrics.parquet.old.new", "notes.new")]
    for path in mine:  # not of a collection
        path.write_text("mine")
    collect(run_dir)
    assert in_tables(run_dir) == sorted([*COLLECTED, *(path.name for path in mine)])


@pytest.mark.parametrize("begin", [".metrics.parquet.", ".class_energy.parquet."])
def test_tables_that_were_computed_when_the_process_was_killed(tmp_path: Path, begin: str) -> None:
    run_dir = a_run(tmp_path / "run")
    with stopped(BENCH, begin, "collect", run_dir):
        (left,) = hidden(run_dir / "tables")
        collect(run_dir)
        assert left.exists()  # its process lives
    assert left.exists()
    assert is_collected(run_dir)
    collect(run_dir)
    assert in_tables(run_dir) == COLLECTED
    assert call(["collect", str(run_dir)]) == 0
    assert in_tables(run_dir) == sorted(f"{name}.parquet" for name in TABLES)


def test_measures_that_were_written_when_the_process_was_killed(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    with stopped(BENCH, ".measures.parquet.", "collect", run_dir):
        (left,) = hidden(run_dir)
        assert call(["collect", str(run_dir)]) == 0
        assert left.exists()  # its process lives
    assert left.exists()
    collect(run_dir)
    assert hidden(run_dir) == []


def test_a_harness_that_wrote_how_the_run_is_when_it_was_killed(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "run")
    with stopped(META, run_dir):
        pass
    (left,) = (path for path in run_dir.iterdir() if path.name.endswith(".new"))
    collect(run_dir)
    assert not left.exists()
    assert "half said" not in (run_dir / "meta.json").read_text()


def test_a_report_that_was_written_when_the_process_was_killed(tmp_path: Path) -> None:
    run_dir, out = a_run(tmp_path / "run"), tmp_path / "out"
    collect(run_dir)
    with stopped(BENCH, ".report.md.", "report", run_dir, "-o", out):
        (left,) = hidden(out)
        assert call(["report", str(run_dir), "-o", str(out)]) == 0
        assert left.exists()  # its process lives
    assert left.exists()
    assert call(["report", str(run_dir), "-o", str(out)]) == 0
    assert hidden(out) == []
