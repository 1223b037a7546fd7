"""What of a run goes into the page as data: its timeline, its trajectories, its batches, and its tables in full."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from reports import straggler
from reports.case import Case
from reports.figures import closed, shown_steps
from reports.html.axis import Fineness, axis_of
from reports.html.charts import asynchronous
from reports.html.lives import lives_of
from reports.html.packing import packed
from reports.html.timeline import marks_of, tracks_of
from results.late import late
from results.tracks import tracks

Clean = Callable[[Sequence[str]], list[str]]
_STEPS = ("policy_version", "trajectories", "loss_tokens", "processed_tokens", "reward_mean", "grad_norm")


def run_data(case: Case, name: str, fine: Fineness, clean: Clean) -> dict[str, Any]:
    """One run as plain data for JSON. Times are seconds, or ticks, since the first instant on record.

    `timeline` is None for a run in which nothing has a time.
    """
    axis = axis_of(case.run)
    data: dict[str, Any] = {
        "name": name,
        "run": case.run.run_id,
        "batches": _batches(case, fine),
        "tables": {"figures": _figures(case), "steps": _steps(case, 0 if axis is None else axis.start_ns)},
        "timeline": None,
    }
    if axis is not None:
        found = tracks(case.run)
        names = [each.trajectory_id for each in late(case.run, shown_steps(case.run, case.steps))]
        names += [name for batch in data["batches"]["steps"][:1] for name in batch["id"]]
        data["timeline"] = {
            "length": axis.length_s,
            "tick": axis.tick_ns / 1e9,
            "tracks": tracks_of(case, found, axis, fine),
            "lives": lives_of(case, found, axis, fine, names, clean),
            **marks_of(case, axis),
        }
    return data


def _batches(case: Case, fine: Fineness) -> dict[str, Any]:
    """The straggler chart of each step, the one with the median gap first, then as many as there is room for."""
    steps = shown_steps(case.run, case.steps)
    relative = asynchronous(case)
    lives = closed(case.run.frame("trajectories"))
    spans = case.run.frame("spans")
    spans = spans[spans["phase"].isin(["generation", "wait_rollout"]) & spans["trajectory_id"].isna()]
    chosen = straggler.choose_batch(lives, spans, steps, relative=relative)
    if chosen is None:
        return {"steps": [], "relative": relative, "how": "no step trained on a trajectory"}
    lives = lives[lives["step_consumed"].isin(steps)]
    made = [_batch(chosen)]
    room = fine.bars - len(chosen.bars)
    sizes = Counter(int(step) for step in lives["step_consumed"])
    for step in sorted(sizes.keys() - {chosen.step}, key=lambda step: (abs(step - chosen.step), step)):
        if sizes[step] > room:
            break
        room -= sizes[step]
        batch = straggler.choose_batch(lives, spans, [step], relative=relative)
        made += [] if batch is None else [_batch(batch)]
    left = (
        "" if len(made) == len(sizes) else f"; {len(sizes) - len(made)} of {len(sizes)} steps are left out of this page"
    )
    return {"steps": made, "relative": relative, "how": chosen.choice + left}


def _batch(batch: straggler.Batch) -> dict[str, Any]:
    return {
        "step": batch.step,
        "phase": batch.phase_s,
        "median": batch.median_s,
        "last": batch.last_s,
        "gap": batch.gap_s,
        "share": batch.share,
        "id": [bar.trajectory_id for bar in batch.bars],
        "start": packed([bar.start_s for bar in batch.bars], "f4"),
        "end": packed([bar.end_s for bar in batch.bars], "f4"),
        "calls": packed([bar.tool_calls for bar in batch.bars], "u4"),
    }


def _figures(case: Case) -> dict[str, Any]:
    """Every figure as it is stored, to the last digit, with its interval, n, verdict and note."""
    columns = ["metric", "unit", "value", "ci_low", "ci_high", "n", "verdict", "note"]
    rows = [[getattr(figure, column) for column in columns] for figure in case.figures.figures.values()]
    return {"columns": columns, "rows": rows}


def _steps(case: Case, origin_ns: int) -> dict[str, Any]:
    frame = case.run.frame("steps").sort_values("step")
    rows = [
        [int(row["step"]), (row["start_ns"] - origin_ns) / 1e9, (row["end_ns"] - origin_ns) / 1e9]
        + [None if pd.isna(row[name]) else row[name] for name in _STEPS]
        for row in frame.to_dict("records")
    ]
    return {"columns": ["step", "start_s", "end_s", *_STEPS], "rows": rows}
