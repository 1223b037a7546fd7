"""A whole live run of `simulated`: real tool server, real pages, the scripted policy, tables and report."""

import json
from pathlib import Path

import pytest

from adapters.base import load_adapter
from harness.live import SilentDisplay
from harness.run import run
from harness.specs import resolve
from reports.provenance import SCRIPTED
from reports.report import write_report
from results.answers import answers
from results.store import load_run
from workloads.deep_research.dataset import FILE, read_rows
from workloads.deep_research.policy import UNKNOWN, WRONG
from workloads.deep_research.scoring import exact


@pytest.mark.parametrize("thinking", ["keep", "strip"])
def test_answers_are_found_over_http_and_rewarded(
    tmp_path: Path, thinking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    asked = {
        "framework": "simulated", "placement": "async", "tools": "local", "corpus": "generated:1000",
        "load": "live", "policy": "scripted", "thinking": thinking, "steps": 3,
        # With it prompt 7 has 8 hops, and a malformed first call: the longest way to an answer that there is.
        "seed": 7,
    }  # fmt: skip
    spec = resolve(asked).spec
    result = run(spec, load_adapter("simulated"), tmp_path / "runs", display=SilentDisplay(), sampler=())
    assert (result.status, result.exit_code) == ("finished", 0)

    loaded, rows = load_run(result.run_dir), read_rows(result.run_dir / FILE)
    spans = loaded.frame("spans")
    judged = {
        name: json.loads(text)
        for name, text in spans[spans["native_name"] == "reward"][["trajectory_id", "attributes_json"]].to_numpy()
    }
    seen = set()
    trained = {name for step in loaded.tables["steps"].to_pylist() for name in step["trajectory_ids"]}
    for row in loaded.tables["trajectories"].to_pylist():
        if row["trajectory_id"] not in trained:
            continue
        answer = judged[row["trajectory_id"]].get("answer")
        assert row["reward"] == (0.0 if answer is None else exact(answer, rows[row["prompt"]].answers))
        calls = [
            call for call in loaded.tables["tool_calls"].to_pylist() if call["trajectory_id"] == row["trajectory_id"]
        ]
        assert answer != UNKNOWN, (rows[row["prompt"]].question, calls)
        if row["sample"] % 2:
            assert answer in (None, WRONG)
        else:  # the script knows the way, and the limits leave room for it
            assert judged[row["trajectory_id"]]["ended"] == "answered", (rows[row["prompt"]].hops, calls)
        seen.add((row["sample"] % 2, row["reward"]))
    assert {(0, 1.0), (1, 0.0)} <= seen
    assert "p7-s0-a0" in trained
    assert rows[7].hops == 8
    turns = [turn for turn in loaded.tables["turns"].to_pylist() if turn["trajectory_id"] == "p7-s0-a0"]
    assert len(turns) == 11
    # What the end of the run cuts off has no answer.
    calls = [call for call in loaded.tables["tool_calls"].to_pylist() if call["trajectory_id"] in trained]
    assert {call["http_status"] for call in calls if call["tool"] == "web_browser"} == {200}
    assert any(turn["cache_break"] for turn in loaded.tables["turns"].to_pylist()) is (thinking == "strip")
    assert (answers(loaded).untrained_tokens > 0) is (thinking == "strip")

    page = write_report([result.run_dir], result.run_dir).read_text(encoding="utf-8")
    assert SCRIPTED in page
    assert "nothing is planned" in page
