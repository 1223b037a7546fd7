"""The pictures of a report: made from tables and figures, with what each one shows."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc

from harness.protocol.spec import Placement
from reports import bars, straggler, style, timeline
from reports.markdown import plural
from reports.picture import Picture, no_picture, write_picture
from reports.provenance import foot
from reports.tables import classes
from results.account import Account
from results.store import RunTables, frame_of

ACCOUNT = "account"


def shown_steps(run: RunTables, window: Sequence[int]) -> list[int]:
    """The steps that pictures show: the steady window's, or all recorded ones where there is no window."""
    if window:
        return list(window)
    return sorted({int(step) for step in run.frame("steps")["step"]})


def straggler_picture(
    run: RunTables, window: Sequence[int], folder: Path, stem: str = "straggler", spans: pd.DataFrame | None = None
) -> Picture:
    """Writes the straggler chart of the step with the median gap; `spans`: `spans_shown` of the run, if at hand."""
    relative = run.spec.placement is Placement.ASYNC
    spans = spans_shown(run) if spans is None else spans
    batch = straggler.choose_batch(
        closed(run.frame("trajectories")), spans, shown_steps(run, window), relative=relative
    )
    if batch is None:
        return no_picture(stem, "No straggler chart: no step trained on a trajectory.", folder)
    text = f"{batch.choice[0].upper()}{batch.choice[1:]}: {plural(len(batch.bars), 'trajectory')}, sorted by completion"
    if batch.gap_s is not None and batch.share is not None:
        of = "the longest trajectory" if relative else "the rollout phase"
        text += f"; median to last {style.duration(batch.gap_s)}, {batch.share:.1%} of {of}"
    if relative:
        text += ". Asynchronous: no step waits for a whole batch, so each bar begins at its trajectory's own start"
    line = foot(run, f"n = {plural(len(batch.bars), 'trajectory')} of step {batch.step}")
    return write_picture(stem, text + ".", partial(straggler.draw, batch, line), folder)


def spans_shown(run: RunTables) -> pd.DataFrame:
    """The spans that are of no trajectory, as far as pictures show them."""
    columns = ("phase", "pool", "step", "trajectory_id", "container", "start_ns", "end_ns")
    text = ("phase", "pool", "trajectory_id")
    return frame_of(run.where("spans", columns, lambda batch: batch.column("trajectory_id").is_null(), text=text))


def _open_in(run: RunTables, name: str, edges: tuple[int, int] | None, *columns: str) -> pd.DataFrame:
    """The rows of a table that were open at some instant between the edges; what never ended was."""
    table = run.part(name, ("start_ns", "end_ns", *columns))
    left, right = edges or (0, 0)
    late = pc.fill_null(pc.greater(table["end_ns"], left), fill_value=True)
    return frame_of(table.filter(pc.and_(late, pc.less(table["start_ns"], right))))


def timeline_picture(
    run: RunTables, window: Sequence[int], folder: Path, stem: str = "timeline", spans: pd.DataFrame | None = None
) -> Picture:
    """Writes the timeline of a few steps from the middle of the steady window; `spans` as in `straggler_picture`."""
    steps, rows = timeline.choose_steps(shown_steps(run, window)), run.frame("steps")
    edges = timeline.extent(rows, steps)
    frames = timeline.Frames(
        steps=rows,
        spans=spans_shown(run) if spans is None else spans,
        trajectories=_open_in(run, "trajectories", edges),
        turns=_open_in(run, "turns", edges, "engine"),
        tool_calls=_open_in(run, "tool_calls", edges),
        syncs=run.frame("weight_syncs"),
        engines=tuple(pc.unique(run.part("turns", ("engine",))["engine"]).drop_null().to_pylist()),
    )
    made = timeline.build(frames, steps, shared=run.spec.placement is Placement.COLOCATED)
    if made is None:
        return no_picture(stem, "No timeline: no step ended.", folder)
    span = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    text = f"Phases per pool and trajectories in flight, {span} ({style.duration(made.length_s)})."
    line = foot(run, f"n = {plural(len(made.steps), 'step')}")
    return write_picture(stem, text, partial(timeline.draw, made, line), folder)


def account_picture(run: RunTables, account: Account, folder: Path) -> Picture:
    """Writes the time account of every unit: one bar each, classes in one order for all."""
    names = classes([unit.seconds for unit in account.units])
    rows = [
        bars.Row(name=unit.unit, parts={name: unit.seconds.get(name, 0.0) for name in names}) for unit in account.units
    ]
    drawn = bars.with_time(rows, bars.MOST_ROWS)
    if not drawn:
        why = "no unit has an account" if not rows else f"{len(rows)} units are too many for one picture"
        return no_picture(ACCOUNT, f"No picture of the time account: {why}.", folder)
    line = foot(run, f"n = {plural(len(rows), 'unit')}")
    draw = partial(bars.draw_account, drawn, granularity=account.granularity, window_s=account.window_s, foot=line)
    return write_picture(ACCOUNT, "Share of the steady window by class, one bar per unit.", draw, folder)


def steps_picture(
    rows: Sequence[bars.Row], *, title: str, how: str, line: str, folder: Path, what: str = "run"
) -> Picture:
    """Writes the step times of several runs (or whatever `what` says a bar stands for) side by side."""
    drawn = bars.with_time(rows)
    if not drawn:
        return no_picture("steps", f"No picture of step times: no {what} has a steady window.", folder)
    draw = partial(bars.draw_steps, drawn, title=title, how=how, foot=line)
    return write_picture("steps", f"Average seconds of a step by phase, one bar per {what}.", draw, folder)


def closed(trajectories: pd.DataFrame) -> pd.DataFrame:
    """The trajectories that ended."""
    return trajectories[trajectories["end_ns"].notna()]
