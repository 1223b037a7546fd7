"""A small world for the live loop: pages in a dictionary, tools over them, a policy with written replies."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adapters.simulated.engine import Codec
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Thinking
from workloads.deep_research.boundary import EpisodeResult, Generated, Sampling
from workloads.deep_research.dataset import Row
from workloads.deep_research.live import Live
from workloads.deep_research.parsing import render_call
from workloads.deep_research.scoring import load_judge
from workloads.deep_research.tools import Observation, ToolRequest

CODEC = Codec()
ROW = Row(prompt=3, question="Who designed Old Hal Bridge?", answers=("Ada Holm",), hops=1)
SEARCH = render_call("search_engine", {"query": "Old Hal Bridge"})
FINISH = render_call("finish", {"answer": "Ada Holm"})


@dataclass
class Tools:
    """Answers by argument; `together` is how many calls were open at once at most."""

    answers: dict[str, Observation | float] = field(default_factory=dict)  # a number: seconds that it hangs
    asked: list[ToolRequest] = field(default_factory=list)
    open: int = 0
    together: int = 0
    imposes_plan: bool = False

    async def call(self, request: ToolRequest) -> Observation:
        self.asked.append(request)
        self.open += 1
        self.together = max(self.together, self.open)
        try:
            await asyncio.sleep(0.01)
            answer = self.answers.get(request.argument, Observation(text=f"about {request.argument}"))
            if isinstance(answer, float):
                await asyncio.sleep(answer)
                return Observation(text="late")
            return answer
        finally:
            self.open -= 1

    async def close(self) -> None:
        pass


@dataclass
class Written:
    """A policy whose replies are written beforehand; keeps what it was sent. `!` at a reply's end: no end token."""

    replies: Sequence[str]
    sent: list[list[int]] = field(default_factory=list)
    samplings: list[Sampling] = field(default_factory=list)

    async def generate(self, trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
        text = self.replies[len(self.sent)]
        self.sent.append(list(ids))
        self.samplings.append(sampling)
        reply = CODEC.encode(text.removesuffix("!"))
        reply = reply if text.endswith("!") else [*reply, CODEC.end_id]
        reply = reply[: sampling.max_tokens]
        turn = len(self.sent)
        return Generated(ids=reply, logprobs=[-float(turn)] * len(reply), version_start=turn, version_end=turn)


@dataclass
class Played:
    """What came of one trajectory."""

    result: EpisodeResult
    live: Live
    policy: Written
    events: list[dict[str, Any]]

    def spans(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["k"] == "span" and event["native_name"] == name]

    @property
    def judged(self) -> dict[str, Any]:
        attributes: dict[str, Any] = self.spans("reward")[0]["attributes"]
        return attributes


def play(folder: Path, replies: Sequence[str], tools: Tools | None = None, **settings: Any) -> Played:
    """Plays written replies against tools; `settings` replace what `Live` is made with."""
    policy = Written(replies)
    recorder = Recorder(folder / "events.jsonl", make_hello("run", "worker"))
    live: list[Live] = []

    async def run() -> EpisodeResult:
        live.append(_live(policy, recorder, tools, settings))
        return await live[0].run()

    result = asyncio.run(run())
    recorder.shut()
    return Played(result, live[0], policy, _events(folder))


def cancelled(
    folder: Path, replies: Sequence[str], tools: Tools, run: Callable[[Live], Coroutine[Any, Any, None]]
) -> dict[str, list[dict[str, Any]]]:
    """What was recorded of a trajectory that `run` plays and cancels: spans by name, and `trajectory`."""
    recorder = Recorder(folder / "events.jsonl", make_hello("run", "worker"))

    async def main() -> None:
        await run(_live(Written(replies), recorder, tools, {}))

    asyncio.run(main())
    recorder.shut()
    found: dict[str, list[dict[str, Any]]] = {}
    for event in _events(folder):
        name = event["native_name"] if event["k"] == "span" else event["k"]
        found.setdefault(name, []).append(event)
    return found


def _events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def _live(policy: Written, recorder: Recorder, tools: Tools | None, settings: dict[str, Any]) -> Live:
    row = replace(ROW, **settings.pop("row", {}))
    return Live(
        **{
            "codec": CODEC,
            "row": row,
            "judge": load_judge("exact"),
            "context_tokens": 4_096,
            "max_turns": 5,
            "turn_tokens": 256,
            "thinking": Thinking.KEEP,
            "trajectory_id": "p3-s0-a0",
            "group_id": "p3",
            "prompt": 3,
            "sample": 0,
            "attempt": 0,
            "generate": policy.generate,
            "tools": tools if tools is not None else Tools(),
            "recorder": recorder,
            "pool": "rollout",
            "version_scheduled": 0,
            "tool_timeout_s": 60.0,
            "trajectory_timeout_s": 600.0,
            **settings,
        }
    )
