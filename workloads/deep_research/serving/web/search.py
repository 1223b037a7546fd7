"""The search tool over providers: from the cache first, then in the order of preference, at their pace."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp

from workloads.deep_research.serving.rendering import Hit, failed_observation, one_line, search_observation
from workloads.deep_research.serving.web.cache import Cache, search_key
from workloads.deep_research.serving.web.clock import Clock, SystemClock
from workloads.deep_research.serving.web.flights import Flights
from workloads.deep_research.serving.web.limiter import LimitedError, Limiter, Rate
from workloads.deep_research.serving.web.providers import Provider, ProviderAnswer, ProviderError, Scrubber
from workloads.deep_research.serving.web.retry import Breaker, RetryPolicy
from workloads.deep_research.tools import Observation, ToolRequest

_MOST_CHARACTERS = 2_000  # of a query; what a model repeats without end is no question


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """How many results, and how long they are waited for."""

    results: int = 10
    attempt_s: float = 15.0  # one request
    total_s: float = 60.0  # all requests, pauses and turns at all providers
    retry: RetryPolicy = field(default=RetryPolicy())
    breaker_failures: int = 5  # in a row, after which a provider is left alone
    breaker_rest_s: float = 30.0
    refused_rest_s: float = 600.0  # after it did not accept the key, or nothing was left of what was paid for


@dataclass(slots=True)
class _Line:
    """A provider with what goes with it."""

    provider: Provider
    limiter: Limiter
    breaker: Breaker
    requests: Counter[str] = field(default_factory=Counter)  # by how they ended
    credits: float | None = None  # None until the provider names a cost
    wire_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a provider gave nothing."""

    kind: str  # again | key | quota | request | timeout | limited | resting | broken
    text: str
    http_status: int | None = None


