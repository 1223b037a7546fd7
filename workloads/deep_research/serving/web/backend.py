"""`--tools web`: search by providers and pages from the web behind one `call`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from workloads.deep_research.serving.browser import Browser
from workloads.deep_research.serving.rendering import failed_observation
from workloads.deep_research.serving.web.cache import Cache, CacheMode, default_folder
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.serving.web.limiter import Rate
from workloads.deep_research.serving.web.providers import Provider, chosen
from workloads.deep_research.serving.web.search import Searcher, SearchLimits
from workloads.deep_research.tools import Observation, ToolRequest


class WebTools:
    """The two tools over the real web. Whoever makes it calls `start` before the first call and `close` at the end."""

    def __init__(self, searcher: Searcher, browser: Browser, cache: Cache | None = None) -> None:
        """Takes over its parts: `close` closes them."""
        self._searcher = searcher
        self._browser = browser
        self._cache = cache

    async def start(self) -> None:
        """Opens the cache and starts the extracting processes.

        Raises:
            EnvError: the cache can't be opened.
        """
        if self._cache is not None:
            await self._cache.open()
        await self._browser.start()

    async def call(self, request: ToolRequest) -> Observation:
        """The tool's answer."""
        if request.tool == "search_engine":
            return await self._searcher.call(request)
        if request.tool == "web_browser":
            return await self._browser.call(request)
        return failed_observation(f"Calling {request.tool}", "error", "there is no such tool")

    async def close(self) -> None:
        """Ends connections and processes, closes the cache."""
        await self._searcher.close()
        await self._browser.close()
        if self._cache is not None:
            await self._cache.close()

    def stats(self) -> Mapping[str, object]:
        """Counters since the start."""
        cache = self._cache.stats() if self._cache is not None else {"mode": "off"}
        return {"search": self._searcher.stats(), "browser": self._browser.stats(), "cache": cache}


def web_tools(
    names: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    cache: CacheMode = "write",
    cache_folder: Path | None = None,
    search: SearchLimits | None = None,
    fetch: FetchLimits | None = None,
    rates: Mapping[str, Rate] | None = None,
    allow_private: bool = False,
) -> WebTools:
    """The tools of `--tools web[:names]`, not yet started.

    Args:
        names: search providers in the order of preference; without any, all whose key is set.
        environ: where keys are; default: the process's environment.
        cache: whether answers are kept and used. cache_folder: default: the user's cache folder.
        search, fetch: limits. rates: by provider, in place of the provider's own.
        allow_private: pages may come from private addresses.

    Raises:
        SpecError: an unknown provider, or a key that is missing.
        EnvError: the libraries that this needs are not installed.
    """
    providers: tuple[Provider, ...] = chosen(names, environ)
    kept = Cache(cache_folder or default_folder(), mode=cache) if cache != "off" else None
    return WebTools(
        Searcher(providers, limits=search, rates=rates, cache=kept),
        Browser(limits=fetch, cache=kept, allow_private=allow_private),
        kept,
    )
