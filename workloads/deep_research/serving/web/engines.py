"""The search providers that come with the project. Their formats are those of their public documentation.

SearXNG: search API (`/search?format=json`, which an instance must allow in `search.formats`).
Serper: POST google.serper.dev/search. Tavily: POST api.tavily.com/search. Brave: GET api.search.brave.com.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from workloads.deep_research.serving.rendering import Hit, one_line
from workloads.deep_research.serving.web import body
from workloads.deep_research.serving.web.clock import SystemClock
from workloads.deep_research.serving.web.limiter import Rate
from workloads.deep_research.serving.web.providers import Key, ProviderAnswer, ProviderError, ProviderType
from workloads.deep_research.serving.web.retry import retry_after_s

MAX_ANSWER_BYTES = 4 << 20
_AGAIN = {408, 409, 425, 429}  # and every 5xx


class Reply:
    """An answer that was read."""

    __slots__ = ("headers", "size", "status", "value")

    def __init__(self, status: int, headers: Mapping[str, str], value: Any, size: int) -> None:
        self.status = status
        self.headers = headers
        self.value = value  # its JSON
        self.size = size  # bytes over the wire


async def ask(
    session: aiohttp.ClientSession,
    method: str,
    url: str | URL,
    *,
    headers: Mapping[str, str],
    kinds: Mapping[int, str],
    params: Mapping[str, str] | None = None,
    send: Mapping[str, object] | None = None,
) -> Reply:
    """One request, and the JSON that came back.

    Redirects are not followed: they would carry the key elsewhere. `kinds` says what an HTTP status means to
    `ProviderError.kind` where it is not the usual (401 and 403 `key`, 402 `quota`, 408, 409, 425, 429 and 5xx
    `again`, any other but 200 `request`).

    Raises:
        ProviderError: no JSON, or another status than 200.
        aiohttp.ClientError, OSError: the connection failed.
    """
    asked = {"Accept": "application/json", "Accept-Encoding": body.ACCEPT_ENCODING, **headers}
    async with session.request(method, url, params=params, json=send, headers=asked, allow_redirects=False) as response:
        status = response.status
        try:
            read = await body.read(response, MAX_ANSWER_BYTES)
        except body.EncodingError as error:
            raise ProviderError("again", str(error), http_status=status) from None
        try:
            value = json.loads(read.data)
        except (ValueError, RecursionError):
            value = None
        if status != 200:
            kind = kinds.get(status) or _usual_kind(status)
            pause = _longest(retry_after_s(response.headers, SystemClock()), _reset_s(response.headers, status))
            message = f"HTTP {status}{_said(value, read.data)}"
            if 300 <= status < 400:
                message = f"HTTP {status}: it redirects, which is not followed with a key"
            raise ProviderError(kind, message, http_status=status, retry_after_s=pause)
        if read.cut or value is None:
            what = f"more than {MAX_ANSWER_BYTES} bytes" if read.cut else "no JSON"
            raise ProviderError("again", f"the answer is {what}", http_status=status)
        return Reply(status, response.headers, value, read.wire_bytes)


def _usual_kind(status: int) -> str:
    if status in (401, 403):
        return "key"
    if status == 402:
        return "quota"
    return "again" if status in _AGAIN or status >= 500 else "request"


def _longest(*seconds: float | None) -> float | None:
    known = [each for each in seconds if each is not None]
    return max(known) if known else None


def _reset_s(headers: Mapping[str, str], status: int) -> float | None:
    """Seconds until a used-up window ends, from X-RateLimit-Remaining and -Reset, which list one value per window."""
    if status != 429:
        return None
    remaining = headers.get("X-RateLimit-Remaining", "").split(",")
    resets = headers.get("X-RateLimit-Reset", "").split(",")
    seconds = [
        float(reset)
        for left, reset in zip(remaining, resets, strict=False)
        if left.strip() == "0" and reset.strip().isdigit() and len(reset.strip()) < 9  # longer ones are moments
    ]
    return max(seconds) if seconds else None


def _said(value: Any, data: bytes) -> str:
    """What an error answer says, from the fields in which the providers say it."""
    found: Any = value
    while isinstance(found, dict):
        found = next((found[name] for name in ("error", "detail", "message") if found.get(name)), None)
    if isinstance(found, list) and found and isinstance(found[0], dict):
        found = found[0].get("msg")
    if not isinstance(found, str):
        found = "" if value is not None or b"<" in data[:200] else data[:200].decode("utf-8", "replace")
    return f": {one_line(found, 200)}" if found else ""


def _hits(items: Any, k: int, *, title: str, url: str, snippet: str) -> tuple[Hit, ...]:
    """Hits from a list of objects; what has no address is left out."""
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ProviderError("again", "the answer has another form than documented: its results are no list")
    found = []
    for item in items:
        address = item.get(url) if isinstance(item, dict) else None
        if isinstance(address, str) and address.startswith(("http://", "https://")):
            found.append(Hit(title=_text(item.get(title)) or address, url=address, snippet=_text(item.get(snippet))))
    return tuple(found[:k])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(reply: Reply) -> dict[str, Any]:
    if not isinstance(reply.value, dict):
        raise ProviderError("again", "the answer has another form than documented: no object", http_status=reply.status)
    return reply.value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class Searxng:
    """A SearXNG instance: `SEARXNG_URL` is its address, with user name and password where it asks for them."""

    name = "searxng"
    key_variable = "SEARXNG_URL"
    rate = Rate(requests_per_s=2.0, concurrency=4, burst=2)  # it asks others, who block those who ask too fast

    def __init__(self, key: Key) -> None:
        """Takes the instance's address.

        Raises:
            ValueError: it is no address of an instance.
        """
        try:
            url = URL(key.reveal())
        except ValueError:
            raise ValueError("not a url") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("not an http or https url")
        self._user, self._password = url.user, url.password
        path = url.path.rstrip("/").removesuffix("/search")
        self._url = url.with_user(None).with_query(None).with_fragment(None).with_path(f"{path}/search")

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        """See `Provider`. An instance decides itself how many results a page has."""
        headers = {}
        if self._user is not None:
            pair = f"{self._user}:{self._password or ''}".encode()
            headers["Authorization"] = "Basic " + b64encode(pair).decode()
        params = {"q": query, "format": "json"}
        try:
            reply = await ask(session, "GET", self._url, headers=headers, params=params, kinds={})
        except ProviderError as error:
            if error.http_status == 403:
                error.message += " (the instance must allow json in search.formats)"
            raise
        value = _object(reply)
        hits = _hits(value.get("results"), k, title="title", url="url", snippet="content")
        silent = value.get("unresponsive_engines")
        if not hits and isinstance(silent, list) and silent:
            names = ", ".join(str(each[0]) if isinstance(each, list) and each else str(each) for each in silent[:5])
            raise ProviderError("again", f"none of its engines answered ({names})", http_status=reply.status)
        return ProviderAnswer(hits=hits, size=reply.size, http_status=reply.status)

    def secrets(self) -> tuple[str, ...]:
        """The password."""
        if self._user is None:
            return ()
        password = self._password or ""
        return (f"{self._user}:{password}", password)


class _Keyed:
    """A provider with a key and one address."""

    endpoint = ""

    def __init__(self, key: Key, *, endpoint: str | None = None) -> None:
        self._key = key
        self._endpoint = endpoint or self.endpoint

    def secrets(self) -> tuple[str, ...]:
        """The key."""
        return (self._key.reveal(),)


class Serper(_Keyed):
    """Google's results by serper.dev."""

    name = "serper"
    key_variable = "SERPER_API_KEY"
    rate = Rate(requests_per_s=5.0, concurrency=16, burst=5)
    endpoint = "https://google.serper.dev/search"

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        """See `Provider`."""
        headers = {"X-API-KEY": self._key.reveal()}
        try:
            reply = await ask(
                session, "POST", self._endpoint, headers=headers, send={"q": query, "num": min(k, 100)}, kinds={}
            )
        except ProviderError as error:
            if error.http_status == 400 and "credits" in error.message.lower():
                error.kind = "quota"
            raise
        value = _object(reply)
        hits = _hits(value.get("organic"), k, title="title", url="link", snippet="snippet")
        return ProviderAnswer(
            hits=hits, size=reply.size, http_status=reply.status, credits=_number(value.get("credits"))
        )