class Searcher:
    """Asks providers. Never raises for what they do: an observation says what went wrong, without keys."""

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        limits: SearchLimits | None = None,
        rates: Mapping[str, Rate] | None = None,
        cache: Cache | None = None,
        trust_env: bool = True,
        clock: Clock | None = None,
        draw: Random | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            providers: in the order in which they are asked; the next one only when one has no answer.
            rates: by name, in place of the provider's own.
            cache: answers of earlier runs; opened and closed by whoever made it.
            trust_env: whether HTTPS_PROXY and its like are used.
            clock, draw: for tests.
        """
        self._limits = limits or SearchLimits()
        self._clock = clock or SystemClock()
        self._draw = draw or Random()
        self._cache = cache
        self._trust_env = trust_env
        self._scrub = Scrubber([secret for provider in providers for secret in provider.secrets()])
        self._lines = tuple(
            _Line(
                provider,
                Limiter((rates or {}).get(provider.name, provider.rate), self._clock),
                Breaker(self._clock, failures=self._limits.breaker_failures, rest_s=self._limits.breaker_rest_s),
            )
            for provider in providers
        )
        self._session: aiohttp.ClientSession | None = None
        self._flights: Flights[Observation] = Flights()
        self._calls: Counter[str] = Counter()

    async def call(self, request: ToolRequest) -> Observation:
        """The results for `request.argument`."""
        query = " ".join(request.argument.split())
        try:
            observation = await self._observe(query)
        except Exception as error:  # a fault of ours must not end a trajectory; the status tells
            observation = failed_observation("Searching", "error", f"{type(error).__name__} in the search")
        self._calls[observation.status] += 1
        return observation

    async def close(self) -> None:
        """Ends what is under way."""
        await self._flights.close()
        if self._session is not None:
            await self._session.close()

    def stats(self) -> Mapping[str, object]:
        """Counters since the start; `credits` as the providers count them, None where they don't say."""
        return {
            "calls": dict(self._calls),
            "shared": self._flights.shared,
            "providers": {
                line.provider.name: {
                    "requests": dict(line.requests),
                    "credits": line.credits,
                    "wire_bytes": line.wire_bytes,
                    "rests": line.breaker.trips,
                }
                for line in self._lines
            },
        }

    async def _observe(self, query: str) -> Observation:
        if not query:
            return failed_observation("Searching", "error", "the query is empty")
        if len(query) > _MOST_CHARACTERS:
            return failed_observation("Searching", "error", f"the query has more than {_MOST_CHARACTERS} characters")
        if self._cache is None or self._cache.mode == "off":
            return await self._ask_all(query)
        for line in self._lines:
            kept = await self._cache.get(search_key(line.provider.name, query, self._limits.results))
            if kept is not None and (hits := _hits_kept(kept)) is not None:
                return search_observation(query, hits)
        return await self._flights.join(query, lambda: self._ask_all(query))

    async def _ask_all(self, query: str) -> Observation:
        until = self._clock.monotonic() + self._limits.total_s
        failures: list[tuple[str, _Failure]] = []
        for line in self._lines:
            result = await self._ask(line, query, until)
            if isinstance(result, ProviderAnswer):
                return await self._answered(line, query, result)
            failures.append((line.provider.name, result))
        return self._failed(failures)

    async def _answered(self, line: _Line, query: str, answer: ProviderAnswer) -> Observation:
        if answer.credits is not None:
            line.credits = (line.credits or 0.0) + answer.credits
        line.wire_bytes += answer.size or 0
        hits = tuple(
            Hit(title=self._scrub(hit.title), url=self._scrub(hit.url), snippet=self._scrub(hit.snippet))
            for hit in answer.hits[: self._limits.results]
        )
        if self._cache is not None:
            key = search_key(line.provider.name, query, self._limits.results)
            await self._cache.put(key, {"hits": [[hit.title, hit.url, hit.snippet] for hit in hits]})
        return search_observation(query, hits, http_status=answer.http_status, size=answer.size)

    def _failed(self, failures: list[tuple[str, _Failure]]) -> Observation:
        kinds = {failure.kind for _, failure in failures}
        if kinds <= {"timeout", "limited"}:
            status = "timeout"
        elif kinds <= {"key", "quota", "resting"} or {failure.http_status for _, failure in failures} == {429}:
            status = "refused"
        else:
            status = "error"
        detail = "; ".join(f"{name}: {failure.text}" for name, failure in failures) or "there is no provider"
        return failed_observation("Searching", status, self._scrub(detail), http_status=failures[-1][1].http_status)

    async def _ask(self, line: _Line, query: str, until: float) -> ProviderAnswer | _Failure:
        """One provider, as often as patience has it."""
        attempt = 0
        while True:
            if not line.breaker.admits():
                return _Failure("resting", f"resting after: {line.breaker.reason}")
            try:
                result, retry_after = await self._attempt(line, query, until)
            except BaseException:
                line.breaker.left()
                raise
            line.requests["ok" if isinstance(result, ProviderAnswer) else result.kind] += 1
            if isinstance(result, ProviderAnswer):
                line.breaker.succeeded()
                if result.pause_s:
                    line.limiter.hold(result.pause_s)
                return result
            again = self._judge(line, result, retry_after)
            wait = self._limits.retry.wait_s(attempt, retry_after, self._draw) if again else None
            if wait is None or self._clock.monotonic() + wait >= until:
                return result
            attempt += 1
            await self._clock.sleep(wait)

    def _judge(self, line: _Line, failure: _Failure, retry_after: float | None) -> bool:
        """What a failure means for the provider; whether to ask it again."""
        if failure.kind in ("key", "quota"):
            line.breaker.trip(self._limits.refused_rest_s, failure.text)
            return False
        if retry_after is not None:
            if retry_after > self._limits.retry.retry_after_cap_s:
                line.breaker.trip(retry_after, failure.text)
                return False
            line.limiter.hold(retry_after)  # it said so to one of us and means all
        if failure.kind in ("again", "timeout") and failure.http_status != 429:  # a busy provider is no broken one
            line.breaker.failed(failure.text)
        else:
            line.breaker.left()
        return failure.kind in ("again", "timeout")

    async def _attempt(self, line: _Line, query: str, until: float) -> tuple[ProviderAnswer | _Failure, float | None]:
        """One request in its turn, and how long the provider says to wait."""
        try:
            now = self._clock.monotonic()
            async with line.limiter.slot(now + (until - now) / 2):  # later, no time would be left to ask another
                left = until - self._clock.monotonic()
                if left <= 0:
                    return _Failure("timeout", f"no answer within {self._limits.total_s:g} s"), None
                async with asyncio.timeout(min(self._limits.attempt_s, left)):
                    return await line.provider.search(self._connected(), query, self._limits.results), None
        except LimitedError:
            return _Failure("limited", "its turn would come too late"), None
        except ProviderError as error:
            text = one_line(self._scrub(error.message))
            return _Failure(error.kind, text, error.http_status), error.retry_after_s
        except TimeoutError:
            return _Failure("timeout", f"no answer within {self._limits.attempt_s:g} s"), None
        except (aiohttp.ClientError, OSError) as error:
            return _Failure("again", f"no connection ({type(error).__name__})"), None
        except Exception as error:  # a provider may be anyone's code
            return _Failure("broken", f"{type(error).__name__} in the provider"), None

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=self._trust_env,
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "agentic-rl-bench/0.1"},
            )
        return self._session


def _hits_kept(value: dict[str, Any]) -> tuple[Hit, ...] | None:
    """Hits as they were kept; None if the record is not what this version writes."""
    try:
        return tuple(Hit(title=title, url=url, snippet=snippet) for title, url, snippet in value["hits"])
    except (KeyError, TypeError, ValueError):
        return None
