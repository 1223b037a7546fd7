"""A plan, a fake engine and tools for the agent loop, and what a real recorder has of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness.protocol.events import Event, Hello, read_events
from harness.protocol.recorder import Recorder, make_hello
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
