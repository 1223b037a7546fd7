"""What a model reads of a search and of a page: one form for every tool set, so that their observations compare."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from workloads.deep_research.tools import OK, Observation

TEXT_CHARACTERS = 12_000  # of a page that are shown: about 3,000 tokens of English
LINKS = 30  # of a page that are listed
_TITLE_CHARACTERS = 200
_SNIPPET_CHARACTERS = 500
_URL_CHARACTERS = 2_000
_DETAIL_CHARACTERS = 300


class HitLike(Protocol):
    """A result of a search."""

    @property
    def title(self) -> str:
        """The page's title."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def snippet(self) -> str:
        """A few of its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A result of a search."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was extracted from a page."""

    title: str
    url: str  # where it was found in the end
    text: str
    links: tuple[tuple[str, str], ...] = ()  # (text of the link, absolute address), in the page's order


def one_line(text: str, characters: int = _DETAIL_CHARACTERS) -> str:
    """The text on one line, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def search_observation(
    query: str, hits: Sequence[HitLike], *, http_status: int | None = None, size: int | None = None
) -> Observation:
    """Title, address and snippet of each hit, numbered from 1; status `empty` without hits."""
    if not hits:
        text = f"No results for: {one_line(query)}"
        return Observation(text=text, status="empty", http_status=http_status, size=size, detail="no results")
    links = tuple((one_line(hit.title, _TITLE_CHARACTERS), one_line(hit.url, _URL_CHARACTERS)) for hit in hits)
    blocks = [
        f"[{number}] {title}\n{url}\n{one_line(hit.snippet, _SNIPPET_CHARACTERS)}".rstrip()
        for number, ((title, url), hit) in enumerate(zip(links, hits, strict=True), start=1)
    ]
    return Observation(text="\n\n".join(blocks), http_status=http_status, size=size, links=links)


def page_observation(
    page: Page,
    *,
    characters: int = TEXT_CHARACTERS,
    links: int = LINKS,
    http_status: int | None = None,
    size: int | None = None,
    detail: str | None = None,
) -> Observation:
    """Title, address, the text's first `characters` characters and the first `links` links; `empty` without text.

    A page that has links but no text is `empty` too, and its links are listed all the same.
    """
    shown = tuple(
        (one_line(text, _TITLE_CHARACTERS), url) for text, url in page.links[:links] if len(url) <= _URL_CHARACTERS
    )
    text = page.text.strip()
    parts = [f"{one_line(page.title, _TITLE_CHARACTERS)}\n{one_line(page.url, _URL_CHARACTERS)}".strip()]
    if text:
        parts.append(text[:characters])
        if len(text) > characters:
            parts.append(f"[cut: the first {characters} of {len(text)} characters]")
    else:
        parts.append("[the page has no text]")
    if shown:
        parts.append("Links:\n" + "\n".join(_link_lines(shown)))
    return Observation(
        text="\n\n".join(parts),
        status=OK if text else "empty",
        http_status=http_status,
        size=size,
        detail=detail if text else (detail or "the page has no text"),
        links=shown,
    )


def failed_observation(
    what: str, status: str, detail: str, *, http_status: int | None = None, size: int | None = None
) -> Observation:
    """What a model reads when a tool could not do what was asked; `what` names it ("Opening URL", "Searching")."""
    line = one_line(detail)
    return Observation(
        text=f"{one_line(what)} failed: {line}", status=status, http_status=http_status, size=size, detail=line
    )


def _link_lines(links: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- {text}: {url}" if text else f"- {url}" for text, url in links]
