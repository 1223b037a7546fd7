"""256 agents for 60 s against the local tools while their web goes wrong: is anything lost, leaked or piled up?

Each agent searches, opens what it found, and searches again, as fast as it is answered. Limits: every call is answered
and counted by the server, none is abandoned; once idle connections have had their time, client and server hold as many
sockets as before; the server's own memory at the end is at most 20 % above that at one third of the time.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tool_servers import corpus_of, own_bytes, sockets, tool_server, tree
from tracked import finish, options

from workloads.deep_research.corpus.build import open_corpus
from workloads.deep_research.remote import RemoteTools
from workloads.deep_research.tools import Observation, ToolRequest

FAULTS = "timeout=0.005,error=0.02,refused=0.01,empty=0.01,redirects=0.01,huge=0.002,garbled=0.01,slow=0.01,reset=0.01"
GROWTH = 1.2
SETTLE_S = 60.0  # longer than any idle connection is kept


class Agents:
    """Agents that ask until the time is over, and what became of their calls."""

    def __init__(self, tools: RemoteTools, questions: list[str], seconds: float) -> None:
        self.tools = tools
        self.questions = questions
        self.end = time.monotonic() + seconds
        self.asked = 0
        self.statuses: Counter[tuple[str, str]] = Counter()
        self.took_s: list[float] = []

    async def agent(self, number: int) -> None:
        """One agent: a search, then up to three pages that it names."""
        dice = random.Random(number)
        call = 0
        while time.monotonic() < self.end:
            answer = await self._ask("search_engine", dice.choice(self.questions), number, call)
            call += 1
            for _, url in answer.links[: dice.randint(1, 3)]:
                if time.monotonic() >= self.end:
                    break
                await self._ask("web_browser", url, number, call)
                call += 1

    async def _ask(self, tool: str, argument: str, number: int, call: int) -> Observation:
        self.asked += 1
        began = time.monotonic()
        request = ToolRequest(tool=tool, argument=argument, trajectory_id=f"p{number}-s0-a0", call=call)
        answer = await self.tools.call(request)
        self.took_s.append(time.monotonic() - began)
        self.statuses[tool, answer.status] += 1
        return answer


async def soak(folder: Path, server: int, questions: list[str], agents: int, seconds: float) -> dict[str, Any]:
    """The figures of one soak against the server whose address lies in `folder`."""
    here = [os.getpid()]
    before = sockets(here), sockets(tree(server))
    tools = RemoteTools(folder)
    group = Agents(tools, questions, seconds)
    memory: list[float] = []

    async def watch() -> None:
        while True:
            memory.append(own_bytes(tree(server)))
            await asyncio.sleep(seconds / 60)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(group.agent(number) for number in range(agents)))
    most_sockets = sockets(here), sockets(tree(server))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    memory.append(own_bytes(tree(server)))
    await tools.close()
    after = before
    settled = time.monotonic() + SETTLE_S
    while time.monotonic() < settled:
        after = sockets(here), sockets(tree(server))
        if after[0] <= before[0] and after[1] <= before[1]:
            break
        await asyncio.sleep(0.5)
    third = memory[len(memory) // 3]
    order = sorted(group.took_s)
    statuses: dict[str, dict[str, int]] = {}
    for (tool, status), count in sorted(group.statuses.items()):
        statuses.setdefault(tool, {})[status] = count
    return {
        "agents": agents,
        "seconds": seconds,
        "calls_asked": group.asked,
        "calls_answered": len(order),
        "calls_per_s": round(len(order) / seconds, 1),
        "by_status": statuses,
        "call_s": {name: round(order[int(q * (len(order) - 1))], 3) for name, q in (("p50", 0.5), ("p99", 0.99))},
        "sockets": {"before": before, "at_the_end": most_sockets, "after": after},
        "server_own_mb": {
            "start": round(memory[0] / 1e6, 1),
            "third": round(third / 1e6, 1),
            "end": round(memory[-1] / 1e6, 1),
            "most": round(max(memory) / 1e6, 1),
        },
        "growth": round(memory[-1] / third, 3),
    }


def judged(figures: dict[str, Any], stats: dict[str, Any]) -> bool:
    """Whether the soak kept its limits; `stats` are the server's counters."""
    counted = sum(sum(by_status.values()) for by_status in stats["calls"].values())
    figures["server_counted"] = counted
    figures["server_abandoned"] = stats["abandoned"]
    figures["planted"] = stats["backend"]["planted"]
    figures["extractors_replaced"] = stats["backend"]["browser"]["extractors_replaced"]
    before, after = figures["sockets"]["before"], figures["sockets"]["after"]
    return bool(
        figures["calls_asked"] == figures["calls_answered"] == counted
        and stats["abandoned"] == stats["in_flight"] == stats["rejected"] == 0
        and after[0] <= before[0]
        and after[1] <= before[1]
        and figures["growth"] <= GROWTH
    )


def main() -> int:
    """Starts a server, soaks it, prints the figures."""
    parser = options(__doc__ or "")
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults", default=FAULTS)
    given = parser.parse_args()
    corpus = corpus_of(given.pages)
    opened = open_corpus(corpus)
    questions = [row.question for _, row in zip(range(2_000), opened.questions(), strict=False)]
    opened.close()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tool_server(folder, "--tools", "local", "--corpus", str(corpus), "--faults", given.faults) as server:
            figures = asyncio.run(soak(folder, server.pid, questions, given.agents, given.seconds))
        stats = json.loads((folder / "stats.json").read_text())
    ok = judged(figures, stats)
    limits = {"lost": 0, "leaked": 0, "growth": GROWTH}
    return finish(
        "tool_soak",
        {"pages": given.pages, "faults": given.faults, **figures, "limits": limits},
        ok=ok,
        description=__doc__ or "",
        sources=("workloads/deep_research/serving", "workloads/deep_research/remote.py"),
        record=given.record,
    )


if __name__ == "__main__":
    sys.exit(main())
