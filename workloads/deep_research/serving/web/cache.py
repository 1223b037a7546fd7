"""Answers kept on disk, so that a repeated run asks and pays for nothing twice."""

import asyncio
import contextlib
import hashlib
import json
import os
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args

from harness.protocol.errors import EnvError, SpecError
from workloads.deep_research.serving.web.clock import Clock, SystemClock

CacheMode = Literal["off", "read", "write"]  # read: answers are used, none are added; write: both
MODES: tuple[str, ...] = get_args(CacheMode)
VERSION = 1  # part of the file's name: a newer form starts anew
_KEEP_SHARE = 0.9  # of the size that is left when the oldest answers are thrown away
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY, kind TEXT NOT NULL, stored_s REAL NOT NULL, size INTEGER NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_age ON answers (stored_s);
"""


def default_folder() -> Path:
    """$BENCH_CACHE/web, else agentic-rl-bench/web in $XDG_CACHE_HOME, else in ~/.cache."""
    if named := os.environ.get("BENCH_CACHE"):
        return Path(named).absolute() / "web"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "agentic-rl-bench" / "web"


def search_key(provider: str, query: str, k: int) -> tuple[str, ...]:
    """The key of a provider's answer. White space at the ends and runs of it make no other question."""
    return ("search", provider, " ".join(query.split()), str(k))


def page_key(url: str) -> tuple[str, ...]:
    """The key of a page."""
    return ("page", url.split("#", 1)[0])


class Cache:
    """A SQLite file that several processes may share. Trouble with it costs a look-up, never a call.

    Values are JSON objects. The file is read and written by one thread of the cache's own: a disk that hangs must not
    stop the event loop.
    """

    def __init__(
        self,
        folder: Path,
        *,
        mode: CacheMode = "write",
        max_age_s: float | None = 30 * 86_400,
        max_bytes: int = 1 << 30,
        max_value_bytes: int = 4 << 20,
        clock: Clock | None = None,
    ) -> None:
        """Opens nothing yet.

        Raises:
            SpecError: there is no such mode.
        """
        if mode not in MODES:
            raise SpecError(f"no cache mode {mode!r}: use one of {', '.join(MODES)}")
        self.mode: CacheMode = mode
        self.path = folder / f"answers-v{VERSION}.sqlite"
        self.hits = self.misses = self.stored = self.errors = 0
        self.earlier = 0  # of the hits: answers that were there when it was opened
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._max_value_bytes = max_value_bytes
        self._clock = clock or SystemClock()
        self._opened_s = self._clock.wall()
        self._connection: sqlite3.Connection | None = None
        self._size = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="answers")

    async def open(self) -> None:
        """Makes or opens the file.

        Raises:
            EnvError: it can't be.
        """
        self._opened_s = self._clock.wall()
        if self.mode != "off":
            await self._on_thread(self._open)

    async def get(self, key: tuple[str, ...]) -> dict[str, Any] | None:
        """The answer kept under a key; None if there is none or it is too old."""
        if self.mode == "off":
            return None
        try:
            found: tuple[dict[str, Any], float] | None = await self._on_thread(self._get, key)
        except (sqlite3.Error, ValueError, zlib.error):
            self.errors += 1
            found = None
        if found is None:
            self.misses += 1
            return None
        value, stored_s = found
        self.hits += 1
        self.earlier += stored_s < self._opened_s
        return value

    async def put(self, key: tuple[str, ...], value: dict[str, Any]) -> None:
        """Keeps an answer, if answers are to be added."""
        if self.mode != "write":
            return
        try:
            self.stored += await self._on_thread(self._put, key, value)
        except sqlite3.Error:
            self.errors += 1

    async def close(self) -> None:
        """Closes the file."""
        await self._on_thread(self._close)
        self._thread.shutdown(wait=True)

    def stats(self) -> dict[str, object]:
        """What was asked of it."""
        return {
            "mode": self.mode,
            "hits": self.hits,
            "hits_of_earlier_answers": self.earlier,
            "misses": self.misses,
            "stored": self.stored,
            "errors": self.errors,
        }

    async def _on_thread(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # what was searched for is private
            try:
                self._connection = self._connected()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # busy, full, read-only: the file may be sound
                    raise
                self.path.replace(self.path.with_suffix(".damaged"))
                for ending in ("-wal", "-shm"):
                    with contextlib.suppress(OSError):
                        self.path.with_name(self.path.name + ending).unlink()
                self._connection = self._connected()
        except (sqlite3.Error, OSError) as error:
            raise EnvError(
                f"the cache of web answers {self.path} can't be opened: {error}; "
                "name another folder, or run without a cache"
            ) from error

    def _connected(self) -> sqlite3.Connection:
        if self.mode == "read" and not self.path.exists():
            connection = sqlite3.connect(":memory:", check_same_thread=False)
        else:
            self.path.touch(mode=0o600)
            connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            if self.mode == "write":
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")  # a lost answer is only asked for again
            connection.executescript(_SCHEMA)
            self._size = connection.execute("SELECT coalesce(sum(size), 0) FROM answers").fetchone()[0]
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _get(self, key: tuple[str, ...]) -> tuple[dict[str, Any], float] | None:
        """The answer, and when it was put there (s since 1970)."""
        if self._connection is None:
            return None
        row = self._connection.execute("SELECT stored_s, value FROM answers WHERE key = ?", (_digest(key),)).fetchone()
        if row is None:
            return None
        if self._max_age_s is not None and self._clock.wall() - row[0] > self._max_age_s:
            return None
        value = json.loads(zlib.decompress(row[1]))
        return (value, row[0]) if isinstance(value, dict) else None

    def _put(self, key: tuple[str, ...], value: dict[str, Any]) -> int:
        if self._connection is None:
            return 0
        blob = zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), 3)
        if len(blob) > self._max_value_bytes:
            return 0
        row = (_digest(key), key[0], self._clock.wall(), len(blob), blob)
        self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
        self._size += len(blob)  # a replaced one counts twice until the next count
        if self._size > self._max_bytes:
            self._shrink(self._connection)
        return 1

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Throws away the oldest answers until 90 % of the size is left; frees their pages for new ones."""
        self._size = connection.execute("SELECT coalesce(sum(size), 0) FROM answers").fetchone()[0]
        if self._size <= self._max_bytes:
            return
        excess = self._size - int(self._max_bytes * _KEEP_SHARE)
        gone: list[tuple[bytes]] = []
        for key, size in connection.execute("SELECT key, size FROM answers ORDER BY stored_s"):
            if excess <= 0:
                break
            gone.append((key,))
            excess -= size
            self._size -= size
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("DELETE FROM answers WHERE key = ?", gone)
        finally:
            connection.execute("COMMIT")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _digest(key: tuple[str, ...]) -> bytes:
    return hashlib.sha256(json.dumps(key).encode()).digest()
