"""Backends and corpora for the tests of the tool server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.deep_research.remote import FILE
from workloads.deep_research.serving.app import Served, served, write_private
from workloads.deep_research.serving.gateway import Gateway
from workloads.deep_research.tools import Observation, ToolRequest


def request(argument: str = "x", *, tool: str = "search_engine", trajectory: str = "p0-s0-a0") -> ToolRequest:
    """A call."""
    return ToolRequest(tool=tool, argument=argument, trajectory_id=trajectory, call=0)


class Told:
    """Answers what it is told to, by the argument; else echoes it. `sleep:SECONDS` waits, `raise` raises."""

    def __init__(self, answers: Mapping[str, Observation] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[ToolRequest] = []
        self.life: list[str] = []

    async def start(self) -> None:
        self.life.append("start")

    async def call(self, request: ToolRequest) -> Observation:
        self.asked.append(request)
        word, _, value = request.argument.partition(":")
        if word == "sleep":
            await asyncio.sleep(float(value))
        if word == "raise":
            raise RuntimeError("a defect")
        return self.answers.get(request.argument, Observation(text=f"echo {request.argument}"))

    async def close(self) -> None:
        self.life.append("close")

    def stats(self) -> Mapping[str, object]:
        return {"asked": len(self.asked)}


@contextlib.asynccontextmanager
async def serving(folder: Path, backend: Any, **gateway: Any) -> AsyncIterator[tuple[Served, Gateway]]:
    """A server in this process whose address lies in `folder`."""
    gate = Gateway(backend, **gateway)
    async with served(gate, {"tools": "told"}) as server:
        write_private(folder / FILE, {"url": server.url, "token": server.token})
        yield server, gate


@dataclass(frozen=True)
class Found:
    """A hit."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True)
class Stored:
    """A page."""

    html: bytes
    content_type: str = "text/html; charset=utf-8"


class Pages:
    """A corpus in memory: a search finds the pages whose text has all words of the query."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages = dict(pages)
        self.closed = False

    def search(self, query: str, k: int) -> Sequence[Found]:
        words = query.lower().encode().split()
        hits = [url for url, html in self.pages.items() if all(word in html.lower() for word in words)]
        return [Found(url.rsplit("/", 1)[-1], url, "a snippet") for url in hits[:k]]

    def page(self, url: str) -> Stored | None:
        html = self.pages.get(url)
        return None if html is None else Stored(html)

    def close(self) -> None:
        self.closed = True
