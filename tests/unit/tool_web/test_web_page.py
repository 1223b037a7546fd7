"""The page on tools says what is so."""

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from web_servers import served

from workloads.deep_research.serving.rendering import LINKS, TEXT_CHARACTERS
from workloads.deep_research.serving.web import engines, providers
from workloads.deep_research.serving.web.fetch import AGENT, FetchLimits
from workloads.deep_research.serving.web.providers import Key, Provider, ProviderError
from workloads.deep_research.serving.web.search import SearchLimits

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()


def example() -> Any:
    """The provider that the page shows, pointed at a server of this machine by its caller."""
    start = PAGE.index("    from workloads.deep_research.serving.rendering import Hit")
    code = textwrap.dedent(PAGE[start : PAGE.index("`search` makes one request")])
    names: dict[str, Any] = {}
    exec(code, names)
    return names["Mine"]


def test_the_pages_own_provider_works(monkeypatch: pytest.MonkeyPatch) -> None:
    status = 200

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer abcd"
        assert dict(request.query) == {"q": "who", "n": "2"}
        items = [{"name": "N", "url": "http://a.example/", "text": "t"}] * 3
        return web.json_response({"items": items}, status=status)

    async def run(port: int) -> Any:
        provider = example()(Key("abcd"))
        assert isinstance(provider, Provider)
        real = engines.ask

        async def here(session: aiohttp.ClientSession, method: str, url: str, **rest: Any) -> Any:
            return await real(session, method, f"http://127.0.0.1:{port}/search", **rest)

        monkeypatch.setitem(type(provider).search.__globals__, "ask", here)
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            return await provider.search(session, "who", 2)

    async def serve() -> Any:
        async with served(answer) as port:
            return await run(port)

    found = asyncio.run(serve())
    assert [hit.title for hit in found.hits] == ["N", "N"]
    status = 503
    with pytest.raises(ProviderError):
        asyncio.run(serve())


def test_the_table_of_providers() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)`.*\| ([\d.]+) a second, (\d+) at once \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == list(providers.BUILT_IN)
    for name, variable, rate, at_once in rows:
        kind: Any = engines.TYPES[name]
        assert kind.key_variable == variable
        assert (kind.rate.requests_per_s, kind.rate.concurrency) == (float(rate), int(at_once))


def test_the_limits() -> None:
    text = " ".join(PAGE.split())
    search, fetch = SearchLimits(), FetchLimits()
    assert search.retry.attempts == 4
    for said in (
        f"no answer within {search.attempt_s:g} s",
        f"grow to {search.retry.cap_s:g} s",
        f"at most {search.retry.retry_after_cap_s:g} s, and by every call",
        f"give it {search.breaker_rest_s:g} s of rest",
        f"takes at most {search.total_s:g} s",
        f"up to {fetch.max_bytes >> 20} MiB",
        f"at most {fetch.total_s:g} s with its redirects",
        f"the first {TEXT_CHARACTERS:,} characters",
        f"the first {LINKS} links",
        f"the product is `{AGENT}`",
        f"`Crawl-delay` up to {fetch.crawl_delay_cap_s:g} s",
    ):
        assert said in text
    assert (search.breaker_failures, search.refused_rest_s, fetch.redirects, fetch.host_concurrency) == (5, 600, 5, 8)
