"""An engine's metrics page of the tests' own, on a real socket."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Page:
    """What the server answers; change it as the engine goes on."""

    def __init__(self, text: str, *, filters: bool = False) -> None:
        self.text = text
        self.status = 200
        self.delay_s = 0.0
        self.filters = filters  # like prometheus_client's own page, under the trailing slash
        self.asked: list[str] = []

    def answer(self, path: str) -> str:
        self.asked.append(path)
        time.sleep(self.delay_s)
        names = parse_qs(urlsplit(path).query).get("name[]")
        if self.filters and names and urlsplit(path).path.endswith("/"):
            return "".join(line + "\n" for line in self.text.splitlines() if line.split("{")[0] in names)
        return self.text


@contextmanager
def engine(page: Page, port: int = 0) -> Iterator[int]:
    """Serves until the block ends; the port."""

    held: list[socket.socket] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            held.append(self.connection)

        def do_GET(self) -> None:
            body = page.answer(self.path).encode()
            self.send_response(page.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # clients that give up are what some tests are about

    server = Server(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        for connection in held:  # a process that ends takes its connections with it
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
