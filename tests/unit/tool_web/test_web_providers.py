"""The four providers against servers that speak their APIs as documented, errors included."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from web_servers import served

from harness.protocol.errors import EnvError, SpecError
from workloads.deep_research.serving.rendering import Hit
from workloads.deep_research.serving.web import engines, providers
from workloads.deep_research.serving.web.providers import (
    Key,
    Provider,
    ProviderAnswer,
    ProviderError,
    Scrubber,
    chosen,
)

SECRET = "s3cr3t-Key/+value"
TWO = (
    Hit(title="First", url="https://one.example/", snippet="about one"),
    Hit(title="Second", url="https://two.example/", snippet="about two"),
)


def made(name: str, port: int) -> Provider:
    if name == "searxng":
        return engines.Searxng(Key(f"http://me:{SECRET.replace('/', '%2F')}@127.0.0.1:{port}/path/"))
    kind: Any = engines.TYPES[name]
    provider: Provider = kind(Key(SECRET), endpoint=f"http://127.0.0.1:{port}/endpoint")
    return provider


def asked(name: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]], *, k: int = 2) -> ProviderAnswer:
    async def run() -> ProviderAnswer:
        async with served(answer) as port, aiohttp.ClientSession(auto_decompress=False) as session:
            return await made(name, port).search(session, "who won", k)

    return asyncio.run(run())


def results(name: str) -> dict[str, Any]:
    """An answer with two results, and one that has no address, in the provider's form."""
    title, url, snippet = {"serper": ("title", "link", "snippet"), "brave": ("title", "url", "description")}.get(
        name, ("title", "url", "content")
    )
    items = [{title: hit.title, url: hit.url, snippet: hit.snippet, "score": 1.0, "position": 1} for hit in TWO]
    items.insert(1, {title: "an answer box"})
    return {
        "serper": {"searchParameters": {"q": "who won"}, "organic": items, "credits": 1},
        "brave": {"type": "search", "query": {"original": "who won"}, "web": {"type": "search", "results": items}},
        "tavily": {"query": "who won", "answer": None, "results": items, "usage": {"credits": 2}},
        "searxng": {"query": "who won", "results": items, "unresponsive_engines": [["x", "timeout"]]},
    }[name]


NAMES = ("searxng", "serper", "tavily", "brave")


