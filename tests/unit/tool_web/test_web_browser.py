"""Pages of all kinds in the browser: text and links, encodings, packing, and what is no text."""

import gzip
import zlib

import pytest
from aiohttp import web
from browser_parts import PAGE, WORDS, answering, html, opened

from workloads.deep_research.serving.extraction import Extraction
from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.web.fetch import FetchLimits


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


class Broken(Extractor):
    async def extract(self, data: bytes, content_type: str, charset: str | None, url: str) -> Extraction:
        raise RuntimeError("a defect")


def test_a_defect_of_ours_is_an_observation_too() -> None:
    found = opened(html, "http://lake.test/", Broken(processes=1))
    assert (found.status, found.detail) == ("error", "RuntimeError in the browser")
