"""Corpora that users bring: a folder of HTML, Markdown or text, a JSONL or Parquet file, or a folder of such tables.

Whatever does not fit in a table is a SpecError that names the file, the row (lines of JSONL and rows of Parquet are
counted from 1) and the column. Files below a folder that are no pages are left out, and told.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from harness.protocol.errors import SpecError
from harness.protocol.names import NOT_UTF8, is_text
from workloads.deep_research.corpus.build import CorpusFacts, Progress, import_entries
from workloads.deep_research.corpus.charsets import OTHER_STARTS, decoded, plain
from workloads.deep_research.corpus.index import Entry, entry
from workloads.deep_research.corpus.skipped import Skipped

MOST_BYTES = 16 << 20  # of one page
SITE = "corpus.test"  # of pages that have no address of their own

_HTML = (".html", ".htm", ".xhtml")
_TEXT = (".txt", ".text")
_MARKDOWN = (".md", ".markdown")
_TABLES = (".jsonl", ".ndjson", ".parquet")
_BUILDING = re.compile(r"\..+\.(building|lock)$")  # of a corpus that is being built inside its source
_FIELDS = ("url", "title", "text", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of a table has what. `title` may be missing (it is then taken from the page); of `text` and `html`
    one is enough, and where both are there, `html` is served and `text` indexed."""

    url: str = "url"
    title: str = "title"
    text: str = "text"
    html: str = "html"

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> "Columns":
        """From {"url": "address", ...}. Raises SpecError for a field that there is not."""
        for name in mapping:
            if name not in _FIELDS:
                raise SpecError(f"corpus columns: {name!r} is no field of a page; there are {', '.join(_FIELDS)}")
        return cls(**mapping)


def import_corpus(
    source: Path,
    out: Path,
    *,
    columns: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    skipped: Skipped | None = None,
) -> CorpusFacts:
    """Builds the corpus of a user's `source` in the folder `out`, anew where one of the same source is there already.

    `columns` maps fields of a page (url, title, text, html) to the columns of a table that are called otherwise.
    `skipped` is told which files below a folder are no pages.

    Raises:
        SpecError: the source can't be read or a page in it does not fit; or `out` holds something else.
    """
    pages = read_pages(source, Columns.of(columns or {}), skipped)
    return import_entries(out, pages, source=str(source.absolute()), progress=progress)


def read_pages(source: Path, columns: Columns | None = None, skipped: Skipped | None = None) -> Iterator[Entry]:
    """The pages of a source, one at a time, files in the order of their names.

    Raises:
        SpecError: see `import_corpus`.
    """
    columns = columns or Columns()
    if source.is_dir():
        yield from _folder(source, columns, Skipped() if skipped is None else skipped)
    elif source.is_file() and source.suffix.lower() in _TABLES:
        yield from _table(source, columns)
    elif source.exists():
        raise SpecError(
            f"{source}: not a corpus; give a folder of .html, .md or .txt files, or a .jsonl or .parquet file"
        )
    else:
        raise SpecError(f"{source}: no such corpus; give a folder of pages, or a .jsonl or .parquet file")


def _folder(folder: Path, columns: Columns, skipped: Skipped) -> Iterator[Entry]:
    """The pages below a folder: its page files, or, where it has none, the rows of its tables."""
    files, tables, others = [], [], []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        kind = path.suffix.lower()
        if path.is_dir() and not path.is_symlink():
            continue
        if hidden := [part for part in path.relative_to(folder).parts if part.startswith(".")]:
            if not _BUILDING.match(hidden[0]):
                skipped.add(name, "hidden")
        elif not is_text(name):
            skipped.add(name, NOT_UTF8)
        elif not path.is_file():
            skipped.add(name, "a link that leads to no file, or nothing that can be read")
        elif kind in (*_HTML, *_TEXT, *_MARKDOWN):
            files.append(path)
        elif kind in _TABLES:
            tables.append(path)
        else:
            others.append(name)
    for name in others:
        skipped.add(name, "not .html, .md or .txt")
    if files:
        if columns != Columns():
            raise SpecError(f"{folder}: it has page files ({files[0].name}), and columns are those of tables")
        for path in tables:
            skipped.add(path.relative_to(folder).as_posix(), "a table among pages, which is a corpus of its own")
    read = 0
    for path in files or tables:
        if not files:
            yield from _table(path, columns)
            read += 1
        elif (page := _page_file(path, path.relative_to(folder), skipped)) is not None:
            yield page
            read += 1
    if not read:
        said = "; ".join(skipped.lines())
        raise SpecError(
            f"{folder}: no page in it; a corpus is made of .html, .md or .txt files, or of .jsonl or .parquet files"
            + (f" (left out were {said})" if said else "")
        )


