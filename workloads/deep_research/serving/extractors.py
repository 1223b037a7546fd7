"""The processes that extract: as many pages at a time as there are, each process replaced when it dies or hangs.

They are plain child processes, asked over their standard input and output (`extractor`): a page can crash or stall the
one that reads it and no other, what such a process sends back is JSON and never more than data, and each goes by itself
when its standard input ends, whatever became of the server.
"""

import asyncio
import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from workloads.deep_research.serving.extraction import Extraction
from workloads.deep_research.serving.rendering import Page

MOST = 8  # processes: beyond, the server's own loop is the limit
MODULE = "workloads.deep_research.serving.extractor"
HEAD = struct.Struct("!QQ")  # bytes of the header (JSON) and of what follows it
_HUNG_S = 5.0  # after its own limit a process that has not answered is taken for stuck in a library, and killed
_START_S = 60.0  # it may take as much longer for its first page: it loads the libraries
_MOST_BYTES = 256 << 20  # of a part of a message; a page has a few MB
_END_S = 5.0  # to go by itself
_START_PAGE = b"<html><title>a</title><body><p>b</p></body></html>"


class Extractor:
    """Processes that extract. One that dies (memory, a parser's crash) is replaced, and its page tried once more; one
    that hangs is replaced, and its page is given up."""

    def __init__(
        self,
        *,
        processes: int | None = None,
        limit_s: float = 10.0,
        wait_s: float = 60.0,
        program: Sequence[str] = (sys.executable, "-P", "-m", MODULE),
    ) -> None:
        """Starts nothing yet. May be used from several event loops, one after the other.

        Args:
            processes: default: one for each core that may be used, at most 8.
            limit_s: for one page. wait_s: for it with waiting for its turn.
            program: what a process runs; for tests.
        """
        count = processes or min(MOST, len(os.sched_getaffinity(0)))
        self._limit_s = limit_s
        self._wait_s = wait_s
        self._workers = [_Worker(program) for _ in range(count)]
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="extractor")  # one waits for each process
        self._closed = False
        self.waiting = 0  # pages now in the processes or before them

    @property
    def processes(self) -> int:
        """How many there are at most."""
        return len(self._workers)

    @property
    def replaced(self) -> int:
        """Processes that died or hung."""
        return sum(worker.lost for worker in self._workers)

    def pids(self) -> list[int]:
        """Of the processes that are there now."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    async def start(self) -> None:
        """Starts the processes and waits until they have loaded what they need, so that no call pays for that."""
        page = ("text/html", None, "http://start.test/")
        await asyncio.gather(*(self._on_thread(_START_PAGE, page) for _ in self._workers))

    async def extract(self, data: bytes, content_type: str, charset: str | None, url: str) -> Extraction:
        """See `extraction.extracted`. Raises nothing for the page's faults."""
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._on_thread(data, (content_type, charset, url))
        except TimeoutError:
            return Extraction(None, f"its text was not extracted within {self._wait_s:g} s", late=True)
        finally:
            self.waiting -= 1

    async def close(self) -> None:
        """Ends the processes; what is in them is given up."""
        self._closed = True
        for worker in self._workers:
            worker.ask_to_end()
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        await asyncio.gather(*(asyncio.to_thread(worker.end) for worker in self._workers))

    async def _on_thread(self, data: bytes, what: tuple[str, str | None, str]) -> Extraction:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._extract, data, what)

    def _extract(self, data: bytes, what: tuple[str, str | None, str]) -> Extraction:
        worker = self._free.get()
        try:
            for _ in range(2):
                if self._closed:
                    break
                try:
                    return worker.ask(data, what, self._limit_s)
                except _HungError:
                    return Extraction(None, f"its text could not be extracted within {self._limit_s:g} s", late=True)
                except (OSError, EOFError, ValueError):
                    continue
            return Extraction(None, "its text could not be extracted: the process died")
        finally:
            self._free.put(worker)


class _HungError(Exception):
    """The process did not answer, and was killed."""


class _Worker:
    """One process and the pipes to it. Used by one thread at a time, but for `ask_to_end` and what only looks."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.lost = 0

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def ask(self, data: bytes, what: tuple[str, str | None, str], limit_s: float) -> Extraction:
        """What the process makes of a page; it is started where there is none.

        Raises:
            _HungError: it had to be killed.
            OSError, EOFError, ValueError: it died, can't be started, or does not answer as it should.
        """
        fresh = self._process is None
        if self._process is None:
            self._process = subprocess.Popen(
                self._program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # a terminal's Ctrl-C is for the server, which ends it in its own time
            )
        process = self._process
        hung = threading.Event()

        def kill() -> None:
            hung.set()
            process.kill()

        timer = threading.Timer(limit_s + _HUNG_S + (_START_S if fresh else 0.0), kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            content_type, charset, url = what
            head = {"content_type": content_type, "charset": charset, "url": url, "limit_s": limit_s}
            send(process.stdin, head, data)
            found, _ = receive(process.stdout)
            return _decoded(found)
        except (OSError, EOFError, ValueError):
            self._drop(process)
            if hung.is_set():
                raise _HungError from None
            raise
        finally:
            timer.cancel()

    def ask_to_end(self) -> None:
        """From any thread: a process in the middle of a page does not end by itself soon, so it is killed."""
        if (process := self._process) is not None:
            process.terminate()

    def end(self) -> None:
        """Takes the process away."""
        if (process := self._process) is not None:
            self._process = None
            _ended(process)

    def _drop(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        self.lost += 1
        process.kill()
        _ended(process)


def _ended(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what was not written yet goes with the process
                pipe.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def send(pipe: Any, head: Mapping[str, object], data: bytes = b"") -> None:
    """Writes one message.

    Raises:
        OSError: nobody reads it.
    """
    written = json.dumps(head).encode()
    pipe.write(HEAD.pack(len(written), len(data)))
    pipe.write(written)
    pipe.write(data)
    pipe.flush()


def receive(pipe: Any) -> tuple[dict[str, Any], bytes]:
    """Reads one message.

    Raises:
        EOFError: there is no more, or it was cut.
        ValueError: it is none.
    """
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    sizes = HEAD.unpack(head)
    if max(sizes) > _MOST_BYTES:
        raise ValueError("not a message of this kind")
    written, data = (pipe.read(size) for size in sizes)
    if (len(written), len(data)) != sizes:
        raise EOFError
    found = json.loads(written)
    if not isinstance(found, dict):
        raise ValueError("not a message of this kind")
    return found, data


def encoded(found: Extraction) -> dict[str, object]:
    """An extraction as a message."""
    return asdict(found)


def _decoded(found: Mapping[str, Any]) -> Extraction:
    page = found.get("page")
    try:
        made = None
        if page is not None:
            links = tuple((str(text), str(target)) for text, target in page["links"])
            made = Page(title=page["title"], url=page["url"], text=page["text"], links=links)
        return Extraction(made, found["error"], late=found["late"], note=found["note"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an extraction: {error}") from None
