"""Getting one page over HTTP: limited in bytes, time and redirects, kept out of private networks, asking robots.txt."""

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from workloads.deep_research.serving.rendering import one_line
from workloads.deep_research.serving.web import body, robots
from workloads.deep_research.serving.web.addresses import (
    AddressPolicy,
    Endpoint,
    GuardedResolver,
    RefusedUrlError,
    checked_url,
    forbidden_cause,
    guarded_socket,
    mapped_endpoint,
)
from workloads.deep_research.serving.web.clock import Clock, SystemClock
from workloads.deep_research.serving.web.flights import Flights
from workloads.deep_research.serving.web.limiter import LimitedError, Limiter, Rate
from workloads.deep_research.serving.web.retry import RetryPolicy, retry_after_s

AGENT = "agentic-rl-bench"  # the product token that robots.txt may name
USER_AGENT = f"{AGENT}/0.1 (research agent; obeys robots.txt)"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_SUCH_HOST = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_ROBOTS_AGE_S = 86_400.0  # RFC 9309, 2.4: at most a day
_ROBOTS_RETRY_S = 300.0  # when a server had no answer to it
_HOSTS = 4_096  # that are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much is read, how long it is waited for, and from whom."""

    max_bytes: int = 4 << 20  # of one page, on the wire and unpacked; the rest is left unread
    redirects: int = 5
    total_s: float = 30.0  # for a page, with its redirects, its robots.txt and a second try
    connect_s: float = 10.0
    read_s: float = 15.0  # without a byte
    host_concurrency: int = 8  # connections to one host
    crawl_delay_cap_s: float = 5.0  # a longer Crawl-delay than this is taken for this
    robots: bool = True
    user_agent: str = USER_AGENT
    agent: str = AGENT
    retry: RetryPolicy = field(default=RetryPolicy(attempts=2, base_s=0.5, cap_s=5.0, retry_after_cap_s=10.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A page as it came."""

    url: str  # after redirects
    http_status: int
    content_type: str  # without parameters, lower case; "" if the server named none
    charset: str | None  # as the server named it
    data: bytes
    wire_bytes: int
    cut: bool  # there was more


class FetchError(Exception):
    """No page. `status` is an observation's; `again` tells whether asking once more may help."""

    def __init__(
        self,
        status: str,
        detail: str,
        *,
        http_status: int | None = None,
        again: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = one_line(detail)
        self.http_status = http_status
        self.again = again
        self.retry_after_s = retry_after_s


class Fetcher:
    """Fetches pages. Made inside a running loop; `close` ends its connections."""

    def __init__(
        self,
        *,
        limits: FetchLimits | None = None,
        mapped: Mapping[str, Endpoint] | None = None,
        only_mapped: bool = False,
        allow_private: bool = False,
        resolver: AbstractResolver | None = None,
        clock: Clock | None = None,
        draw: Random | None = None,
    ) -> None:
        """See `Browser`; `resolver` answers for names (default: the system's)."""
        self._limits = limits or FetchLimits()
        self._mapped = dict(mapped or {})
        self._policy = AddressPolicy(
            private=allow_private, exactly=frozenset(self._mapped.values()), only_exactly=only_mapped
        )
        self._clock = clock or SystemClock()
        self._draw = draw or Random()
        self._robots: OrderedDict[URL, tuple[float, robots.Rules]] = OrderedDict()
        self._asking: Flights[robots.Rules] = Flights()
        self._hosts: OrderedDict[URL, Limiter] = OrderedDict()
        connector = aiohttp.TCPConnector(
            limit=0,  # how many calls there are is the caller's business
            limit_per_host=0,
            resolver=GuardedResolver(self._policy, resolver or aiohttp.ThreadedResolver()),
            socket_factory=guarded_socket(self._policy),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # agents share nothing
            auto_decompress=False,
            trust_env=False,  # a proxy would connect to addresses that nobody checked
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.read_s
            ),
            headers={
                "User-Agent": self._limits.user_agent,
                "Accept": "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.5",
                "Accept-Language": "en,*;q=0.5",  # the same page wherever the run is
                "Accept-Encoding": body.ACCEPT_ENCODING,
            },
        )

    async def fetch(self, url: str) -> Fetched:
        """A page.

        Raises:
            FetchError: there is none to be had.
        """
        try:
            async with asyncio.timeout(self._limits.total_s):
                return await self._with_retries(url)
        except TimeoutError:
            raise FetchError("timeout", f"no whole answer within {self._limits.total_s:g} s") from None

    def open_connections(self) -> int:
        """Connections that carry a request now."""
        connector = self._session.connector
        return len(getattr(connector, "_acquired", ())) if connector is not None else 0

    async def close(self) -> None:
        """Ends the connections."""
        await self._asking.close()
        await self._session.close()

    async def _with_retries(self, url: str) -> Fetched:
        attempt = 0
        while True:
            try:
                return await self._follow(url)
            except FetchError as error:
                wait = self._limits.retry.wait_s(attempt, error.retry_after_s, self._draw) if error.again else None
                if wait is None:
                    raise
            attempt += 1
            await self._clock.sleep(wait)

    async def _follow(self, text: str) -> Fetched:
        """The page at the end of the redirects; each address on the way is checked like the first."""
        target: str | URL = text
        seen: set[URL] = set()
        for _ in range(self._limits.redirects + 1):
            url = self._checked(target)
            if url in seen:
                raise FetchError("error", f"the redirects go in a circle at {url}")
            seen.add(url)
            rules = await self._rules(url) if self._limits.robots else robots.OPEN
            if not rules.allows(url.raw_path_qs):
                raise FetchError("refused", rules.closed or f"robots.txt of {url.host} closes this page")
            async with self._turn(url, rules):
                found = await self._get(url, self._limits.max_bytes)
            if isinstance(found, Fetched):
                return found
            target = found
        raise FetchError("error", f"more than {self._limits.redirects} redirects")

    def _checked(self, target: str | URL) -> URL:
        try:
            url = checked_url(target, self._policy)
        except RefusedUrlError as error:
            raise FetchError("refused", str(error)) from None
        if self._policy.only_exactly and mapped_endpoint(url.host or "", self._mapped) is None:
            if (url.host or "", url.port) in self._policy.exactly:
                return url
            raise FetchError("not_found", f"the local web has no host {url.host}")
        return url

    def _turn(self, url: URL, rules: robots.Rules) -> Any:
        origin = url.origin()
        limiter = self._hosts.get(origin)
        if limiter is None:
            delay = min(rules.crawl_delay_s or 0.0, self._limits.crawl_delay_cap_s)
            rate = Rate(requests_per_s=1 / delay if delay else None, concurrency=self._limits.host_concurrency)
            limiter = self._hosts[origin] = Limiter(rate, self._clock)
            if len(self._hosts) > _HOSTS:
                self._hosts.popitem(last=False)
        return _Turn(limiter, self._clock.monotonic() + self._limits.total_s)

    async def _get(self, url: URL, limit: int) -> Fetched | URL:
        """One request: a page, or where it sends on to."""
        endpoint = mapped_endpoint(url.host or "", self._mapped)
        headers = {}
        address = url
        if endpoint is not None:
            headers["Host"] = url.raw_authority
            address = url.with_scheme("http").with_host(endpoint[0]).with_port(endpoint[1])
        try:
            async with self._session.get(address, headers=headers, allow_redirects=False) as response:
                if response.status in _REDIRECTS:
                    return _redirect(url, response)
                if not 200 <= response.status < 300:
                    raise _refusal(response, self._clock)
                read = await body.read(response, limit)
                return Fetched(
                    url=str(url),
                    http_status=response.status,
                    content_type=response.content_type.lower() if "Content-Type" in response.headers else "",
                    charset=response.charset,
                    data=read.data,
                    wire_bytes=read.wire_bytes,
                    cut=read.cut,
                )
        except body.EncodingError as error:
            raise FetchError("error", str(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _broken(url, error) from None

    async def _rules(self, url: URL) -> robots.Rules:
        origin = url.origin()
        known = self._robots.get(origin)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        return await self._asking.join(origin, lambda: self._ask_rules(origin))

    async def _ask_rules(self, origin: URL) -> robots.Rules:
        """What a host's robots.txt says. None (4xx): open. No answer (5xx, 429): closed, for a while."""
        age_s = _ROBOTS_AGE_S
        target: str | URL = origin.with_path("/robots.txt")
        try:
            async with asyncio.timeout(self._limits.total_s / 2):
                rules = robots.OPEN
                for _ in range(self._limits.redirects + 1):
                    found = await self._get(self._checked(target), robots.MAX_BYTES)
                    if isinstance(found, Fetched):
                        rules = robots.parse(found.data.decode("utf-8", "replace"), self._limits.agent)
                        break
                    target = found
        except TimeoutError:
            raise FetchError("timeout", f"no answer from {origin.host} to its robots.txt") from None
        except FetchError as error:
            if error.http_status is None and not (isinstance(target, URL) and target.origin() != origin):
                raise  # nobody could be reached: the page's own trouble, and it is said as such
            if error.http_status is None or error.again:
                rules = robots.Rules(closed=f"robots.txt of {origin.host} gave no answer ({error.detail})")
                age_s = _ROBOTS_RETRY_S
            else:
                rules = robots.OPEN
        self._robots[origin] = (self._clock.monotonic() + age_s, rules)
        if len(self._robots) > _HOSTS:
            self._robots.popitem(last=False)
        return rules


class _Turn:
    """A limiter's slot whose lateness is a failed fetch."""

    def __init__(self, limiter: Limiter, until: float) -> None:
        self._slot = limiter.slot(until)

    async def __aenter__(self) -> None:
        try:
            await self._slot.__aenter__()
        except LimitedError:
            raise FetchError("timeout", "too many requests to this host at once") from None

    async def __aexit__(self, *error: Any) -> None:
        await self._slot.__aexit__(*error)


def _redirect(url: URL, response: aiohttp.ClientResponse) -> URL:
    location = response.headers.get("Location", "").strip()
    if not location:
        raise FetchError("error", f"HTTP {response.status} without an address", http_status=response.status)
    try:
        return url.join(URL(location))
    except ValueError:
        raise FetchError("error", "it redirects to what is no url", http_status=response.status) from None


def _refusal(response: aiohttp.ClientResponse, clock: Clock) -> FetchError:
    status = response.status
    detail = f"HTTP {status} {one_line(response.reason or '', 60)}".rstrip()
    if status in (404, 410):
        return FetchError("not_found", detail, http_status=status)
    if status in (401, 403, 407, 451):
        return FetchError("refused", detail, http_status=status)
    again = status in (408, 425, 429) or status >= 500
    return FetchError(
        "refused" if status == 429 else "error",
        detail,
        http_status=status,
        again=again,
        retry_after_s=retry_after_s(response.headers, clock),
    )


def _broken(url: URL, error: Exception) -> FetchError:
    """What an error of the connection means."""
    forbidden = forbidden_cause(error)
    if forbidden is not None:
        return FetchError("refused", str(forbidden))
    if isinstance(error, TimeoutError):  # the client's own limits
        return FetchError("timeout", f"no answer from {url.host}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        cause = error.os_error
        if not isinstance(cause, socket.gaierror) or cause.errno in _NO_SUCH_HOST:
            return FetchError("not_found", f"there is no host {url.host}")
        return FetchError("error", f"the name {url.host} could not be looked up", again=True)
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return FetchError("error", f"no secure connection to {url.host}: {type(error).__name__}")
    if isinstance(error, aiohttp.InvalidURL):
        return FetchError("refused", "no valid url")
    if isinstance(error, aiohttp.ClientConnectorError):
        return FetchError("error", f"no connection to {url.host}: {error.strerror or 'refused'}", again=True)
    if isinstance(error, aiohttp.ClientResponseError | ValueError):
        return FetchError("error", f"the answer is no HTTP: {type(error).__name__}")
    return FetchError("error", f"the connection broke: {type(error).__name__}", again=True)