def _table(path: Path, columns: Columns) -> Iterator[Entry]:
    yield from (_parquet if path.suffix.lower() == ".parquet" else _jsonl)(path, columns)


def _page_file(path: Path, relative: Path, skipped: Skipped) -> Entry | None:
    """The page of a file; None, and told, if there is no text in it."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise SpecError(f"{path}: {size:,} bytes are too many for a page; the limit is {MOST_BYTES:,}")
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from None
    kind = path.suffix.lower()
    if not raw.strip():
        skipped.add(relative.as_posix(), "empty")
        return None
    if not _is_text(raw, html=kind in _HTML):
        skipped.add(relative.as_posix(), "no text, whatever its name says")
        return None
    url = f"http://{SITE}/{quote(relative.as_posix())}"
    if kind in _HTML:
        return html_entry(url, raw, title=None, text=None, where=str(path))
    return text_entry(url, _decoded(raw), title=None, markdown=kind in _MARKDOWN, fallback=path.stem)


def _is_text(raw: bytes, *, html: bool) -> bool:
    """Whether the browser would read it too."""
    if raw[:1024].lstrip().startswith(OTHER_STARTS):
        return False
    try:
        return decoded(raw, None, html=html) is not None
    except ModuleNotFoundError:  # of what guesses an encoding by frequency: it comes with the tools' libraries
        return plain(_decoded(raw)) is not None


def _decoded(raw: bytes) -> str:
    """Text of unsaid encoding: UTF-8 (with or without mark), UTF-16 with mark, else Windows-1252."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _jsonl(path: Path, columns: Columns) -> Iterator[Entry]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise SpecError(f"{where}: not JSON: {error}; each line of the file is one page") from None
                if not isinstance(row, dict):
                    raise SpecError(f"{where}: a page is an object with {columns.url!r} and {columns.text!r}")
                yield _row(row, columns, where, has=list(row))
    except OSError as error:
        raise SpecError(f"{path}: can't be read: {error.strerror}") from None


