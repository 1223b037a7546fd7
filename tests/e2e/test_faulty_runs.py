"""`simulated` with planted faults and killed processes: real child, real sampler, real supervisor, real tables."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.base import load_adapter
from harness.live import SilentDisplay
from harness.run import RunResult, list_runs, read_status, run
from harness.specs import resolve
from results.collect import collect

BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]


def simulated(runs_dir: Path, *faults: str, placement: str = "colocated", **flags: object) -> RunResult:
    """A small run in real time with this process as its harness; one with faults has no sampler."""
    wanted = {"framework": "simulated", "placement": placement, "latency_scale": 0.05, "steps": 4, "faults": faults}
    spec = resolve({**wanted, **flags}, overrides=["clock=real"]).spec
    result = run(spec, load_adapter("simulated"), runs_dir, display=SilentDisplay(), sampler=() if faults else None)
    status = read_status(result.run_dir)
    assert (status.status, status.exit_code, status.sealed) == (result.status, result.exit_code, True)
    return result


def failures(run_dir: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = collect(run_dir).tables["failures"].to_pylist()
    return rows


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain")


def carrying(mark: str, word: str = "") -> list[int]:
    """Live processes with `mark` in their environment and `word` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
                marked = mark.encode() in (entry / "environ").read_bytes()
                if marked and not ended and word in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """A long `bench run` in a process of its own: the process, its mark, its runs folder."""
    mark, runs_dir = uuid.uuid4().hex, tmp_path / "runs"
    words = ["run", "--framework", "simulated", "--placement", "async", "--steps", "400", "--runs-dir", str(runs_dir)]
    process = subprocess.Popen(
        [*BENCH, *words, "--latency-scale", "0.05", "-o", "clock=real"],
        env={**os.environ, "BENCH_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list_runs(runs_dir) and '"k":"step"' in _events(list_runs(runs_dir)[0]))
    yield process, mark, runs_dir
    for pid in carrying(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _events(run_dir: Path) -> str:
    return "".join(path.read_text() for path in run_dir.glob("events/*.jsonl"))


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_each_placement_finishes(tmp_path: Path, placement: str) -> None:
    result = simulated(tmp_path, placement=placement)
    assert (result.status, result.reason, result.exit_code) == ("finished", "", 0)
    tables = collect(result.run_dir).tables
    assert tables["steps"].num_rows == 4
    assert tables["samples"].num_rows > 0
    assert not [row for row in failures(result.run_dir) if row["boundary"] != "recording"]


def test_a_worker_that_dies(tmp_path: Path) -> None:
    result = simulated(tmp_path, "die=2")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "exit code 17" in result.reason
    assert collect(result.run_dir).tables["steps"]["step"].to_pylist() == [1]


def test_a_worker_that_raises_says_why(tmp_path: Path) -> None:
    result = simulated(tmp_path, "raise=2")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "planted failure in step 2" in result.reason


def test_a_worker_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_STALL_S", "2")
    result = simulated(tmp_path, "hang=2")
    assert (result.status, result.exit_code) == ("stalled", 4)
    opened = [row["message"] for row in failures(result.run_dir) if row["type"] == "open"]
    assert any("train" in text and "step 2" in text for text in opened)


def test_a_torn_line_is_counted(tmp_path: Path) -> None:
    result = simulated(tmp_path, "torn-line=2")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert [row for row in failures(result.run_dir) if row["boundary"] == "recording"]
    assert any("cut" in note for note in read_status(result.run_dir).meta["note"])


def test_no_bye_is_no_success(tmp_path: Path) -> None:
    result = simulated(tmp_path, "no-bye")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "no Bye" in result.reason


def test_an_orphan_is_ended_and_told(tmp_path: Path) -> None:
    result = simulated(tmp_path, "fork-orphan")
    assert (result.status, result.exit_code) == ("finished", 0)
    assert any("by the supervisor" in note for note in read_status(result.run_dir).meta["note"])
    assert not carrying(read_status(result.run_dir).meta["run_id"])


def test_a_killed_harness(bench: tuple[subprocess.Popen[str], str, Path]) -> None:
    process, mark, runs_dir = bench
    process.kill()
    wait_for(lambda: not carrying(mark))
    (folder,) = list_runs(runs_dir)
    listed = subprocess.run([*BENCH, "list", "runs", "--runs-dir", str(runs_dir)], capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    assert folder.name in listed.stdout
    assert "interrupted" in listed.stdout
    tables = collect(folder).tables
    assert tables["steps"].num_rows >= 1
    assert tables["trajectories"].num_rows >= 8


def test_a_killed_sampler(bench: tuple[subprocess.Popen[str], str, Path]) -> None:
    process, mark, runs_dir = bench
    first = wait_for(lambda: carrying(mark, "harness.telemetry.sampler"))
    (folder,) = list_runs(runs_dir)
    wait_for(lambda: any(path.stat().st_size > 4096 for path in folder.glob("samples/*.arrows")))
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: set(carrying(mark, "harness.telemetry.sampler")) - set(first))
    wait_for(lambda: len(list(folder.glob("samples/*.arrows"))) == 2)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert not carrying(mark)
    assert read_status(folder).status == "interrupted"
    rows = [row for row in failures(folder) if row["boundary"] == "telemetry"]
    assert any("signal 9" in row["message"] for row in rows)
    assert collect(folder).tables["samples"].num_rows > 0
