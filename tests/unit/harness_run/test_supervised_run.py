"""Whole runs with real processes, and every way to kill one: nothing is left, and the folder tells the truth."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_in import HERE, SLEEPER, StandIn, alive, carrying, make_spec, wait_for

import harness.run as run_module
from harness.live import SilentDisplay
from harness.protocol.errors import EnvError, SpecError
from harness.run import RunResult, run
from harness.run_folder import list_runs, read_status, run_status
from results.collect import collect

MARK = "BENCH_TEST_MARK"


def here(runs_dir: Path, *words: str, sampler: tuple[str, ...] = (), **changes: Any) -> RunResult:
    """A run with this process as its harness."""
    return run(make_spec(**changes), StandIn(*words), runs_dir, display=SilentDisplay(), sampler=sampler)


def failures(run_dir: Path) -> list[tuple[str, str, str]]:
    rows = collect(run_dir).tables["failures"].to_pylist()
    return [(row["boundary"], row["type"], row["message"]) for row in rows]


class Harness:
    """A harness in a process of its own; everything it starts carries a mark of this test."""

    def __init__(self, runs_dir: Path, *words: str, **environ: str) -> None:
        self.mark = uuid.uuid4().hex
        self.runs_dir = runs_dir
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "stand_in_harness.py"), str(runs_dir), *words],
            env={**os.environ, MARK: self.mark, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def children(self, word: str) -> list[int]:
        """Processes of this test with `word` in their command line."""
        found = []
        for pid in carrying(self.mark):
            with contextlib.suppress(OSError):
                if word in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
        return found

    def child(self, word: str) -> int:
        pid: int = wait_for(lambda: self.children(word))[0]
        return pid

    @property
    def run_dir(self) -> Path:
        return list_runs(self.runs_dir)[0]

    def steps(self) -> int:
        lines = [path.read_text() for path in self.run_dir.glob("events/*.jsonl")] if list_runs(self.runs_dir) else []
        return sum(text.count('"k":"step"') for text in lines)

    def result(self, seconds: float = 60.0) -> tuple[str, int]:
        """Status and exit code that it gave, and that they are those of the folder and of the process."""
        output, _ = self.process.communicate(timeout=seconds)
        line = next((line for line in output.splitlines() if line.startswith("result ")), None)
        assert line is not None, output
        _, status, code, folder = line.split()
        assert self.process.returncode == int(code)
        read = read_status(Path(folder))
        assert (read.status, read.exit_code, read.sealed) == (status, int(code), True)
        return status, int(code)

    def gone(self) -> None:
        """Waits until nothing of it is left."""
        wait_for(lambda: not carrying(self.mark))


StartHarness = Callable[..., Harness]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartHarness]:
    started: list[Harness] = []

    def begin(*words: str, **environ: str) -> Harness:
        started.append(Harness(tmp_path / f"runs-{len(started)}", *words, **environ))
        return started[-1]

    yield begin
    for one in started:
        for pid in carrying(one.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


def test_a_run_that_ends_well_is_sealed_and_complete(tmp_path: Path) -> None:
    result = here(tmp_path, "steps=3", sampler=SLEEPER)
    assert (result.status, result.reason, result.exit_code) == ("finished", "", 0)
    meta = json.loads((result.run_dir / "meta.json").read_text())
    assert meta["status"] == "finished"
    assert meta["wall_s"] == (meta["ended_mono_ns"] - meta["started_mono_ns"]) / 1e9 > 0
    assert meta["versions"] == {"stand-in": "1"}
    assert meta["note"] == ["a stand-in", "1 logs of the framework were kept in logs/scratch"]
    assert (result.run_dir / "logs/scratch/session/engine.log").read_text() == "the engine said this\n"
    assert (result.run_dir / "logs/worker.log").read_text() == "the worker speaks\n"
    assert (result.run_dir / "config/stand-in.txt").read_text() == "hello\n"
    assert not (result.run_dir / ".ballast").exists()
    assert (result.run_dir / "sealed").stat().st_size == 0
    assert collect(result.run_dir).tables["steps"].num_rows == 3
    name = result.run_dir.name.split("-")
    assert name[1:3] == ["stand", "in"]
    assert name[3:] == ["colocated", make_spec().spec_digest[:6]]


def test_the_childs_environment_and_folder(tmp_path: Path) -> None:
    names = "BENCH_RUN_ID", "BENCH_EVENTS", "BENCH_TMP"
    show = f"import os; print(*(os.environ[name] for name in {names}), os.getcwd())"
    result = run(make_spec(), StandIn(argv=("-c", show)), tmp_path, display=SilentDisplay(), sampler=())
    run_id, events, scratch, folder = (result.run_dir / "logs/worker.log").read_text().split()
    assert run_id == read_status(result.run_dir).meta["run_id"]
    assert events == str(result.run_dir / "events")
    assert scratch == folder
    assert len(scratch) < 60
    assert not Path(scratch).exists()


def test_a_worker_that_fails_is_named(tmp_path: Path) -> None:
    result = here(tmp_path, "exit=7")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "exit code 7: the optimizer diverged" in result.reason
    rows = failures(result.run_dir)
    assert ("worker", "message", "the optimizer diverged") in rows
    assert any(boundary == "worker" and kind == "exit" and "the worker speaks" in text for boundary, kind, text in rows)


def test_exit_code_0_without_bye_is_a_failure(tmp_path: Path) -> None:
    result = here(tmp_path, "no-bye")
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "no Bye" in result.reason


def test_a_worker_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ensure", lambda environment: Path("/nowhere/python"))
    result = here(tmp_path)
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "/nowhere/python can't be started" in result.reason


def test_an_environment_that_fails_leaves_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(environment: object) -> Path:
        raise EnvError("no room for torch")

    monkeypatch.setattr(run_module, "ensure", fail)
    with pytest.raises(EnvError, match="no room for torch"):
        here(tmp_path)
    status = read_status(list_runs(tmp_path)[0])
    assert (status.status, status.reason, status.exit_code) == ("failed", "no room for torch", 3)


def test_an_impossible_spec_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="placement = colocated: it has one engine only"):
        run(make_spec(), StandIn(reason="it has one engine only"), tmp_path / "runs")
    with pytest.raises(SpecError, match="steps"):
        here(tmp_path / "runs", steps=0)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_exists_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep me")
    with pytest.raises(SpecError, match="mine exists already"):
        run(make_spec(), StandIn(), tmp_path, name="mine", display=SilentDisplay(), sampler=())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


def test_what_outlives_the_worker_is_ended_and_told(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    result = here(tmp_path / "runs", f"leave={pids}")
    assert (result.status, result.exit_code) == ("finished", 0)
    for path in (pids, pids.with_name("pid.2")):
        pid = int(path.read_text())
        assert not alive(pid)
        assert any(f"({pid})" in note for note in read_status(result.run_dir).meta["note"])


def test_a_stall_names_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_STALL_S", "0.5")
    result = here(tmp_path, "hang")
    assert (result.status, result.exit_code) == ("stalled", 4)
    assert "nothing began or ended" in result.reason
    assert "weight_sync step 3 (sync_weights)" in result.reason
    opened = [text for _, kind, text in failures(result.run_dir) if kind == "open"]
    assert len(opened) == 2
    assert opened[0].startswith("weight_sync step 3 (sync_weights), open for ")
    assert opened[1].startswith("trajectory p9-s0-a0")


def test_a_start_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_STARTUP_S", "0.5")
    result = here(tmp_path, "no-start")
    assert (result.status, result.exit_code) == ("stalled", 4)
    assert "no step and no trajectory began" in result.reason
    assert any("the worker speaks" in text for _, kind, text in failures(result.run_dir) if kind == "open")


def test_the_timeout_ends_a_run(tmp_path: Path) -> None:
    result = here(tmp_path, "steps=10000", timeout=1.0)
    assert (result.status, result.exit_code) == ("timeout", 4)
    assert "timeout = 1 s" in result.reason


def test_a_killed_worker(start: StartHarness) -> None:
    harness = start("steps=10000", "no-sampler")
    wait_for(lambda: harness.steps() >= 2)
    os.kill(harness.child("stand_in_child"), signal.SIGKILL)
    assert harness.result() == ("failed", 4)
    assert "ended by SIGKILL" in read_status(harness.run_dir).reason
    assert collect(harness.run_dir).tables["steps"].num_rows >= 2
    assert not carrying(harness.mark)


def test_a_killed_harness_leaves_no_process_and_a_readable_run(start: StartHarness, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    harness = start("steps=2", f"leave={pids}", "hang")
    second = pids.with_name("pid.2")
    wait_for(lambda: second.exists() and second.read_text() and harness.steps() == 2)
    assert run_status(harness.run_dir) == "running"
    scratch = [
        text for text in Path(f"/proc/{harness.child('stand_in_child')}/environ").read_text().split("\0")
        if text.startswith("BENCH_TMP=")
    ]  # fmt: skip
    harness.process.kill()
    harness.process.wait()
    assert run_status(harness.run_dir) == "interrupted"
    harness.gone()
    # With an environment of their own, in a session of their own, orphaned: still ended.
    wait_for(lambda: not any(alive(int(path.read_text())) for path in (pids, second)))
    assert collect(harness.run_dir).tables["steps"].num_rows == 2
    wait_for(lambda: not Path(scratch[0].partition("=")[2]).exists())
    assert not (harness.run_dir / "sealed").exists()


def test_a_killed_supervisor_is_replaced_by_the_harness(start: StartHarness, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    harness = start("steps=2", f"leave={pids}", "hang")
    second = pids.with_name("pid.2")
    wait_for(lambda: second.exists() and second.read_text() and harness.steps() == 2)
    time.sleep(2.5)  # for one more snapshot of the tree: what it shows is what can be found without the supervisor
    os.kill(harness.child("harness.supervisor"), signal.SIGKILL)
    assert harness.result() == ("failed", 4)
    assert "the supervisor ended early (signal SIGKILL)" in read_status(harness.run_dir).reason
    assert not carrying(harness.mark)
    assert not any(alive(int(path.read_text())) for path in (pids, second))


def test_a_killed_sampler_is_restarted_and_fails_the_run(start: StartHarness) -> None:
    harness = start("steps=40", "pause=0.1")
    wait_for(lambda: harness.steps() >= 2)
    first = harness.child("stand-in-sampler")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: [pid for pid in harness.children("stand-in-sampler") if pid != first])
    assert harness.result() == ("failed", 4)
    reason = read_status(harness.run_dir).reason
    assert "the telemetry has a gap" in reason
    assert "signal 9" in reason
    assert "the worker itself finished" in reason
    assert [row[0] for row in failures(harness.run_dir)].count("telemetry") == 1
    assert collect(harness.run_dir).tables["steps"].num_rows == 40
    assert not carrying(harness.mark)


def test_ctrl_c_ends_cleanly(start: StartHarness) -> None:
    harness = start("steps=10000")
    wait_for(lambda: harness.steps() >= 2)
    harness.process.send_signal(signal.SIGINT)
    assert harness.result() == ("interrupted", 130)
    assert read_status(harness.run_dir).reason == "interrupted by Ctrl-C"
    assert collect(harness.run_dir).tables["steps"].num_rows >= 2
    assert not carrying(harness.mark)


def test_a_second_ctrl_c_kills_at_once(start: StartHarness) -> None:
    harness = start("steps=10000", "ignore-term", "no-sampler")
    wait_for(lambda: harness.steps() >= 2)
    child = harness.child("stand_in_child")
    harness.process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    assert alive(child)  # it ignores TERM, and its grace is not over
    harness.process.send_signal(signal.SIGINT)
    assert harness.result() == ("interrupted", 130)
    meta = read_status(harness.run_dir).meta
    # The process is named after the interpreter's file: python, python3, python3.11.
    assert any(re.search(rf"killed by the supervisor: python[\d.]* \({child}\)", note) for note in meta["note"])
    assert meta["wall_s"] < 19  # before the grace of 20 s was over


def test_sigterm_is_told_apart(start: StartHarness) -> None:
    harness = start("steps=10000", "no-sampler")
    wait_for(lambda: harness.steps() >= 1)
    harness.process.terminate()
    assert harness.result() == ("interrupted", 128 + signal.SIGTERM)


def test_two_runs_at_once_do_not_touch_each_other(tmp_path: Path, start: StartHarness) -> None:
    one, other = start("steps=10000", "no-sampler"), start("steps=60", "pause=0.04", "no-sampler")
    wait_for(lambda: one.steps() >= 1 and other.steps() >= 1)
    one.process.kill()
    assert other.result() == ("finished", 0)
    assert run_status(one.run_dir) == "interrupted"
    one.gone()
