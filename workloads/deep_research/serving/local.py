"""`--tools local`: a search engine and a web on this machine, both over real HTTP from a port of their own."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from workloads.deep_research.presets import SEARCH
from workloads.deep_research.serving.app import listen
from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.local_faults import LocalFaults, spoiled
from workloads.deep_research.serving.rendering import Hit, HitLike, failed_observation, search_observation
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.tools import Observation, ToolRequest

T = TypeVar("T")

RESULTS = 10
MOST_RESULTS = 100
QUERY_CHARACTERS = 2_000
SEARCH_S = 20.0  # a search's limit
_JSON = "application/json"


class PageLike(Protocol):
    """A page as it is served."""

    @property
    def html(self) -> bytes:
        """Its bytes."""

    @property
    def content_type(self) -> str:
        """With its charset where it has one."""


class CorpusLike(Protocol):
    """What the local web is made of; called from several threads at a time."""

    def search(self, query: str, k: int) -> Sequence[HitLike]:
        """The best `k` pages, best first."""

    def page(self, url: str) -> PageLike | None:
        """The page at an address."""

    def close(self) -> None:
        """Closes what is open."""


class LocalWeb:
    """Serves a corpus: `/search?q=&k=` under its own address, pages under the names that they have.

    SQLite and decompression run in threads, so that the loop never waits for them.
    """

    def __init__(self, corpus: CorpusLike, *, faults: LocalFaults | None = None, threads: int | None = None) -> None:
        """`threads`: that read the corpus; default: one per core, at most 8."""
        self.corpus = corpus
        self.faults = faults or LocalFaults()
        self.requests: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(threads or min(8, os.cpu_count() or 2), thread_name_prefix="corpus")
        app = web.Application()
        app.add_routes([web.get("/{path:.*}", self._answer)])
        # Whoever went away has no use for the rest of a page that drips, or of an answer that never comes.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, keepalive_timeout=30.0, shutdown_timeout=0.5
        )
        self.url = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Opens the port; 0: any that is free.

        Raises:
            EnvError: the address can't be used.
        """
        await self._runner.setup()
        self.url = await listen(self._runner, host, port)

    @property
    def endpoint(self) -> tuple[str, int]:
        """(address, port) once it is started."""
        bound = self._runner.addresses[0]
        return str(bound[0]), int(bound[1])

    async def close(self) -> None:
        """Ends connections and threads, closes the corpus."""
        await self._runner.cleanup()
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        self.corpus.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if f"http://{request.host}" == self.url:
            return await self._search(request)
        return await self._page(request)

    async def _search(self, request: web.Request) -> web.StreamResponse:
        self.requests["search"] += 1
        query = request.query.get("q", "").strip()
        if request.path != "/search" or not query:
            return web.json_response({"error": "this is no search: GET /search?q=WORDS&k=NUMBER"}, status=400)
        try:
            most = max(1, min(int(request.query.get("k", RESULTS)), MOST_RESULTS))
        except ValueError:
            return web.json_response({"error": "k is not a whole number"}, status=400)
        hits = await self._in_thread(lambda: self.corpus.search(query[:QUERY_CHARACTERS], most))
        found = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet} for hit in hits]
        response = web.json_response({"results": found})
        if (kind := self.faults.draw()) is not None:
            assert isinstance(response.body, bytes)
            return await spoiled(request, kind, response.body, _JSON, b'{"results": []}')
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self.requests["page"] += 1
        page = await self._in_thread(lambda: self._find(request.host, request.raw_path))
        if page is None:
            return web.Response(status=404, text="no such page")
        if (kind := self.faults.draw()) is not None:
            return await spoiled(request, kind, page.html, page.content_type, b"<html><body></body></html>")
        return web.Response(body=page.html, headers={"Content-Type": page.content_type})

    def _find(self, host: str, raw_path: str) -> PageLike | None:
        """The page, whichever of its spellings is asked for."""
        for path in dict.fromkeys((raw_path, unquote(raw_path))):
            for scheme in ("http", "https"):
                if (page := self.corpus.page(f"{scheme}://{host}{path}")) is not None:
                    return page
        return None

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


class LocalTools:
    """The two tools over a local web that they bring with them."""

    def __init__(self, corpus: CorpusLike, *, faults: LocalFaults | None = None, search_s: float = SEARCH_S) -> None:
        """Opens nothing yet. `search_s`: how long a search is waited for."""
        self.web = LocalWeb(corpus, faults=faults)
        self._search_s = search_s
        self._browser: Browser | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Opens the web's port and starts what the browser needs.

        Raises:
            EnvError: no port is free.
        """
        await self.web.start()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=256, keepalive_timeout=20.0),
            timeout=aiohttp.ClientTimeout(total=self._search_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._browser = Browser(
            mapped={"": self.web.endpoint},  # every name there is: a corpus may hold pages of anywhere
            only_mapped=True,
            limits=FetchLimits(robots=False, host_concurrency=256),
        )
        await self._browser.start()

    async def call(self, request: ToolRequest) -> Observation:
        """The tool's answer."""
        assert self._browser is not None
        if request.tool == SEARCH:
            return await self._search(request.argument.strip())
        return await self._browser.call(request)

    async def close(self) -> None:
        """Ends connections, threads and processes."""
        if self._browser is not None:
            await self._browser.close()
        if self._session is not None:
            await self._session.close()
        await self.web.close()

    def stats(self) -> Mapping[str, object]:
        """Counters since the start."""
        return {
            "requests": dict(self.web.requests),
            "planted": dict(self.web.faults.planted),
            "browser": self._browser.stats() if self._browser is not None else {},
        }

    async def _search(self, query: str) -> Observation:
        assert self._session is not None
        if not query:
            return failed_observation("Searching", "error", "the query is empty")
        parameters = {"q": query[:QUERY_CHARACTERS], "k": str(RESULTS)}
        try:
            async with self._session.get(
                f"{self.web.url}/search", params=parameters, allow_redirects=False
            ) as response:
                data = await response.read()
                status = response.status
            if status != 200:
                outcome = "refused" if status in (403, 429) else "error"
                return failed_observation("Searching", outcome, f"HTTP {status}", http_status=status, size=len(data))
            found = json.loads(data)["results"]
            hits = [Hit(title=hit["title"], url=hit["url"], snippet=hit["snippet"]) for hit in found]
        except TimeoutError:
            return failed_observation("Searching", "timeout", f"no answer within {self._search_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return failed_observation("Searching", "error", f"the connection broke: {type(error).__name__}")
        except (ValueError, KeyError, TypeError):
            detail = "the answer is not what a search gives"
            return failed_observation("Searching", "error", detail, http_status=status, size=len(data))
        return search_observation(query, hits, http_status=status, size=len(data))
