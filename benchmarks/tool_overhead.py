"""What the tools' own way adds to a call: recorded minus planned latency, with 256 agents on an idle client.

`sleep` is `asyncio.sleep` alone: what the loop itself is late by. `mock` are the tools of a planned run. `replay` are
recorded answers from a tool server, asked by the project's client and, for comparison, by aiohttp's with the same wait.
`local` is a real search, or a real page every third time, by the same two clients: what the client measured minus what
the server says it took. Each agent makes a call at a time, latencies log-normal around a second, 6 kB an answer; local
tools are asked at a rate that leaves the machine idle. Rounds alternate, after one that opens the connections and is
not counted. Limit: replay and mock at most 5 ms at p99; where `sleep` alone is late by more than 1 ms at p99, the
client was not idle, and the figures are no verdict on the tools.
"""

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from tool_servers import corpus_of, tool_server
from tracked import finish, options

from workloads.deep_research.corpus.build import open_corpus
from workloads.deep_research.plan import Turn
from workloads.deep_research.presets import SEARCH
from workloads.deep_research.remote import FILE, RemoteTools
from workloads.deep_research.tools import MockTools, Observation, ToolRequest, filler, wait_until
from workloads.deep_research.trace import Call, write_trace

LIMIT_MS = 5.0
IDLE_MS = 1.0
RECORDED = 4_096  # calls in the trace
MEAN_S, SIGMA, LEAST_S, CAP_S = 1.0, 0.6, 0.1, 5.0
THINK_S = 8.0  # of an agent between two calls of local tools

Ask = Callable[[ToolRequest, float], Awaitable[float]]
"""(what is asked, the latency that is planned) -> seconds beyond what the call was to take."""


def latencies(count: int) -> list[float]:
    """Seconds, log-normal with mean MEAN_S, within its ends."""
    dice = random.Random(1)
    mu = -(SIGMA**2) / 2
    return [min(max(MEAN_S * dice.lognormvariate(mu, SIGMA), LEAST_S), CAP_S) for _ in range(count)]


def make_trace(path: Path, planned: list[float]) -> None:
    """A trace with one call for each latency, its argument the call's number."""
    write_trace(
        path,
        (
            Call(
                trajectory_id="none",
                call=number,
                tool=SEARCH,
                argument=str(number),
                question=None,
                started_mono_ns=number,
                started_wall_ns=number,
                latency_s=latency_s,
                served_s=latency_s,
                http_status=200,
                size=6_000,
                status="ok",
                detail=None,
                text=filler(f"{number}\n", 1_500),
                links=tuple((f"title {link}", f"http://x.test/{link}") for link in range(10)),
            )
            for number, latency_s in enumerate(planned)
        ),
        {},
    )


async def sleeping(_: ToolRequest, planned_s: float) -> float:
    """The loop's own lateness."""
    began = time.monotonic()
    await asyncio.sleep(planned_s)
    return time.monotonic() - began - planned_s


def mocking() -> Ask:
    """The tools of a planned run."""
    tools = MockTools()

    async def ask(request: ToolRequest, planned_s: float) -> float:
        turn = Turn(generated_tokens=1, tool=SEARCH, latency_s=planned_s, observation_tokens=1_500)
        asked = ToolRequest(**{**_fields(request), "planned": turn})
        began = time.monotonic()
        await tools.call(asked)
        return time.monotonic() - began - planned_s

    return ask


def remote(tools: RemoteTools) -> Ask:
    """The project's client."""

    async def ask(request: ToolRequest, _: float) -> float:
        began = time.monotonic()
        answer = await tools.call(request)
        return _beyond(answer, time.monotonic() - began)

    return ask


def with_aiohttp(session: aiohttp.ClientSession, address: dict[str, str]) -> Ask:
    """aiohttp's client, made to do the same."""
    headers = {"Authorization": f"Bearer {address['token']}"}

    async def ask(request: ToolRequest, _: float) -> float:
        began = time.monotonic_ns()
        fields = _fields(request)
        del fields["planned"]
        async with session.post(f"{address['url']}/call", json=fields, headers=headers) as response:
            raw = await response.json()
        answer = Observation(**{**raw, "links": tuple((title, url) for title, url in raw["links"])})
        if answer.planned_s is not None:
            await wait_until(began + round(answer.planned_s * 1e9))
        return _beyond(answer, (time.monotonic_ns() - began) / 1e9)

    return ask


