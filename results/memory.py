"""The memory that Arrow works in while a run is collected or reported."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def small_pages() -> Iterator[None]:
    """Arrow takes its memory as the C library gives it; its own allocator asks the system for huge pages.

    What is read part by part lives shortly, and of a huge page all is cleared before the first byte is used. On a
    virtual machine such pages are the ones that were handed back to its host, and are dear: of collecting ten million
    samples they were 2 s of 17 s of processor time. Also a decorator; afterwards it is as before.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
