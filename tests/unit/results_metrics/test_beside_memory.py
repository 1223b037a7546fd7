"""Arrow's memory pool while several runs are collected or reported at the same time in one process."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from results.memory import small_pages

LIMIT_S = 60


@pytest.fixture(autouse=True)
def own_allocator() -> Iterator[None]:
    """Arrow's own one, whatever the environment asks for."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    yield
    pa.set_memory_pool(before)


def test_it_is_as_before_once_the_last_of_those_that_overlap_is_through() -> None:
    inside, may_leave = threading.Event(), threading.Event()

    def second() -> None:
        with small_pages():
            inside.set()
            assert may_leave.wait(LIMIT_S)

    other = threading.Thread(target=second)
    with small_pages():
        other.start()
        assert inside.wait(LIMIT_S)
    between = pa.default_memory_pool().backend_name
    may_leave.set()
    other.join(LIMIT_S)
    assert (between, pa.default_memory_pool().backend_name) == ("system", "mimalloc")
