"""The tool server's HTTP: `/health`, `/call`, `/stats`, each with the token; and its life from start to a clean end."""

import asyncio
import contextlib
import hmac
import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from harness.protocol.errors import EnvError
from workloads.deep_research.serving.gateway import Gateway
from workloads.deep_research.tools import Observation, ToolRequest

LARGEST_REQUEST = 1 << 20  # bytes
IDLE_S = 75.0  # after which a connection without requests is closed; clients close theirs sooner
STOP_S = 8.0  # that calls under way have at the end

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers: where, and with which token."""

    url: str
    token: str


@contextlib.asynccontextmanager
async def served(
    gateway: Gateway, facts: Mapping[str, object], *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Served]:
    """The block in which the gateway's backend is started and calls are answered over HTTP.

    Args:
        facts: what `/health` says besides its status.
        port: 0: any that is free.

    Raises:
        EnvError: the address can't be used, or the backend can't start.
    """
    token = secrets.token_urlsafe(24)
    runner = web.AppRunner(
        make_app(gateway, token, facts),
        access_log=None,
        keepalive_timeout=IDLE_S,
        lingering_time=1.0,  # to whoever sends more than is read
        shutdown_timeout=STOP_S,
    )
    try:
        await gateway.backend.start()
        await runner.setup()
        yield Served(await listen(runner, host, port), token)
    finally:
        await runner.cleanup()
        await gateway.close()


async def listen(runner: web.AppRunner, host: str, port: int) -> str:
    """Opens a runner's port; returns its address, e.g. `http://127.0.0.1:40123`.

    Raises:
        EnvError: the address can't be used.
    """
    site = web.TCPSite(runner, host, port, backlog=1024)
    try:
        await site.start()
    except OSError as error:
        raise EnvError(f"the tool server can't listen on {host}, port {port}: {error.strerror or error}") from None
    bound = runner.addresses[0]
    shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    return f"http://{shown}:{bound[1]}"


def make_app(gateway: Gateway, token: str, facts: Mapping[str, object]) -> web.Application:
    """The application; every request needs `Authorization: Bearer <token>`."""
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, expected):
            return _refused(401, "the token is missing or wrong")
        return await handler(request)

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok", **facts})

    async def stats(_: web.Request) -> web.Response:
        return web.json_response(gateway.stats())

    async def call(request: web.Request) -> web.Response:
        try:
            asked = decode_request(await request.json())
        except ValueError as error:
            gateway.counters.rejected += 1
            return _refused(400, str(error))
        return web.json_response(encode_observation(await gateway.call(asked)))

    app = web.Application(client_max_size=LARGEST_REQUEST, middlewares=[guarded])
    app.add_routes([web.get("/health", health), web.get("/stats", stats), web.post("/call", call)])
    return app


def decode_request(raw: Any) -> ToolRequest:
    """The call that a client asks for.

    Raises:
        ValueError: it is none; names the key.
    """
    if not isinstance(raw, dict):
        raise ValueError("the body is not a JSON object")
    for key in ("tool", "argument"):
        if not isinstance(raw.get(key), str):
            raise ValueError(f"{key} is not a text")
    question, call = raw.get("question"), raw.get("call", 0)
    if question is not None and not isinstance(question, str):
        raise ValueError("question is neither a text nor null")
    if isinstance(call, bool) or not isinstance(call, int):
        raise ValueError("call is not a whole number")
    return ToolRequest(
        tool=raw["tool"],
        argument=raw["argument"].encode("utf-8", "replace").decode(),  # JSON can hold halves of characters
        trajectory_id=str(raw.get("trajectory_id", "")),
        call=call,
        question=question,
    )


def encode_observation(answer: Observation) -> dict[str, object]:
    """As JSON; the keys are the fields' names."""
    return {
        "text": answer.text,
        "status": answer.status,
        "planned_s": answer.planned_s,
        "served_s": answer.served_s,
        "http_status": answer.http_status,
        "size": answer.size,
        "detail": answer.detail,
        "links": [list(link) for link in answer.links],
    }


def write_private(path: Path, value: Mapping[str, object]) -> None:
    """Writes JSON that only this user can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    temporary.replace(path)


async def until_eof(descriptor: int) -> None:
    """Returns when the other end of a pipe is closed: whoever started this process is gone."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def look() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            over.set()

    loop.add_reader(descriptor, look)
    await over.wait()


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
