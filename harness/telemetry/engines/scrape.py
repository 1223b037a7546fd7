"""One engine's endpoint: a kept connection, and one timed call at a time."""

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from harness.telemetry.engines.exposition import NAMES, ExpositionError, Reading, parse

TIMEOUT_S = 5.0
_MOST_BYTES = 16 << 20  # an endpoint that sends more is not an engine's


class ScrapeError(Exception):
    """An engine did not give its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One call. `reading` None: it failed, and `reason` says how."""

    mono_ns: int  # middle of the call
    uncertainty_ns: int  # half its duration: the numbers are of some moment in it
    reading: Reading | None
    reason: str | None
    size_bytes: int


class Endpoint:
    """The metrics page of one engine. Not thread-safe: one thread per engine."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        """`url` is that of the page, e.g. `http://10.0.0.1:8000/metrics`.

        Raises:
            ScrapeError: it is no http address.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ScrapeError(f"{url}: {error}") from None
        if parts.scheme != "http" or not parts.hostname:
            raise ScrapeError(f"{url}: not an http:// address")
        self.url = url
        self._host, self._port, self._timeout_s = parts.hostname, port or 80, timeout_s
        self._page = parts.path or "/metrics"
        self._path: str | None = None  # settled with the first answer
        self._connection: http.client.HTTPConnection | None = None

    def scrape(self) -> Scrape:
        """Asks once; a failure is an answer too."""
        begin = time.monotonic_ns()
        end: int | None = None
        body = b""
        try:
            if self._path is None:
                self._path = self._settle()
                begin = time.monotonic_ns()
            body = self._get(self._path)
            end = time.monotonic_ns()
            reading, reason = parse(body.decode("utf-8", "replace")), None
        except (OSError, http.client.HTTPException, ScrapeError, ExpositionError) as error:
            self.close()
            reading, reason = None, f"{type(error).__name__}: {error}"[:300]
        end = time.monotonic_ns() if end is None else end
        return Scrape(
            mono_ns=(begin + end) // 2,
            uncertainty_ns=(end - begin + 1) // 2,
            reading=reading,
            reason=reason,
            size_bytes=len(body),
        )

    def close(self) -> None:
        """Gives the connection up; the next call makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _settle(self) -> str:
        """The path that gives all readings with the least text.

        prometheus_client's own page takes the names that are wanted, and then skips the histograms, which are most of
        the text and of the server's work. vLLM serves it beside another that knows no names, under the trailing slash.
        """
        whole = parse(self._get(self._page).decode("utf-8", "replace"))
        for path in self._short_paths(whole.family):
            try:
                short = parse(self._get(path).decode("utf-8", "replace"))
            except (ScrapeError, ExpositionError):
                continue  # it takes no names, or names too strictly
            if short.family == whole.family and short.missing.keys() == whole.missing.keys():
                return path
        return self._page

    def _short_paths(self, family: str) -> Iterator[str]:
        names = [name for each in NAMES.values() for name in each if name.startswith(f"{family}:")]
        query = "&".join(f"name%5B%5D={quote(name)}" for name in names)
        for page in (self._page.rstrip("/") + "/", self._page):
            yield f"{page}?{query}"

    def _get(self, path: str) -> bytes:
        kept = self._connection is not None
        try:
            return self._ask(path)
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if not kept:
                raise
        return self._ask(path)  # servers close idle connections; a new one tells whether it is still there

    def _ask(self, path: str) -> bytes:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        self._connection.request("GET", path, headers={"Accept": "text/plain"})
        answer = self._connection.getresponse()
        body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise ScrapeError(f"{path}: more than {_MOST_BYTES:,} bytes")
        if answer.status != 200:
            raise ScrapeError(f"{path.partition('?')[0]}: HTTP {answer.status} {answer.reason}")
        return body
