"""Rows of the closing summary that only some runs have: tool calls and reward."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from harness.cli.summary import Row, rows_of, summary
from harness.protocol.spec import Device, Load, Placement, RunSpec
from harness.specs import default_spec
from results.answers import Answers
from results.metrics import RunFigures
from results.schema import COLUMNS, TABLES
from results.store import RunTables

MS = 1_000_000
_ZERO: dict[Any, Any] = {pa.int64(): 0, pa.float64(): 0.0, pa.string(): "", pa.bool_(): False}


def spec(**changes: Any) -> RunSpec:
    return replace(default_spec("skyrl", Placement.ASYNC, Device.CPU), **changes)


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    empty = {c.name: None if c.nullable else _ZERO.get(c.type, []) for c in COLUMNS[name]}
    return pa.Table.from_pylist([{**empty, **row} for row in rows], schema=TABLES[name])


def rows(
    of: RunSpec, calls: list[dict[str, Any]], rewards: tuple[float, ...] = (), *, planned_faults: int = 0
) -> list[Row]:
    lives = [
        {"trajectory_id": f"t{n}", "group_id": f"g{n}", "step_consumed": n + 1, "reward": reward}
        for n, reward in enumerate(rewards)
    ]
    steps = [{"step": n + 1, "start_ns": n * MS, "end_ns": (n + 1) * MS} for n in range(len(rewards))]
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    tables |= {
        "tool_calls": table("tool_calls", calls),
        "trajectories": table("trajectories", lives),
        "steps": table("steps", steps),
    }
    run = RunTables(spec=of, meta={}, run_dir=Path("run"), tables=tables)
    return rows_of(run, planned_faults=planned_faults)


def call(status: str, took_ms: int = 10, **more: Any) -> dict[str, Any]:
    return {"tool": "search_engine", "status": status, "start_ns": 0, "end_ns": took_ms * MS, **more}


def test_calls_that_were_not_ok_and_the_overhead_are_told() -> None:
    calls = [call("ok", 12, served_ns=10 * MS), call("timeout"), call("not_found"), call("cancelled")]
    ((words, value, n, note),) = rows(spec(tools="local"), calls)
    assert (words, value, n, note) == ("tool calls", "2 of 3 not ok", "3", "overhead p99 2.0 ms")
    assert rows(spec(tools="local"), [])[0][1:3] == ("none", "0")
    assert "overhead unknown" in rows(spec(tools="local"), [call("error")])[0][3]


def test_mock_calls_are_told_where_faults_were_planned() -> None:
    calls = [call("ok", 11, planned_ns=10 * MS), call("error", 13, planned_ns=10 * MS)]
    assert rows(spec(tools="mock"), calls) == []
    ((_, value, _, note),) = rows(spec(tools="mock"), calls, planned_faults=1)
    assert value == "1 of 2 not ok"
    assert note == "overhead p99 3.0 ms; 1 planned to fail or to answer badly"


@pytest.mark.parametrize("changes", [{"reward": "probe"}, {"load": Load.LIVE}])
def test_a_reward_that_the_policy_decides_is_told_from_first_to_last(changes: dict[str, Any]) -> None:
    ((words, value, n, note),) = rows(spec(tools="mock", **changes), [], (0.0, 0.25, 0.5, 1.0))
    assert (words, value, n) == ("reward", "0.000 to 1.000", "4")
    assert "first quarter" in note
    ((_, value, _, _),) = rows(spec(tools="mock", **changes), [], (0.5,))
    assert value == "unknown"
    assert rows(spec(tools="mock"), [], (0.0, 1.0)) == []


def test_answers_that_say_little_of_the_policy_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Answers(trajectories=3, ended={"silent": 3}, turns=6, calls=0, cut_replies=6)
    monkeypatch.setattr("harness.cli.summary.answers", lambda _: cut)
    words, value, n, note = rows(spec(tools="local", load=Load.LIVE), [], (0.0, 0.0))[-1]
    assert (words, value, n) == ("answers", "0 of 3", "3")
    assert note.startswith("WARNING all 6 replies were cut, by --turn-tokens")
    fine = replace(cut, ended={"answered": 3}, calls=3, cut_replies=0)
    monkeypatch.setattr("harness.cli.summary.answers", lambda _: fine)
    assert "answers" not in [row[0] for row in rows(spec(tools="local", load=Load.LIVE), [], (0.0, 0.0))]


def test_its_rows_stand_in_the_summary() -> None:
    proof = SimpleNamespace(proven=True)
    found = SimpleNamespace(figures={}, sync_proof=proof, window=None, no_window="too short")
    more = [("tool calls", "2 of 3 not ok", "3", "overhead p99 2.0 ms")]
    text = summary(cast(RunFigures, found), Path("report.md"), gpus=False, more=more)
    line = next(line for line in text.splitlines() if line.startswith("tool calls"))
    assert line.split() == ["tool", "calls", "2", "of", "3", "not", "ok", "3", "overhead", "p99", "2.0", "ms"]
