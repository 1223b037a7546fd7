"""The browser against servers that behave as badly as the web: each fault is an observation with a status."""

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from web_servers import Handler, RawHandler, StepClock, opening, raw, served

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.extraction import Extraction
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.addresses import GuardedResolver
from workloads.deep_research.serving.web.cache import Cache
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.serving.web.retry import RetryPolicy
from workloads.deep_research.tools import Observation

LIMITS = FetchLimits(robots=False, max_bytes=200_000, total_s=20.0, retry=RetryPolicy(attempts=2, base_s=0.01))
QUICK = FetchLimits(robots=False, total_s=0.4, read_s=5.0)
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


def test_text_and_links_under_the_pages_own_name(extractor: Extractor) -> None:
    seen: list[str] = []

    async def page(request: web.Request) -> web.Response:
        seen.append(f"{request.headers['Host']}{request.path_qs}")
        assert "agentic-rl-bench" in request.headers["User-Agent"]
        return await html(request)

    found = opened(page, " http://lake.test/wiki/lake?a=b#part ", extractor)
    assert seen == ["lake.test/wiki/lake?a=b"]
    assert found.status == "ok"
    assert found.detail is None
    assert found.http_status == 200
    assert found.size == len(PAGE)
    assert found.links == (
        ("the town", "http://lake.test/town"),
        ("the river", "http://river.test/"),
        ("Home", "http://lake.test/home"),  # navigation comes last
    )
    assert found.text.startswith("The lake\nhttp://lake.test/wiki/lake?a=b\n\n")
    assert "fed by two rivers" in found.text
    assert "- the river: http://river.test/" in found.text
    assert "javascript" not in found.text


def test_what_is_too_long_for_a_model_is_cut_and_said(extractor: Extractor) -> None:
    found = opened(html, "http://lake.test/", extractor, characters=100, links=1)
    assert "[cut: the first 100 of " in found.text
    assert len(found.links) == 1
    assert found.detail is None


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


@pytest.mark.parametrize("body", ["", "   ", "<html><body></body></html>", "<html><script>x()</script></html>"])
def test_pages_without_text_are_empty(body: str, extractor: Extractor) -> None:
    assert opened(answering(body, Content_Type="text/html"), "http://lake.test/", extractor).status == "empty"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"%PDF-1.7 x", "application/pdf"), (b"%PDF-1.7 x", "text/html"), (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0\x01\0\0\0", "text/html"),
        (b"abc", "application/octet-stream"),
        (b"PK\x03\x04abc", "text/plain"),
    ],
)  # fmt: skip
def test_what_is_no_text(body: bytes, kind: str, extractor: Extractor) -> None:
    found = opened(answering(body, Content_Type=kind), "http://lake.test/", extractor)
    assert found.status == "error"
    assert found.detail


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"just words", "text/plain"), (b'{"a": "just words"}', "application/json"), (b"<p>just words", "text/html"),
     (b"<?xml version='1.0'?><a>just words</a>", "application/xml"), (b"<html><p>just words", "text/plain"),
     (b"# just words", "text/markdown"), (b"<feed>just words</feed>", "application/atom+xml")],
)  # fmt: skip
def test_what_is_text(body: bytes, kind: str, extractor: Extractor) -> None:
    found = opened(answering(body, Content_Type=kind), "http://lake.test/", extractor)
    assert found.status == "ok"
    assert "just words" in found.text


UMLAUTS = (
    f"<html><head>{{meta}}<title>Zürich</title></head><body><p>Die Straße nach Zürich führt über Köln. {WORDS}</p>"
)
JAPANESE = "<html><title>日本</title><body><p>" + "日本の湖は美しい。山の水が流れ込む。" * 20 + "</p></body></html>"


@pytest.mark.parametrize(
    ("text", "encoding", "declared", "meta"),
    [
        (UMLAUTS, "utf-8", "utf-8", ""),
        (UMLAUTS, "utf-8", None, ""),
        (UMLAUTS, "utf-8", "iso-8859-1", ""),  # wrong
        (UMLAUTS, "utf-8", "no-such-charset", ""),
        (UMLAUTS, "utf-8", None, '<meta charset="windows-1252">'),  # wrong
        (UMLAUTS, "utf-8-sig", "iso-8859-1", ""),
        (UMLAUTS, "iso-8859-1", "iso-8859-1", ""),
        (UMLAUTS, "iso-8859-1", "utf-8", ""),  # wrong
        (UMLAUTS, "cp1252", None, '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">'),
        (UMLAUTS, "cp1252", None, ""),
        (UMLAUTS, "utf-16", None, ""),
        (UMLAUTS, "utf-16-le", "utf-16le", '<meta charset="utf-16">'),
        (JAPANESE, "shift_jis", "shift_jis", ""),
        (JAPANESE, "euc_jp", None, '<meta charset="EUC-JP">'),
        (JAPANESE, "shift_jis", None, ""),
        (JAPANESE, "euc_jp", "utf-8", ""),  # wrong
        (JAPANESE, "iso2022_jp", "iso-2022-jp", ""),
        (JAPANESE, "utf-8", "shift_jis", ""),  # wrong
    ],
)
def test_encodings_right_wrong_and_unsaid(
    text: str, encoding: str, declared: str | None, meta: str, extractor: Extractor
) -> None:
    kind = "text/html" + (f"; charset={declared}" if declared else "")
    body = text.replace("{meta}", meta).encode(encoding)
    found = opened(answering(body, Content_Type=kind), "http://lake.test/", extractor)
    assert found.status == "ok"
    assert ("Die Straße nach Zürich führt über Köln." if text is UMLAUTS else "日本の湖は美しい。") in found.text


