"""The timeline: what the trainer and the rollout side did over a few steps, on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reports import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = np.ndarray[tuple[int], np.dtype[np.float64]]
_MOST_STEPS = 4
_MOST_STRIPS = 16  # engines drawn one by one
_PIXELS = 1_500  # histories with more changes are averaged over this many equal stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A leaf span of the train track, cut to the picture: seconds since its left edge."""

    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Trajectories by what they were doing. `edges_s` has one entry more than each of the counts."""

    edges_s: Array
    generating: Array
    tool: Array
    waiting: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The instant a version became visible to the rollout side."""

    at_s: float
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything the picture shows. `steps` are (number, begin, end) in seconds since the left edge."""

    shared: bool  # colocated: one pool takes turns
    length_s: float
    steps: tuple[tuple[int, float, float], ...]
    segments: tuple[Segment, ...]
    bands: Bands
    engines: tuple[tuple[str, Bands], ...]
    syncs: tuple[Sync, ...]


def choose_steps(steps: Sequence[int], most: int = _MOST_STEPS) -> list[int]:
    """Consecutive steps from the middle of those given, at most `most`."""
    ordered = sorted(steps)
    skip = max(0, (len(ordered) - most) // 2)
    return ordered[skip : skip + most]


def build(
    frames: "Frames",
    steps: Sequence[int],
    *,
    shared: bool,
) -> Timeline | None:
    """The timeline of those steps, or None when none of them was recorded."""
    edges = extent(frames.steps, steps)
    if edges is None:
        return None
    left, right = edges
    shown = _shown(frames.steps, steps)
    known = sorted(frames.engines)
    engines: list[tuple[str, Bands]] = []
    if 2 <= len(known) <= _MOST_STRIPS:
        engines = [(name, _bands(frames, left, right, engine=name)) for name in known]
    return Timeline(
        shared=shared,
        length_s=(right - left) / 1e9,
        steps=tuple(
            (int(step), (int(start) - left) / 1e9, (int(end) - left) / 1e9)
            for step, start, end in zip(shown["step"], shown["start_ns"], shown["end_ns"], strict=True)
        ),
        segments=tuple(_segments(frames.spans, left, right)),
        bands=_bands(frames, left, right, engine=None),
        engines=tuple(engines),
        syncs=tuple(_syncs(frames.syncs, left, right)),
    )


def extent(rows: "pd.DataFrame", steps: Sequence[int]) -> tuple[int, int] | None:
    """From when to when (ns) a picture of those steps goes; None where none of them was recorded, or none took time."""
    shown = _shown(rows, steps)
    left, right = (int(shown["start_ns"].min()), int(shown["end_ns"].max())) if len(shown) else (0, 0)
    return (left, right) if left < right else None


def _shown(rows: "pd.DataFrame", steps: Sequence[int]) -> "pd.DataFrame":
    return rows[rows["step"].isin(list(steps))].sort_values("step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The tables a timeline is made from, as data frames with the columns of results.schema.

    Of trajectories, turns and tool calls, those outside the picture may be left out; `engines` are those of all turns.
    """

    steps: "pd.DataFrame"
    spans: "pd.DataFrame"
    trajectories: "pd.DataFrame"
    turns: "pd.DataFrame"
    tool_calls: "pd.DataFrame"
    syncs: "pd.DataFrame"
    engines: tuple[str, ...] = ()


def draw(timeline: Timeline, foot: str) -> "Figure":
    """The picture; `foot` says where the data come from."""
    strips = len(timeline.engines)
    strip_room = strips * 0.135 + 0.2 if strips else 0.0
    made = style.figure(5.35 + strip_room)
    bottom, top = style.head(made, *_words(timeline), foot)
    height = float(made.get_size_inches()[1])
    left, width = 0.085, 0.715
    upper = top - 0.36 / height
    track = made.add_axes((left, upper - 0.5 / height, width, 0.5 / height))
    _track(track, timeline)
    under = upper - 0.5 / height - 0.36 / height
    axes_list = [track]
    if strips:
        tall = strips * 0.135 / height
        strip = made.add_axes((left, under - tall, width, tall))
        _strips(strip, timeline)
        axes_list.append(strip)
        under -= tall + 0.2 / height
    floor = bottom + 0.5 / height
    panel = made.add_axes((left, floor, width, under - floor))
    _panel(panel, timeline)
    axes_list.append(panel)
    for axes in axes_list:
        axes.set_xlim(0, timeline.length_s)
        for _, begin, _ in timeline.steps[1:]:
            axes.axvline(begin, color=style.INK, linewidth=0.8, alpha=0.55, zorder=5)
        for sync in timeline.syncs if axes is not track else ():  # there the sync itself is drawn
            axes.axvline(sync.at_s, color=style.ACCENT, linewidth=1.1, linestyle=(0, (3, 1.5)), zorder=6)
    _keys(made, timeline, track, panel, left + width + 0.015)
    return made


