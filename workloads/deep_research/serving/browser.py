"""The browser tool: a page fetched over HTTP, its text and links extracted, as a model reads them."""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from aiohttp.abc import AbstractResolver

from workloads.deep_research.serving.extractors import Extractor
from workloads.deep_research.serving.rendering import (
    LINKS,
    TEXT_CHARACTERS,
    Page,
    failed_observation,
    page_observation,
)
from workloads.deep_research.serving.web.addresses import Endpoint
from workloads.deep_research.serving.web.cache import Cache, page_key
from workloads.deep_research.serving.web.clock import Clock
from workloads.deep_research.serving.web.fetch import Fetcher, FetchError, FetchLimits
from workloads.deep_research.serving.web.flights import Flights
from workloads.deep_research.tools import OK, Observation, ToolRequest

_KEPT = (OK, "empty", "not_found")  # what another try would most likely answer again


class Browser:
    """Opens urls. Never raises for what the web does: an observation says what went wrong.

    For a web on this machine, `mapped` has endings of host names and where all hosts under them are served, and
    `only_mapped` keeps the browser off the rest: `Browser(mapped={".test": ("127.0.0.1", port)}, only_mapped=True)`.
    That very endpoint may then be connected to, and no other private address. The page keeps its own url, so that
    text and links are the same on every machine and port.
    """

    def __init__(
        self,
        *,
        mapped: Mapping[str, Endpoint] | None = None,
        only_mapped: bool = False,
        allow_private: bool = False,
        limits: FetchLimits | None = None,
        cache: Cache | None = None,
        extractor: Extractor | None = None,
        characters: int = TEXT_CHARACTERS,
        links: int = LINKS,
        resolver: AbstractResolver | None = None,
        clock: Clock | None = None,
        draw: Random | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            mapped: ending of a host name -> (address, port) where hosts under it are served over plain HTTP.
            only_mapped: nothing else may be opened.
            allow_private: private, loopback and link-local addresses may be connected to.
            limits: of bytes, time and redirects; whether robots.txt is obeyed.
            cache: answers of earlier runs; opened and closed by whoever made it.
            extractor: processes to share; default: the browser's own.
            characters: of a page's text that are shown. links: of a page that are listed.
            resolver: answers for host names; default the system's. clock, draw: for tests.
        """
        self._fetcher_arguments: dict[str, Any] = {
            "mapped": mapped,
            "only_mapped": only_mapped,
            "allow_private": allow_private,
            "limits": limits,
            "resolver": resolver,
            "clock": clock,
            "draw": draw,
        }
        self._fetcher: Fetcher | None = None
        self._cache = cache
        # A page of a private address must not come out of the cache where such pages may not be opened.
        self._key_suffix = ("private",) if allow_private else ()
        self._extractor = extractor or Extractor()
        self._own_extractor = extractor is None
        self._characters = characters
        self._links = links
        self._flights: Flights[tuple[dict[str, Any], int | None]] = Flights()
        self._calls: Counter[str] = Counter()
        self._wire_bytes = 0
        self._open = 0

    async def start(self) -> None:
        """Starts the extracting processes, so that the first calls don't wait for them."""
        if self._own_extractor:
            await self._extractor.start()

    async def call(self, request: ToolRequest) -> Observation:
        """The page at `request.argument`."""
        self._open += 1
        try:
            observation = await self._observe(request.argument.strip())
        except Exception as error:  # a fault of ours must not end a trajectory; the status tells
            detail = f"{type(error).__name__} in the browser"
            observation = failed_observation(f"Opening {request.argument}", "error", detail)
        finally:
            self._open -= 1
        self._calls[observation.status] += 1
        return observation

    async def close(self) -> None:
        """Ends connections and processes."""
        await self._flights.close()
        if self._fetcher is not None:
            await self._fetcher.close()
        if self._own_extractor:
            await self._extractor.close()

    def stats(self) -> Mapping[str, object]:
        """Counters since the start."""
        return {
            "calls": dict(self._calls),
            "open": self._open,
            "open_connections": self._fetcher.open_connections() if self._fetcher is not None else 0,
            "wire_bytes": self._wire_bytes,
            "extracting": self._extractor.waiting,
            "extractors": self._extractor.processes,
            "extractors_replaced": self._extractor.replaced,
            "shared": self._flights.shared,
        }

    async def _observe(self, url: str) -> Observation:
        if not url:
            return failed_observation("Opening a page", "error", "the url is empty")
        if self._cache is None or self._cache.mode == "off":
            record, size = await self._load(url)
            return self._shown(url, record, size)
        key = page_key(url) + self._key_suffix
        kept = await self._cache.get(key)
        if kept is not None and (observation := self._shown_if_sound(url, kept)) is not None:
            return observation
        cache = self._cache

        async def load() -> tuple[dict[str, Any], int | None]:
            record, size = await self._load(url)
            if record["status"] in _KEPT:
                await cache.put(key, record)
            return record, size

        record, size = await self._flights.join(key, load)
        return self._shown(url, record, size)

    async def _load(self, url: str) -> tuple[dict[str, Any], int | None]:
        """What is kept of a page, and how many bytes it took."""
        if self._fetcher is None:
            self._fetcher = Fetcher(**self._fetcher_arguments)
        try:
            fetched = await self._fetcher.fetch(url)
        except FetchError as error:
            return {"status": error.status, "detail": error.detail, "http_status": error.http_status}, None
        self._wire_bytes += fetched.wire_bytes
        record: dict[str, Any] = {"status": OK, "detail": None, "http_status": fetched.http_status}
        if fetched.cut:
            record["detail"] = f"only the first {len(fetched.data)} bytes were read"
        result = await self._extractor.extract(fetched.data, fetched.content_type, fetched.charset, fetched.url)
        if result.page is None:
            record.update(status="timeout" if result.late else "error", detail=result.error)
        else:
            page = result.page
            record["detail"] = record["detail"] or result.note
            record.update(title=page.title, url=page.url, text=page.text, links=[list(link) for link in page.links])
        return record, fetched.wire_bytes

    def _shown(self, url: str, record: dict[str, Any], size: int | None) -> Observation:
        http_status = record.get("http_status")
        if record["status"] != OK:
            detail = record.get("detail") or record["status"]
            return failed_observation(f"Opening {url}", record["status"], detail, http_status=http_status, size=size)
        page = Page(
            title=record["title"],
            url=record["url"],
            text=record["text"],
            links=tuple((text, target) for text, target in record["links"]),
        )
        return page_observation(
            page,
            characters=self._characters,
            links=self._links,
            http_status=http_status,
            size=size,
            detail=record.get("detail"),
        )

    def _shown_if_sound(self, url: str, record: dict[str, Any]) -> Observation | None:
        """A kept page; None if the record is not what this version writes."""
        try:
            return self._shown(url, record, None)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
