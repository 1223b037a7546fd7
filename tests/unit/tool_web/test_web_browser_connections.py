"""The browser against servers that answer slowly, wrongly or not at all: each fault is an observation with a status."""

import asyncio
import socket
import struct

import pytest
from aiohttp import web
from browser_parts import LIMITS, answering, drip, html, once, opened, opened_raw
from web_servers import RawHandler, StepClock, opening, raw

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.fetch import FetchLimits

QUICK = FetchLimits(robots=False, total_s=0.4, read_s=5.0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(404, "not_found"), (410, "not_found"), (401, "refused"), (403, "refused"), (451, "refused"), (429, "refused"),
     (400, "error"), (500, "error"), (503, "error"), (304, "error")],
)  # fmt: skip
def test_http_errors(status: int, expected: str, extractor: Extractor) -> None:
    found = opened(answering("<p>sorry", status), "http://lake.test/", extractor)
    assert (found.status, found.http_status) == (expected, status)
    assert f"HTTP {status}" in (found.detail or "")
    assert found.text.startswith("Opening http://lake.test/ failed: ")


def test_a_busy_server_is_asked_once_more_after_the_pause_it_names(extractor: Extractor) -> None:
    count = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return await html(request) if count > 1 else web.Response(status=503, headers={"Retry-After": "7"})

    clock = StepClock()
    limits = FetchLimits(robots=False)
    assert opened(page, "http://lake.test/", extractor, limits=limits, clock=clock).status == "ok"
    assert count == 2
    assert len(clock.slept) == 1
    assert 7 <= clock.slept[0] <= 7.5


def test_an_endless_page_is_left(extractor: Extractor) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"<p>" + b"more words " * 1_000)

    found = opened(endless, "http://lake.test/", extractor)
    assert found.status == "ok"
    assert found.size is not None
    assert found.size < 400_000


async def drip_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("handler", [drip, drip_head, silent])
def test_slow_drips_and_silence_end_with_the_total_time(handler: RawHandler, extractor: Extractor) -> None:
    found = opened_raw(handler, extractor, limits=QUICK)
    assert (found.status, found.detail) == ("timeout", "no whole answer within 0.4 s")


def test_silence_ends_with_the_reading_time(extractor: Extractor) -> None:
    limits = FetchLimits(robots=False, total_s=30.0, read_s=0.2)
    found = opened_raw(silent, extractor, limits=limits)
    assert (found.status, found.detail) == ("timeout", "no answer from lake.test")


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


async def reset_in_the_middle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n<p>some")
    await writer.drain()
    await asyncio.sleep(0.05)
    reset(writer)


async def ends_early(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n<p>some")


async def no_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")


async def huge_head(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 1_000_000 + b"\r\n\r\n")
    await writer.drain()


async def broken_chunks(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n")


async def closes(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    return


@pytest.mark.parametrize(
    "handler", [reset_at_once, reset_in_the_middle, ends_early, no_http, huge_head, broken_chunks, closes]
)
def test_broken_connections_and_answers(handler: RawHandler, extractor: Extractor) -> None:
    found = opened_raw(handler, extractor)
    assert found.status == "error"
    assert found.detail
    assert "\n" not in found.detail


def test_nobody_listens(extractor: Extractor) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = asyncio.run(once("http://lake.test/", bound.getsockname()[1], extractor, limits=LIMITS))
    assert found.status == "error"
    assert "no connection to lake.test" in (found.detail or "")


def test_a_cancelled_call_leaves_no_connection(extractor: Extractor) -> None:
    async def run() -> tuple[int, int]:
        async with raw(drip) as port:
            browser = Browser(mapped={".test": ("127.0.0.1", port)}, limits=LIMITS, extractor=extractor)
            calls = [asyncio.create_task(browser.call(opening(f"http://a{n}.test/"))) for n in range(10)]
            async with asyncio.timeout(60):
                while browser.stats()["open_connections"] != len(calls):
                    await asyncio.sleep(0.01)
            during = browser.stats()["open_connections"]
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            after = browser.stats()["open_connections"]
            await browser.close()
            assert isinstance(during, int)
            assert isinstance(after, int)
            return during, after

    assert asyncio.run(run()) == (10, 0)