def test_a_page_cut_inside_a_character_is_read_to_there(extractor: Extractor) -> None:
    body = b"<html><p>" + "ü".encode() * 5_000
    limits = FetchLimits(robots=False, max_bytes=2_000)
    found = opened(
        answering(body, Content_Type="text/html; charset=utf-8"), "http://lake.test/", extractor, limits=limits
    )
    assert found.status == "ok"
    assert "üüü" in found.text
    assert "Ã" not in found.text
    assert found.detail == "only the first 2000 bytes were read"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "members"])
def test_packed_pages(encoding: str, extractor: Extractor) -> None:
    data = PAGE.encode()
    packer = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": lambda: gzip.compress(data),
        "deflate": lambda: zlib.compress(data),
        "raw deflate": lambda: packer.compress(data) + packer.flush(),
        "members": lambda: gzip.compress(data[:300]) + gzip.compress(data[300:]),
    }[encoding]()
    name = "deflate" if "deflate" in encoding else "gzip"
    found = opened(answering(packed, Content_Type="text/html", Content_Encoding=name), "http://lake.test/", extractor)
    assert found.status == "ok"
    assert found.size == len(packed)
    assert "fed by two rivers" in found.text


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"no gzip", "gzip"), (gzip.compress(PAGE.encode())[:-20], "gzip"), (b"x", "br"), (b"x", "zstd, gzip")],
)
def test_damaged_and_unasked_packing(body: bytes, encoding: str, extractor: Extractor) -> None:
    handler = answering(body, Content_Type="text/html", Content_Encoding=encoding)
    assert opened(handler, "http://lake.test/", extractor).status == "error"


def test_a_bomb_is_unpacked_no_further_than_the_limit(extractor: Extractor) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(b"<p>" + b"boom " * 40_000)
    for _ in range(200):
        bomb += packer.compress(b" " * 1_000_000)
    bomb += packer.flush()
    assert len(bomb) < 300_000  # of 200 MB
    found = opened(answering(bomb, Content_Type="text/html", Content_Encoding="gzip"), "http://lake.test/", extractor)
    assert found.status == "ok"
    assert found.detail == "only the first 200000 bytes were read"
    assert found.size is not None
    assert found.size <= len(bomb)


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


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


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


def cached(folder: Path, handler: Handler, urls: list[str], extractor: Extractor, **settings: Any) -> list[Observation]:
    async def run() -> list[Observation]:
        async with served(handler) as port:
            cache = Cache(folder, **settings)
            await cache.open()
            browser = Browser(mapped={".test": ("127.0.0.1", port)}, limits=LIMITS, cache=cache, extractor=extractor)
            found = list(await asyncio.gather(*(browser.call(opening(url)) for url in urls)))
            await browser.close()
            await cache.close()
            return found

    return asyncio.run(run())


def test_a_page_is_fetched_once_for_all_and_for_later_runs(tmp_path: Path, extractor: Extractor) -> None:
    count = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        await asyncio.sleep(0.05)
        return await html(request) if request.path == "/a" else web.Response(status=404)

    urls = ["http://lake.test/a", "http://lake.test/a#x", "http://lake.test/gone"]
    first = cached(tmp_path, page, urls, extractor)
    assert count == 2
    second = cached(tmp_path, answering("", 500), urls, extractor)
    assert [each.text for each in second] == [each.text for each in first]
    assert [each.status for each in second] == ["ok", "ok", "not_found"]
    assert [each.links for each in second] == [each.links for each in first]
    assert [each.size for each in second] == [None] * 3


def test_failures_of_a_moment_are_not_kept(tmp_path: Path, extractor: Extractor) -> None:
    assert cached(tmp_path, answering("", 500), ["http://lake.test/"], extractor)[0].status == "error"
    assert cached(tmp_path, html, ["http://lake.test/"], extractor)[0].status == "ok"


def test_a_private_page_does_not_come_out_of_the_cache_where_it_may_not_be_opened(
    tmp_path: Path, extractor: Extractor
) -> None:
    async def run() -> list[str]:
        async with served(html) as port:
            statuses = []
            for allow in (True, True, False):
                cache = Cache(tmp_path)
                await cache.open()
                browser = Browser(allow_private=allow, limits=LIMITS, cache=cache, extractor=extractor)
                statuses.append((await browser.call(opening(f"http://127.0.0.1:{port}/"))).status)
                statuses.append(str(cache.hits))
                await browser.close()
                await cache.close()
            return statuses

    assert asyncio.run(run()) == ["ok", "0", "ok", "1", "refused", "0"]


class Broken(Extractor):
    async def extract(self, data: bytes, content_type: str, charset: str | None, url: str) -> Extraction:
        raise RuntimeError("a defect")


def test_a_defect_of_ours_is_an_observation_too() -> None:
    found = opened(html, "http://lake.test/", Broken(processes=1))
    assert (found.status, found.detail) == ("error", "RuntimeError in the browser")


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
