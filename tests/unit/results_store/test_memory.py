"""Where Arrow takes its memory from while a run is collected and reported, and afterwards."""

import pyarrow as pa
import pytest

from results.memory import small_pages


def test_it_is_the_c_librarys_inside_and_as_before_after() -> None:
    before = pa.default_memory_pool().backend_name
    with small_pages():
        assert pa.default_memory_pool().backend_name == "system"
        kept = pa.array(range(1000))
        with small_pages():
            pass
        assert pa.default_memory_pool().backend_name == "system"
    assert pa.default_memory_pool().backend_name == before
    assert kept.to_pylist() == list(range(1000))  # what was made inside lives on


def test_what_fails_inside_leaves_it_as_before() -> None:
    before = pa.default_memory_pool().backend_name
    with pytest.raises(ValueError, match="inside"), small_pages():
        raise ValueError("inside")
    assert pa.default_memory_pool().backend_name == before