def _segments(spans: "pd.DataFrame", left: int, right: int) -> list[Segment]:
    if spans.empty:
        return []
    leaf = spans[
        spans["pool"].isin(["train", "both"])
        & spans["trajectory_id"].isna()
        & spans["phase"].notna()
        & ~spans["container"].fillna(value=False).astype(bool)
        & (spans["end_ns"] > left)
        & (spans["start_ns"] < right)
    ].sort_values(["start_ns", "end_ns"], kind="stable")
    cut = []
    for phase, start, end in zip(leaf["phase"], leaf["start_ns"], leaf["end_ns"], strict=True):
        begin, finish = max(int(start), left), min(int(end), right)
        cut.append(Segment(phase=str(phase), start_s=(begin - left) / 1e9, end_s=(finish - left) / 1e9))
    return list(dict.fromkeys(cut))  # several engines' syncs of one update are one stretch


def _syncs(syncs: "pd.DataFrame", left: int, right: int) -> list[Sync]:
    if syncs.empty:
        return []
    known = syncs.dropna(subset=["version"])
    visible: dict[int, int] = {}
    for version, end in zip(known["version"], known["end_ns"], strict=True):
        visible[int(version)] = max(int(end), visible.get(int(version), 0))  # on the last of the engines
    return [
        Sync(at_s=(end - left) / 1e9, version=version)
        for version, end in sorted(visible.items())
        if left <= end <= right
    ]


def _bands(frames: Frames, left: int, right: int, *, engine: str | None) -> Bands:
    """How many trajectories were generating, in a tool or neither, as step functions or as means of short stretches."""
    turns = frames.turns
    if engine is not None:
        turns = turns[turns["engine"] == engine]
    live = _changes(frames.trajectories if engine is None else frames.trajectories.iloc[:0], left, right)
    busy = _changes(turns, left, right)
    tool = _changes(frames.tool_calls if engine is None else frames.tool_calls.iloc[:0], left, right)
    instants = np.sort(np.concatenate([np.array([left, right]), live[0], busy[0], tool[0]]))
    instants = instants[np.concatenate([[True], instants[1:] != instants[:-1]])]  # np.unique hashes: slower
    counts = [_level(change, instants) for change in (live, busy, tool)]
    edges = (instants - left) / 1e9
    if len(instants) > _PIXELS:
        even = np.linspace(0.0, (right - left) / 1e9, _PIXELS + 1)
        counts = [_averaged(edges, count, even) for count in counts]
        edges = even
    alive, generating, tools = counts
    waiting = np.maximum(alive - generating - tools, 0.0) if engine is None else np.zeros_like(generating)
    return Bands(edges_s=edges, generating=generating, tool=tools, waiting=waiting)


Changes = tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]


def _changes(rows: "pd.DataFrame", left: int, right: int) -> Changes:
    """Instants at which a count rises or falls inside the picture, and by how much."""
    if rows.empty:
        return np.array([], dtype=np.int64), np.array([], dtype=np.int64)
    start = np.clip(rows["start_ns"].to_numpy(dtype=np.int64), left, right)
    end = np.clip(rows["end_ns"].fillna(right).to_numpy(dtype=np.int64), left, right)  # open ones reach the edge
    return np.concatenate([start, end]), np.concatenate([np.ones_like(start), -np.ones_like(end)])


