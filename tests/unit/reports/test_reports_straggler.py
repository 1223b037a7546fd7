from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from reports import straggler, style

S = 1_000_000_000


def _trajectories(ends_of_step: dict[int, Sequence[float]], *, start: float = 0.0) -> pd.DataFrame:
    """Trajectories of each step: they start together at 1000 x step + start and end that many seconds later."""
    rows = []
    for step, ends in ends_of_step.items():
        for place, end in enumerate(ends):
            begin = 1000 * step + start
            rows.append(
                {
                    "trajectory_id": f"p{step}-s{place}-a0",
                    "start_ns": int(begin * S),
                    "end_ns": int((1000 * step + end) * S),
                    "tool_calls": 1 + place % 8,
                    "step_consumed": step,
                }
            )
    frame = pd.DataFrame(rows, columns=["trajectory_id", "start_ns", "end_ns", "tool_calls", "step_consumed"])
    return frame.astype(dict.fromkeys(("start_ns", "end_ns", "tool_calls", "step_consumed"), "Int64"))


def _spans(phase: str, steps: Sequence[int], length: float) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "phase": [phase] * len(steps),
            "step": list(steps),
            "trajectory_id": [None] * len(steps),
            "container": [False] * len(steps),
            "start_ns": [1000 * step * S for step in steps],
            "end_ns": [int((1000 * step + length) * S) for step in steps],
        }
    )
    return frame.astype({"step": "Int64", "container": "boolean", "start_ns": "Int64", "end_ns": "Int64"})


def test_the_gap_and_its_share_are_those_of_the_definition() -> None:
    ends = [10.0, 20.0, 30.0, 100.0]
    spans = _spans("generation", [1], 125.0)
    batch = straggler.choose_batch(_trajectories({1: ends}), spans, [1], relative=False)
    assert batch is not None
    assert batch.gap_s == pytest.approx(100.0 - 20.0)  # the lower of the two middle ones: a value that was seen
    assert batch.share == pytest.approx(80.0 / 125.0)  # of the whole rollout phase, not of the last end
    assert [bar.end_s for bar in batch.bars] == ends


def test_without_a_native_span_the_trajectories_span_the_phase() -> None:
    empty = _spans("generation", [], 0)
    batch = straggler.choose_batch(_trajectories({1: [10, 20, 30, 100]}), empty, [1], relative=False)
    assert batch is not None
    assert batch.phase_s == pytest.approx(100.0)


def test_the_step_with_the_median_gap_is_taken_and_named() -> None:
    gaps = {1: 10, 2: 50, 3: 30, 4: 20, 5: 40}
    table = _trajectories({step: [5, 10, 10, 10 + gap] for step, gap in gaps.items()})
    batch = straggler.choose_batch(table, _spans("generation", list(gaps), 100), list(gaps), relative=False)
    assert batch is not None
    assert batch.step == 3
    assert "median gap of 5 steps" in batch.choice
    only = straggler.choose_batch(table, _spans("generation", list(gaps), 100), [1, 2], relative=False)
    assert only is not None
    assert only.step == 1  # the lower of two, and never a step that was not asked for


def test_async_bars_begin_at_their_own_start() -> None:
    table = _trajectories({1: [110, 120, 130, 140]}, start=100.0)
    table.loc[3, "start_ns"] = 1000 * S  # began 100 s before the others
    batch = straggler.choose_batch(table, _spans("wait_rollout", [1], 50), [1], relative=True)
    assert batch is not None
    assert [bar.start_s for bar in batch.bars] == [0.0] * 4
    assert [bar.end_s for bar in batch.bars] == [10, 20, 30, 140]
    assert batch.share == pytest.approx((140 - 20) / 140)


def test_fewer_than_four_trajectories_have_no_gap() -> None:
    batch = straggler.choose_batch(_trajectories({1: [10, 20, 99]}), _spans("generation", [1], 99), [1], relative=False)
    assert batch is not None
    assert batch.gap_s is None
    assert batch.share is None


def test_nothing_consumed_is_no_batch() -> None:
    table = _trajectories({1: [10, 20, 30, 40]})
    table["step_consumed"] = pd.NA
    assert straggler.choose_batch(table, _spans("generation", [1], 40), [1], relative=False) is None
    assert straggler.choose_batch(table.iloc[:0], _spans("generation", [1], 40), [1], relative=False) is None


@pytest.mark.parametrize(("count", "calls"), [(1, 0), (2, 3), (24, 8), (40, 8), (41, 1), (512, 64)])
def test_every_size_of_batch_is_drawn_inside_the_picture(count: int, calls: int) -> None:
    generator = np.random.default_rng(count)
    table = _trajectories({1: list(generator.lognormal(4, 0.7, count))})
    table["tool_calls"] = [place % (calls + 1) for place in range(count)]
    batch = straggler.choose_batch(table, _spans("generation", [1], 1.0), [1], relative=False)
    assert batch is not None
    with style.styled():
        made = straggler.draw(batch, "framework · placement · model " + "x" * 200)
        axes = made.axes[0]
        boxes = [path.get_extents() for path in axes.collections[0].get_paths()]
        drawn = [(box.x0, box.x1, (box.y0 + box.y1) / 2) for box in boxes]
        assert drawn == [(bar.start_s, bar.end_s, pytest.approx(place)) for place, bar in enumerate(batch.bars)]
        box = made.bbox
        renderer = made.canvas.get_renderer()  # type: ignore[attr-defined]
        for text in [*made.texts, *axes.texts]:
            seen = text.get_window_extent(renderer)
            assert seen.x0 >= box.x0 - 1, text.get_text()
            assert seen.x1 <= box.x1 + 1, text.get_text()
