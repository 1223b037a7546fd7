"""Extraction in processes: what a page can do to them, and what becomes of the others' pages."""

import asyncio
import signal
from typing import Any

import pytest

from workloads.deep_research.serving import extraction
from workloads.deep_research.serving.extraction import Extraction, extracted
from workloads.deep_research.serving.extractors import Extractor

PAGE = b"<html><title>T</title><body><article><p>" + b"Some words about lakes. " * 30 + b"</p></article></body></html>"


def text_of(data: bytes, kind: str = "text/html", charset: str | None = None) -> Extraction:
    return extracted(data, kind, charset, "http://lake.test/a/b.html", 30.0)


def test_tables_and_lists_are_kept_and_scripts_are_not() -> None:
    rows = "".join(f"<tr><td>year {year}</td><td>{year * 7}</td></tr>" for year in range(1990, 2000))
    html = f"""<html><head><style>.a{{}}</style></head><body><h1>Lake</h1><p>{"Words of the main text. " * 20}</p>
    <table><tr><th>Year</th><th>Level</th></tr>{rows}</table><ul><li>first of the list<li>second of the list</ul>
    <script>var hidden = 1;</script><noscript>enable it</noscript></body></html>"""
    page = text_of(html.encode()).page
    assert page is not None
    for kept in ("year 1994", "13958", "first of the list", "second of the list"):
        assert kept in page.text
    assert "hidden" not in page.text
    assert ".a{" not in page.text


def test_broken_markup_is_read() -> None:
    page = text_of(b"<body><p>" + b"Open text with <b>bold <i>and more. " * 20 + b"<a href=/x>one<a href='/y>two").page
    assert page is not None
    assert "bold and more" in " ".join(page.text.split())
    assert ("one", "http://lake.test/x") in page.links


def test_links_follow_the_pages_base_and_come_once() -> None:
    html = b"""<base href="http://other.test/x/"><a href="y">Y</a><a href="y#z">again</a><a href=" /n ">N</a>
    <a href="http://[bad">bad</a><a>none</a><a href="">empty</a><a href="//third.test/q" title="Third"></a>"""
    page = text_of(html).page
    assert page is not None
    assert page.links == (
        ("Y", "http://other.test/x/y"),
        ("N", "http://other.test/n"),
        ("Third", "http://third.test/q"),
    )


def test_a_page_that_is_large_by_its_scripts_is_read_to_its_end() -> None:
    scripts = b"<script>" + b"var a = 1;" * 150_000 + b"</script><STYLE type=x>" + b".a{}" * 100_000 + b"</style >"
    found = text_of(b"<html><body>" + scripts + b"<p>" + b"The last words. " * 40 + b"</p><svg ></body></html>")
    assert found.page is not None
    assert found.page.text.startswith("The last words.")
    assert found.note is None


def test_a_page_that_is_larger_is_read_to_a_limit_and_says_so() -> None:
    found = text_of(b"<html><body>" + b"<p>The first of very many words.</p>" * 60_000)
    assert found.page is not None
    assert found.page.text.startswith("The first of")
    assert found.note == "only the first 1000000 characters of it were read"


def test_a_page_of_very_many_parts_is_read_in_time_and_gives_all_its_text() -> None:
    found = text_of(b"<html><body><nav>Menu</nav>" + b"<p>x" * 200_000)  # the search for the main text takes minutes
    assert found.page is not None
    assert found.page.text.startswith("Menu")
    assert found.page.text.count("x") > 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"<div>" * 100_000 + b"deep",
        b"<table><tr><td>" * 20_000 + b"deep",
        b"<a href='" + b"x" * 500_000 + b"'>long</a>",
        b"<p " + b"a=b " * 100_000 + b">words",
        b"<!--" * 50_000,
        b"&#x110000;&#0;&#xD800;&nbsp;" * 1_000,
        b"<!DOCTYPE x [<!ENTITY a 'b'><!ENTITY c '&a;&a;&a;'>]><html><p>&c;</p>",
        bytes(range(256)) * 100,
        b"\xff\xfe" + b"<\0p\0>\0x\0" * 50,
        b"<\0",
    ],
    ids=["divs", "tables", "href", "attributes", "comments", "entities", "doctype", "bytes", "utf-16", "half"],
)
def test_odd_pages_are_pages_or_errors(data: bytes, extractor: Extractor) -> None:
    async def both() -> tuple[Extraction, Extraction]:
        odd = await extractor.extract(data, "text/html", None, "http://lake.test/")
        return odd, await extractor.extract(PAGE, "text/html", None, "http://lake.test/")

    odd, next_one = asyncio.run(both())
    assert (odd.page is None) == (odd.error is not None)
    assert next_one.page is not None


def test_a_page_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: Any) -> Extraction:
        while True:
            try:
                sum(range(1_000))
            except Exception:
                continue  # as a library that catches everything would

    monkeypatch.setattr(extraction, "_extracted", endless)
    before = signal.getsignal(signal.SIGALRM)
    found = extracted(PAGE, "text/html", None, "http://lake.test/", 0.2)
    assert found.page is None
    assert found.late
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
