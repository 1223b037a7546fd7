"""The browser on a web of this machine, and the pages that tests of it serve."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from web_servers import Handler, RawHandler, opening, raw, served

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.serving.web.retry import RetryPolicy
from workloads.deep_research.tools import Observation

LIMITS = FetchLimits(robots=False, max_bytes=200_000, total_s=20.0, retry=RetryPolicy(attempts=2, base_s=0.01))
WORDS = "The lake lies north of the town and is fed by two rivers. " * 12
PAGE = f"""<html><head><title> The  lake </title></head><body><nav><a href="/home">Home</a></nav>
<article><h1>The lake</h1><p>{WORDS}</p><p>See <a href="../town#history">the town</a> and <a href="http://river.test/">
the <b>river</b></a>, <a href="mailto:x@y.example">write</a>, <a href="#top">up</a>, <a href="javascript:x()">run</a>.
</p></article></body></html>"""


async def html(_: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


def opened(
    handler: Handler, url: str, extractor: Extractor, *, limits: FetchLimits = LIMITS, **settings: Any
) -> Observation:
    """What comes of a url on a web of this machine that the handler serves."""

    async def run() -> Observation:
        async with served(handler) as port:
            return await once(url, port, extractor, limits=limits, **settings)

    return asyncio.run(run())


def opened_raw(handler: RawHandler, extractor: Extractor, *, limits: FetchLimits = LIMITS) -> Observation:
    async def run() -> Observation:
        async with raw(handler) as port:
            return await once("http://lake.test/", port, extractor, limits=limits)

    return asyncio.run(run())


async def once(url: str, port: int, extractor: Extractor, **settings: Any) -> Observation:
    settings.setdefault("only_mapped", True)
    browser = Browser(mapped={".test": ("127.0.0.1", port)}, extractor=extractor, **settings)
    try:
        found = await browser.call(opening(url.replace("PORT", str(port))))
        assert browser.stats()["open"] == 0
        assert browser.stats()["open_connections"] == 0
        return found
    finally:
        await browser.close()


def answering(
    body: bytes | str = b"", status: int = 200, **headers: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        return web.Response(body=data, status=status, headers=named)

    return answer


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)
