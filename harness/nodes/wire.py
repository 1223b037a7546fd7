"""Agents over TCP, where no Ray reaches them: each agent calls the gathering side and then answers its questions.

A message is one line of JSON, for files followed by their bytes. The first line of an agent carries the run's token:
whoever can read a run's token could as well read its files.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from harness.nodes.agent import Agent
from harness.nodes.gather import LostError
from harness.nodes.outbox import Piece, Taken

TIMEOUT_S = 15.0
LONGEST_LINE = 1024 * 1024
RECONNECT_S = 0.5
GIVE_UP_S = 120.0  # an agent that nobody has asked for so long ends: the run it was for is over


class Connection:
    """Lines and bytes, both ways."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._reader: BinaryIO = sock.makefile("rb")

    def send(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        """Sends a message.

        Raises:
            OSError: the other side is gone.
        """
        self._socket.sendall(json.dumps(message).encode() + b"\n" + data)

    def receive(self) -> dict[str, Any]:
        """The next message.

        Raises:
            OSError: the other side is gone, or speaks another language.
        """
        line = self._reader.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the connection was closed")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ConnectionResetError(f"not a message: {error}") from None
        if not isinstance(message, dict):
            raise ConnectionResetError("not a message")
        return message

    def bytes(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            OSError: the other side is gone.
        """
        data = self._reader.read(size)
        if len(data) != size:
            raise ConnectionResetError("the connection was closed inside a piece")
        return data

    def close(self) -> None:
        """Closes it."""
        self._reader.close()
        self._socket.close()


def answer(agent: Agent, connection: Connection, heard: Callable[[], None]) -> bool:
    """Answers questions, calling `heard` at each, until the other side takes its leave: then True.

    Raises:
        OSError: the other side is gone.
    """
    while True:
        question = connection.receive()
        heard()
        match question.get("do"):
            case "clock":
                received, answered = agent.clock()
                connection.send({"received_ns": received, "answered_ns": answered})
            case "take":
                taken, trouble = agent.take(question["have"], question["limit"])
                heads = [{"path": p.path, "at": p.at, "mark": p.mark, "size": len(p.data)} for p in taken.pieces]
                body = b"".join(piece.data for piece in taken.pieces)
                connection.send({"pieces": heads, "left": taken.left, "trouble": trouble}, body)
            case "start_sampler":
                agent.start_sampler(question["hz"], question["dcgm"])
                connection.send({})
            case "stop_sampler":
                agent.stop_sampler()
                connection.send({})
            case "remove":
                agent.remove()
                connection.send({})
                return True
            case other:
                raise ConnectionResetError(f"not a question: {other!r}")


def serve(agent: Agent, host: str, port: int, token: str, *, give_up_s: float = GIVE_UP_S) -> bool:
    """Calls the gathering side and answers it, again and again; True when it took its leave, False when it is gone."""
    last = [time.monotonic()]

    def heard() -> None:
        last[0] = time.monotonic()

    while time.monotonic() - last[0] < give_up_s:
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT_S) as sock:
                sock.settimeout(give_up_s)
                connection = Connection(sock)
                connection.send({"token": token, **agent.hello()})
                if answer(agent, connection, heard):
                    return True
        except OSError:
            time.sleep(min(RECONNECT_S, give_up_s))
    return False


class TcpPeer:
    """One agent that calls here. A new call of the same agent takes the place of a broken one."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self._hello = hello
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def take_over(self, connection: Connection) -> None:
        """The agent has called, for the first time or again."""
        with self._lock:
            old, self._connection = self._connection, connection
        if old is not None:
            old.close()

    def hello(self) -> dict[str, Any]:
        """As the agent said it."""
        return self._hello

    def clock(self) -> tuple[int, int]:
        """As `Agent.clock`."""
        answer = self._ask({"do": "clock"})[0]
        return int(answer["received_ns"]), int(answer["answered_ns"])

    def start_sampler(self, hz: float, dcgm: str) -> None:
        """As `Agent.start_sampler`."""
        self._ask({"do": "start_sampler", "hz": hz, "dcgm": dcgm})

    def take(self, have: dict[str, int], limit: int) -> tuple[Taken, str | None]:
        """As `Agent.take`."""
        answer, data = self._ask({"do": "take", "have": have, "limit": limit})
        pieces = [
            Piece(path=head["path"], at=head["at"], mark=head["mark"], data=piece)
            for head, piece in zip(answer["pieces"], data, strict=True)
        ]
        return Taken(pieces=tuple(pieces), left=answer["left"]), answer["trouble"]

    def stop_sampler(self) -> None:
        """As `Agent.stop_sampler`."""
        self._ask({"do": "stop_sampler"})

    def remove(self) -> None:
        """As `Agent.remove`."""
        self._ask({"do": "remove"})

    def _ask(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        with self._lock:
            connection = self._connection
        if connection is None:
            raise LostError("it has not called again")
        try:
            connection.send(question)
            answer = connection.receive()
            return answer, [connection.bytes(head["size"]) for head in answer.get("pieces", ())]
        except (OSError, ValueError, KeyError, TypeError) as error:
            with self._lock:
                if self._connection is connection:
                    self._connection = None
            connection.close()
            raise LostError(str(error)) from error


class Switchboard(threading.Thread):
    """Listens for agents; each new host is handed to `found`."""

    def __init__(self, token: str, found: Callable[[str, TcpPeer], None], *, bind: str = "", port: int = 0) -> None:
        """Listens at once.

        Raises:
            OSError: the port is taken.
        """
        super().__init__(name="switchboard", daemon=True)
        self._token = token
        self._found = found
        self._peers: dict[tuple[str, str], TcpPeer] = {}
        self._listener = socket.create_server((bind, port), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Takes calls until closed."""
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return
            try:
                sock.settimeout(TIMEOUT_S)
                connection = Connection(sock)
                hello = connection.receive()
                if hello.pop("token", None) != self._token:
                    raise ConnectionResetError("another run's agent")
                key = (str(hello["host"]), str(hello["boot"]))
            except (OSError, KeyError):
                sock.close()
                continue
            peer = self._peers.get(key)
            if peer is None:
                peer = self._peers[key] = TcpPeer(hello)
                peer.take_over(connection)
                self._found(f"{key[0]} ({address[0]})", peer)
            else:
                peer.take_over(connection)

    def close(self) -> None:
        """Takes no more calls."""
        self._listener.close()