def _level(changes: Changes, instants: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Array:
    """The count between each two neighbouring instants."""
    sums = np.bincount(np.searchsorted(instants, changes[0]), weights=changes[1], minlength=len(instants))
    levels: Array = np.cumsum(sums, dtype=np.float64)[:-1]
    return levels


def _averaged(edges: Array, levels: Array, even: Array) -> Array:
    """Time-weighted mean over each even stretch: the integral is kept."""
    integral = np.concatenate([[0.0], np.cumsum(levels * np.diff(edges))])
    means: Array = np.diff(np.interp(even, edges, integral)) / np.diff(even)
    return means


def _words(timeline: Timeline) -> tuple[str, str]:
    first, last = timeline.steps[0][0], timeline.steps[-1][0]
    named = f"step {first}" if first == last else f"steps {first}–{last}"
    if timeline.shared:
        title = f"One pool takes turns: rollout, then training ({named})"
        how = "Top: what the shared pool was used for."
    else:
        title = f"Training and rollout side by side ({named})"
        how = "Top: what the train pool did."
    how += " Bottom: what the trajectories in flight were doing. Black lines separate steps."
    return title, how


def _track(axes: "Axes", timeline: Timeline) -> None:
    for segment in timeline.segments:
        length = segment.end_s - segment.start_s
        fill = style.colour(segment.phase)
        axes.barh(
            0,
            length,
            left=segment.start_s,
            height=1,
            color=fill,
            hatch=style.hatch(segment.phase),
            edgecolor="#9A9A9A" if style.hatch(segment.phase) else fill,
            linewidth=0,
        )
        if length > 0.075 * timeline.length_s:
            ink = "white" if style.light_on(fill) else style.INK
            text = axes.text((segment.start_s + segment.end_s) / 2, 0, style.duration(length), color=ink, fontsize=9.5)
            text.set(ha="center", va="center")
            if style.hatch(segment.phase):
                text.set_bbox({"facecolor": fill, "edgecolor": "none", "pad": 1.5})
    axes.set_ylim(-0.5, 0.5)
    axes.set_yticks([])
    axes.set_xticks([])
    style.bare(axes, keep=())
    axes.set_ylabel("shared" if timeline.shared else "train", rotation=0, ha="right", va="center", labelpad=6)
    for step, begin, end in timeline.steps:
        if end - begin > 0.05 * timeline.length_s:
            axes.text((begin + end) / 2, 0.62, f"step {step}", ha="center", va="bottom", fontsize=10, color=style.INK)


def _strips(axes: "Axes", timeline: Timeline) -> None:
    """One line per engine, solid while it generates for someone."""
    for place, (_, bands) in enumerate(timeline.engines):
        busy = bands.generating > 0
        pieces = [(float(a), float(b - a)) for a, b in _runs(bands.edges_s, busy)]
        axes.broken_barh(pieces, (place - 0.38, 0.76), facecolors=style.colour("generating"), linewidth=0)
    axes.set_ylim(len(timeline.engines) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xticks([])
    style.bare(axes, keep=())
    axes.set_facecolor("#F4F4F4")
    axes.set_ylabel(f"{len(timeline.engines)}\nengines", rotation=0, ha="right", va="center", labelpad=6)
    axes.text(0, -0.75, "engine is generating for at least one trajectory", fontsize=9, color=style.SOFT, va="bottom")


def _runs(edges: Array, on: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[float, float]]:
    """Stretches in which `on` holds, neighbours joined."""
    padded = np.concatenate([[False], on, [False]]).astype(np.int8)
    change = np.flatnonzero(np.diff(padded))
    return [(float(edges[a]), float(edges[b])) for a, b in zip(change[::2], change[1::2], strict=True)]


_BANDS = (
    ("generating", "generating", "generating"),
    ("tool", "tool", "in a tool call"),
    ("waiting", "queued", "queue or agent"),
)


def _panel(axes: "Axes", timeline: Timeline) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import MaxNLocator

    bands = timeline.bands
    sums = np.cumsum([getattr(bands, name) for name, _, _ in _BANDS], axis=0)
    for (_, colour, _), top in reversed(list(zip(_BANDS, sums, strict=True))):  # the tallest behind: no seams
        outline = np.column_stack([np.repeat(bands.edges_s, 2), np.concatenate([[0.0], np.repeat(top, 2), [0.0]])])
        axes.add_collection(PolyCollection([outline], facecolors=style.colour(colour), linewidths=0), autolim=False)
    peak = float(sums[-1].max()) if sums.size else 0.0
    axes.set_ylim(0, max(peak * 1.06, 1))
    axes.set_xlabel("seconds")
    axes.set_ylabel("trajectories in flight")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.grid(visible=True, color=style.RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    style.bare(axes, keep=("bottom",))
    axes.tick_params(axis="y", length=0)


def _keys(made: "Figure", timeline: Timeline, track: "Axes", panel: "Axes", at: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = list(dict.fromkeys(segment.phase for segment in timeline.segments))
    order = {name: place for place, name in enumerate(style.COLOURS)}
    present.sort(key=lambda name: order.get(name, len(order)))
    phases = [
        Patch(
            facecolor=style.colour(name), hatch=style.hatch(name), edgecolor="#9A9A9A", linewidth=0, label=_short(name)
        )
        for name in present
    ]
    look = {
        "frameon": False,
        "fontsize": 9,
        "handlelength": 1.1,
        "handleheight": 1.0,
        "borderaxespad": 0,
        "labelspacing": 0.35,
    }
    made.legend(handles=phases, loc="upper left", bbox_to_anchor=(at, track.get_position().y1), **look)
    bands: list[Artist] = [Patch(facecolor=style.colour(colour), label=text) for _, colour, text in reversed(_BANDS)]
    if timeline.syncs:
        line = Line2D([], [], color=style.ACCENT, linewidth=1.1, linestyle=(0, (3, 1.5)), label="new weights visible")
        bands.insert(0, line)
    made.legend(handles=bands, loc="lower left", bbox_to_anchor=(at, panel.get_position().y0), **look)


def _short(name: str) -> str:
    return "rollout" if name == "generation" else style.label(name)
