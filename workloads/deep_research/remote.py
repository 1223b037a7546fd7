"""The tools of a run as its trajectories see them: asked of the run's tool server over HTTP/1.1.

Standard library only: this runs inside the frameworks' processes. The server is given in a file, `tools.json` in the
run's folder, that a server which is started again writes anew.
"""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.protocol.errors import SpecError
from workloads.deep_research.tools import STATUSES, Observation, ToolRequest, wait_until

FILE = "tools.json"  # in the run folder: {"url": ..., "token": ...}
IDLE_S = 30.0  # an idle connection that is older is not used again; the server keeps them longer
CONNECT_S = 10.0
SERVED_S = 120.0  # longer than a server allows itself for a call: what is not answered then won't be
ANSWER_S = 240.0  # where nobody sets a limit; a trajectory's are shorter
RETURN_S = 10.0  # that a server which was lost has to come back, before its calls fail
LOOK_S = 0.25
LARGEST_ANSWER = 64 << 20  # bytes


class _LostError(Exception):
    """The connection ended before the answer."""


class _GoneError(Exception):
    """There is no server."""


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int
    token: str


@dataclass(slots=True)
class _Connection:
    address: _Address
    socket: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    def close(self) -> None:
        """Ends it at once; the loop need not run any more."""
        try:
            self.writer.transport.abort()
        except RuntimeError:  # the loop is closed
            self.socket.close()


@dataclass(slots=True)
class _Pool:
    """The connections of one event loop."""

    loop: asyncio.AbstractEventLoop
    idle: deque[_Connection] = field(default_factory=deque)
    busy: set[int] = field(default_factory=set)
    keeper: AsyncGenerator[None, None] | None = None
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().close()


class RemoteTools:
    """Tools behind a tool server. Each event loop has connections of its own, which end with it."""

    imposes_plan = False  # a replay imposes what was recorded, which only its answer tells

    def __init__(self, folder: Path, *, answer_s: float = ANSWER_S, return_s: float = RETURN_S) -> None:
        """`folder`: where the server's file lies; `answer_s`, `return_s`: seconds of patience for an answer, and for a
        server that was lost.

        Raises:
            SpecError: the file can't be read.
        """
        self._file = folder / FILE
        self._answer_s = answer_s
        self._return_s = return_s
        self._address = _read(self._file)
        self._pools: dict[int, _Pool] = {}
        self._lock = threading.Lock()  # loops may run in several threads

    async def call(self, request: ToolRequest) -> Observation:
        """The server's answer, after the latency that it says is to be imposed; never raises but when cancelled."""
        began_ns = time.monotonic_ns()
        try:
            async with asyncio.timeout(self._answer_s):
                answer = await self._ask(request)
        except TimeoutError:
            answer = _failed("timeout", f"no answer from the tool server within {self._answer_s:g} s")
        except (_GoneError, _LostError, OSError) as error:
            answer = _failed("error", str(error) or type(error).__name__)
        except Exception as error:  # a defect here must not end a trajectory either: it is recorded with the call
            answer = _failed("error", f"{type(error).__name__}: {error}")
        if answer.planned_s is not None:
            await wait_until(began_ns + round(answer.planned_s * 1e9))
        return answer

    async def close(self) -> None:
        """Ends the connections of all loops."""
        with self._lock:
            pools = list(self._pools.values())
            self._pools.clear()
        here = asyncio.get_running_loop()
        for pool in pools:
            if pool.loop is here and pool.keeper is not None:
                await pool.keeper.aclose()
            elif pool.loop is here or pool.loop.is_closed():
                pool.close()
            else:
                try:
                    pool.loop.call_soon_threadsafe(pool.close)
                except RuntimeError:  # it was closed just now
                    pool.close()

    def open_connections(self) -> int:
        """Connections of all loops, idle and in use."""
        with self._lock:
            return sum(len(pool.idle) + len(pool.busy) for pool in self._pools.values())

    async def _ask(self, request: ToolRequest) -> Observation:
        body = json.dumps(
            {
                "tool": request.tool,
                "argument": request.argument,
                "question": request.question,
                "trajectory_id": request.trajectory_id,
                "call": request.call,
            }
        ).encode()
        pool = await self._pool()
        for again in (True, False):
            connection = await self._connected(pool)
            try:
                status, data = await self._exchange(pool, connection, body)
            except _LostError:
                if not again:
                    raise
                continue
            if status == 401 and again:
                self._address = _read(self._file)  # another server has come in the first one's place
                continue
            return _decoded(status, data)
        raise _GoneError("the tool server does not accept its own token")

    async def _exchange(self, pool: _Pool, connection: _Connection, body: bytes) -> tuple[int, bytes]:
        """One request on a connection, which goes back to the pool only after a whole answer."""
        pool.busy.add(id(connection))
        whole = False
        try:
            connection.writer.write(_head(connection.address, len(body)) + body)
            await connection.writer.drain()
            status, data, keep = await _answer(connection.reader)
            whole = keep
            return status, data
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _LostError("the tool server ended the connection before it answered") from error
        finally:
            pool.busy.discard(id(connection))
            if whole and not pool.closed:
                connection.idle_since = time.monotonic()
                pool.idle.append(connection)
            else:
                connection.close()

    async def _connected(self, pool: _Pool) -> _Connection:
        """The idle connection used last, or a new one.

        Raises:
            _GoneError: nobody listens, and no new server has come in time.
        """
        oldest = time.monotonic() - IDLE_S
        while pool.idle and pool.idle[0].idle_since < oldest:
            pool.idle.popleft().close()
        while pool.idle:
            connection = pool.idle.pop()
            if connection.address == self._address and not connection.reader.at_eof():
                return connection
            connection.close()
        deadline = time.monotonic() + self._return_s
        while True:
            try:
                return await _connect(self._address)
            except (OSError, TimeoutError) as error:
                if time.monotonic() >= deadline:
                    raise _GoneError(f"the tool server is gone: {error or 'no connection in time'}") from None
            await asyncio.sleep(LOOK_S)
            try:
                self._address = _read(self._file)
            except SpecError:
                if not self._file.parent.is_dir():
                    raise _GoneError("the tool server is gone, and its folder too") from None

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        with self._lock:
            pool = self._pools.get(id(loop))
            if pool is not None and pool.loop is loop and not pool.closed:
                return pool
            ended = [key for key, each in self._pools.items() if each.loop.is_closed() or key == id(loop)]
            for key in ended:
                self._pools.pop(key).close()
            pool = self._pools[id(loop)] = _Pool(loop)
        pool.keeper = _keep(pool)
        await anext(pool.keeper)
        return pool


