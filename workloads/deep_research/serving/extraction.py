"""From a page's bytes to its text and links: a plain function, run in processes of its own (`extractors`), since it
takes all of a core for milliseconds."""

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from workloads.deep_research.corpus.charsets import OTHER_STARTS, decoded
from workloads.deep_research.serving.rendering import Page

MAX_LINKS = 400  # that are kept of a page
MAX_TEXT = 400_000  # characters, likewise
MAX_HTML = 1_000_000  # characters that are parsed
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(r"text/|application/(json|xml|javascript|x-ndjson|yaml|x-yaml)$|application/[\w.-]+\+(json|xml)$")
_ASIDE = frozenset({"nav", "header", "footer", "aside", "form"})
_FEW_CHARACTERS = 200  # a main text as short as this is checked against all text of the page
_MOST_ELEMENTS = 40_000  # of a page whose main text is looked for; of a larger one all text is taken
_BULK = tuple(
    (re.compile(rf"<{tag}[\s>]", re.IGNORECASE), re.compile(rf"</{tag}\s*>", re.IGNORECASE))
    for tag in ("script", "style", "svg")
)
_SPACE = re.compile(r"[ \t\r\f\v]+")
_LINES = re.compile(r"\n\s*\n\s*")


@dataclass(frozen=True, slots=True)
class Extraction:
    """What came of it: a page, or why there is none."""

    page: Page | None
    error: str | None = None
    late: bool = False
    note: str | None = None  # what is missing of the page


class _LateSignal(BaseException):
    """The alarm. No `Exception`: libraries catch those."""


def extracted(data: bytes, content_type: str, charset: str | None, url: str, limit_s: float) -> Extraction:
    """The page's title, text and absolute http(s) links (those of the main part before those of navigation)."""
    try:
        with _alarm(limit_s):
            return _extracted(data, content_type, charset, url)
    except _LateSignal:
        return Extraction(None, f"its text could not be extracted within {limit_s:g} s", late=True)
    except (Exception, RecursionError) as error:  # whatever a page can do to a parser
        return Extraction(None, f"its text could not be extracted: {type(error).__name__}")


def _extracted(data: bytes, content_type: str, charset: str | None, url: str) -> Extraction:
    start = data[:1024].lstrip()
    if start.startswith(OTHER_STARTS):
        return Extraction(None, "the page is no text")
    is_html = content_type in _HTML or (
        content_type in ("", "text/plain") and start[:15].lower().startswith((b"<!doctype html", b"<html"))
    )
    if not is_html and content_type and not _TEXT.match(content_type):
        return Extraction(None, f"content of type {content_type[:80]} has no text to read")
    text = decoded(data, charset, html=is_html)
    if text is None:
        return Extraction(None, "the page is no text")
    if not is_html:
        return Extraction(Page(title=_last_part(url), url=url, text=text[:MAX_TEXT]))
    whole = len(text)
    if whole > MAX_HTML:
        text = _without_bulk(text)
    if len(text) > MAX_HTML:
        return Extraction(_html(text[:MAX_HTML], url), note=f"only the first {MAX_HTML} characters of it were read")
    return Extraction(_html(text, url))


def _without_bulk(html: str) -> str:
    """A page without scripts, styles and drawings: most of what makes pages large, and none of their text."""
    for opening, closing in _BULK:
        parts, at = [], 0
        while (start := opening.search(html, at)) is not None and (
            end := closing.search(html, start.end())
        ) is not None:
            parts.append(html[at : start.start()])
            at = end.end()
        html = "".join([*parts, html[at:]])
    return html


def _html(html: str, url: str) -> Page:
    import trafilatura

    tree = trafilatura.load_html(html)
    if tree is None:  # what it doesn't take for HTML: a fragment, which browsers show all the same
        tree = trafilatura.load_html(f"<html><body>{html}</body></html>")
    if tree is None:
        return Page(title="", url=url, text="")
    title = " ".join((tree.findtext(".//title") or tree.findtext(".//h1") or "").split())
    links = _links(tree, url)
    text = ""
    if tree.xpath("count(//*)") <= _MOST_ELEMENTS:
        text = trafilatura.extract(tree, url=url, fast=True, favor_recall=True, include_comments=False) or ""
    if len(text) < _FEW_CHARACTERS:
        whole = trafilatura.html2txt(trafilatura.load_html(f"<html><body>{html}</body></html>")) or ""
        text = max(text, whole, key=len)
    text = _LINES.sub("\n\n", _SPACE.sub(" ", text)).strip()
    return Page(title=title, url=url, text=text[:MAX_TEXT], links=links)


def _links(tree: Any, url: str) -> tuple[tuple[str, str], ...]:
    base = url
    for each in tree.iter("base"):
        if each.get("href"):
            with contextlib.suppress(ValueError):
                base = urljoin(url, each.get("href").strip())
            break
    main: dict[str, str] = {}
    other: dict[str, str] = {}
    here = url.split("#", 1)[0]
    for anchor in tree.iter("a"):
        href = (anchor.get("href") or "").strip()
        if not href or href.startswith("#"):
            continue
        try:
            target = urljoin(base, href).split("#", 1)[0]
            if urlsplit(target).scheme not in ("http", "https"):
                continue
        except ValueError:
            continue
        if target == here:
            continue
        words = " ".join("".join(anchor.itertext()).split()) or (anchor.get("title") or "").strip()
        group = other if any(above.tag in _ASIDE for above in anchor.iterancestors()) else main
        if not group.get(target):
            group[target] = words
        if len(main) >= MAX_LINKS:
            break
    ordered = {**main, **{target: words for target, words in other.items() if target not in main}}
    return tuple((words, target) for target, words in list(ordered.items())[:MAX_LINKS])


def _last_part(url: str) -> str:
    return urlsplit(url).path.rstrip("/").rsplit("/", 1)[-1]


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raises `_LateSignal` in the body after some seconds; does nothing outside a process's main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise _LateSignal

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
