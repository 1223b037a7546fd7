"""Making the pages of a generated corpus, in this process or in several, in the same order either way."""

import hashlib
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from workloads.deep_research.corpus.generate import World
from workloads.deep_research.corpus.html import render
from workloads.deep_research.corpus.index import Entry, entry
from workloads.deep_research.corpus.pages import Writer

Made = tuple[Entry, bytes, int]  # the page, the digest of what it is, its bytes

_BATCH = 100  # pages
_WORTH_IT = 3_000  # pages; below, processes take longer to start than they save

_writer: Writer | None = None  # of a process of the pool


def with_fingerprint(found: Entry, *, html: bytes | None = None) -> Made:
    """The entry with the SHA-256 of address, title, content type and page, and the page's length in bytes."""
    if html is None:
        import zlib

        html = zlib.decompress(found.html)
    head = f"{found.url}\n{found.title}\n{found.content_type}\n{len(html)}\n".encode()
    return found, hashlib.sha256(head + html).digest(), len(html)


def make(writer: Writer, first: int, last: int) -> list[Made]:
    """The pages first..last - 1."""
    made = []
    for page in range(first, last):
        draft, rng = writer.draft(page)
        rendered = render(draft, rng)
        found = entry(
            url=draft.url, title=draft.title, content_type=rendered.content_type, html=rendered.body, text=draft.text()
        )
        made.append(with_fingerprint(found, html=rendered.body))
    return made


def batches(pages: int, seed: int, processes: int | None = None) -> Iterator[list[Made]]:
    """All pages in order, some at a time; never more than a few batches are held."""
    if processes is None:
        processes = min(len(os.sched_getaffinity(0)), 8) if pages >= _WORTH_IT else 1
    spans = [(first, min(first + _BATCH, pages)) for first in range(0, pages, _BATCH)]
    if processes < 2:
        writer = Writer(World(pages, seed))
        for first, last in spans:
            yield make(writer, first, last)
        return
    # Forked processes are there at once and need no main module to import, but only a process of one thread may fork.
    method = "fork" if threading.active_count() == 1 else "forkserver"
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(processes, context, _start, (pages, seed, os.getpid())) as pool:
        waiting: deque[Future[list[Made]]] = deque()
        try:
            for span in spans:
                waiting.append(pool.submit(_make, *span))
                if len(waiting) > 3 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _start(pages: int, seed: int, parent: int) -> None:
    global _writer
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _writer = Writer(World(pages, seed))


def _make(first: int, last: int) -> list[Made]:
    assert _writer is not None
    return make(_writer, first, last)


def _end_with(parent: int) -> None:
    """Ends this process when the one that builds is gone: killed, it can't say so, and the pool's pipes stay open."""
    while _alive(parent):
        time.sleep(1.0)
    os._exit(1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
