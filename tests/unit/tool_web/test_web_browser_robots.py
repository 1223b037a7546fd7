"""The browser and robots.txt."""

import asyncio

import pytest
from aiohttp import web
from browser_parts import answering, html, opened
from web_servers import Handler, StepClock, opening, served

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.serving.web.retry import RetryPolicy


def robots_web(answer: Handler) -> tuple[Handler, list[str]]:
    paths: list[str] = []

    async def page(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        return await (answer(request) if request.path == "/robots.txt" else html(request))

    return page, paths


ROBOTS = FetchLimits(retry=RetryPolicy(attempts=1))


@pytest.mark.parametrize(
    ("text", "status", "expected"),
    [
        ("User-agent: *\nDisallow: /private/\n", 200, {"/private/x": "refused", "/open": "ok"}),
        ("User-agent: agentic-rl-bench\nDisallow: /open\n\nUser-agent: *\nDisallow: /\n", 200,
         {"/private/x": "ok", "/open": "refused"}),
        ("nothing here", 404, {"/private/x": "ok"}),
        ("forbidden", 403, {"/private/x": "ok"}),
        ("down", 503, {"/private/x": "refused"}),
        ("busy", 429, {"/private/x": "refused"}),
    ],
)  # fmt: skip
def test_robots_txt_is_obeyed_and_asked_for_once(
    text: str, status: int, expected: dict[str, str], extractor: Extractor
) -> None:
    handler, paths = robots_web(answering(text, status, Content_Type="text/plain"))

    async def run() -> None:
        async with served(handler) as port:
            browser = Browser(mapped={".test": ("127.0.0.1", port)}, limits=ROBOTS, extractor=extractor)
            found = await asyncio.gather(*(browser.call(opening(f"http://lake.test{path}")) for path in expected))
            again = await browser.call(opening(f"http://lake.test{next(iter(expected))}"))
            await browser.close()
        assert [each.status for each in (*found, again)] == [*expected.values(), next(iter(expected.values()))]

    asyncio.run(run())
    assert paths.count("/robots.txt") == 1
    assert {path for path in paths if path != "/robots.txt"} == {p for p, s in expected.items() if s == "ok"}


def test_robots_txt_that_redirects_to_a_private_address_opens_nothing(extractor: Extractor) -> None:
    handler, paths = robots_web(answering("", 302, Location="http://10.0.0.1/robots.txt"))
    found = opened(handler, "http://lake.test/x", extractor, limits=ROBOTS, only_mapped=False)
    assert found.status == "refused"
    assert paths == ["/robots.txt"]


def test_crawl_delay_is_kept_up_to_a_cap(extractor: Extractor) -> None:
    handler, _ = robots_web(answering("User-agent: *\nCrawl-delay: 1000\n", Content_Type="text/plain"))
    clock = StepClock()

    async def run() -> list[str]:
        async with served(handler) as port:
            limits = FetchLimits(crawl_delay_cap_s=3.0, total_s=100.0)
            browser = Browser(mapped={".test": ("127.0.0.1", port)}, limits=limits, extractor=extractor, clock=clock)
            found = [await browser.call(opening(f"http://lake.test/{n}")) for n in range(3)]
            await browser.close()
            return [each.status for each in found]

    assert asyncio.run(run()) == ["ok"] * 3
    assert clock.slept == pytest.approx([3.0, 3.0])
