"""The count of one step by hand, against the account, where turns don't say which engine has them."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from played_folders import write_run
from played_runs import S, make_spec, play

from harness.protocol.events import Event, Span
from harness.protocol.spec import Gpus
from results.account import make_account
from results.collect import collect
from results.tracks import tracks

sys.path.insert(0, str(Path(__file__).parents[2] / "framework"))
from one_step import Record, _window, of_bench

EVERY = S // 2
STEPS = range(3, 7)


def _unnamed(event: Event) -> Event:
    if isinstance(event, Span) and event.phase == "generation" and event.trajectory_id is not None:
        return replace(event, attributes={k: v for k, v in event.attributes.items() if k != "engine"})
    return event


def _run(folder: Path, placement: str, answers: str) -> Path:
    """A run on two engines whose turns name neither; each told every half second how many requests it ran."""
    split = Gpus(train=2, rollout=2)
    spec = make_spec(placement, batch_size=4, group_size=2, steps=7, gpus=split, preset="deep-research-smoke")
    events = play(spec)
    turns = [
        e
        for e in events
        if isinstance(e, Span) and e.phase == "generation" and e.trajectory_id and e.attributes["engine"]
    ]
    run = write_run(folder / placement / answers, spec, [_unnamed(event) for event in events])
    begin, end = min(e.start_ns for e in turns), max(e.end_ns for e in turns)
    middle = (begin + end) // 2
    rows = []
    for number, engine in enumerate(sorted({str(e.attributes["engine"]) for e in turns})):
        for at in range(begin - 5 * S + number * 7, end + 5 * S, EVERY):
            mine = sum(e.attributes["engine"] == engine and e.start_ns <= at < e.end_ns for e in turns)
            row = {"host": "node-1", "engine": engine, "mono_ns": at, "uncertainty_ns": 1000, "family": "vllm"}
            row |= {"running_requests": float(mine), "waiting_requests": float(mine == 0 and at % 3 == 0)}
            if number and (answers == "never" or (answers == "out" and abs(at - middle) < (end - begin) // 3)):
                row |= {"family": None, "running_requests": None, "waiting_requests": None, "reason": "HTTP 500"}
            rows.append(json.dumps(row))
    (run / "samples" / "engines").mkdir(parents=True)
    (run / "samples" / "engines" / "node-1.jsonl").write_text("\n".join(rows) + "\n")
    collect(run)
    return run


@pytest.mark.parametrize("answers", ["always", "out", "never"])
@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_a_step_counted_by_hand_is_the_accounts(tmp_path: Path, placement: str, answers: str) -> None:
    run = _run(tmp_path, placement, answers)
    tables = collect(run)
    record, seen, grains = Record(run), set(), set()
    for step in STEPS:
        account = make_account(tables, tracks(tables), _window(tables, step))
        grains.add(account.granularity)
        mine, theirs = record.account(step), of_bench(run, step)
        assert mine.keys() == theirs.keys()
        for unit, parts in theirs.items():
            assert mine[unit] == pytest.approx({name: s for name, s in parts.items() if s}, abs=1e-6), (step, unit)
            seen |= {name for name, s in parts.items() if s > 0.1}
    assert "generating" in seen
    expected = {"always": {"metric"}, "never": {"pool"}}
    if answers == "out":
        assert "pool" in grains or "other" in seen  # a step without any answer, or an outage inside one
    else:
        assert grains == expected[answers]
