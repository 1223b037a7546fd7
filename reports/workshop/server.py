"""The workshop's web server: its own files and two questions, on loopback, for this machine's browser alone."""

import json
import socket
import sys
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, select_autoescape

from harness.protocol.errors import BenchError
from reports.workshop import answers

HOST = "127.0.0.1"
# Nothing is loaded from anywhere else, and no page elsewhere may frame it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STATIC = {"workshop.js": "text/javascript", "draw.js": "text/javascript", "workshop.css": "text/css"}
Question = Callable[[answers.Setting, Callable[[], bool]], dict[str, Any]]
QUESTIONS: dict[str, Question] = {"/point": lambda setting, _: answers.point(setting), "/curve": answers.curve}


class Server(ThreadingHTTPServer):
    """Serves the page until it is shut down. Port 0: any free one."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        """Binds.

        Raises:
            OSError: the port is taken.
        """
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection, at any moment, is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{HOST}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "bench", ""
    # Else an answer's body waits until its head was acknowledged, which a browser may put off for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", b"not an address\n")
            return
        # A page elsewhere whose name was made to point here (DNS rebinding) asks under that name.
        if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"ask under 127.0.0.1 or localhost\n")
        elif url.path == "/":
            self._answer(HTTPStatus.OK, "text/html", page())
        elif url.path[1:] in STATIC:
            name = url.path[1:]
            self._answer(HTTPStatus.OK, STATIC[name], files("reports.workshop").joinpath("static", name).read_bytes())
        elif url.path in QUESTIONS:
            self._asked(QUESTIONS[url.path], url.query)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not here\n")

    def _asked(self, question: Question, query: str) -> None:
        status = HTTPStatus.OK
        try:
            found = question(answers.Setting.of(dict(parse_qsl(query, keep_blank_values=True))), self._gone)
        except answers.Abandoned:
            self.close_connection = True
            return
        except BenchError as error:
            status, found = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        self._answer(status, "application/json", json.dumps(found).encode())

    def _gone(self) -> bool:
        """Whether the browser has given this answer up: the hand moved on, and it closed the connection."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        try:
            self.end_headers()  # they are sent here
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the hand moved on: the browser gave this answer up
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: a page that is dragged asks a hundred times."""


@cache
def page() -> bytes:
    """The page, with the sliders as `answers.SLIDERS` has them."""
    environment = Environment(loader=PackageLoader("reports.workshop"), autoescape=select_autoescape())
    return environment.get_template("page.html").render(sliders=answers.SLIDERS, unbounded=answers.UNBOUNDED).encode()
