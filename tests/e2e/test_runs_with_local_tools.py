"""Whole runs of `simulated` against real local tools: recorded, replayed, and with each process killed in its turn."""

import contextlib
import importlib.util
import json
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
from harness.protocol.errors import EnvError, SpecError
from harness.run import RunResult, list_runs, read_status, run
from harness.specs import resolve
from results.collect import collect
from workloads.deep_research.corpus.build import build_corpus, generated_name
from workloads.deep_research.trace import read_trace, write_trace

BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]
PAGES, SEED = 1000, 1


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of the tests' own; the first run builds the corpus in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _use_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(cache))


def local(runs_dir: Path, **flags: object) -> RunResult:
    """A small run with this process as its harness, and no sampler."""
    wanted = {"framework": "simulated", "placement": "async", "tools": "local", "steps": 3, **flags}
    spec = resolve({key: value for key, value in wanted.items() if value is not None}).spec
    result = run(spec, load_adapter("simulated"), runs_dir, display=SilentDisplay(), sampler=())
    status = read_status(result.run_dir)
    assert (status.status, status.exit_code, status.sealed) == (result.status, result.exit_code, True)
    assert not (result.run_dir / "tools.json").exists()
    return result


def calls(run_dir: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = collect(run_dir).tables["tool_calls"].to_pylist()
    return rows


def meta(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "meta.json").read_text())
    return found