@pytest.mark.parametrize("name", NAMES)
def test_results_in_each_providers_form(name: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(results(name))

    got = asked(name, answer)
    assert got.hits == TWO
    assert got.http_status == 200
    assert got.size == len(json.dumps(results(name)))
    assert got.credits == {"serper": 1.0, "tavily": 2.0}.get(name)
    assert asked(name, answer, k=1).hits == TWO[:1]


@pytest.mark.parametrize("name", NAMES)
def test_what_each_provider_is_sent(name: str) -> None:
    seen: list[SimpleNamespace] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        sent = {"method": request.method, "path": request.path, "query": dict(request.query)}
        seen.append(SimpleNamespace(headers=request.headers.copy(), body=json.loads(body) if body else None, **sent))
        response = web.json_response(results(name))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    assert asked(name, answer).hits == TWO  # packed answers are understood
    (sent,) = seen
    if name == "searxng":
        assert (sent.method, sent.path) == ("GET", "/path/search")
        assert sent.query == {"q": "who won", "format": "json"}
        assert sent.headers["Authorization"] == "Basic " + b64encode(f"me:{SECRET}".encode()).decode()
    elif name == "serper":
        assert (sent.method, sent.body) == ("POST", {"q": "who won", "num": 2})
        assert sent.headers["X-API-KEY"] == SECRET
    elif name == "tavily":
        assert sent.method == "POST"
        assert sent.body["query"] == "who won"
        assert sent.body["max_results"] == 2
        assert sent.headers["Authorization"] == f"Bearer {SECRET}"
        assert "api_key" not in sent.body
    else:
        assert sent.method == "GET"
        assert sent.query["q"] == "who won"
        assert sent.query["count"] == "2"
        assert sent.headers["X-Subscription-Token"] == SECRET


def brave_error(code: str, status: int, detail: str) -> dict[str, object]:
    return {"type": "ErrorResponse", "error": {"id": "x", "status": status, "code": code, "detail": detail, "meta": {}}}


@pytest.mark.parametrize(
    ("name", "status", "said", "kind"),
    [
        ("serper", 403, {"message": "Unauthorized.", "statusCode": 403}, "key"),
        ("serper", 400, {"message": "Not enough credits", "statusCode": 400}, "quota"),
        ("serper", 400, {"message": "Missing query parameter", "statusCode": 400}, "request"),
        ("serper", 429, {"message": "Too many requests", "statusCode": 429}, "again"),
        ("serper", 500, {"message": "Internal server error"}, "again"),
        ("tavily", 401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}, "key"),
        ("tavily", 400, {"detail": {"error": "Query is missing."}}, "request"),
        ("tavily", 422, {"detail": [{"loc": ["body", "query"], "msg": "Input should be a string"}]}, "request"),
        ("tavily", 429, {"detail": {"error": "Too many requests."}}, "again"),
        ("tavily", 432, {"detail": {"error": "This request exceeds your plan's set usage limit."}}, "quota"),
        ("tavily", 433, {"detail": {"error": "This request exceeds the pay-as-you-go limit."}}, "quota"),
        ("brave", 422, brave_error("SUBSCRIPTION_TOKEN_INVALID", 422, "The subscription token is invalid."), "key"),
        ("brave", 422, brave_error("VALIDATION", 422, "Unable to validate request parameter(s)"), "request"),
        ("brave", 429, brave_error("RATE_LIMITED", 429, "Request rate limit exceeded for plan."), "again"),
        ("brave", 503, brave_error("INTERNAL", 503, "down"), "again"),
        ("searxng", 429, None, "again"),
        ("searxng", 401, None, "key"),
        ("searxng", 502, None, "again"),
    ],
)
def test_errors_in_each_providers_form(name: str, status: int, said: object, kind: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        if said is None:
            return web.Response(status=status, text="<!doctype html><h1>no</h1>", content_type="text/html")
        return web.json_response(said, status=status)

    with pytest.raises(ProviderError) as caught:
        asked(name, answer)
    assert caught.value.kind == kind
    assert caught.value.http_status == status
    text = json.dumps(said)
    assert caught.value.message.split(": ", 1)[-1] in text or said is None


def test_an_instance_without_json_says_what_to_do() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=403, text="<h1>403</h1>")

    with pytest.raises(ProviderError, match=r"search\.formats"):
        asked("searxng", answer)


def test_an_instance_whose_engines_are_all_silent_found_nothing_out() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"results": [], "unresponsive_engines": [["google", "CAPTCHA"], ["bing", "timeout"]]})

    with pytest.raises(ProviderError, match="google, bing") as caught:
        asked("searxng", answer)
    assert caught.value.kind == "again"


@pytest.mark.parametrize(
    ("headers", "pause", "kind"),
    [
        ({"Retry-After": "3"}, 3.0, "again"),
        ({"X-RateLimit-Remaining": "0, 1000", "X-RateLimit-Reset": "1, 1419704"}, 1.0, "again"),
        ({"X-RateLimit-Remaining": "1, 0", "X-RateLimit-Reset": "1, 1419704"}, 1419704.0, "quota"),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700000000"}, None, "again"),
        ({}, None, "again"),
    ],
)
def test_when_a_provider_wants_to_be_asked_again(headers: dict[str, str], pause: float | None, kind: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(brave_error("RATE_LIMITED", 429, "slow down"), status=429, headers=headers)

    with pytest.raises(ProviderError) as caught:
        asked("brave", answer)
    assert (caught.value.retry_after_s, caught.value.kind) == (pause, kind)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1, 2]", b'{"results": 5, "organic": 5, "web": {"results": 5}}', b"[" * 100_000, b"\xff"]
)
def test_answers_of_another_form_are_errors_of_the_provider(name: str, body: bytes) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    with pytest.raises(ProviderError) as caught:
        asked(name, answer)
    assert caught.value.kind == "again"


