"""The straggler chart: one bar per trajectory of one batch, sorted by completion, coloured by tool calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reports import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

Ns = npt.NDArray[np.int64]

FEWEST = 4  # fewer trajectories have no meaningful median-to-last gap (MEASURING.md, "Straggler wait")
_NAMED_BARS = 40  # more bars than this carry no label each


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One trajectory: seconds after the batch's origin."""

    trajectory_id: str
    start_s: float
    end_s: float
    tool_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The trajectories one step trained on, in order of completion.

    `phase_s` is what the gap is a share of: the rollout phase; in async, where no phase waits for a batch, the longest
    trajectory. Gap, median and share are None below 4 trajectories.
    """

    step: int
    bars: tuple[Bar, ...]
    relative: bool  # async: every bar begins at its own start
    phase_s: float
    median_s: float | None
    last_s: float | None
    choice: str  # how this step was chosen

    @property
    def gap_s(self) -> float | None:
        """Seconds from the median trajectory's end to the last one's."""
        return None if self.median_s is None or self.last_s is None else self.last_s - self.median_s

    @property
    def share(self) -> float | None:
        """The gap as a share of the rollout phase."""
        return None if self.gap_s is None or self.phase_s <= 0 else self.gap_s / self.phase_s


def choose_batch(
    trajectories: "pd.DataFrame",
    spans: "pd.DataFrame",
    steps: Sequence[int],
    *,
    relative: bool,
) -> Batch | None:
    """The batch whose gap is the median of those steps' gaps (the lower of two); None when nothing was trained on.

    Args:
        trajectories: rows of the table `trajectories`; those with a `step_consumed` count.
        spans: rows of the table `spans`, for the begin and end of each step's rollout phase.
        steps: the steps to choose from: the steady window's; all steps where there is no window.
        relative: async, where bars begin at each trajectory's own start.
    """
    if trajectories.empty or "step_consumed" not in trajectories:
        return None
    used = trajectories[trajectories["step_consumed"].isin(list(steps))]
    phases = _phases(spans)
    used = used.sort_values("step_consumed", kind="stable")
    consumed = used["step_consumed"].to_numpy(np.int64)
    numbers, firsts = np.unique(consumed, return_index=True)
    if not numbers.size:
        return None
    parts = list(zip(numbers.tolist(), firsts.tolist(), [*firsts[1:].tolist(), consumed.size], strict=True))
    starts, ends = used["start_ns"].to_numpy(np.int64), used["end_ns"].to_numpy(np.int64)
    gaps = [
        (_gap_s(ends[a:b], starts[a:b] if relative else phases.get(step, (int(starts[a:b].min()), 0))[0]), step)
        for step, a, b in parts
    ]
    ranked = sorted((gap, step) for gap, step in gaps if gap is not None)
    chosen = ranked[(len(ranked) - 1) // 2][1] if ranked else parts[0][0]
    made = _batch(chosen, used[consumed == chosen], phases, relative=relative)
    if len(ranked) < 2:
        return made
    return replace(made, choice=f"step {chosen}, the one with the median gap of {len(ranked)} steps")


def draw(batch: Batch, foot: str) -> "Figure":
    """The chart of one batch; `foot` says where the data come from."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patheffects import withStroke

    count = len(batch.bars)
    named = count <= _NAMED_BARS
    room = min(max(count * (0.215 if named else 0.012), 1.2), 6.2)
    made = style.figure(room + 2.45)
    title, subtitle = _words(batch)
    bottom, top = style.head(made, title, subtitle, foot)
    height = float(made.get_size_inches()[1])
    axes = made.add_axes((0.035, bottom + 0.52 / height, 0.84, top - bottom - (0.52 + 0.42) / height))
    fewest = min(bar.tool_calls for bar in batch.bars)
    most = max(bar.tool_calls for bar in batch.bars)
    palette = _palette(most - fewest + 1)
    shown = np.array([(bar.start_s, bar.end_s) for bar in batch.bars])
    boxes = style.boxes(shown[:, 0], shown[:, 1], np.arange(float(count)), 0.78 if named else 1.0)
    fills = [palette(bar.tool_calls - fewest) for bar in batch.bars]
    axes.add_collection(PolyCollection(boxes, facecolors=fills, linewidths=0), autolim=False)
    for place, bar in enumerate(batch.bars if named else ()):
        axes.annotate(
            str(bar.tool_calls),
            (bar.end_s, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=style.SOFT,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=4,
        )
    axes.set_ylim(count - 0.4, -0.6)
    end = max(bar.end_s for bar in batch.bars)
    begin = min([0.0, *(bar.start_s for bar in batch.bars)])
    axes.set_xlim(begin, end * 1.015 if end > 0 else 1)
    axes.set_xlabel(
        "seconds since the trajectory's own start" if batch.relative else "seconds since the rollout phase began"
    )
    axes.set_yticks([])
    style.bare(axes)
    axes.xaxis.grid(visible=True, color=style.RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    _mark_gap(axes, batch, end)
    _key(made, axes, fewest, most, palette)
    return made


def _gap_s(ends: Ns, origin: Ns | int) -> float | None:
    """The gap of a batch (see `Batch.gap_s`), without its bars."""
    if ends.size < FEWEST:
        return None
    ordered = np.sort((ends - origin) / 1e9)
    return float(ordered[-1] - ordered[(ordered.size + 1) // 2 - 1])


def _batch(step: int, rows: "pd.DataFrame", phases: Mapping[int, tuple[int, int]], *, relative: bool) -> Batch:
    starts = rows["start_ns"].to_numpy(dtype=np.int64)
    ends = rows["end_ns"].to_numpy(dtype=np.int64)
    # The native span of the rollout phase, else what the trajectories themselves cover.
    begin, finish = phases.get(step, (int(starts.min()), int(ends.max())))
    origin = starts if relative else np.full_like(starts, begin)
    bars = sorted(
        (
            Bar(trajectory_id=str(name), start_s=float(start), end_s=float(end), tool_calls=int(calls))
            for name, start, end, calls in zip(
                rows["trajectory_id"], (starts - origin) / 1e9, (ends - origin) / 1e9, rows["tool_calls"], strict=True
            )
        ),
        key=lambda bar: (bar.end_s, bar.trajectory_id),
    )
    enough = len(bars) >= FEWEST
    last = bars[-1].end_s
    return Batch(
        step=step,
        bars=tuple(bars),
        relative=relative,
        phase_s=last if relative else (finish - begin) / 1e9,
        median_s=bars[(len(bars) + 1) // 2 - 1].end_s if enough else None,  # an order statistic, the lower one
        last_s=last if enough else None,
        choice=f"step {step}",
    )


def _phases(spans: "pd.DataFrame") -> dict[int, tuple[int, int]]:
    """Begin and end of each step's rollout phase, by its native spans."""
    if spans.empty:
        return {}
    native = spans[
        spans["phase"].isin(["generation", "wait_rollout"])
        & spans["trajectory_id"].isna()
        & spans["step"].notna()
        & ~spans["container"].fillna(value=False).astype(bool)
    ]
    edges = native.groupby("step").agg(begin=("start_ns", "min"), end=("end_ns", "max"))
    return {int(step): (int(begin), int(end)) for step, begin, end in edges.itertuples()}


def _words(batch: Batch) -> tuple[str, str]:
    """Title (what is seen) and subtitle (how to read it)."""
    chosen = batch.choice[0].upper() + batch.choice[1:]
    order = "shortest first" if batch.relative else "in order of completion"
    counted = "; the number is its tool calls" if len(batch.bars) <= _NAMED_BARS else ""
    how = f"{chosen}. One bar for each of the {len(batch.bars)} trajectories it trained on, {order}{counted}."
    if batch.relative:
        how += " Asynchronous: no step waits for a whole batch, so each bar begins at its own start."
    if batch.gap_s is None or batch.share is None:
        return f"How long each of {len(batch.bars)} trajectories took", how
    if batch.relative:
        return f"The slowest trajectory took {style.duration(batch.gap_s)} longer than the median one", how
    gap, share = style.duration(batch.gap_s), f"{batch.share:.0%}"
    return f"The last trajectory ended {gap} after the median one: {share} of the rollout phase", how


def _mark_gap(axes: "Axes", batch: Batch, end: float) -> None:
    if batch.median_s is None or batch.last_s is None or batch.gap_s is None or batch.share is None:
        return
    axes.axvspan(batch.median_s, batch.last_s, color=style.ACCENT, alpha=0.07, linewidth=0, zorder=0)
    for at in (batch.median_s, batch.last_s):
        axes.axvline(at, color=style.ACCENT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
    of = "of the longest" if batch.relative else "of the rollout phase"
    text = f"median to last: {style.duration(batch.gap_s)}, {batch.share:.0%} {of}"
    lane = axes.get_xaxis_transform()
    axes.annotate(
        "",
        (batch.last_s, 1.025),
        (batch.median_s, 1.025),
        xycoords=lane,
        textcoords=lane,
        arrowprops={"arrowstyle": "<->", "color": style.ACCENT, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0},
        annotation_clip=False,
    )
    axes.text(batch.last_s, 1.045, text, transform=lane, color=style.ACCENT, fontsize=10.5, ha="right", va="bottom")


def _key(made: "Figure", axes: "Axes", fewest: int, most: int, palette: "ListedColormap") -> None:
    """The colour key: one square per number of tool calls, at the right."""
    box = axes.get_position()
    height = float(made.get_size_inches()[1])
    shown = most - fewest + 1
    tall = min(shown * 0.26 / height, box.height * 0.8)
    key = made.add_axes((0.905, box.y1 - 0.25 / height - tall, 0.022, tall))
    for place in range(shown):
        key.barh(place, 1, height=0.92, color=palette(place), linewidth=0)
    every = max(1, -(-shown // 10))
    key.set_yticks(
        list(range(0, shown, every)), [str(fewest + place) for place in range(0, shown, every)], fontsize=9.5
    )
    key.set_ylim(shown - 0.5, -0.5)
    key.set_xlim(0, 1)
    key.yaxis.tick_right()
    key.tick_params(length=0)
    key.set_xticks([])
    style.bare(key, keep=())
    made.text(0.905, box.y1 - 0.16 / height, "tool calls", fontsize=9.5, color=style.SOFT, va="bottom", ha="left")


def _palette(shades: int) -> "ListedColormap":
    """That many steps of a sequential scale that darkens with the count, also in grey."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    scale = colormaps["YlOrRd"]
    places = np.linspace(0.22, 0.95, shades) if shades > 1 else np.array([0.6])
    return ListedColormap([scale(float(place)) for place in places])
