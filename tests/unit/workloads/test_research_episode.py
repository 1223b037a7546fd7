"""The agent loop against a fake engine and a real recorder: exactly these events, however a trajectory ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.protocol.events import Event, Failure, Hello, Open, Span, Trajectory, read_events
from harness.protocol.phases import TOOL_ATTRIBUTES, TURN_ATTRIBUTES
from harness.protocol.recorder import Recorder, RecorderFullError, make_hello
from workloads.deep_research.episode import EpisodeResult, Generate, Generated, Sampling, run_episode
from workloads.deep_research.plan import TrajectoryPlan, Turn
from workloads.deep_research.tools import MockTools, Observation, ToolRequest

PLAN = TrajectoryPlan(
    prompt=4,
    sample=1,
    prompt_tokens=10,
    turns=(
        Turn(generated_tokens=5, tool="search_engine", latency_s=0.02, observation_tokens=7),
        Turn(generated_tokens=3, tool="web_browser", latency_s=0.01, observation_tokens=4),
        Turn(generated_tokens=6, tool="finish", latency_s=None, observation_tokens=0),
    ),
    reward=1.0,
)


class Codec:
    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        return [len(question)] * tokens

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        return [-1] * tokens


class Engine:
    """Answers what is asked; `versions` gives the policy version by turn."""

    def __init__(self, versions: tuple[int, ...] = (2, 2, 3)) -> None:
        self.asked: list[tuple[str, list[int], Sampling]] = []
        self.versions = versions

    async def __call__(self, trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        turn = len(self.asked)
        self.asked.append((trajectory_id, ids, sampling))
        count = sampling.max_tokens
        return Generated(
            ids=[100 + turn] * count,
            logprobs=[-1.0 - turn] * count,
            version_start=self.versions[turn],
            version_end=self.versions[turn],
            engine="http://engine-0",
            stop_reason="length",
        )


async def never(*_: object) -> Any:
    await asyncio.Event().wait()


async def deaf(*_: object) -> Any:
    """Ignores its first cancellations, as a call stuck in a library may."""
    for _attempt in range(50):
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            continue


class Broken(MockTools):
    def __init__(self, call: Callable[..., Any], turn_tool: str = "search_engine") -> None:
        self.instead = call
        self.turn_tool = turn_tool

    async def call(self, request: ToolRequest) -> Observation:
        if request.tool == self.turn_tool:
            answer = await self.instead(request)
            assert isinstance(answer, Observation)
            return answer
        return await super().call(request)


@asynccontextmanager
async def recording(folder: Path) -> AsyncIterator[Recorder]:
    recorder = Recorder(folder / "events.jsonl", make_hello("run", "controller"))
    yield recorder
    recorder.shut()


async def attempt(recorder: Recorder, generate: Generate, **changes: Any) -> EpisodeResult:
    arguments: dict[str, Any] = {
        "plan": PLAN,
        "trajectory_id": "p4-s1-a0",
        "group_id": "p4",
        "attempt": 0,
        "generate": generate,
        "tools": MockTools(),
        "codec": Codec(),
        "recorder": recorder,
        "pool": "rollout",
        "version_scheduled": 1,
        "tool_timeout_s": 10.0,
        "trajectory_timeout_s": 30.0,
        "question": "why?",
    }
    return await run_episode(**{**arguments, **changes})


def play(folder: Path, generate: Generate, **changes: Any) -> EpisodeResult:
    async def main() -> EpisodeResult:
        async with recording(folder) as recorder:
            return await attempt(recorder, generate, **changes)

    return asyncio.run(main())


def recorded(folder: Path) -> list[Event]:
    events = list(read_events(folder / "events.jsonl"))
    assert not [e for e in events if isinstance(e, ValueError)]
    return [e for e in events if not isinstance(e, ValueError | Hello)]


def shape(events: list[Event]) -> list[tuple[str, str | None, int | None]]:
    return [(e.kind, getattr(e, "phase", None), getattr(e, "turn", None)) for e in events]


def the(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_good_trajectory_leaves_exactly_these_events(tmp_path: Path) -> None:
    engine = Engine()
    result = play(tmp_path, engine, step=6)
    events = recorded(tmp_path)
    assert shape(events) == [
        ("open", None, None),
        ("span", "generation", 0),
        ("span", "tool", 0),
        ("span", "generation", 1),
        ("span", "tool", 1),
        ("span", "generation", 2),
        ("span", "reward", None),
        ("trajectory", None, None),
    ]
    opened, closed = the(events, Open)[0], the(events, Trajectory)[0]
    assert (opened.id, opened.trajectory_id, opened.native_name) == (closed.open_id, "p4-s1-a0", "trajectory")
    spans: list[Span] = the(events, Span)
    assert {(s.pool, s.step, s.trajectory_id, s.container) for s in spans} == {("rollout", 6, "p4-s1-a0", False)}
    # Spans follow each other inside the trajectory.
    edges = [closed.start_ns, *(edge for s in spans for edge in (s.start_ns, s.end_ns)), closed.end_ns]
    assert edges == sorted(edges)

    turns = [s for s in spans if s.phase == "generation"]
    assert all(set(s.attributes) == set(TURN_ATTRIBUTES) for s in turns)
    assert [s.attributes["generated_tokens"] for s in turns] == [5, 3, 6]
    assert [s.attributes["prompt_tokens"] for s in turns] == [10, 22, 29]
    assert [s.attributes["version_start"] for s in turns] == [2, 2, 3]
    assert {s.attributes["engine"] for s in turns} == {"http://engine-0"}
    tools = [s for s in spans if s.phase == "tool"]
    assert all(set(s.attributes) == set(TOOL_ATTRIBUTES) for s in tools)
    assert [s.attributes["tool"] for s in tools] == ["search_engine", "web_browser"]
    assert [s.attributes["planned_ns"] for s in tools] == [20_000_000, 10_000_000]
    assert [s.attributes["observation_tokens"] for s in tools] == [7, 4]

    assert (closed.status, closed.message, closed.reward) == ("ok", None, 1.0)
    assert (closed.group_id, closed.prompt, closed.sample, closed.attempt) == ("p4", 4, 1, 0)
    assert (closed.turns, closed.tool_calls, closed.prompt_tokens) == (3, 2, 10)
    assert (closed.generated_tokens, closed.observation_tokens) == (14, 11)
    assert (closed.version_scheduled, closed.version_first, closed.version_last) == (1, 2, 3)
    assert closed.tool_ns == sum(s.end_ns - s.start_ns for s in tools)

    assert result.prompt_ids == [4] * 10
    assert result.response_ids == [100] * 5 + [-1] * 7 + [101] * 3 + [-1] * 4 + [102] * 6
    assert result.loss_mask == [1] * 5 + [0] * 7 + [1] * 3 + [0] * 4 + [1] * 6
    assert result.logprobs == [-1.0] * 5 + [0.0] * 7 + [-2.0] * 3 + [0.0] * 4 + [-3.0] * 6
    assert (result.status, result.reward, result.turns, result.tool_calls) == ("ok", 1.0, 3, 2)
    assert (result.version_first, result.version_last) == (2, 3)


def test_the_plan_is_imposed_on_the_engine(tmp_path: Path) -> None:
    engine = Engine()
    play(tmp_path, engine)
    assert [s.max_tokens for _, _, s in engine.asked] == [5, 3, 6]
    assert all(s.min_tokens == s.max_tokens and s.ignore_eos for _, _, s in engine.asked)
    assert {(s.temperature, s.top_p, s.top_k) for _, _, s in engine.asked} == {(1.0, 1.0, -1)}
    # Token in, token out: each turn begins with exactly what came before it.
    histories = [ids for _, ids, _ in engine.asked]
    assert histories[1] == histories[0] + [100] * 5 + [-1] * 7
    assert histories[2] == histories[1] + [101] * 3 + [-1] * 4


def test_a_planned_latency_is_never_undercut(tmp_path: Path) -> None:
    plan = TrajectoryPlan(
        prompt=0,
        sample=0,
        prompt_tokens=1,
        turns=(
            *(
                Turn(generated_tokens=1, tool="search_engine", latency_s=0.0005 * n + 1e-6, observation_tokens=1)
                for n in range(1, 40)
            ),
            Turn(generated_tokens=1, tool="finish", latency_s=None, observation_tokens=0),
        ),
        reward=0.0,
    )
    play(tmp_path, Engine(versions=(0,) * 40), plan=plan)
    tools = [s for s in the(recorded(tmp_path), Span) if s.phase == "tool"]
    assert len(tools) == 39
    assert all(s.end_ns - s.start_ns >= s.attributes["planned_ns"] for s in tools)


def test_a_shorter_reply_is_recorded_as_it_came(tmp_path: Path) -> None:
    async def short(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[1, 2], logprobs=[-1.0, -1.0], stop_reason="stop")

    result = play(tmp_path, short)
    events = recorded(tmp_path)
    assert result.status == "ok"
    assert the(events, Trajectory)[0].generated_tokens == 6
    turns = [s for s in the(events, Span) if s.phase == "generation"]
    assert [s.attributes["generated_tokens"] for s in turns] == [2, 2, 2]
    assert {(s.attributes["stop_reason"], s.attributes["version_start"]) for s in turns} == {("stop", None)}


def test_an_empty_reply_does_not_end_the_trajectory(tmp_path: Path) -> None:
    async def empty(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[], logprobs=[])

    result = play(tmp_path, empty)
    assert (result.status, result.turns, sum(result.loss_mask)) == ("ok", 3, 0)


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


def test_an_engine_error_ends_the_trajectory_as_failed(tmp_path: Path) -> None:
    engine = Engine()

    async def dies(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        if engine.asked:
            raise OSError("connection reset")
        return await engine(trajectory_id, ids, sampling)

    result = play(tmp_path, dies)
    events = recorded(tmp_path)
    assert [(kind, phase) for kind, phase, _ in shape(events)] == [
        ("open", None),
        ("span", "generation"),
        ("span", "tool"),
        ("span", "generation"),
        ("failure", None),
        ("trajectory", None),
    ]
    closed = the(events, Trajectory)[0]
    assert (closed.status, closed.turns, closed.generated_tokens, closed.reward) == ("failed", 1, 5, None)
    assert "turn 1: OSError: connection reset" in (closed.message or "")
    last = [s for s in the(events, Span) if s.phase == "generation"][-1]
    assert (last.attributes["stop_reason"], last.attributes["generated_tokens"]) == ("error", None)
    assert (result.status, result.reward, len(result.response_ids)) == ("failed", None, 12)
    assert the(events, Failure)[0].boundary == "engine"


def test_a_call_cancelled_by_others_is_a_failure_not_a_cancellation(tmp_path: Path) -> None:
    async def cancels(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        raise asyncio.CancelledError

    assert play(tmp_path, cancels).status == "failed"


def test_logprobs_of_another_length_are_a_failure(tmp_path: Path) -> None:
    async def uneven(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        return Generated(ids=[1, 2, 3], logprobs=[-1.0])

    result = play(tmp_path, uneven)
    assert (result.status, result.response_ids) == ("failed", [])
    assert "3 ids came back with 1 logprobs" in (result.message or "")


@pytest.mark.parametrize("stuck", [never, deaf])
def test_an_engine_that_hangs_is_left_at_the_trajectory_limit(tmp_path: Path, stuck: Callable[..., Any]) -> None:
    begin = time.monotonic()
    result = play(tmp_path, stuck, trajectory_timeout_s=0.15)
    assert time.monotonic() - begin < 20
    closed = the(recorded(tmp_path), Trajectory)[0]
    assert (result.status, closed.status, closed.turns) == ("timeout", "timeout", 0)
    assert closed.end_ns - closed.start_ns >= 150_000_000
    span = the(recorded(tmp_path), Span)[0]
    assert (span.attributes["stop_reason"], span.attributes["generated_tokens"]) == ("timeout", None)


def test_a_tool_that_passes_the_trajectory_limit_ends_it(tmp_path: Path) -> None:
    result = play(tmp_path, Engine(), tools=Broken(never), trajectory_timeout_s=0.1)
    events = recorded(tmp_path)
    closed = the(events, Trajectory)[0]
    assert (result.status, closed.status, closed.turns, closed.tool_calls) == ("timeout", "timeout", 1, 1)
    assert (closed.observation_tokens, closed.reward) == (0, None)
    tool = the(events, Span)[-1]
    assert (tool.phase, tool.attributes["status"]) == ("tool", "timeout")
    assert tool.attributes["observation_tokens"] is None


@pytest.mark.parametrize("where", ["engine", "tool"])
def test_a_cancelled_trajectory_is_recorded_and_the_cancellation_goes_on(tmp_path: Path, where: str) -> None:
    async def main() -> None:
        async with recording(tmp_path) as recorder:
            generate: Generate = never if where == "engine" else Engine()
            tools = MockTools() if where == "engine" else Broken(never)
            task = asyncio.create_task(attempt(recorder, generate, tools=tools))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    events = recorded(tmp_path)
    closed = the(events, Trajectory)[0]
    assert (closed.status, closed.reward) == ("cancelled", None)
    last = the(events, Span)[-1]
    if where == "engine":
        assert (last.phase, last.attributes["stop_reason"]) == ("generation", "cancelled")
    else:
        assert (last.phase, last.attributes["status"]) == ("tool", "cancelled")
        assert closed.turns == 1


def test_a_broken_codec_is_a_bug_and_raises_after_it_was_recorded(tmp_path: Path) -> None:
    class Bad(Codec):
        def observation_ids(self, text: str, tokens: int) -> list[int]:
            raise LookupError("no such token")

    with pytest.raises(LookupError):
        play(tmp_path, Engine(), codec=Bad())
    closed = the(recorded(tmp_path), Trajectory)[0]
    assert (closed.status, closed.message) == ("failed", "LookupError: no such token")


def test_a_full_disk_is_not_taken_for_an_engine_error(tmp_path: Path) -> None:
    async def full(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        raise RecorderFullError(28, "no space left")

    with pytest.raises(RecorderFullError):
        play(tmp_path, full)
    assert not the(recorded(tmp_path), Trajectory)


def test_the_default_question_is_the_one_of_the_data_set(tmp_path: Path) -> None:
    seen: list[str] = []

    class Listening(Codec):
        def prompt_ids(self, question: str, tokens: int) -> list[int]:
            seen.append(question)
            return super().prompt_ids(question, tokens)

    play(tmp_path, Engine(), codec=Listening(), question=None)
    from workloads.deep_research.questions import question

    assert seen == [question(4)]


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
