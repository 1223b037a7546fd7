"""No key gets anywhere but into the request that needs it: everything that a run writes or says is searched for it."""

import asyncio
import copy
import logging
import pickle
import sqlite3
import traceback
import warnings
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web
from web_servers import opening, searching, served

from workloads.deep_research.serving.web import engines
from workloads.deep_research.serving.web.backend import WebTools, web_tools
from workloads.deep_research.serving.web.fetch import FetchLimits
from workloads.deep_research.serving.web.limiter import Rate
from workloads.deep_research.serving.web.providers import Key, chosen
from workloads.deep_research.serving.web.retry import RetryPolicy
from workloads.deep_research.serving.web.search import SearchLimits
from workloads.deep_research.tools import Observation

KEYS = {name: f"k3y+of/{name}=Zq9" for name in ("serper", "tavily", "brave", "searxng")}
LIMITS = SearchLimits(attempt_s=0.3, retry=RetryPolicy(attempts=2, base_s=0.01), breaker_failures=50)


def environ(port: int) -> dict[str, str]:
    return {
        "SERPER_API_KEY": KEYS["serper"],
        "TAVILY_API_KEY": KEYS["tavily"],
        "BRAVE_API_KEY": KEYS["brave"],
        "SEARXNG_URL": f"http://me:{quote(KEYS['searxng'], safe='')}@127.0.0.1:{port}/",
    }


def forms() -> Iterator[str]:
    for key in KEYS.values():
        yield from (key, quote(key), quote(key, safe=""), b64encode(key.encode()).decode(), repr(key)[1:-1])
    yield b64encode(f"me:{KEYS['searxng']}".encode()).decode()


def assert_hidden(text: str) -> None:
    for form in forms():
        assert form not in text


async def echo(request: web.Request, key: str) -> web.StreamResponse:
    """A provider that shows its customer's key to everyone, in a way that the query chooses."""
    query = request.query.get("q") or ""
    if request.method == "POST":
        body = await request.json()
        query = body.get("q") or body.get("query")
    shown = " ".join(f"{name}: {value}" for name, value in request.headers.items()) + f" {key}"
    hits = [{"title": shown, "url": f"http://a.example/?k={quote(shown)}", "link": f"http://a.example/{quote(shown)}",
             "snippet": shown, "content": shown, "description": shown}]  # fmt: skip
    match query:
        case "hits":
            return web.json_response({"results": hits, "organic": hits, "web": {"results": hits}})
        case "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        case "slow":
            await asyncio.sleep(0.6)
            return web.Response()
        case "text":
            return web.Response(status=500, text=shown)
        case "redirect":
            return web.Response(status=302, headers={"Location": f"http://elsewhere.example/?{quote(shown)}"})
    return web.json_response(
        {"message": shown, "detail": {"error": shown}}, status=int(query), reason="No " + KEYS["brave"]
    )


QUERIES = ("hits", "reset", "slow", "text", "redirect", "400", "401", "403", "422", "429", "432", "500")


@pytest.mark.parametrize("name", KEYS)
def test_no_key_in_observations_statistics_logs_warnings_or_files(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    for other in ("Serper", "Tavily", "Brave"):
        monkeypatch.setattr(getattr(engines, other), "endpoint", None)
    seen: list[str] = []

    async def run() -> list[Observation]:
        async with served(lambda request: echo(request, KEYS[name])) as port:
            for other in ("Serper", "Tavily", "Brave"):
                monkeypatch.setattr(getattr(engines, other), "endpoint", f"http://127.0.0.1:{port}/x")
            found = []
            for query in QUERIES:
                tools = web_tools(
                    [name],
                    environ=environ(port),
                    cache_folder=tmp_path / "cache",
                    search=LIMITS,
                    rates={name: Rate()},
                    fetch=FetchLimits(robots=False),
                )
                cache = tools._cache
                assert cache is not None
                await cache.open()
                found.append(await tools.call(searching(query)))
                found.append(await tools.call(opening(f"http://127.0.0.1:{port}/")))
                seen.extend([repr(tools.stats()), repr(tools), repr(vars(tools)), repr(tools._searcher._lines)])
                seen.append(str(tools.stats()))
                await tools.close()
            return found

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = asyncio.run(run(), debug=True)
    assert found[0].status == "ok"
    assert "[key]" in found[0].text  # the provider did show it
    assert all(each.status != "ok" for each in found[2::2])
    seen += [repr(each) for each in found] + [str(each.message) for each in warned]
    seen += [record.getMessage() + repr(record.args) + str(record.exc_text) for record in caplog.records]
    captured = capfd.readouterr()
    for text in (*seen, captured.out, captured.err):
        assert_hidden(text)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert_hidden(str(file))
        assert_hidden(file.read_bytes().decode("latin-1"))
    with sqlite3.connect(next(tmp_path.rglob("*.sqlite"))) as connection:
        rows = connection.execute("SELECT kind, value FROM answers").fetchall()
    assert rows
    for kind, value in rows:
        assert_hidden(kind + zlib.decompress(value).decode())


def test_a_key_shows_itself_to_nothing_but_its_request() -> None:
    key = Key(KEYS["serper"])
    provider = engines.Serper(key)
    for text in (repr(key), str(key), f"{key}", repr(provider), repr(vars(provider)), repr([key])):
        assert_hidden(text)
    for write in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            write(key)
    assert key.reveal() == KEYS["serper"]


def test_a_traceback_through_a_provider_shows_no_key() -> None:
    def failing() -> WebTools:
        chosen(["serper"], {"SERPER_API_KEY": KEYS["serper"]})
        return web_tools(["serper", "nobody"], environ={"SERPER_API_KEY": KEYS["serper"]})

    try:
        failing()
    except Exception as error:
        assert_hidden("".join(traceback.format_exception(error)))
    else:
        pytest.fail("there is no such provider")