def wait_for(what: Callable[[], Any], seconds: float = 90.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain")


def test_real_searches_and_pages_are_recorded(tmp_path: Path, cache: Path) -> None:
    result = local(tmp_path, placement="colocated")
    assert (result.status, result.reason, result.exit_code) == ("finished", "", 0)
    rows = calls(result.run_dir)
    assert {row["tool"] for row in rows} == {"search_engine", "web_browser"}
    assert {row["status"] for row in rows} == {"ok"}
    for row in rows:
        assert row["http_status"] == 200
        assert row["wire_bytes"] > 100
        assert row["planned_ns"] is None
        assert 0 < row["served_ns"] <= row["end_ns"] - row["start_ns"]
    assert any(row["argument"].startswith("http://") for row in rows)
    tools = meta(result.run_dir)["tools"]
    assert tools["kind"] == "local"
    assert (tools["corpus"]["pages"], tools["corpus"]["seed"]) == (PAGES, SEED)
    assert tools["versions"]["aiohttp"]
    counted = tools["counters"]["calls"]
    assert sum(sum(by_status.values()) for by_status in counted.values()) == len(rows)
    # The questions are the corpus's own, and stay with the run.
    first = json.loads((result.run_dir / "dataset.jsonl").read_text().splitlines()[0])
    assert first["question"] in {row["argument"] for row in rows}
    assert first["answers"]
    assert [path.name for path in (cache / "corpora").iterdir()] == [generated_name(PAGES, SEED)]
    assert not [note for note in meta(result.run_dir)["note"] if "killed" in note]  # the server left no process


def test_a_recorded_run_replays_to_the_same_observations(tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    first = local(tmp_path / "runs", placement="colocated", record=str(trace))
    second = local(tmp_path / "runs", placement="colocated", tools=f"replay:{trace}", corpus=f"generated:{PAGES}")
    assert [first.status, second.status] == ["finished", "finished"]

    def seen(run_dir: Path) -> dict[Any, Any]:
        return {
            (row["trajectory_id"], row["call"]): (row["tool"], row["argument"], row["status"], row["observation_bytes"])
            for row in calls(run_dir)
        }

    assert seen(second.run_dir) == seen(first.run_dir) != {}
    for row in calls(second.run_dir):
        assert row["planned_ns"] is not None
        assert row["end_ns"] - row["start_ns"] >= row["planned_ns"]
    counters = meta(second.run_dir)["tools"]["counters"]["backend"]
    assert counters["not_found"] == 0
    # Half the latencies: another work, whose calls are imposed as half of what was recorded.
    half = local(tmp_path / "runs", placement="colocated", tools=f"replay:{trace}", latency_scale=0.5,
                 corpus=f"generated:{PAGES}")  # fmt: skip
    planned = {(row["trajectory_id"], row["call"]): row["planned_ns"] for row in calls(second.run_dir)}
    for row in calls(half.run_dir):
        assert row["planned_ns"] == pytest.approx(planned[row["trajectory_id"], row["call"]] / 2, abs=2)


def test_tools_without_their_libraries_are_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "trafilatura" else find(name, *a))
    with pytest.raises(EnvError, match=r"needs trafilatura: pip install 'agentic-rl-bench\[tools\]'"):
        local(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_provider_without_its_key_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(SpecError, match="SERPER_API_KEY"):
        local(tmp_path / "runs", tools="web:serper")
    assert not (tmp_path / "runs").exists()


def test_a_server_that_cannot_start_ends_the_run_before_the_worker(tmp_path: Path) -> None:
    trace = tmp_path / "trace.parquet"
    write_trace(trace, [], {})  # has nothing to replay
    result = local(tmp_path / "runs", tools=f"replay:{trace}")
    assert (result.status, result.exit_code) == ("failed", EnvError.exit_code)
    assert result.reason.startswith("the tool server ended with code 2: the tool server can't start: ")
    assert str(trace) in result.reason
    assert not (result.run_dir / "logs" / "worker.log").exists()
    (failure,) = collect(result.run_dir).tables["failures"].to_pylist()
    assert failure["boundary"] == "tool"


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


SERVER = "workloads.deep_research.serving"


@pytest.fixture
def bench(tmp_path: Path, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """A long `bench run` with local tools in a process of its own: the process, its mark, its runs folder."""
    folder = cache / "corpora" / generated_name(PAGES, SEED)
    build_corpus(folder, pages=PAGES, seed=SEED)
    mark, runs_dir = uuid.uuid4().hex, tmp_path / "runs"
    words = ["run", "--framework", "simulated", "--placement", "async", "--tools", "local", "--runs-dir", str(runs_dir)]
    process = subprocess.Popen(
        [*BENCH, *words, "--steps", "400", "--record", str(tmp_path / "calls.parquet")],
        env={**os.environ, "BENCH_TEST_MARK": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list_runs(runs_dir) and _steps(list_runs(runs_dir)[0]))
    yield process, mark, runs_dir
    for pid in carrying(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _steps(run_dir: Path) -> int:
    return sum(path.read_text().count('"k":"step"') for path in run_dir.glob("events/*.jsonl"))


def server_pid(mark: str) -> int | None:
    """The server itself, not the processes that it extracts with; None while there is none."""
    found = [pid for pid in carrying(mark, SERVER) if b".extractor" not in _command(pid)]
    return found[0] if len(found) == 1 else None


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_a_killed_server_is_started_once_more_and_that_is_said(
    bench: tuple[subprocess.Popen[str], str, Path],
) -> None:
    process, mark, runs_dir = bench
    run_dir = list_runs(runs_dir)[0]
    first = wait_for(lambda: server_pid(mark))
    os.kill(first, signal.SIGKILL)
    second = wait_for(lambda: server_pid(mark) not in (None, first) and server_pid(mark))
    wait_for((run_dir / "tools.json").exists)
    steps = _steps(run_dir)
    wait_for(lambda: _steps(run_dir) > steps + 3)  # the work goes on against the new one
    assert process.poll() is None
    os.kill(second, signal.SIGKILL)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 4
    assert "the tool server ended with signal 9; it was started again" in said
    assert "the tool server was lost twice" in said.splitlines()[-1]
    wait_for(lambda: not carrying(mark))
    found = [row for row in collect(run_dir).tables["failures"].to_pylist() if row["type"] == "ServiceLost"]
    assert len(found) == 2
    assert any("started again" in note for note in meta(run_dir)["note"])
    # Both servers were killed: what they recorded was made whole after them, and is named.
    traces = [runs_dir.parent / name for name in ("calls.parquet", "calls-restarted.parquet")]
    assert meta(run_dir)["tools"]["recorded"] == [str(trace) for trace in traces]
    assert any(str(traces[0]) in note and str(traces[1]) in note for note in meta(run_dir)["note"])
    assert all(read_trace(trace).complete and read_trace(trace).table.num_rows for trace in traces)
    assert not list(runs_dir.parent.glob("*.part"))
    lost = [row for row in calls(run_dir) if row["status"] == "error"]
    assert all("tool server" in row["detail"] for row in lost)


@pytest.mark.parametrize("victim", ["harness", "supervisor", "worker", "both"])
def test_nothing_is_left_when_a_process_is_killed(bench: tuple[subprocess.Popen[str], str, Path], victim: str) -> None:
    process, mark, runs_dir = bench
    run_dir = list_runs(runs_dir)[0]
    assert server_pid(mark) is not None
    supervisor = carrying(mark, "harness.supervisor")[0]
    worker = carrying(mark, "adapters.simulated.worker")[0]
    pids = {"harness": [process.pid], "supervisor": [supervisor], "worker": [worker], "both": [process.pid, supervisor]}
    for pid in pids[victim]:
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=90)
    wait_for(lambda: not carrying(mark))
    if victim in ("supervisor", "worker"):
        assert process.returncode == 4, said
        assert not (run_dir / "tools.json").exists()
        assert meta(run_dir)["tools"]["counters"] is not None
    assert len(calls(run_dir)) > 0


def test_an_interrupted_run_leaves_nothing(bench: tuple[subprocess.Popen[str], str, Path]) -> None:
    process, mark, runs_dir = bench
    run_dir = list_runs(runs_dir)[0]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130
    wait_for(lambda: not carrying(mark))
    assert meta(run_dir)["tools"]["counters"]["in_flight"] == 0
    assert not (run_dir / "tools.json").exists()
