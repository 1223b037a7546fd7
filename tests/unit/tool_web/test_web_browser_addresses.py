"""Where the browser goes, and where it does not: redirects, names, this machine, urls as models write them."""

import asyncio
import socket
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from browser_parts import LIMITS, html, opened
from web_servers import opening, served

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.addresses import GuardedResolver
from workloads.deep_research.tools import Observation


def test_redirects_are_followed_to_the_page_that_has_the_text(extractor: Extractor) -> None:
    async def page(request: web.Request) -> web.Response:
        if request.path == "/a":
            raise web.HTTPFound("../b?x=1")
        if request.path == "/b":
            raise web.HTTPPermanentRedirect("http://river.test/c#d")
        assert request.headers["Host"] == "river.test"
        return await html(request)

    found = opened(page, "http://lake.test/a", extractor)
    assert found.status == "ok"
    assert "\nhttp://river.test/c\n" in found.text


@pytest.mark.parametrize(
    ("location", "status", "said"),
    [
        ("/", "error", "circle"),
        ("/more/{n}", "error", "more than 5 redirects"),
        ("", "error", "without an address"),
        ("http://[", "error", "no url"),
        ("ftp://lake.test/", "refused", "only http"),
        ("file:///etc/passwd", "refused", "only http"),
        ("http://user:pass@lake.test/", "refused", "user name"),
        ("http://127.0.0.1:1/", "refused", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]:1/", "refused", "not part"),
        ("http://2130706433/", "refused", "unusual form"),
        ("http://0x7f.1/", "refused", "unusual form"),
        ("http://169.254.169.254/latest/meta-data/", "refused", "169.254.169.254"),
        ("http://example.com/", "not_found", "no host example.com"),
    ],
)
def test_redirects_that_lead_nowhere_good(location: str, status: str, said: str, extractor: Extractor) -> None:
    count = 0

    async def page(_: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return web.Response(status=302, headers={"Location": location.format(n=count)} if location else {})

    found = opened(page, "http://lake.test/", extractor)
    assert found.status == status
    assert said in (found.detail or "")
    assert count <= 6


class Names(AbstractResolver):
    """Answers every name with the same address."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        if host == "nowhere.example":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        if host == "later.example":
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [ResolveResult(hostname=host, host=self.address, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        pass


def open_web(url: str, extractor: Extractor, **settings: Any) -> tuple[Observation, int]:
    """Opens a url as over the real web, with names that all lead to a server of this machine; and who reached it."""
    reached = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal reached
        reached += 1
        return await html(request)

    async def run() -> Observation:
        async with served(page) as port:
            browser = Browser(extractor=extractor, limits=LIMITS, resolver=Names("127.0.0.1"), **settings)
            try:
                return await browser.call(opening(url.replace("PORT", str(port))))
            finally:
                await browser.close()

    return asyncio.run(run()), reached


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:PORT/", "http://localhost:PORT/", "http://rebound.example:PORT/", "http://[::1]:PORT/",
     "http://[::ffff:127.0.0.1]:PORT/", "http://2130706433:PORT/", "http://0x7f000001:PORT/", "http://127.1:PORT/",
     "http://0:PORT/", "http://localhost.:PORT/"],
)  # fmt: skip
def test_nothing_on_this_machine_is_reached_under_any_name(url: str, extractor: Extractor) -> None:
    found, reached = open_web(url, extractor)
    assert found.status == "refused"
    assert reached == 0


def test_the_address_that_is_connected_to_is_what_counts(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unguarded(self: Any, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        found: list[ResolveResult] = await Names("127.0.0.1").resolve(host, port)
        return found

    monkeypatch.setattr(GuardedResolver, "resolve", unguarded)  # as if a name had changed after it was looked up
    found, reached = open_web("http://rebound.example:PORT/", extractor)
    assert (found.status, reached) == ("refused", 0)
    assert "127.0.0.1" in (found.detail or "")


def test_private_addresses_when_they_are_allowed(extractor: Extractor) -> None:
    found, reached = open_web("http://rebound.example:PORT/", extractor, allow_private=True)
    assert (found.status, reached) == ("ok", 1)


def test_names_that_do_not_exist(extractor: Extractor) -> None:
    assert open_web("http://nowhere.example/", extractor)[0].status == "not_found"
    assert open_web("http://later.example/", extractor)[0].status == "error"
    assert open_web("http://" + "a" * 70 + ".example/", extractor)[0].status in ("refused", "not_found", "error")


@pytest.mark.parametrize(
    "url", ["", "  ", "not a url", "http://", "http://[", "about:blank", "http://a\0b.test/", "🦆"]
)
def test_what_a_model_may_write_for_a_url(url: str, extractor: Extractor) -> None:
    found = opened(html, url, extractor)
    assert found.status in ("error", "refused", "not_found")
    assert found.text
    assert found.detail
