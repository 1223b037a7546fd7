"""What a process of a pool is told before numpy is there, also where what it does first brings numpy in."""

import os
from functools import partial

import numpy as np
import pytest

from results.spread import spread

AT_IMPORT = os.environ.get("OPENBLAS_NUM_THREADS")
_given: list[float] = []


def begin(number: float) -> None:
    _given.append(float(np.float64(number)))


def at_import(number: int) -> tuple[str | None, float]:
    return AT_IMPORT, number * _given[0]


def test_linear_algebra_has_one_thread_where_what_comes_first_brings_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert list(spread(at_import, [1, 2], 1, begin=partial(begin, 2.0))) == [("1", 2.0), ("1", 4.0)]
