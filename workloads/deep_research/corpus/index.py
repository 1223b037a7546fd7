"""The pages and their full-text index in one SQLite file: written once, then read by any number of processes.

Ranking is FTS5's BM25 (k1 = 1.2, b = 0.75) with a word in the title counting as TITLE_WEIGHT in the text. The words of
a query are alternatives, and FTS5 scores every page that has one of them, so a query takes as long as there are such
pages. Their number is held below POSTINGS: rare words are taken first, and those too common beside them are left out,
as engines leave out stop words, only by what this corpus has and not by a list. A query of common words alone, or whose
rare words are on no page, is answered from the first HEAD pages, which have a small index of their own.

Among the best of these, and pages with one of the words in their title that few titles have, titles decide: a word that
was left out counts where a title has it, and a title counts once more that the query has in full ("Hal Bridge" comes
before "Old Hal Bridge" where the first is asked for).
"""

import math
import re
import sqlite3
import threading
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TITLE_WEIGHT = 4.0
POSTINGS = 600  # pages scored for one query
HEAD = 2_000  # pages of the small index
MOST_TERMS = 24  # words of a query that count
_MOST_CHARACTERS = 10_000  # of a query that are looked at
_LONGEST_TERM = 64
_SNIPPET = 240  # characters
_SNIPPET_BYTES = 6_000  # of a text, from its start, in which a snippet is looked for
_CANDIDATES = 30  # of the best, at least, among which titles decide
_NAMED = 100  # pages more, at most, that have a word in their title that few titles have
_LEFT_OUT = 1.5  # of a left-out word's inverse document frequency, for a title that has it
_WHOLE_TITLE = 1.0  # of the same of each word of a title, where the query has them all
_COMMON = 50  # a word on more pages than this is listed with its number of pages

_SCHEMA = """
CREATE TABLE pages(
    id INTEGER PRIMARY KEY, url TEXT NOT NULL, title TEXT NOT NULL, content_type TEXT NOT NULL, html BLOB NOT NULL);
CREATE TABLE names(id INTEGER PRIMARY KEY, url TEXT NOT NULL, title TEXT NOT NULL, terms TEXT NOT NULL);
CREATE TABLE texts(id INTEGER PRIMARY KEY, text BLOB NOT NULL);
CREATE TABLE common(term TEXT PRIMARY KEY, pages INTEGER NOT NULL, titles INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5(title, body, content='', tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE titles USING fts5(title, content='', tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE head USING fts5(title, body, content='', tokenize='unicode61 remove_diacritics 2');
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result; a higher score is better."""

    title: str
    url: str
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it is served."""

    url: str
    title: str
    html: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One page on its way into the index; `html` and `text` (UTF-8) are compressed with zlib."""

    url: str
    title: str
    content_type: str
    html: bytes
    text: bytes


def entry(*, url: str, title: str, content_type: str, html: bytes, text: str) -> Entry:
    """A page made ready for the index: compressing here lets several processes do it."""
    return Entry(url, title, content_type, zlib.compress(html, 1), zlib.compress(text.encode(errors="replace"), 1))


_Found = tuple[int, float, str, str, str]  # id, score, title, url, the title's words