class Tavily(_Keyed):
    """tavily.com."""

    name = "tavily"
    key_variable = "TAVILY_API_KEY"
    rate = Rate(requests_per_s=1.5, concurrency=8, burst=5)  # a development key has 100 requests a minute
    endpoint = "https://api.tavily.com/search"

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        """See `Provider`."""
        reply = await ask(
            session,
            "POST",
            self._endpoint,
            headers={"Authorization": f"Bearer {self._key.reveal()}"},
            send={"query": query, "max_results": min(k, 20), "search_depth": "basic", "include_usage": True},
            kinds={432: "quota", 433: "quota"},
        )
        value = _object(reply)
        usage = value.get("usage")
        return ProviderAnswer(
            hits=_hits(value.get("results"), k, title="title", url="url", snippet="content"),
            size=reply.size,
            http_status=reply.status,
            credits=_number(usage.get("credits")) if isinstance(usage, dict) else None,
        )


class Brave(_Keyed):
    """Brave Search."""

    name = "brave"
    key_variable = "BRAVE_API_KEY"
    rate = Rate(requests_per_s=1.0, concurrency=4)  # the smallest plan's; others have up to 50 a second
    endpoint = "https://api.search.brave.com/res/v1/web/search"

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        """See `Provider`. Queries are cut to the 400 characters and 50 words that it takes."""
        params = {
            "q": " ".join(query.split()[:50])[:400],
            "count": str(min(k, 20)),
            "text_decorations": "false",  # or the snippets have HTML in them
            "result_filter": "web",
        }
        headers = {"X-Subscription-Token": self._key.reveal()}
        try:
            reply = await ask(session, "GET", self._endpoint, headers=headers, params=params, kinds={})
        except ProviderError as error:
            if "token" in error.message.lower() and error.http_status == 422:
                error.kind = "key"
            elif error.http_status == 429 and (error.retry_after_s or 0) > 3600:
                error.kind = "quota"  # the month's window is used up, not the second's
            raise
        web = _object(reply).get("web")
        hits = _hits(
            web.get("results") if isinstance(web, dict) else None, k, title="title", url="url", snippet="description"
        )
        return ProviderAnswer(hits=hits, size=reply.size, http_status=reply.status)


TYPES: dict[str, ProviderType] = {"searxng": Searxng, "serper": Serper, "tavily": Tavily, "brave": Brave}
