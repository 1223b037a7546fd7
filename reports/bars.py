"""Stacked bars: the time account of each unit, and the step times of several runs side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 64  # of an account: more units than this are not drawn: their table carries them
_NAME = 152.0  # points of a row's name
_BEYOND = 1.17  # the step axis, in lengths of the longest bar: room for its total
_INSIDE = 9.5  # font size of a part's own number


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bar: what it is called, and seconds per phase or class in the order to draw them."""

    name: str
    parts: Mapping[str, float]
    note: str = ""  # said at the bar's end

    @property
    def total_s(self) -> float:
        """Length of the whole bar."""
        return sum(self.parts.values())


def with_time(rows: Sequence[Row], most: int | None = None) -> list[Row]:
    """The rows that have a length to draw; none of them where they are more than `most`."""
    drawn = [row for row in rows if row.total_s > 0]
    return [] if most is not None and len(drawn) > most else drawn


def draw_account(rows: Sequence[Row], *, granularity: str, window_s: float, foot: str) -> "Figure":
    """Shares of the steady window per unit; each of the rows, at least one, has a length."""
    shares = [
        Row(name=row.name, parts={name: 100 * part / row.total_s for name, part in row.parts.items()}) for row in rows
    ]
    title = "Where the time of each unit went"
    how = (
        f"Share of the steady window ({style.duration(window_s)}). One bar per unit, the smallest part of a "
        f"pool that works as one (granularity: {granularity}). Patterned: idle, or nothing recorded."
    )
    made, axes = _frame(len(shares), title, how, foot, _parts(shares))
    _stack(axes, shares, span=100.0, form="{:.0f}%".format)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the steady window")
    return made


def draw_steps(rows: Sequence[Row], *, title: str, how: str, foot: str) -> "Figure":
    """Average seconds of a step by phase, one bar per run; each of the rows, at least one, has a length."""
    longest = max(row.total_s for row in rows)
    made, axes = _frame(len(rows), title, how, foot, _parts(rows))
    _stack(axes, rows, span=longest * _BEYOND, form=style.duration)
    for place, row in enumerate(rows):
        text = style.duration(row.total_s)
        note = style.fit(row.note, 9, 74)
        axes.annotate(
            text,
            (row.total_s, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=11,
            fontweight="bold",
        )
        axes.annotate(
            note,
            (row.total_s, place),
            xytext=(6, -13),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=style.SOFT,
        )
    axes.set_xlim(0, longest * _BEYOND)
    axes.set_xlabel("seconds per step, on the track of the pool that trains")
    return made


def _parts(rows: Sequence[Row]) -> list[str]:
    """Every part that is more than nothing in some row, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name, part in row.parts.items() if part > 0))


def _frame(count: int, title: str, how: str, foot: str, parts: Sequence[str]) -> "tuple[Figure, Axes]":
    from matplotlib.patches import Patch

    pitch = 0.62 if count <= 6 else max(0.15, 3.9 / count)
    legend_lines = -(-len(parts) // 4)
    made = style.figure(count * pitch + 2.15 + 0.24 * legend_lines)
    bottom, top = style.head(made, title, how, foot)
    height = float(made.get_size_inches()[1])
    room = (0.24 * legend_lines + 0.12) / height
    axes = made.add_axes((0.235, bottom + 0.5 / height, 0.735, top - room - bottom - 0.5 / height))
    made.legend(
        handles=[
            Patch(
                facecolor=style.colour(name),
                hatch=style.hatch(name),
                edgecolor="#9A9A9A" if style.hatch(name) else style.colour(name),
                linewidth=0,
                label=style.label(name),
            )
            for name in parts
        ],
        loc="upper left",
        bbox_to_anchor=(0.012, top + 0.02 / height),
        ncols=min(4, max(1, len(parts))),
        frameon=False,
        fontsize=9.5,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.6,
        labelspacing=0.35,
        borderaxespad=0.4,
    )
    return made, axes


def _stack(axes: "Axes", rows: Sequence[Row], *, span: float, form: Callable[[float], str]) -> None:
    """Draws the bars on an axis of that length; a part's number is left out where it would not fit into the part."""
    thin = len(rows) > 16
    inches = axes.get_position().width * axes.figure.bbox.width / axes.figure.dpi
    points = 72 * inches / span  # of one unit of the axis
    for place, row in enumerate(rows):
        left = 0.0
        for name, part in row.parts.items():
            if part <= 0:
                continue
            fill, hatch = style.colour(name), style.hatch(name)
            edge = "#9A9A9A" if hatch else fill
            axes.barh(place, part, left=left, height=0.74, color=fill, hatch=hatch, edgecolor=edge, linewidth=0)
            if not thin and style.breadth(form(part), _INSIDE) + 6 <= part * points:
                ink = "white" if style.light_on(fill) else style.INK
                text = axes.text(left + part / 2, place, form(part), color=ink, fontsize=_INSIDE, ha="center")
                text.set(va="center")
                if hatch:
                    text.set_bbox({"facecolor": fill, "edgecolor": "none", "pad": 1.5})
            left += part
    axes.set_ylim(len(rows) - 0.45, -0.55)
    size = 10.5 if len(rows) <= 16 else 6.5
    axes.set_yticks(range(len(rows)), [style.fit(row.name, size, _NAME) for row in rows], fontsize=size)
    axes.tick_params(axis="y", length=0)
    style.bare(axes)
