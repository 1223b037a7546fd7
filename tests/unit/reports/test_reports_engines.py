import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import played_folders as folders
import played_runs as played
import pytest

from harness.protocol.spec import Gpus
from reports import style
from reports.engines import engine_lines
from reports.markdown import Footnotes
from reports.report import write_report
from results.account import Account, UnitAccount
from results.collect import collect
from results.engine_use import EnginesUse, EngineUse
from results.intervals import Timeline

TIMELINE = Timeline(np.array([0, 10_000_000_000]), np.array([9], dtype=np.int8))
UNIT = UnitAccount(
    unit="e0",
    pool="rollout",
    gpus=1,
    timeline=TIMELINE,
    seconds={"generating": 10.0},
    tail_seconds={},
    hidden_seconds={},
    engine_known=0.98,
)
ACCOUNT = Account(
    granularity="engine",
    evidence="engine",
    units=(UNIT,),
    window_s=10.0,
    steps=2,
    tail_s=0.0,
    overlaps=0,
    overlap_s=0.0,
    poll_s=0.0,
)
USE = EngineUse(
    engine="http://e0",
    readings=10,
    failed=1,
    call_s=0.002,
    running=3.5,
    busy_share=0.8,
    low_share=0.1,
    waiting=0.5,
    waiting_max=2.0,
    kv_mean=0.25,
    kv_max=0.5,
    preemptions=3.0,
    prompt_tokens=1_000.0,
    cached_tokens=600.0,
    generated_tokens=1_600.0,
)


def test_runs_whose_generating_rests_on_another_evidence_are_told_to_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "save", lambda _figure, stem: [stem.with_suffix(".png"), stem.with_suffix(".svg")])
    split = Gpus(train=1, rollout=1)
    specs = [played.make_spec(p, batch_size=4, group_size=2, steps=8, gpus=split) for p in ("disaggregated", "async")]
    runs = [folders.write_run(tmp_path / spec.placement.value, spec) for spec in specs]
    turns = collect(runs[0]).tables["turns"].select(["engine", "start_ns", "end_ns"]).to_pydict()
    begin, end = min(turns["start_ns"]), max(turns["end_ns"])
    rows = []
    for at in range(begin, end, 1_000_000_000):
        running = sum(s <= at < e for s, e in zip(turns["start_ns"], turns["end_ns"], strict=True))
        row = {"host": "h", "engine": turns["engine"][0], "mono_ns": at, "uncertainty_ns": 0, "family": "vllm"}
        rows.append(json.dumps({**row, "running_requests": running}))
    folder = runs[0] / "samples" / "engines"
    folder.mkdir(parents=True)
    (folder / "h-1.jsonl").write_text("\n".join(rows) + "\n")
    said = "take `generating` and `queued` together"
    assert said not in write_report(runs, tmp_path / "before").read_text()
    collect(runs[0])
    text = write_report(runs, tmp_path / "after").read_text()
    assert said in text


def _text(account: Account, use: EnginesUse | None) -> str:
    return "\n".join(engine_lines(account, use, Footnotes()))


def test_a_row_per_engine_what_it_rests_on_and_what_it_cost() -> None:
    text = _text(ACCOUNT, EnginesUse(engines=(USE,), reason=None, scraper_cpu_s=0.25))
    assert "98.0% of the time with a turn open" in text
    assert "`queued` is" in text
    assert "| 10 (1) | 2 ms | 3.50 | 80.0% | 10.0% |" in text
    assert "| 25.0% (50.0%) | 400, 600 | 1,600 | 3 |" in text
    assert "at most 0.2% of the window" in text
    assert "0.250 s of CPU" in text
    assert "20.0% were prompt tokens to compute" in text


def test_what_an_engine_does_not_tell_is_a_dash_and_too_few_readings_leave_the_clients_word() -> None:
    bare = replace(USE, running=None, busy_share=0.0, cached_tokens=None, preemptions=None)
    account = replace(ACCOUNT, evidence="client", units=(replace(UNIT, engine_known=0.4),))
    text = _text(account, EnginesUse(engines=(bare,), reason=None))
    assert "an upper bound" in text
    assert "40.0%" in text
    row = next(line for line in text.splitlines() if "http://e0" in line)
    assert row.count("–") == 3  # computed and cached prompt tokens, preemptions
    assert "| 0 | 0.0% |" in row
    assert "were prompt tokens" not in text


def test_an_engine_known_by_its_metric_only_is_said_to_be_so() -> None:
    use = EnginesUse(engines=(USE,), reason=None)
    text = _text(replace(ACCOUNT, granularity="metric"), use)
    assert "Turns don't name their engine" in text
    assert "they speak for 98.0% of the time with a turn open" in text
    quiet = replace(ACCOUNT, granularity="metric", units=(replace(UNIT, engine_known=None),))
    assert "no turn was open in the pool" in _text(quiet, use)


def test_a_pool_that_is_one_unit_because_an_engine_is_silent_says_so() -> None:
    account = replace(ACCOUNT, granularity="pool", evidence="client", why_pool="of e1 no reading tells of the window")
    text = _text(account, EnginesUse(engines=(USE,), reason=None))
    assert "The rollout pool is one unit: of e1 no reading tells of the window." in text
    assert "an upper bound" in text


def test_without_numbers_the_reason_stands_there() -> None:
    text = _text(ACCOUNT, EnginesUse(engines=(), reason="no endpoint here"))
    assert (
        text == "No engine's own numbers: no endpoint here. `generating` is a turn open at the client: an upper bound."
    )
