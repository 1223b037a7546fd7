"""Interval arithmetic against a brute-force count of every unit of time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from results.intervals import covered, grid_of, innermost, level, merge, overlap

END = 30
pairs = st.lists(
    st.tuples(st.integers(-5, END + 5), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def _arrays(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([s for s, _ in spans], dtype=np.int64), np.array([e for _, e in spans], dtype=np.int64)


def _open(spans: list[tuple[int, int]], t: int) -> int:
    return sum(s <= t < e for s, e in spans)


@given(pairs)
def test_level_counts_what_is_open(spans: list[tuple[int, int]]) -> None:
    s, e = _arrays(spans)
    grid = grid_of(0, END, s, e)
    counts = level(s, e, grid)
    assert [int(counts[np.searchsorted(grid, t, side="right") - 1]) for t in range(END)] == [
        _open(spans, t) for t in range(END)
    ]


@given(pairs, pairs)
def test_overlap_with_a_union(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    found = overlap(*_arrays(spans), _arrays(others))
    assert found.tolist() == [sum(_open(others, t) > 0 for t in range(s, e)) for s, e in spans]
    ms, me = merge(*_arrays(others))
    assert (ms[1:] > me[:-1]).all()
    assert covered(*_arrays(others), np.array([10**6])).tolist() == [int((me - ms).sum())]


@given(pairs)
def test_the_innermost_is_the_latest_to_start(spans: list[tuple[int, int]]) -> None:
    s, e = _arrays(spans)
    codes = np.arange(len(spans), dtype=np.int8)
    found = innermost(s, e, codes, 0, END, -1)
    cells = np.searchsorted(found.timeline.edges, np.arange(END), side="right") - 1
    for t, cell in enumerate(cells.tolist()):
        code = int(found.timeline.codes[cell])
        here = [i for i, (a, b) in enumerate(spans) if a <= t < b]
        if not here:
            assert code == -1
            continue
        latest = max(spans[i][0] for i in here)
        shortest = min(spans[i][1] for i in here if spans[i][0] == latest)
        assert spans[code] == (latest, shortest)
    once = sum(_open(spans, t) > 0 for t in range(END))
    assert round(found.overlap_s * 1e9) == sum(_open(spans, t) for t in range(END)) - once
    assert (found.overlaps > 0) == any(_open(spans, t) > 1 for t in range(END))
