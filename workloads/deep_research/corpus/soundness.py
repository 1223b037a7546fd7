"""Whether the pages and the index of a corpus can be read: looked at before a run that would meet what is damaged.

A small file is checked whole. Of a larger one the size, the ends and the middle of each table and a search are: what a
copy that broke off or a disk that lost the file's end leaves is found, a single spoilt page in the midst may not be.
"""

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from workloads.deep_research.corpus.index import Index

WHOLE_BYTES = 48 << 20  # of a file that is checked whole: some tenths of a second
_SIZE_AT, _COUNT_AT = slice(16, 18), slice(28, 32)  # of the file's header: bytes of a page, number of pages


def damage(database: Path, pages: int) -> str | None:
    """What is wrong with a corpus's database of so many pages; None: nothing was found."""
    try:
        size = database.stat().st_size
        if (short := _cut(database, size)) is not None:
            return short
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            if size <= WHOLE_BYTES:
                found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
                if found != "ok":
                    return " ".join(found.split())
            return _read(connection, pages) or _searched(database)
    except OSError as error:
        return f"it can't be read: {error.strerror or error}"
    except (sqlite3.Error, zlib.error, UnicodeDecodeError) as error:
        return f"it can't be read: {error}"


def _cut(database: Path, size: int) -> str | None:
    with database.open("rb") as file:
        head = file.read(100)
    if not head.startswith(b"SQLite format 3\0"):
        return "it is no SQLite file" if head else "it is empty"
    page = int.from_bytes(head[_SIZE_AT], "big")
    expected = (65_536 if page == 1 else page) * int.from_bytes(head[_COUNT_AT], "big")
    return f"it has {size:,} bytes of {expected:,}" if size != expected else None


def _read(connection: sqlite3.Connection, pages: int) -> str | None:
    """The first, the middle and the last page, as they are served and as they are indexed."""
    (count,) = connection.execute("SELECT count(*) FROM names").fetchone()
    if count != pages:
        return f"it has {count:,} pages, and {pages:,} were put there"
    for number in {1, (pages + 1) // 2, pages}:
        rows = [
            connection.execute(f"SELECT {column}, * FROM {table} WHERE id = ?", (number,)).fetchone()
            for table, column in (("pages", "html"), ("texts", "text"), ("names", "url"))
        ]
        if None in rows:
            return f"page {number:,} is not in it"
        served, text, name = rows
        zlib.decompress(served[0])
        zlib.decompress(text[0])
        found = connection.execute("SELECT id FROM pages WHERE url = ?", (name[0],)).fetchone()
        if found != (number,):
            return f"page {number:,} is not found by its address"
    return None


def _searched(database: Path) -> str | None:
    """Every index is asked once, for a word that it has."""
    index = Index(database)
    try:
        _, title, text = next(iter(index.entries()))
        index.search(f"{title} {text[:1_000]}")
    finally:
        index.close()
    return None
