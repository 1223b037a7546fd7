"""A run over local tools is recorded; the same run replayed gives identical observations after identical latencies."""

from pathlib import Path

import pytest

from harness.cli import call
from results.adherence import check_adherence
from results.collect import collect
from results.store import RunTables, load_run
from results.tool_figures import tool_figures
from workloads.deep_research.trace import Call, read_trace

CORPUS = ["--corpus", "generated:1000"]
FLAGS = ["--framework", "simulated", "--preset", "deep-research-smoke", "--steps", "3", "--placement", "colocated"]


def ran(runs: Path, *flags: str) -> RunTables:
    before = set(runs.iterdir()) if runs.exists() else set()
    assert call(["run", *FLAGS, *flags, "--runs-dir", str(runs)]) == 0
    (folder,) = (path for path in set(runs.iterdir()) - before if (path / "spec.json").exists())
    collect(folder)
    return load_run(folder)


def by_key(path: Path) -> dict[tuple[object, ...], Call]:
    return {(call.trajectory_id, call.call, call.tool, call.argument): call for call in read_trace(path).calls()}


@pytest.mark.timeout(600)
def test_a_recorded_run_replayed_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    first, second, runs = tmp_path / "one.parquet", tmp_path / "two.parquet", tmp_path / "runs"
    recorded = ran(runs, *CORPUS, "--tools", "local", "--record", str(first))
    replayed = ran(runs, *CORPUS, "--tools", f"replay:{first}", "--record", str(second))
    one, two = by_key(first), by_key(second)
    assert len(one) == recorded.tables["tool_calls"].num_rows > 0
    assert two.keys() == one.keys()
    for key, call_ in one.items():
        again = two[key]
        assert (again.text, again.status, again.http_status, again.size, again.links) == (
            call_.text,
            call_.status,
            call_.http_status,
            call_.size,
            call_.links,
        )
        assert again.latency_s == call_.latency_s
    figures = tool_figures(replayed)
    assert (figures.not_found, figures.beyond_planned.n) == (0, len(one))
    adherence = check_adherence(replayed)
    assert (adherence.content_ratio, adherence.not_replayed) == (1.0, 0)
    overruns = replayed.tables["tool_calls"].to_pylist()
    assert all(row["end_ns"] - row["start_ns"] >= row["planned_ns"] for row in overruns)
    report = (replayed.run_dir / "report.md").read_text()
    assert "Not in the trace: 0 of" in report
    # Other questions are not in the trace: the run goes on, and says so.
    other = ran(runs, "--tools", f"replay:{first}", "--dataset", "generated")
    assert tool_figures(other).not_found == tool_figures(other).calls
    adherence = check_adherence(other)
    assert (adherence.content_ratio, adherence.not_replayed) == (0.0, other.tables["tool_calls"].num_rows)
    assert "needs the questions of its recording" in (other.run_dir / "report.md").read_text()
