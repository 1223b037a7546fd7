"""Local tools over a small corpus: searched and opened over real HTTP, also when their web goes wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from tool_server_parts import Pages, request

from workloads.deep_research.serving.local import LocalTools
from workloads.deep_research.serving.local_faults import ALL, LocalFaults, parse_faults

WORDS = "The Gislur rises in the northern hills and runs for many miles through old towns. " * 5


def page(title: str, body: str) -> bytes:
    return f"<html><head><title>{title}</title></head><body><main><p>{body}</p></main></body></html>".encode()


PAGES = {
    "http://rivers.test/gislur": page("Gislur", f"{WORDS} <a href='/source?of=gislur'>Its source</a>"),
    "http://rivers.test/source?of=gislur": page("Source", f"{WORDS} It springs near Wuck."),
    "https://elsewhere.example/plan": page("Plan", f"{WORDS} Of another web, called by https."),
    "http://rivers.test/gr%C3%B6%C3%9Fe": page("Größe", f"{WORDS} The greatest of all."),
}


@contextlib.asynccontextmanager
async def local(faults: str = "", **more: float) -> AsyncIterator[LocalTools]:
    tools = LocalTools(Pages(PAGES), faults=LocalFaults(parse_faults(faults)), **more)
    try:
        await tools.start()
        yield tools
    finally:
        await tools.close()
    assert isinstance(tools.web.corpus, Pages)
    assert tools.web.corpus.closed


async def test_a_search_leads_to_a_page_and_its_links_to_others() -> None:
    async with local() as tools:
        found = await tools.call(request("gislur northern"))
        assert found.status == "ok"
        assert found.links[0] == ("gislur", "http://rivers.test/gislur")
        assert (found.http_status, found.size) > (200, 0)
        read = await tools.call(request(found.links[0][1], tool="web_browser"))
        assert (read.status, read.http_status) == ("ok", 200)
        assert read.text.startswith("Gislur\nhttp://rivers.test/gislur")
        assert "northern hills" in read.text
        assert read.size == len(PAGES["http://rivers.test/gislur"])
        assert read.links == (("Its source", "http://rivers.test/source?of=gislur"),)
        source = await tools.call(request(read.links[0][1], tool="web_browser"))
        assert "It springs near Wuck." in source.text
        assert tools.stats()["requests"] == {"search": 1, "page": 2}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://elsewhere.example/plan", "another web"),
        ("http://rivers.test/größe", "greatest"),
        ("http://rivers.test/gr%C3%B6%C3%9Fe#part", "greatest"),
    ],
)
async def test_every_page_of_a_corpus_is_found_by_its_address(url: str, words: str) -> None:
    async with local() as tools:
        read = await tools.call(request(url, tool="web_browser"))
    assert (read.status, words in read.text) == ("ok", True)


@pytest.mark.parametrize(
    ("tool", "argument", "status"),
    [
        ("search_engine", "nothinglikethis", "empty"),
        ("search_engine", "  ", "error"),
        ("web_browser", "http://rivers.test/none", "not_found"),
        ("web_browser", "http://127.0.0.1:1/", "refused"),
        ("web_browser", "http://nowhere.example/", "not_found"),
        ("web_browser", "", "error"),
        ("web_browser", "file:///etc/passwd", "refused"),
    ],
)
async def test_what_is_not_there_is_said(tool: str, argument: str, status: str) -> None:
    async with local() as tools:
        got = await tools.call(request(argument, tool=tool))
    assert got.status == status
    assert got.detail


async def test_the_search_has_its_own_address_and_no_page_takes_it() -> None:
    async with local() as tools, aiohttp.ClientSession() as session:
        for path, status in (("/search?q=gislur&k=1", 200), ("/search", 400), ("/search?q=x&k=many", 400), ("/", 400)):
            async with session.get(tools.web.url + path) as response:
                assert response.status == status
                answer = await response.json()
                assert (len(answer["results"]) == 1) if status == 200 else answer["error"]
        async with session.get(tools.web.url + "/search?q=x", headers={"Host": "rivers.test"}) as response:
            assert response.status == 404


STATUSES = {
    "error": ("error", "error"),
    "refused": ("refused", "refused"),
    "empty": ("empty", "empty"),
    "redirects": ("error", "error"),
    "garbled": (None, None),
    "reset": ("error", "error"),
    "slow": ("ok", "ok"),
    "huge": (None, None),
}


@pytest.mark.parametrize("kind", STATUSES)
async def test_each_planted_fault_is_an_answer(kind: str) -> None:
    async with local(f"{kind}=1") as tools:
        search = await tools.call(request("gislur"))
        read = await tools.call(request("http://rivers.test/gislur", tool="web_browser"))
    for got, wanted in zip((search, read), STATUSES[kind], strict=True):
        assert wanted is None or got.status == wanted, got
        assert got.status == "ok" or got.detail
    assert tools.web.faults.planted[kind] >= 2


async def test_a_web_that_says_nothing_is_a_timeout_and_is_left_at_once() -> None:
    async with local("timeout=1", search_s=0.3) as tools:
        got = await tools.call(request("gislur"))
        assert (got.status, got.detail) == ("timeout", "no answer within 0.3 s")
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 60  # the answer that hangs, 600 s, is given up


async def test_many_at_once_are_all_answered() -> None:
    async with local("error=0.1,reset=0.1") as tools:
        calls = [request("gislur") for _ in range(100)]
        calls += [request("http://rivers.test/gislur", tool="web_browser") for _ in range(50)]
        got = await asyncio.gather(*(tools.call(each) for each in calls))
    assert len(got) == 150
    assert {each.status for each in got} == {"ok", "error"}


@pytest.mark.parametrize(
    "text", ["lightning=1", "error", "error=x", "error=2", "error=-1", "error=0.6,reset=0.6", "error=nan"]
)
def test_rates_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="faults = "):
        parse_faults(text)


def test_rates_are_drawn_as_given_and_again_from_the_same_seed() -> None:
    rates = parse_faults(",".join(f"{kind}=0.1" for kind in ALL))
    first, second = LocalFaults(rates, seed=3), LocalFaults(rates, seed=3)
    drawn = [first.draw() for _ in range(4000)]
    assert drawn == [second.draw() for _ in range(4000)]
    assert all(300 < drawn.count(kind) < 500 for kind in ALL)
    assert not any(LocalFaults().draw() for _ in range(10))