def _parquet(path: Path, columns: Columns) -> Iterator[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        has = list(file.schema_arrow.names)
        wanted = [name for name in (columns.url, columns.title, columns.text, columns.html) if name in has]
        if columns.url not in wanted or not {columns.text, columns.html} & set(wanted):
            raise SpecError(_missing(str(path), columns, has))
        number = 0
        for batch in file.iter_batches(batch_size=64, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield _row(row, columns, f"{path}: row {number}", has=has)
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{path}: can't be read as Parquet: {error}") from None


def _missing(where: str, columns: Columns, has: list[str]) -> str:
    return (
        f"{where}: a page needs the column {columns.url!r} and {columns.text!r} or {columns.html!r}, and there are "
        f"{', '.join(map(repr, has)) or 'none'}; say which is which, as in columns = {{url = ..., text = ...}}"
    )


def _row(row: Mapping[str, object], columns: Columns, where: str, *, has: list[str]) -> Entry:
    if columns.url not in has or (columns.text not in has and columns.html not in has):
        raise SpecError(_missing(where, columns, has))
    url, title, text, page = (
        _string(row.get(name), f"{where}, column {name!r}")
        for name in (columns.url, columns.title, columns.text, columns.html)
    )
    address = _address(url, f"{where}, column {columns.url!r}")
    for name, value in ((columns.text, text), (columns.html, page)):
        if value is not None and len(value) > MOST_BYTES:
            raise SpecError(f"{where}, column {name!r}: {len(value):,} characters are too many for a page")
    if page:
        return html_entry(address, page.encode(errors="replace"), title=title, text=text, where=where)
    if text:
        return text_entry(address, text, title=title, markdown=False, fallback=address)
    raise SpecError(f"{where}, column {columns.text!r}: the page is empty")


def _string(value: object, where: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return _decoded(value)
    if not isinstance(value, str):
        raise SpecError(f"{where}: text is needed, and it is {type(value).__name__} {str(value)[:60]}")
    return value


def _address(url: str | None, where: str) -> str:
    if not url or not url.strip():
        raise SpecError(f"{where}: the page's address is empty")
    url = url.strip().partition("#")[0]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SpecError(f"{where}: {url[:200]!r} is no address: {error}") from None
    if parts.scheme in ("http", "https") and parts.netloc:
        return url
    if parts.scheme and "://" in url:
        raise SpecError(f"{where}: {url[:200]!r} is no web address; it begins with http:// or https://, or is a path")
    return f"http://{SITE}/{quote(url.lstrip('/'))}"


def html_entry(url: str, raw: bytes, *, title: str | None, text: str | None, where: str) -> Entry:
    """A page of HTML: its text and title taken from it unless they are given.

    Raises:
        SpecError: the extractor is not installed.
    """
    if text is None:
        try:
            import trafilatura
        except ImportError:
            raise SpecError(f"{where}: pages of HTML need trafilatura; install agentic-rl-bench[tools]") from None
        try:
            text = trafilatura.extract(raw, url=url, fast=True, favor_recall=True, include_comments=False)
            text = text or trafilatura.html2txt(raw)
        except (Exception, RecursionError):  # whatever a page can do to a parser
            text = None
        text = text or ""
    return entry(url=url, title=title or _title(_decoded(raw)) or url, content_type="text/html", html=raw, text=text)


def text_entry(url: str, text: str, *, title: str | None, markdown: bool, fallback: str) -> Entry:
    """A page of Markdown or plain text, served as HTML with its links. Its title: the first heading of Markdown."""
    if title is None and markdown and (found := re.search(r"^#\s+(.+?)\s*#*\s*$", text, re.MULTILINE)):
        title = found[1]
    title = " ".join((title or fallback).split())
    shown = (
        _shown(text) if markdown else "".join(f"<p>{html.escape(part)}</p>\n" for part in re.split(r"\n\s*\n", text))
    )
    head = f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{html.escape(title)}</title></head>\n'
    heading = "" if markdown and shown.startswith("<h1") else f"<h1>{html.escape(title)}</h1>\n"
    page = f"{head}<body><article>\n{heading}{shown}</article></body></html>\n"
    return entry(
        url=url,
        title=title,
        content_type="text/html; charset=utf-8",
        html=page.encode(errors="replace"),
        text=text,
    )


_MARKED_LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)(?:\s+&quot;.*?&quot;)?\)")


def _shown(markdown: str) -> str:
    """Markdown's headings, lists, links and paragraphs as HTML; what else it has is left as written."""
    parts = []
    for block in re.split(r"\n\s*\n", html.escape(markdown.strip())):
        block = _MARKED_LINK.sub(r'<a href="\2">\1</a>', block)
        if heading := re.match(r"(#{1,6})\s+(.*?)\s*#*\s*(?:\n|$)", block):
            rank = len(heading[1])
            parts.append(f"<h{rank}>{heading[2]}</h{rank}>\n")
            block = block[heading.end() :]
        if block.strip() and all(re.match(r"\s*[-*+]\s", line) for line in block.splitlines()):
            items = "".join(f"<li>{line.lstrip(' -*+')}</li>" for line in block.splitlines())
            parts.append(f"<ul>{items}</ul>\n")
        elif block.strip():
            parts.append(f"<p>{block}</p>\n")
    return "".join(parts)


def _title(page: str) -> str | None:
    found = re.search(r"<title[^<>]*>([^<]*)</title", page[:100_000], re.IGNORECASE)
    return " ".join(html.unescape(found[1]).split()) or None if found else None