def _beyond(answer: Observation, took_s: float) -> float:
    if answer.status == "not_found" or (answer.planned_s is None and answer.served_s is None):
        raise RuntimeError(f"no answer: {answer}")
    expected = answer.planned_s if answer.planned_s is not None else answer.served_s
    assert expected is not None
    return took_s - expected


def _fields(request: ToolRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ToolRequest.__slots__}


async def round_of(
    ask: Ask, agents: int, seconds: float, planned: list[float], think_s: float, questions: list[str] | None
) -> list[float]:
    """Agents that call one after the other for some seconds: what each call took beyond its due."""
    beyond: list[float] = []
    end = time.monotonic() + seconds

    async def agent(number: int) -> None:
        dice = random.Random(number)
        await asyncio.sleep(dice.random() * (think_s or MEAN_S))  # agents don't march in step
        while time.monotonic() < end:
            pick = dice.randrange(len(planned))
            argument = str(pick) if questions is None else questions[pick % len(questions)]
            tool = "web_browser" if argument.startswith("http") else SEARCH
            asked = ToolRequest(tool=tool, argument=argument, trajectory_id=f"p{number}", call=len(beyond))
            beyond.append(await ask(asked, planned[pick]))
            if think_s:
                await asyncio.sleep(max(0.0, min(dice.expovariate(1 / think_s), end - time.monotonic())))

    await asyncio.gather(*(agent(number) for number in range(agents)))
    return beyond


async def measure(
    replay: Path, local: Path, planned: list[float], questions: list[str], agents: int, seconds: float, rounds: int
) -> dict[str, list[float]]:
    """All contestants, round by round."""
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        tools = {folder: RemoteTools(folder) for folder in (replay, local)}
        for each in tools.values():
            stack.push_async_callback(each.close)
        address = {folder: json.loads((folder / FILE).read_text()) for folder in (replay, local)}
        contestants: dict[str, tuple[Ask, float, list[str] | None]] = {
            "sleep": (sleeping, 0.0, None),
            "mock": (mocking(), 0.0, None),
            "replay": (remote(tools[replay]), 0.0, None),
            "replay_aiohttp": (with_aiohttp(session, address[replay]), 0.0, None),
            "local": (remote(tools[local]), THINK_S, questions),
            "local_aiohttp": (with_aiohttp(session, address[local]), THINK_S, questions),
        }
        found: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(rounds + 1):
            for name, (ask, think_s, asked) in contestants.items():
                beyond = await round_of(ask, agents, seconds, planned, think_s, asked)
                found[name] += beyond if number else []
        return found


def at(values: list[float], quantile: float) -> float:
    """An order statistic in ms."""
    return round(sorted(values)[int(quantile * (len(values) - 1))] * 1e3, 3)


def main() -> int:
    """Starts both servers, asks them, prints the figures."""
    parser = options(__doc__ or "")
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    planned = latencies(RECORDED)
    corpus = corpus_of(given.pages)
    opened = open_corpus(corpus)
    questions: list[str] = []
    for _, row in zip(range(600), opened.questions(), strict=False):
        questions += [row.question, row.question]
        questions += [row.start_url] if row.start_url is not None else []
    opened.close()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        replay, local = Path(name) / "replay", Path(name) / "local"
        replay.mkdir()
        local.mkdir()
        make_trace(replay / "trace.parquet", planned)
        stack.enter_context(tool_server(replay, "--tools", "replay", "--trace", str(replay / "trace.parquet")))
        stack.enter_context(tool_server(local, "--tools", "local", "--corpus", str(corpus)))
        found = asyncio.run(measure(replay, local, planned, questions, given.agents, given.seconds, given.rounds))
    beyond = {
        name: {"calls": len(values), "p50_ms": at(values, 0.5), "p99_ms": at(values, 0.99), "least_ms": at(values, 0.0)}
        for name, values in found.items()
    }
    ok = all(beyond[name]["p99_ms"] <= LIMIT_MS and beyond[name]["least_ms"] >= 0 for name in ("mock", "replay"))
    return finish(
        "tool_overhead",
        {
            "agents": given.agents,
            "seconds": given.seconds,
            "rounds": given.rounds,
            "beyond": beyond,
            "idle_client": beyond["sleep"]["p99_ms"] <= IDLE_MS,
            "limits": {"p99_ms": LIMIT_MS},
        },
        ok=ok,
        description=__doc__ or "",
        sources=("workloads",),
        record=given.record,
    )


if __name__ == "__main__":
    sys.exit(main())
