"""What the gateway does around a backend, and what the server lets in."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tool_server_parts import Told, request, serving

from workloads.deep_research.remote import FILE
from workloads.deep_research.serving.gateway import Finding, Gateway
from workloads.deep_research.tools import Observation


async def test_a_backends_defect_is_an_answer() -> None:
    got = await Gateway(Told()).call(request("raise"))
    assert (got.status, got.detail) == ("error", "RuntimeError in the tool server: a defect")
    assert got.served_s is not None


async def test_a_tool_that_there_is_not_is_an_answer() -> None:
    told = Told()
    got = await Gateway(told).call(request(tool="calculator"))
    assert got.status == "error"
    assert "there is no such tool; there are search_engine, web_browser" in got.text
    assert told.asked == []


async def test_a_call_that_takes_too_long_is_a_timeout() -> None:
    gateway = Gateway(Told(), limit_s=0.1)
    got = await gateway.call(request("sleep:60"))
    assert (got.status, got.detail) == ("timeout", "no answer within 0.1 s")
    assert got.served_s is not None
    assert got.served_s >= 0.1


async def test_no_more_calls_than_allowed_are_worked_on() -> None:
    running = most = 0

    class Watching(Told):
        async def call(self, request: Any) -> Observation:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return Observation(text="")

    gateway = Gateway(Watching(), at_once=3)
    await asyncio.gather(*(gateway.call(request()) for _ in range(20)))
    assert most == 3
    assert gateway.counters.most_in_flight == 20
    assert gateway.counters.in_flight == 0


async def test_calls_are_counted_by_tool_and_status() -> None:
    told = Told({"none": Observation(text="", status="empty", size=5), "page": Observation(text="", size=7)})
    gateway = Gateway(told)
    for argument, tool in (("none", "search_engine"), ("raise", "search_engine"), ("page", "web_browser")):
        await gateway.call(request(argument, tool=tool))
    task = asyncio.create_task(gateway.call(request("sleep:60")))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    stats = gateway.stats()
    assert stats["calls"] == {"search_engine": {"empty": 1, "error": 1}, "web_browser": {"ok": 1}}
    assert (stats["wire_bytes"], stats["abandoned"], stats["in_flight"]) == (12, 1, 0)
    assert stats["backend"] == {"asked": 4}
    json.dumps(stats)


async def test_a_browser_asked_for_words_opens_the_first_hit() -> None:
    hits = Observation(text="", size=10, links=(("A", "http://a/"), ("B", "http://b/")))
    page = Observation(text="page of a", size=32)
    told = Told({"old rivers": hits, "http://a/": page})
    finding = Finding(told)
    got = await finding.call(request(" old rivers ", tool="web_browser"))
    assert (got.text, got.size) == ("page of a", 42)
    assert [(asked.tool, asked.argument.strip()) for asked in told.asked] == [
        ("search_engine", "old rivers"),
        ("web_browser", "http://a/"),
    ]
    assert finding.stats()["found_by_search"] == 1


@pytest.mark.parametrize(
    ("hits", "status"),
    [
        (Observation(text="", status="empty", detail="no results", size=3), "empty"),
        (Observation(text="", status="refused", detail="HTTP 429", http_status=429), "refused"),
        (Observation(text="no links"), "ok"),
    ],
)
async def test_words_that_find_nothing_open_nothing(hits: Observation, status: str) -> None:
    told = Told({"old rivers": hits})
    got = await Finding(told).call(request("old rivers", tool="web_browser"))
    assert got.status == ("empty" if status == "ok" else status)
    assert got.text.startswith("Opening old rivers failed: no address, and searching for it")
    assert len(told.asked) == 1


@pytest.mark.parametrize("address", ["http://a/", "HTTPS://a/b?c", "ftp://a/", " http://a/ "])
async def test_an_address_is_opened_as_it_is(address: str) -> None:
    told = Told()
    await Finding(told).call(request(address, tool="web_browser"))
    assert [asked.argument for asked in told.asked] == [address]


async def test_an_address_without_its_scheme_is_opened_as_http() -> None:
    told = Told()
    await Finding(told).call(request("lives.test/biography/x-1", tool="web_browser"))
    assert [(asked.tool, asked.argument) for asked in told.asked] == [
        ("web_browser", "http://lives.test/biography/x-1")
    ]


def ask(folder: Path, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of one request, from a thread."""
    address = json.loads((folder / FILE).read_text())
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Authorization": f"Bearer {address['token']}", **headers}
    asked = urllib.request.Request(address["url"] + path, data, given)
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


async def test_nothing_is_told_without_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path, told := Told()):
        for path, body in (("/health", None), ("/stats", None), ("/call", {}), ("/nowhere", None)):
            for wrong in ("", "Bearer ", "Bearer wrong", "Basic abc", "Bearer \xe4"):
                status, answer = await asyncio.to_thread(ask, tmp_path, path, body, Authorization=wrong)
                assert (status, answer) == (401, {"error": "the token is missing or wrong"})
        assert (await asyncio.to_thread(ask, tmp_path, "/health")) == (200, {"status": "ok", "tools": "told"})
        assert (await asyncio.to_thread(ask, tmp_path, "/stats"))[1]["calls"] == {}
        assert told.asked == []
    assert told.life == ["start", "close"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", None),
        (b"\xff\xfe", None),
        ([], "not a JSON object"),
        ({"argument": "x"}, "tool is not a text"),
        ({"tool": "search_engine", "argument": 5}, "argument is not a text"),
        ({"tool": "search_engine", "argument": "x", "question": 5}, "question is neither"),
        ({"tool": "search_engine", "argument": "x", "call": "0"}, "call is not a whole number"),
    ],
)
async def test_what_is_no_call_is_refused(tmp_path: Path, body: object, message: str | None) -> None:
    async with serving(tmp_path, told := Told()) as (_, gateway):
        status, answer = await asyncio.to_thread(ask, tmp_path, "/call", body)
        assert status == 400
        assert message is None or message in answer["error"]
        assert gateway.counters.rejected == 1
    assert told.asked == []


async def test_a_call_larger_than_allowed_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, told := Told()):
        body = {"tool": "search_engine", "argument": "x" * (2 << 20)}
        status, _ = await asyncio.to_thread(ask, tmp_path, "/call", body)
    assert status == 413
    assert told.asked == []


async def test_the_address_is_for_this_user_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()):
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
        assert [path.name for path in tmp_path.iterdir()] == [FILE]