class IndexWriter:
    """Fills a new file. Used once, by one process; the file is whole after `finish`."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        # Nobody reads the file before it is whole and a kill means building again: no journal, no waiting for the disk.
        self._db.executescript("PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _SCHEMA)
        self._db.execute("INSERT INTO search(search, rank) VALUES('hashsize', ?)", (64 << 20,))
        self._db.execute("BEGIN")
        self.pages = 0

    def add(self, entries: Sequence[Entry]) -> None:
        """Appends pages in the order given."""
        if not entries:
            return
        ids = range(self.pages + 1, self.pages + 1 + len(entries))
        self.pages += len(entries)
        rows = list(zip(ids, entries, strict=True))
        self._db.executemany(
            "INSERT INTO pages VALUES(?,?,?,?,?)", ((i, e.url, e.title, e.content_type, e.html) for i, e in rows)
        )
        self._db.executemany(
            "INSERT INTO names VALUES(?,?,?,?)", ((i, e.url, e.title, " ".join(terms(e.title))) for i, e in rows)
        )
        self._db.executemany("INSERT INTO texts VALUES(?,?)", ((i, e.text) for i, e in rows))
        texts = [(i, e.title, zlib.decompress(e.text).decode()) for i, e in rows]
        self._db.executemany("INSERT INTO search(rowid, title, body) VALUES(?,?,?)", texts)
        self._db.executemany("INSERT INTO titles(rowid, title) VALUES(?,?)", ((i, e.title) for i, e in rows))
        if ids[0] <= HEAD:
            first = [row for row in texts if row[0] <= HEAD]
            self._db.executemany("INSERT INTO head(rowid, title, body) VALUES(?,?,?)", first)

    def duplicate(self) -> str | None:
        """An address that more than one page has, if there is one."""
        found = self._db.execute("SELECT url FROM pages GROUP BY url HAVING count(*) > 1 LIMIT 1").fetchone()
        return None if found is None else str(found[0])

    def finish(self) -> None:
        """Merges the index, counts the common words and closes the file; addresses are different (see `duplicate`)."""
        db = self._db
        db.execute("COMMIT")
        db.execute("CREATE UNIQUE INDEX pages_url ON pages(url)")
        db.execute("INSERT INTO search(search) VALUES('optimize')")
        db.execute("INSERT INTO head(head) VALUES('optimize')")
        db.execute("INSERT INTO titles(titles) VALUES('optimize')")
        for table in ("search", "titles"):
            db.execute(f"CREATE VIRTUAL TABLE temp.in_{table} USING fts5vocab('main', '{table}', 'row')")
        db.execute("CREATE TEMP TABLE named AS SELECT term, doc FROM temp.in_titles")
        db.execute("CREATE UNIQUE INDEX temp.named_term ON named(term)")
        db.execute(
            "INSERT INTO common SELECT term, found.doc, coalesce(named.doc, 0) "
            "FROM temp.in_search AS found LEFT JOIN temp.named USING (term) WHERE found.doc > ?",
            (_COMMON,),
        )
        self.close()

    def close(self) -> None:
        """Closes the file, whole or not."""
        self._db.close()


_TERM = re.compile(r"[^\W_]+")


def terms(query: str) -> list[str]:
    """The different words of a query, as the index has them, in the order of the query; never an operator of FTS5."""
    plain = unicodedata.normalize("NFKD", query[:_MOST_CHARACTERS])
    plain = "".join(c for c in plain if not unicodedata.combining(c)).lower()
    return list(dict.fromkeys(term[:_LONGEST_TERM] for term in _TERM.findall(plain)))


class Index:
    """A finished file, read-only; may be used from several threads (each has a connection of its own)."""

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        common = list(self._connection().execute("SELECT term, pages, titles FROM common"))
        self._common = {term: pages for term, pages, _ in common}
        self._titles = {term: titles for term, _, titles in common}
        self.pages = int(self._connection().execute("SELECT count(*) FROM names").fetchone()[0])

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
            connection.execute("PRAGMA mmap_size=17179869184")
            connection.execute("PRAGMA cache_size=-16384")
            self._local.connection = connection
            with self._lock:
                self._open.append(connection)
        return connection

    def close(self) -> None:
        """Closes the connections of all threads."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    def choose(self, query: str) -> tuple[list[str], list[str]]:
        """The words of a query in two lists, each rarest first: those that find pages, and those too common for it."""
        known = sorted((self._common.get(term, _COMMON), term) for term in terms(query)[: 4 * MOST_TERMS])
        chosen: list[str] = []
        left: list[str] = []
        spent = 0
        for count, term in known[:MOST_TERMS]:
            spent += count
            (chosen if spent <= POSTINGS else left).append(term)
        return chosen, left

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` pages for any text at all, best first; none where no word of it is on a page."""
        if k < 1:
            return []
        chosen, left = self.choose(query)
        candidates = max(3 * k, _CANDIDATES)
        found = self._match("search", chosen, candidates) if chosen else []
        if not found and left:
            chosen, left = left[:4], left[4:]
            found = self._match("head", chosen, candidates)
        found += self._named(chosen, left, found)
        found = self._by_title(found, set(terms(query)), left)[:k]
        texts = self._texts([found_id for found_id, *_ in found])
        return [Hit(title, url, snippet(texts[i], chosen + left), score) for i, score, title, url, _ in found]

    def _match(self, table: str, wanted: Sequence[str], k: int) -> list[_Found]:
        """The best `k` pages with any of the words."""
        expression = " OR ".join(f'"{term}"' for term in wanted)
        rows = self._connection().execute(
            "SELECT names.id, -best.score, names.title, names.url, names.terms FROM "
            f"(SELECT rowid AS id, bm25({table}, {TITLE_WEIGHT}, 1.0) AS score FROM {table} WHERE {table} MATCH ? "
            "ORDER BY score LIMIT ?) AS best JOIN names ON names.id = best.id ORDER BY best.score, best.id",
            (expression, k),
        )
        return list(rows)

    def _named(self, chosen: Sequence[str], left: Sequence[str], found: Sequence[_Found]) -> list[_Found]:
        """More pages: with a word of the query in their title that few titles have.

        Those with a chosen word have the score of the last one found: with a better one they were among them.
        """
        telling = sorted((self._titles.get(term, 1), term) for term in (*chosen, *left))
        telling = [(count, term) for count, term in telling if 0 < count <= _NAMED][:3]
        if not telling:
            return []
        rows = self._connection().execute(
            "SELECT names.id, names.title, names.url, names.terms FROM "
            "(SELECT rowid AS id FROM titles WHERE titles MATCH ? LIMIT ?) AS named JOIN names ON names.id = named.id",
            (" OR ".join(f'"{term}"' for _, term in telling), _NAMED),
        )
        have = {row[0] for row in found}
        score = min((row[1] for row in found), default=0.0)
        by_chosen = set(chosen)
        return [
            (i, 0.0 if by_chosen.isdisjoint(has.split()) else score, title, url, has)
            for i, title, url, has in rows
            if i not in have
        ]

    def _by_title(self, found: list[_Found], asked: set[str], left: Sequence[str]) -> list[_Found]:
        """The same in the order of their scores with what their titles add."""
        worth = {term: _LEFT_OUT * self._rarity(term) for term in left}
        scored = []
        for found_id, score, title, url, words in found:
            has = words.split()
            score += sum(worth.get(term, 0.0) for term in has)
            if asked.issuperset(has):
                score += _WHOLE_TITLE * sum(map(self._rarity, has))
            scored.append((found_id, score, title, url, words))
        return sorted(scored, key=lambda row: (-row[1], row[0]))

    def _rarity(self, term: str) -> float:
        """The word's inverse document frequency, on n of N pages: ln(1 + (N - n + 0.5) / (n + 0.5))."""
        pages = self._common.get(term, min(_COMMON, self.pages))
        return math.log1p((self.pages - pages + 0.5) / (pages + 0.5))

    def _texts(self, ids: Sequence[int]) -> dict[int, str]:
        marks = ",".join("?" * len(ids))
        rows = self._connection().execute(f"SELECT id, text FROM texts WHERE id IN ({marks})", ids)
        return {
            found: zlib.decompressobj().decompress(text, _SNIPPET_BYTES).decode(errors="ignore") for found, text in rows
        }

    def page(self, url: str) -> Page | None:
        """The page at an address, or None."""
        found = (
            self._connection()
            .execute("SELECT url, title, html, content_type FROM pages WHERE url = ?", (url,))
            .fetchone()
        )
        return None if found is None else Page(found[0], found[1], zlib.decompress(found[2]), found[3])

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """(url, title, text) of all pages, in order."""
        for url, title, text in self._connection().execute(
            "SELECT url, title, text FROM names JOIN texts USING (id) ORDER BY id"
        ):
            yield url, title, zlib.decompress(text).decode()


def snippet(text: str, wanted: Sequence[str], size: int = _SNIPPET) -> str:
    """About `size` characters of `text`, around the first of the wanted words that it has (rarest first)."""
    plain = text.lower()
    at = next((place for place in (plain.find(term) for term in wanted) if place >= 0), 0)
    start = max(at - size // 3, 0)
    if start:
        start = text.find(" ", start, at) + 1 or at
    end = start + size
    if end < len(text):
        end = max(text.rfind(" ", start + size // 2, end), start + size // 2)
    cut = " ".join(text[start:end].split())
    return ("… " if start else "") + cut + (" …" if end < len(text) else "")
