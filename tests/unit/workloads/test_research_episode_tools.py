"""The agent loop and its tools: what goes wrong with a call is an observation and a record."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from episode_parts import PLAN, Broken, Engine, deaf, never, play, recorded, the

from harness.protocol.events import Failure, Span, Trajectory
from workloads.deep_research.tools import MockTools, Observation, ToolRequest


def test_a_tool_error_becomes_an_observation_of_the_planned_length(tmp_path: Path) -> None:
    async def fails(*_: object) -> Observation:
        raise ConnectionError("no route to the search provider")

    result = play(tmp_path, Engine(), tools=Broken(fails))
    events = recorded(tmp_path)
    tools = [s for s in the(events, Span) if s.phase == "tool"]
    assert [s.attributes["status"] for s in tools] == ["error", "ok"]
    assert [s.attributes["observation_tokens"] for s in tools] == [7, 4]
    failure = the(events, Failure)[0]
    assert (failure.boundary, failure.type) == ("tool", "ConnectionError")
    assert (result.status, result.turns, len(result.response_ids)) == ("ok", 3, 25)


def test_a_tool_that_reports_an_error_keeps_its_text(tmp_path: Path) -> None:
    async def reports(*_: object) -> Observation:
        return Observation(text="404", status="error")

    play(tmp_path, Engine(), tools=Broken(reports))
    tools = [s for s in the(recorded(tmp_path), Span) if s.phase == "tool"]
    assert (tools[0].attributes["status"], tools[0].attributes["observation_bytes"]) == ("error", 3)


@pytest.mark.parametrize("stuck", [never, deaf])
def test_a_late_tool_becomes_an_observation(tmp_path: Path, stuck: Callable[..., Any]) -> None:
    begin = time.monotonic()
    result = play(tmp_path, Engine(), tools=Broken(stuck), tool_timeout_s=0.1)
    assert time.monotonic() - begin < 20
    events = recorded(tmp_path)
    tools = [s for s in the(events, Span) if s.phase == "tool"]
    assert [s.attributes["status"] for s in tools] == ["timeout", "ok"]
    assert tools[0].attributes["observation_tokens"] == 7
    assert the(events, Failure)[0].boundary == "tool"
    assert (result.status, result.turns) == ("ok", 3)


def test_a_tool_that_passes_the_trajectory_limit_ends_it(tmp_path: Path) -> None:
    result = play(tmp_path, Engine(), tools=Broken(never), trajectory_timeout_s=0.1)
    events = recorded(tmp_path)
    closed = the(events, Trajectory)[0]
    assert (result.status, closed.status, closed.turns, closed.tool_calls) == ("timeout", "timeout", 1, 1)
    assert (closed.observation_tokens, closed.reward) == (0, None)
    tool = the(events, Span)[-1]
    assert (tool.phase, tool.attributes["status"]) == ("tool", "timeout")
    assert tool.attributes["observation_tokens"] is None


def test_mock_tools_refuse_a_turn_without_a_call() -> None:
    request = ToolRequest(tool="finish", argument="", trajectory_id="p4-s1-a0", call=2, planned=PLAN.turns[-1])
    with pytest.raises(ValueError, match="no planned tool call"):
        asyncio.run(MockTools().call(request))


def test_only_tools_that_keep_to_the_plan_had_a_planned_latency_when_nothing_answered(tmp_path: Path) -> None:
    class Real(Broken):
        imposes_plan = False

    for folder, tools in (("mock", Broken(never)), ("real", Real(never))):
        (tmp_path / folder).mkdir()
        play(tmp_path / folder, Engine(), tools=tools, tool_timeout_s=0.05)
    planned = {
        folder: next(s.attributes["planned_ns"] for s in the(recorded(tmp_path / folder), Span) if s.phase == "tool")
        for folder in ("mock", "real")
    }
    assert planned == {"mock": 20_000_000, "real": None}
