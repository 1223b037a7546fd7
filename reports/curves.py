"""Curves of the reward: against steps and against wall clock, one line per run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Tol's "bright" scheme, then its "muted" one: lines, not areas.
_LINES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#882255", "#44AA99", "#999933", "#332288")
_DASHES = ("-", "--", ":")
_HEIGHT = 4.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run: a value of each per step."""

    name: str
    steps: Sequence[int]
    ended_s: Sequence[float]  # since the first step began
    means: Sequence[float]
    smooth: Sequence[float]


def draw(curves: Sequence[Curve], smoothed: int) -> "Figure":
    """Two panels: points are steps, lines means over `smoothed` of them."""
    from matplotlib.ticker import MaxNLocator

    made = style.figure(_HEIGHT + 0.2 * ((len(curves) - 1) // 2))
    title = "Does the reward rise, and how soon?"
    how = f"Dots: mean reward of one step's trajectories. Lines: mean over {smoothed} steps."
    foot = f"{len(curves)} run(s); n = {', '.join(str(len(curve.steps)) for curve in curves)} steps"
    bottom, top = style.head(made, title, how, foot)
    height = float(made.get_size_inches()[1])
    legend = 0.24 * ((len(curves) + 1) // 2) / height
    room = top - bottom - legend - 0.5 / height
    left = made.add_axes((0.09, bottom + 0.45 / height, 0.41, room))
    right = made.add_axes((0.56, bottom + 0.45 / height, 0.42, room), sharey=left)
    handles = []
    for index, curve in enumerate(curves):
        colour, dash = _LINES[index % len(_LINES)], _DASHES[(index // len(_LINES)) % len(_DASHES)]
        for axes, places in ((left, curve.steps), (right, curve.ended_s)):
            axes.plot(places, curve.means, "o", color=colour, markersize=3.5, alpha=0.4, markeredgewidth=0)
            name = style.fit(curve.name, 10, 300)
            (line,) = axes.plot(places, curve.smooth, dash, color=colour, linewidth=2, label=name)
        handles.append(line)
    for axes, what in ((left, "step"), (right, "seconds since the first step began")):
        _dress(axes, what)
    left.set_ylabel("mean reward")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.tick_params(labelleft=False)
    made.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.06, top + 0.02), ncols=2, frameon=False, fontsize=10
    )
    return made


def _dress(axes: "Axes", what: str) -> None:
    style.bare(axes, keep=("bottom", "left"))
    axes.grid(axis="y", color=style.RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(what)