@pytest.mark.parametrize("name", NAMES)
def test_no_results_are_an_answer(name: str) -> None:
    empty: dict[str, object] = {"serper": {"organic": []}, "brave": {"type": "search"}}.get(name, {"results": []})  # type: ignore[assignment]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(empty)

    assert asked(name, answer).hits == ()


@pytest.mark.parametrize("name", NAMES)
def test_no_key_follows_a_redirect(name: str) -> None:
    asked_paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked_paths.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    with pytest.raises(ProviderError, match="redirects"):
        asked(name, answer)
    assert len(asked_paths) == 1


def test_an_endless_answer_is_left() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)

    with pytest.raises(ProviderError, match="more than"):
        asked("serper", answer)


def test_providers_by_name_and_by_key() -> None:
    environ = {"BRAVE_API_KEY": "abcd", "SERPER_API_KEY": " abcd\n", "TAVILY_API_KEY": ""}
    assert [each.name for each in chosen(["brave", "serper"], environ)] == ["brave", "serper"]
    assert [each.name for each in chosen([], environ)] == ["serper", "brave"]


@pytest.mark.parametrize(
    ("names", "environ", "said"),
    [
        (["tavily"], {}, "TAVILY_API_KEY in the environment"),
        (["google"], {}, "searxng, serper, tavily, brave"),
        (["brave", "brave"], {"BRAVE_API_KEY": "abcd"}, "twice"),
        ([], {}, "SEARXNG_URL"),
        (["brave"], {"BRAVE_API_KEY": f"{SECRET}\nX-Evil: 1"}, "BRAVE_API_KEY"),
        (["brave"], {"BRAVE_API_KEY": f"{SECRET}é"}, "BRAVE_API_KEY"),
        (["searxng"], {"SEARXNG_URL": f"me:{SECRET}@host"}, "SEARXNG_URL"),
        (["searxng"], {"SEARXNG_URL": f"ftp://me:{SECRET}@host/"}, "SEARXNG_URL"),
        (["searxng"], {"SEARXNG_URL": f"http://me:{SECRET}@[host/"}, "SEARXNG_URL"),
    ],
)
def test_wrong_requests_say_what_to_set_and_show_no_key(names: list[str], environ: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        chosen(names, environ)
    assert SECRET not in str(caught.value)


class Own:
    """A provider as a user would write one."""

    name = "own"
    key_variable = "OWN_KEY"
    rate = providers.Rate()

    def __init__(self, key: Key) -> None:
        self.key = key

    async def search(self, session: aiohttp.ClientSession, query: str, k: int) -> ProviderAnswer:
        return ProviderAnswer(hits=TWO[:k])

    def secrets(self) -> tuple[str, ...]:
        return (self.key.reveal(),)


def entry(name: str, load: Callable[[], object]) -> SimpleNamespace:
    return SimpleNamespace(name=name, value="package:Own", load=load)


def test_a_package_adds_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        providers, "entry_points", lambda group: [entry("own", lambda: Own)] if "search" in group else []
    )
    (own,) = chosen(["own"], {"OWN_KEY": "abcd"})
    assert isinstance(own, Provider)
    assert own.secrets() == ("abcd",)


def test_a_package_that_cannot_be_loaded_or_takes_a_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "entry_points", lambda group: [entry("serper", lambda: Own)])
    with pytest.raises(EnvError, match="two search providers"):
        chosen(["serper"], {"SERPER_API_KEY": "abcd"})

    def broken() -> object:
        raise ImportError("no module named x")

    monkeypatch.setattr(providers, "entry_points", lambda group: [entry("own", broken)])
    with pytest.raises(EnvError, match="package:Own"):
        chosen(["own"], {"OWN_KEY": "abcd"})


def test_built_in_providers_are_providers() -> None:
    assert tuple(engines.TYPES) == providers.BUILT_IN
    for name in NAMES:
        assert isinstance(made(name, 1), Provider)
        assert made(name, 1).name == name


def test_a_scrubber_takes_every_form_of_a_key_out() -> None:
    scrub = Scrubber([SECRET, ""])
    for form in (SECRET, "s3cr3t-Key%2F%2Bvalue", b64encode(SECRET.encode()).decode()):
        assert scrub(f"a {form} b") == "a [key] b"
    assert scrub("nothing") == "nothing"
