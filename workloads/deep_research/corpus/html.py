"""Drafts as HTML like that of the web: navigation, styles, scripts, and mistakes that browsers forgive.

The mistakes (unclosed and stray tags, bad entities, unquoted attributes, a charset that the bytes contradict) never
fall inside a sentence that states a fact; where the charset is wrong, all that can be asked for is ASCII, so the
answer survives any decoding.
"""

import json
import random
from dataclasses import dataclass
from html import escape

from workloads.deep_research.corpus.pages import Block, Bullets, Draft, Heading, Inline, Link, Paragraph, Table

LEAST_BYTES, MOST_BYTES = 1_000, 200_000

_STYLE = (
    "body{font:16px/1.5 Georgia,serif;margin:0;color:#222}nav,footer,header{background:#eee;padding:.6em 1em}"
    "nav ul{list-style:none;margin:0;padding:0}nav li{display:inline;margin-right:1em}"
    "main{max-width:46em;margin:1em auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #bbb;padding:.2em .5em}.side{float:right;margin:0 0 1em 1em}"
)
_SCRIPT = (
    "(function(w,d){var t=d.createElement('script');t.async=!0;w.q=w.q||[];w.q.push(['page',d.title]);"
    "d.addEventListener('click',function(e){if(e.target.tagName==='A'&&w.q){w.q.push(['link',e.target.href]);}});})"
    "(window,document);"
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as a server sends it; `content_type` is the header, which may say what the bytes are not."""

    body: bytes
    content_type: str


def render(draft: Draft, rng: random.Random) -> Rendered:
    """The page's bytes, LEAST_BYTES..MOST_BYTES of them. `rng` decides on the mistakes and surroundings."""
    mistakes = _Mistakes(rng)
    charset, encoding = _charset(draft, rng)
    title, site = escape(draft.title), draft.site
    address = _addresses(site, rng)
    meta = f'<meta charset="{charset}">' if rng.random() < 0.8 else (
        f'<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset={charset}">'
    )  # fmt: skip
    navigation = "".join(f'<li><a href="{address(link.url)}">{escape(link.text)}</a>' for link in draft.navigation)
    parts = [
        f"<!DOCTYPE html>\n<html lang=en>\n<head>\n{meta}\n<title>{title} - {site}</title>\n",
        '<link rel="stylesheet" href="/static/site.css">\n',
        f"<style>{_STYLE}</style>\n" if rng.random() < 0.5 else "",
        f"<script>{_SCRIPT}</script>\n" if rng.random() < 0.5 else '<script src="/static/site.js"></script>\n',
        "</head>\n<body class=page>\n",
        f'<header><a href="/static/about.html">{site.removesuffix(".test").capitalize()}</a></header>\n',
        f'<nav id="menu"><ul>{navigation}</ul></nav>\n<!-- content: {draft.url.rsplit("/", 1)[-1]} -->\n',
        f"<main><article>\n<h1>{title}</h1>\n",
    ]
    parts += [_block(block, address, mistakes) for block in draft.blocks]
    parts.append("</article></main>\n")
    if rng.random() < 0.3:
        parts.append(
            '<aside class="promo"><h3>Subscribe</h3><form action=/join><input name=mail>'
            "<button>Join</button></form></aside>\n"
        )
    footer = "&copy 2024 " if mistakes.now(0.3) else "&copy; 2024 "
    parts.append(
        f"<footer><p>{footer}{site}. <a href=/static/terms.html>Terms</a> "
        f"<a href=/static/contact.html>Contact</a></footer>\n"
    )
    room = MOST_BYTES - 400 - sum(map(len, parts)) * 11 // 10
    parts.append(_data(rng, room))
    parts.append("</body>\n" if mistakes.now(0.2) else "</body>\n</html>\n")
    body = "".join(parts).encode(encoding, "xmlcharrefreplace")
    return Rendered(body, f"text/html; charset={charset}" if rng.random() < 0.7 else "text/html")


def _charset(draft: Draft, rng: random.Random) -> tuple[str, str]:
    """(what is declared, what is used)."""
    u = rng.random()
    if draft.facts_ascii and u < 0.03:
        return "utf-8", "latin-1"
    if draft.facts_ascii and u < 0.05:
        return "iso-8859-1", "utf-8"
    if u < 0.10:
        return "iso-8859-1", "latin-1"
    return "utf-8", "utf-8"


class _Mistakes:
    """Whether a mistake is made now; some pages have none, some many."""

    def __init__(self, rng: random.Random) -> None:
        self._draw = rng.random
        self._rate = rng.random() ** 2

    def now(self, share: float) -> bool:
        return self._draw() < share * self._rate * 2


class _addresses:  # noqa: N801 - called like a function
    """Addresses as this page writes them: some pages write their own site's relative, some all of them absolute."""

    def __init__(self, site: str, rng: random.Random) -> None:
        self._prefix = f"http://{site}/" if rng.random() < 0.7 else None

    def __call__(self, url: str) -> str:
        if self._prefix is not None and url.startswith(self._prefix):
            return url[len(self._prefix) - 1 :]
        return url


def _inline(piece: Inline, address: _addresses) -> str:
    if isinstance(piece, Link):
        return f'<a href="{address(piece.url)}">{escape(piece.text)}</a>'
    return escape(piece, quote=False) if "&" in piece or "<" in piece else piece


def _block(block: Block, address: _addresses, mistakes: _Mistakes) -> str:
    match block:
        case Paragraph(pieces):
            text = "".join(_inline(piece, address) for piece in pieces)
            if mistakes.now(0.15):
                text += "<b><i>Checked</b></i> &nbsp &unknown; "
            return f"<p>{text}\n" if mistakes.now(0.3) else f"<p>{text}</p>\n"
        case Heading(text):
            # A heading's end tag is never left out: the rest of the page would become a heading.
            return f"<h2>{escape(text)}</h2>{'</div>' if mistakes.now(0.1) else ''}\n"
        case Bullets(items):
            end = "" if mistakes.now(0.5) else "</li>"
            return (
                "<ul>\n"
                + "".join(f"<li>{''.join(_inline(p, address) for p in item)}{end}\n" for item in items)
                + "</ul>\n"
            )
        case Table(rows, side):
            cell = ("", "") if mistakes.now(0.4) else ("</th>", "</td>")
            attributes = " class=side" if side else ' border=1 border="0"' if mistakes.now(0.3) else ""
            lines = [
                "<tr>" + "".join(f"<{tag}>{_inline(value, address)}{cell[tag == 'td']}" for value in row) + "</tr>\n"
                for number, row in enumerate(rows)
                for tag in ("td" if number else "th",)
            ]
            return f"<table{attributes}>\n{''.join(lines)}</table>\n"


def _data(rng: random.Random, room: int) -> str:
    """A script's data, as pages carry them: log-normal, median 900 bytes."""
    size = min(int(900 * pow(2.718281828, 1.3 * rng.gauss(0.0, 1.0))), room)
    entries = size // 60 if size > 400 else 0
    values = [
        {"id": f"{rng.getrandbits(48):012x}", "w": rng.getrandbits(10), "seen": bool(rng.getrandbits(1))}
        for _ in range(entries)
    ]
    return f"<script type=application/json id=state>{json.dumps(values)}</script>\n" if values else ""
