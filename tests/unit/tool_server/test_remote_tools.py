"""The client half: connections reused, closed and replaced; a server that is gone, new or mad; latencies imposed."""

import asyncio
import contextlib
import gc
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tool_server_parts import Told, request, serving

from harness.protocol.errors import SpecError
from harness.protocol.spec import Load
from harness.specs import resolve
from workloads.deep_research.remote import FILE, RemoteTools
from workloads.deep_research.serving.gateway import LIMIT_S
from workloads.deep_research.tools import Observation, ToolRequest
from workloads.deep_research.work import limits_of

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw(folder: Path, handler: Handler) -> AsyncIterator[None]:
    """A server that speaks as it is told, bytes by bytes."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (folder / FILE).write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "token": "t"}))
    try:
        yield
    finally:
        server.close()


def answering(*answers: bytes) -> tuple[Handler, list[int]]:
    """A handler whose connections give these answers to their requests one by one, then close; and how many came."""
    connections: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split()[0])
                await reader.readexactly(size)
                connections[-1] += 1
                writer.write(answer)
                await writer.drain()
        writer.close()

    return handle, connections


def http(body: object, status: int = 200, extra: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def whole(text: str = "fine", **more: Any) -> dict[str, Any]:
    keys = ("planned_s", "served_s", "http_status", "size", "detail")
    return {"text": text, "status": "ok", "links": [], **dict.fromkeys(keys), **more}


async def test_everything_of_a_call_goes_there_and_everything_comes_back(tmp_path: Path) -> None:
    answer = Observation(
        text="Größe \U0001f600", status="not_found", http_status=404, size=7, detail="why", links=(("a", "http://b/"),)
    )
    told = Told({"Größe?": answer})
    async with serving(tmp_path, told):
        tools = RemoteTools(tmp_path)
        got = await tools.call(request("Größe?"))
        await tools.close()
    assert got.served_s is not None
    assert 0 <= got.served_s < 60
    assert (got.text, got.status, got.http_status, got.size, got.detail, got.links, got.planned_s) == (
        answer.text, "not_found", 404, 7, "why", answer.links, None,
    )  # fmt: skip
    assert told.asked == [request("Größe?")]


async def test_calls_share_connections_and_close_ends_them(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()):
        tools = RemoteTools(tmp_path)
        for _ in range(5):
            await tools.call(request())
        assert tools.open_connections() == 1
        await asyncio.gather(*(tools.call(request("sleep:0.1")) for _ in range(20)))
        assert tools.open_connections() == 20
        await asyncio.gather(*(tools.call(request("sleep:0.1")) for _ in range(20)))
        assert tools.open_connections() == 20
        await tools.close()
        assert tools.open_connections() == 0


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced(tmp_path: Path) -> None:
    handle, connections = answering(http(whole("once")))
    async with raw(tmp_path, handle):
        tools = RemoteTools(tmp_path, return_s=0)
        first = await tools.call(request())
        second = await tools.call(request())
        await tools.close()
    assert (first.text, second.text, connections) == ("once", "once", [1, 1])


async def test_a_request_that_is_cut_off_is_asked_once_more_and_not_twice(tmp_path: Path) -> None:
    handle, connections = answering(http(whole())[:-10])
    async with raw(tmp_path, handle):
        tools = RemoteTools(tmp_path, return_s=0)
        got = await tools.call(request())
        assert tools.open_connections() == 0
        await tools.close()
    assert (got.status, got.detail) == ("error", "the tool server ended the connection before it answered")
    assert connections == [1, 1]


async def test_a_server_that_is_gone_is_an_error_and_no_exception(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()):
        tools = RemoteTools(tmp_path, return_s=0.3)
        assert (await tools.call(request())).status == "ok"
    began = time.monotonic()
    got = await tools.call(request())
    assert time.monotonic() - began >= 0.3  # it might have come back
    assert got.status == "error"
    assert "the tool server is gone" in (got.detail or "")
    await tools.close()


async def test_another_server_in_its_place_is_found_by_its_file(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()):
        tools = RemoteTools(tmp_path, return_s=30)
        await tools.call(request())
    (tmp_path / FILE).unlink()
    pending = asyncio.create_task(tools.call(request("again")))
    await asyncio.sleep(0.3)
    async with serving(tmp_path, Told()):
        assert (await pending).text == "echo again"
        await tools.close()


async def test_another_token_is_read_from_the_file(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()) as (server, _):
        true = (tmp_path / FILE).read_text()
        (tmp_path / FILE).write_text(json.dumps({"url": server.url, "token": "of the server before"}))
        tools = RemoteTools(tmp_path)
        (tmp_path / FILE).write_text(true)
        assert (await tools.call(request())).text == "echo x"
        (tmp_path / FILE).write_text(json.dumps({"url": server.url, "token": "wrong"}))
        strange = RemoteTools(tmp_path)
        got = await strange.call(request())
        assert got.status == "error"
        assert "401" in (got.detail or "")
        await tools.close()
        await strange.close()


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (b"hello\r\n\r\n", "is no HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "has no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "has no length, or a wrong one"),
        (http(b"not json"), "can't be read"),
        (http([1]), "can't be read"),
        (http(whole(links=[["one"]])), "can't be read"),
        (http({**whole(), "more": 1}), "can't be read"),
        (http(whole(status="splendid")), "status 'splendid'"),
        (http({"error": "no"}, status=400), "answered 400"),
        (b"HTTP/1.1 200 " + b"x" * 100_000, "no end of its head"),
    ],
)
async def test_a_mad_answer_is_an_error(tmp_path: Path, answer: bytes, detail: str) -> None:
    handle, _ = answering(answer)
    async with raw(tmp_path, handle):
        tools = RemoteTools(tmp_path, return_s=0)
        got = await tools.call(request())
        assert got.status == "error"
        assert detail in (got.detail or "")
        await tools.close()


async def test_halves_of_characters_do_not_come_through(tmp_path: Path) -> None:
    good = json.dumps(whole("\ud83d!", links=[["\ud800", "http://u/"]])).encode()
    handle, _ = answering(http(good))
    async with raw(tmp_path, handle):
        tools = RemoteTools(tmp_path, return_s=0)
        got = await tools.call(request("\udc00"))
        await tools.close()
    assert (got.status, got.text, got.links) == ("ok", "?!", (("?", "http://u/"),))


async def test_a_server_that_says_nothing_is_a_timeout(tmp_path: Path) -> None:
    async with serving(tmp_path, Told()):
        tools = RemoteTools(tmp_path, answer_s=0.2)
        got = await tools.call(request("sleep:2"))
        assert (got.status, tools.open_connections()) == ("timeout", 0)
        await tools.close()


async def test_a_cancelled_call_gives_up_its_connection(tmp_path: Path) -> None:
    come, over = asyncio.Event(), asyncio.Event()

    class Holding(Told):
        async def call(self, request: ToolRequest) -> Observation:
            if request.argument == "hold":
                come.set()
                await over.wait()
            return await super().call(request)

    async with serving(tmp_path, Holding()):
        tools = RemoteTools(tmp_path)
        task = asyncio.create_task(tools.call(request("hold")))
        await asyncio.wait_for(come.wait(), 60)
        assert tools.open_connections() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tools.open_connections() == 0
        assert (await tools.call(request("next"))).text == "echo next"  # not the answer to the one before
        over.set()
        await tools.close()


async def test_an_imposed_latency_is_never_less(tmp_path: Path) -> None:
    async with serving(tmp_path, Told({"slow": Observation(text="later", planned_s=0.4)})):
        tools = RemoteTools(tmp_path)

        async def one() -> float:
            began_ns = time.monotonic_ns()
            assert (await tools.call(request("slow"))).planned_s == 0.4
            return (time.monotonic_ns() - began_ns) / 1e9

        took = await asyncio.gather(*(one() for _ in range(30)))
        await tools.close()
    assert min(took) >= 0.4


def test_a_loop_that_ends_takes_its_connections_along(tmp_path: Path) -> None:
    ready, over, gate = threading.Event(), threading.Event(), []

    def serve() -> None:
        async def main() -> None:
            async with serving(tmp_path, Told()) as (_, gateway):
                gate.append(gateway)
                ready.set()
                await asyncio.to_thread(over.wait)

        asyncio.run(main())

    server = threading.Thread(target=serve)
    server.start()
    assert ready.wait(30)
    try:
        tools = RemoteTools(tmp_path)
        before = _sockets()

        async def some() -> None:
            await asyncio.gather(*(tools.call(request("sleep:0.05")) for _ in range(4)))
            assert tools.open_connections() >= 4

        threads = [threading.Thread(target=asyncio.run, args=(some(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        asyncio.run(some())
        # A loop that is only closed, as some frameworks do: the next loop's first call finds it.
        loop = asyncio.new_event_loop()
        loop.run_until_complete(tools.call(request()))
        loop.close()
        asyncio.run(some())
        gc.collect()
        end = time.monotonic() + 30
        while _sockets() > before and time.monotonic() < end:
            time.sleep(0.05)
        assert _sockets() <= before
        asyncio.run(tools.close())
        assert gate[0].counters.in_flight == 0
    finally:
        over.set()
        server.join(30)


def _sockets() -> int:
    found = 0
    for entry in Path(f"/proc/{os.getpid()}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(entry.readlink()).startswith("socket:")
    return found


@pytest.mark.parametrize("content", [None, "{", "{}", '{"url": "nowhere", "token": "t"}', "[]"])
def test_a_file_that_is_no_address_is_said_at_once(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(SpecError, match=r"tools\.json"):
        RemoteTools(tmp_path)


def test_agents_wait_longer_than_the_server_allows_itself() -> None:
    for load in ("fixed", "live"):
        asked = {"framework": "simulated", "placement": "async", "tools": "local", "load": load, "policy": "scripted"}
        if load == "fixed":
            del asked["policy"]
        spec = resolve(asked).spec
        assert limits_of(spec).tool_timeout_s > LIMIT_S
        assert limits_of(replace(spec, latency_scale=3.0)).tool_timeout_s > 3 * LIMIT_S
    mock = replace(spec, tools="mock", load=Load.FIXED)
    assert limits_of(mock).tool_timeout_s < LIMIT_S  # by the plan alone