async def _keep(pool: _Pool) -> AsyncGenerator[None, None]:
    """Closes the pool when its loop ends: `asyncio.run` and its like end the loop's asynchronous generators first."""
    try:
        yield
    finally:
        pool.close()


async def _connect(address: _Address) -> _Connection:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_S):
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        raw = socket.socket(family, socket.SOCK_STREAM)
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(raw, (address.host, address.port))
            reader, writer = await asyncio.open_connection(sock=raw)
        except BaseException:
            raw.close()
            raise
    return _Connection(address, raw, reader, writer)


def _head(address: _Address, size: int) -> bytes:
    return (
        f"POST /call HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAuthorization: Bearer {address.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    ).encode("ascii")


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """(status, body, whether the connection stays open).

    Raises:
        asyncio.IncompleteReadError: it ended before the end of the answer.
        ValueError: this is no answer of a tool server.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise ValueError("the tool server's answer has no end of its head") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ValueError(f"the tool server's answer is no HTTP: {first[:80]!r}")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    size = fields.get("content-length", "")
    if not size.isdigit() or int(size) > LARGEST_ANSWER:
        raise ValueError(f"the tool server's answer has no length, or a wrong one: {size[:20]!r}")
    data = await reader.readexactly(int(size))
    return int(parts[1]), data, fields.get("connection", "").lower() != "close"


def _decoded(status: int, data: bytes) -> Observation:
    if status != 200:
        return _failed("error", f"the tool server answered {status}: {data[:200].decode('utf-8', 'replace')}")
    try:
        raw: dict[str, Any] = json.loads(data)
        raw["links"] = tuple((_sound(title), _sound(url)) for title, url in raw["links"])
        raw["text"] = _sound(raw["text"])
        answer = Observation(**raw)
    except (ValueError, TypeError, KeyError) as error:
        return _failed("error", f"the tool server's answer can't be read: {error}")
    if answer.status not in STATUSES:
        return _failed("error", f"the tool server answered with the status {answer.status!r}")
    return answer


def _sound(text: str) -> str:
    """The text without halves of characters, which JSON can hold and nothing can write."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _failed(status: str, detail: str) -> Observation:
    line = " ".join(detail.split())
    return Observation(text=f"The tool failed: {line}", status=status, detail=line)


def _read(file: Path) -> _Address:
    """The server's address.

    Raises:
        SpecError: the file can't be read, or is none.
    """
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        url = urlsplit(raw["url"])
        if url.hostname is None or url.port is None:
            raise ValueError("no host and port in its url")
        return _Address(url.hostname, url.port, str(raw["token"]))
    except OSError as error:
        raise SpecError(f"{file}: the tool server's address can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{file}: not a tool server's address: {error}") from None
