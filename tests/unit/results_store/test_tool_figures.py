"""Outcomes and overheads of tool calls, from calls whose figures are known, and their tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from small_runs import MS, follow, hello, make_run, make_spec, plan_of

from harness.protocol.events import Event, Span
from reports.markdown import Footnotes
from reports.tool_table import how_many, tool_section
from results.collect import collect
from results.store import RunTables
from results.tool_figures import ToolFigures, tool_figures

SPEC = make_spec()


def call(turn: int, took_ns: int, **attributes: Any) -> Span:
    fields = {"tool": "search_engine", "status": "ok", "planned_ns": None, "observation_tokens": 3, **attributes}
    return Span(
        phase="tool",
        native_name="tool",
        start_ns=1_000_000 + turn,
        end_ns=1_000_000 + turn + took_ns,
        pool="rollout",
        trajectory_id="p0-s0-a0",
        turn=turn,
        attributes=fields,
    )


def run_of(folder: Path, *events: Event) -> RunTables:
    return collect(make_run(folder / "run", [hello(), *events], spec=SPEC))


def section(found: ToolFigures) -> str:
    notes = Footnotes()
    return "\n".join([*tool_section(found, notes), *notes.lines()])


def test_calls_are_counted_by_tool_and_status(tmp_path: Path) -> None:
    events = [
        *(call(n, MS, served_ns=MS // 2, wire_bytes=100) for n in range(6)),
        *(call(n, 3 * MS, status="timeout", detail="late") for n in (6, 7)),
        call(8, MS, status="refused"),
        call(9, MS, tool="web_browser", status="error", http_status=500),
        call(10, MS, status="cancelled"),
    ]
    found = tool_figures(run_of(tmp_path, *events))
    seen = [(each.tool, each.status, each.calls, each.of) for each in found.outcomes]
    assert seen == [
        ("search_engine", "ok", 6, 9),
        ("search_engine", "timeout", 2, 9),
        ("search_engine", "refused", 1, 9),
        ("web_browser", "error", 1, 1),
    ]
    ok, late = found.outcomes[:2]
    assert (ok.latency.p50_ns, ok.served.p99_ns, ok.wire_bytes, ok.served.n) == (MS, MS // 2, 600, 6)
    assert (late.latency.max_ns, late.served.p50_ns, late.wire_bytes) == (3 * MS, None, None)
    assert (found.calls, found.cancelled) == (10, 1)
    text = section(found)
    assert "| `search_engine` | timeout | 2 | 22.2% | 3 ms | 3 ms | 3 ms |" in text
    assert how_many(found) == "n = 10 calls, the whole run; 1 cancelled call left out"
    assert "no tool server answered these calls" in text


def test_overhead_is_beyond_what_was_imposed_or_else_served(tmp_path: Path) -> None:
    planned = [call(n, 10 * MS + (n + 1) * MS, planned_ns=10 * MS, served_ns=MS) for n in range(3)]
    served = [call(n, 5 * MS, served_ns=4 * MS) for n in (3, 4)]
    unknown = [call(5, 99 * MS)]
    found = tool_figures(run_of(tmp_path, *planned, *served, *unknown))
    beyond = found.beyond_planned
    assert (beyond.n, beyond.p50_ns, beyond.p99_ns, beyond.max_ns) == (3, 2 * MS, 3 * MS, 3 * MS)
    assert (found.beyond_served.n, found.beyond_served.p50_ns) == (2, MS)
    (process,) = found.processes
    assert (process.calls, process.beyond_planned, process.beyond_served) == (6, beyond, found.beyond_served)
    assert "2 ms | 3 ms | 3 ms | 1 ms | 1 ms |" in section(found)


def test_a_replay_says_what_was_not_in_its_trace(tmp_path: Path) -> None:
    missing = [call(n, MS, status="not_found", argument=f"where is {n // 2}?") for n in range(14)]
    found = tool_figures(run_of(tmp_path, call(20, MS), *missing))
    assert (found.not_found, len(found.not_found_first)) == (14, 5)
    assert found.not_found_first[0] == ("search_engine", "where is 0?")
    text = "\n".join(tool_section(found, Footnotes(), replay=True))
    assert "Not in the trace: 14 of 15 calls." in text
    assert "- `search_engine` `where is 4?`" in text
    assert "Not in the trace" not in section(found)
    # A page that was recorded as not found is in the trace.
    recorded = [call(n, 2 * MS, status="not_found", planned_ns=MS, argument="http://gone.test/") for n in (21, 22)]
    found = tool_figures(run_of(tmp_path / "recorded", call(20, MS, planned_ns=MS), *recorded, *missing[:1]))
    assert (found.not_found, found.not_found_first) == (1, (("search_engine", "where is 0?"),))
    assert "Not in the trace: 1 of 4 calls." in "\n".join(tool_section(found, Footnotes(), replay=True))
    whole = tool_figures(run_of(tmp_path / "whole", call(0, MS)))
    assert "Not in the trace: 0 of 1 call." in "\n".join(tool_section(whole, Footnotes(), replay=True))


def test_each_process_has_its_own_overhead(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [hello(), call(0, 2 * MS, planned_ns=MS)], spec=SPEC)
    other = replace(hello(), pid=hello().pid + 1, role="rollout")
    make_run(tmp_path / "other", [other, call(1, 6 * MS, planned_ns=MS)], spec=SPEC)
    (events,) = (tmp_path / "other" / "events").iterdir()
    name = f"{other.host}-{other.pid}.jsonl"
    (folder / "events" / name).write_bytes(events.read_bytes())
    found = tool_figures(collect(folder))
    assert [(each.pid, each.beyond_planned.max_ns) for each in found.processes] == [
        (hello().pid, MS),
        (other.pid, 5 * MS),
    ]
    assert found.processes[1].role == "rollout"
    assert f"rollout {other.host}-{other.pid}" in section(found).replace("\\", "")


def test_a_run_that_follows_its_plan_has_the_overrun_that_was_planted(tmp_path: Path) -> None:
    found = tool_figures(run_of(tmp_path, *follow(plan_of(SPEC, 0, 0), 2_000, over_ns=3 * MS)))
    assert (found.beyond_planned.p50_ns, found.beyond_planned.max_ns) == (3 * MS, 3 * MS)
    assert {each.status for each in found.outcomes} == {"ok"}


def test_no_calls_are_no_figures(tmp_path: Path) -> None:
    found = tool_figures(run_of(tmp_path))
    assert (found.why_none, found.outcomes, found.processes) == ("no tool call ended", (), ())
    assert section(found) == "No tool calls: no tool call ended."
