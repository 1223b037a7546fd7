"""The memory that Arrow works in while a run is collected or reported."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_LOCK = threading.Lock()
_inside = 0  # blocks, of all threads: the pool is the whole process's
_before: list[pa.MemoryPool] = []  # of the first of them


@contextmanager
def small_pages() -> Iterator[None]:
    """Arrow takes its memory as the C library gives it; its own allocator asks the system for huge pages.

    What is read part by part lives shortly, and of a huge page all is cleared before the first byte is used. On a
    virtual machine such pages are the ones that were handed back to its host, and are dear: of collecting ten million
    samples they were 2 s of 17 s of processor time. Also a decorator. It holds for all threads of the process; once
    the last of those that overlap is through, it is as before the first.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside
    with _LOCK:
        if not _inside:
            _before[:] = [pa.default_memory_pool()]
            pa.set_memory_pool(pa.system_memory_pool())
        _inside += 1


def _leave() -> None:
    global _inside
    with _LOCK:
        _inside -= 1
        if not _inside:
            pa.set_memory_pool(_before.pop())
