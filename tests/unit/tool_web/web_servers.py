"""What the tests of the web tools talk to: servers on this machine that behave as badly as the web, and a clock."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from workloads.deep_research.tools import ToolRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StepClock:
    """A clock that moves only when everyone who waits for it sleeps: to the first moment someone waits for."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []
        self._due: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        due = self.now + seconds
        self.slept.append(seconds)
        heapq.heappush(self._due, due)
        try:
            while self.now < due:
                for _ in range(10):  # whoever can go on does so first
                    await asyncio.sleep(0)
                if self._due[0] >= due:
                    self.now = max(self.now, due)
        finally:
            self._due.remove(due)
            heapq.heapify(self._due)


class HighDraw:
    """Draws the most that may be drawn: a back-off without chance."""

    def uniform(self, low: float, high: float) -> float:
        return high


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    """An HTTP server on loopback; yields its port."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(handler: RawHandler) -> AsyncIterator[int]:
    """A server that says whatever it likes; yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def opening(url: str) -> ToolRequest:
    return ToolRequest(tool="web_browser", argument=url, trajectory_id="t-0", call=0)


def searching(query: str) -> ToolRequest:
    return ToolRequest(tool="search_engine", argument=query, trajectory_id="t-0", call=0)
