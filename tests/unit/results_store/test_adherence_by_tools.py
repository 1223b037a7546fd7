"""Adherence with planned faults, and with tools that the plan does not impose."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import MS, follow, hello, make_run, make_spec, plan_of

from harness.protocol.events import Event, Span
from reports.markdown import Footnotes
from reports.tables import adherence_table
from results.adherence import Adherence, check_adherence
from results.collect import collect
from workloads.deep_research.faults import status_of
from workloads.deep_research.plan import TrajectoryPlan

FAULTY = "deep-research-faulty"
SPEC = make_spec(preset=FAULTY)


def faulty() -> TrajectoryPlan:
    """A plan with a call that fails as planned, and one that does not."""
    for prompt in range(100):
        plan = plan_of(SPEC, prompt, 0)
        ends = {status_of(turn.fault) for turn in plan.turns[:-1]}
        if "ok" in ends and len(ends) > 1:
            return plan
    raise AssertionError("no plan with a fault")


PLAN = faulty()
FAULTS = [number for number, turn in enumerate(PLAN.turns) if turn.fault is not None]
FAILING = [number for number in FAULTS if status_of(PLAN.turns[number].fault) != "ok"]
CALLS = PLAN.tool_calls


def calls(events: Sequence[Event], *, took_ns: int | None = None, **attributes: Any) -> list[Event]:
    """The same events, every tool call with other attributes (a function of its turn, or a value) and length."""

    def changed(event: Span) -> Span:
        new = {name: value(event.turn) if callable(value) else value for name, value in attributes.items()}
        end_ns = event.end_ns if took_ns is None else event.start_ns + took_ns
        return replace(event, end_ns=end_ns, attributes={**event.attributes, **new})

    return [changed(e) if isinstance(e, Span) and e.native_name == "tool" else e for e in events]


def as_planned(turn: int) -> str:
    return status_of(PLAN.turns[turn].fault)


def checked(folder: Path, *events: Event, **spec: Any) -> Adherence:
    return check_adherence(
        collect(make_run(folder / "run", [hello(), *events], spec=make_spec(**{"preset": FAULTY, **spec})))
    )


def test_a_planned_fault_that_came_is_as_planned(tmp_path: Path) -> None:
    found = checked(tmp_path, *calls(follow(PLAN, 2_000), status=as_planned))
    assert (found.content_ratio, found.deviations, found.failed_calls) == (1.0, (), 0)
    assert (found.imposed, found.planned_faults, found.calls_timed, found.undercut) == (True, len(FAULTS), CALLS, 0)


def test_a_planned_fault_that_did_not_come_deviates(tmp_path: Path) -> None:
    found = checked(tmp_path, *follow(PLAN, 2_000))
    assert (found.content_ratio, found.failed_calls, found.deviation_count) == (0.0, len(FAILING), len(FAILING))
    first = PLAN.turns[FAILING[0]]
    assert found.deviations[0].endswith(f"{first.tool} ended as ok, planned {status_of(first.fault)}")


def test_a_fault_that_was_not_planned_deviates(tmp_path: Path) -> None:
    good = next(n for n in range(CALLS) if as_planned(n) == "ok")
    events = calls(follow(PLAN, 2_000), status=lambda turn: "timeout" if turn == good else as_planned(turn))
    found = checked(tmp_path, *events)
    assert (found.adhering, found.deviation_count, found.calls_timed) == (0, 1, CALLS - 1)
    assert found.deviations[0].endswith("ended as timeout, planned ok")


def test_a_planned_timeout_that_came_too_early_undercuts(tmp_path: Path) -> None:
    found = checked(tmp_path, *calls(follow(PLAN, 2_000, over_ns=-5), status=as_planned))
    assert (found.undercut, found.overshoot_p99_ns) == (CALLS, -5)


@pytest.mark.parametrize("tools", ["local", "web", "web:serper"])
def test_other_tools_take_what_they_take_and_end_as_they_end(tmp_path: Path, tools: str) -> None:
    events = calls(follow(PLAN, 2_000), took_ns=MS, planned_ns=None, status=lambda turn: "error" if turn else "ok")
    found = checked(tmp_path, *events, tools=tools)
    assert (found.content_ratio, found.deviations, found.imposed) == (1.0, (), False)
    assert (found.failed_calls, found.finished_calls) == (CALLS - 1, CALLS)
    assert (found.calls_timed, found.undercut, found.overshoot_p99_ns, found.timing_distorted) == (0, 0, None, None)


def test_other_tools_must_still_be_those_that_were_planned(tmp_path: Path) -> None:
    swapped = {"search_engine": "web_browser", "web_browser": "search_engine"}
    other = swapped[PLAN.turns[0].tool]
    events = calls(follow(PLAN, 2_000), planned_ns=None, tool=lambda turn: PLAN.turns[turn].tool if turn else other)
    found = checked(tmp_path, *events, tools="local")
    assert (found.adhering, found.deviation_count) == (0, 1)
    assert "turn 0: called" in found.deviations[0]


def test_a_replay_is_timed_against_what_was_recorded(tmp_path: Path) -> None:
    def replayed(took_ns: int, name: str) -> Adherence:
        events = calls(follow(PLAN, 2_000), took_ns=took_ns, planned_ns=7 * MS)
        return checked(tmp_path / name, *events, tools="replay", trace="t.parquet", trace_digest="a")

    found = replayed(9 * MS, "late")
    assert (found.content_ratio, found.calls_timed, found.overshoot_p50_ns, found.undercut) == (1.0, CALLS, 2 * MS, 0)
    assert (replayed(6 * MS, "early").undercut, replayed(70 * MS, "slow").timing_distorted) == (CALLS, True)


def test_a_replayed_call_that_failed_at_once_is_no_undercut(tmp_path: Path) -> None:
    events = calls(follow(PLAN, 2_000), took_ns=MS, planned_ns=7 * MS, status="timeout")
    found = checked(tmp_path, *events, tools="replay", trace="t.parquet", trace_digest="a")
    assert (found.content_ratio, found.undercut, found.calls_timed, found.failed_calls) == (1.0, 0, 0, CALLS)


REPLAY = {"tools": "replay", "trace": "t.parquet", "trace_digest": "a"}


def test_a_replay_that_misses_calls_does_not_adhere(tmp_path: Path) -> None:
    events = calls(
        follow(PLAN, 2_000),
        took_ns=9 * MS,
        planned_ns=lambda turn: 7 * MS if turn else None,
        status=lambda turn: "ok" if turn else "not_found",
    )
    found = checked(tmp_path, *events, **REPLAY)
    assert (found.content_ratio, found.deviation_count, found.not_replayed) == (0.0, 1, 1)
    assert found.deviations[0].endswith(f"turn 0: {PLAN.turns[0].tool} was not replayed, it ended as not_found")
    table = "\n".join(adherence_table(found, Footnotes()))
    assert "| calls that got no recording | 1 |" in table


def test_what_was_recorded_as_not_found_or_took_too_long_was_replayed(tmp_path: Path) -> None:
    gone = calls(follow(PLAN, 2_000), took_ns=9 * MS, planned_ns=7 * MS, status="not_found")
    found = checked(tmp_path / "gone", *gone, **REPLAY)
    assert (found.content_ratio, found.not_replayed) == (1.0, 0)
    # The agent gave up waiting for what is in the trace: nothing answered it.
    late = calls(follow(PLAN, 2_000), took_ns=9 * MS, planned_ns=None, status="timeout")
    found = checked(tmp_path / "late", *late, **REPLAY)
    assert (found.content_ratio, found.not_replayed) == (1.0, 0)


def test_calls_that_a_replay_lost_with_its_server_deviate(tmp_path: Path) -> None:
    lost = calls(follow(PLAN, 2_000), took_ns=9 * MS, planned_ns=None, status="error")
    found = checked(tmp_path, *lost, **REPLAY)
    assert (found.content_ratio, found.not_replayed) == (0.0, CALLS)


def test_other_tools_have_nothing_to_replay(tmp_path: Path) -> None:
    found = checked(tmp_path, *calls(follow(PLAN, 2_000), planned_ns=None, status="not_found"), tools="local")
    assert (found.content_ratio, found.not_replayed) == (1.0, None)
    assert "no recording" not in "\n".join(adherence_table(found, Footnotes()))
