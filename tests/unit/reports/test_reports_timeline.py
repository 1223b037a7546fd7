from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports import style, timeline

S = 1_000_000_000


def _frame(rows: list[dict[str, object]], columns: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=columns)
    whole = {name: "Int64" for name in ("step", "start_ns", "end_ns", "version") if name in columns}
    return frame.astype(whole | ({"container": "boolean"} if "container" in columns else {}))


def _frames(trajectories: int = 30, steps: int = 3, seed: int = 1) -> timeline.Frames:
    """Trajectories of random turns and tools over steps of 100 s each."""
    random = np.random.default_rng(seed)
    lives, turns, tools = [], [], []
    for number in range(trajectories):
        now = begin = int(random.uniform(0, 100 * steps - 30) * S)
        for _ in range(int(random.integers(1, 5))):
            end = now + int(random.uniform(1, 8) * S)
            turns.append({"trajectory_id": str(number), "engine": f"e{number % 3}", "start_ns": now, "end_ns": end})
            now = end + int(random.uniform(0, 2) * S)
            end = now + int(random.uniform(1, 8) * S)
            tools.append({"trajectory_id": str(number), "start_ns": now, "end_ns": end})
            now = end
        lives.append({"trajectory_id": str(number), "start_ns": begin, "end_ns": now})
    spans, syncs = [], []
    for step in range(1, steps + 1):
        begin = 100 * (step - 1) * S
        for phase, start, end in (
            ("wait_rollout", 0, 40),
            ("logprob", 40, 60),
            ("train", 60, 90),
            ("weight_sync", 90, 99),
        ):
            spans.append(
                {
                    "phase": phase,
                    "pool": "train",
                    "trajectory_id": None,
                    "container": False,
                    "start_ns": begin + start * S,
                    "end_ns": begin + end * S,
                }
            )
        spans.append({**spans[-1], "phase": None, "container": True, "start_ns": begin, "end_ns": begin + 100 * S})
        syncs += [{"version": step, "end_ns": begin + (97 + engine) * S} for engine in range(3)]
    rows = [{"step": n, "start_ns": 100 * (n - 1) * S, "end_ns": 100 * n * S} for n in range(1, steps + 1)]
    return timeline.Frames(
        steps=_frame(rows, ["step", "start_ns", "end_ns"]),
        spans=_frame(spans, ["phase", "pool", "trajectory_id", "container", "start_ns", "end_ns"]),
        trajectories=_frame(lives, ["trajectory_id", "start_ns", "end_ns"]),
        turns=_frame(turns, ["trajectory_id", "engine", "start_ns", "end_ns"]),
        tool_calls=_frame(tools, ["trajectory_id", "start_ns", "end_ns"]),
        syncs=_frame(syncs, ["version", "end_ns"]),
        engines=tuple({str(turn["engine"]) for turn in turns}),
    )


def _open_at(rows: pd.DataFrame, instant: float) -> int:
    return sum(1 for s, e in zip(rows["start_ns"], rows["end_ns"], strict=True) if s <= instant < e)


def test_the_bands_are_what_was_open_at_each_instant() -> None:
    frames = _frames()
    made = timeline.build(frames, [1, 2, 3], shared=False)
    assert made is not None
    bands = made.bands
    middles = (bands.edges_s[:-1] + bands.edges_s[1:]) / 2
    for place in range(0, len(middles), 7):
        instant = middles[place] * S
        generating, tool = _open_at(frames.turns, instant), _open_at(frames.tool_calls, instant)
        assert bands.generating[place] == generating
        assert bands.tool[place] == tool
        assert bands.waiting[place] == max(0, _open_at(frames.trajectories, instant) - generating - tool)


def test_a_history_too_fine_for_the_picture_keeps_its_integral() -> None:
    frames = _frames(trajectories=600)
    made = timeline.build(frames, [1, 2, 3], shared=False)
    assert made is not None
    assert len(made.bands.generating) <= 1_500
    drawn = float((made.bands.generating * np.diff(made.bands.edges_s)).sum())
    clipped = frames.turns["end_ns"].clip(upper=300 * S) - frames.turns["start_ns"].clip(upper=300 * S)
    assert drawn == pytest.approx(float(clipped.sum()) / S, rel=1e-9)


def test_containers_and_trajectory_spans_name_no_time_of_the_track() -> None:
    frames = _frames()
    made = timeline.build(frames, [2], shared=False)
    assert made is not None
    assert [segment.phase for segment in made.segments] == ["wait_rollout", "logprob", "train", "weight_sync"]
    assert made.segments[0].start_s == 0.0
    assert made.length_s == 100.0


def test_a_version_is_visible_once_the_last_engine_has_it() -> None:
    made = timeline.build(_frames(), [1, 2, 3], shared=False)
    assert made is not None
    assert [(sync.version, sync.at_s) for sync in made.syncs] == [(1, 99.0), (2, 199.0), (3, 299.0)]


def test_open_trajectories_of_a_killed_run_reach_the_edge() -> None:
    frames = _frames()
    lives = frames.trajectories.copy()
    lives["end_ns"] = pd.array([pd.NA] * len(lives), dtype="Int64")
    made = timeline.build(replace(frames, trajectories=lives), [1, 2, 3], shared=False)
    assert made is not None
    whole = made.bands.generating + made.bands.tool + made.bands.waiting
    assert whole[-1] == len(lives)


def test_no_steps_are_no_timeline() -> None:
    frames = _frames()
    assert timeline.build(frames, [], shared=False) is None
    assert timeline.build(frames, [99], shared=False) is None


@pytest.mark.parametrize(
    ("given", "chosen"),
    [([], []), ([5], [5]), ([3, 1, 2], [1, 2, 3]), (range(1, 11), [4, 5, 6, 7]), (range(1, 6), [1, 2, 3, 4])],
)
def test_the_steps_shown_are_consecutive_and_from_the_middle(given: list[int], chosen: list[int]) -> None:
    assert timeline.choose_steps(given) == chosen


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("trajectories", [0, 1, 512])
def test_it_is_drawn_whatever_was_recorded(tmp_path: Path, shared: bool, trajectories: int) -> None:
    made = timeline.build(_frames(trajectories=trajectories, steps=2), [1, 2], shared=shared)
    assert made is not None
    with style.styled():
        drawn = timeline.draw(made, "where it comes from")
        style.save(drawn, tmp_path / "timeline")
        renderer = drawn.canvas.get_renderer()  # type: ignore[attr-defined]
        for legend in drawn.legends:
            assert legend.get_window_extent(renderer).x1 <= drawn.bbox.x1
    assert (tmp_path / "timeline.svg").stat().st_size < 3_000_000
