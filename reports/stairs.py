"""The picture of the waterfall: the exposed parts of a step, one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW = 0.34  # inches


@dataclass(frozen=True, slots=True)
class Stair:
    """One class of the step's time."""

    name: str
    seconds: float  # a step
    share: float  # of the step
    speed_up: str  # without it, at most, in words


def draw(step_s: float, shown: Sequence[Stair], foot: str) -> "Figure":
    """One floating bar per class, in the account's order, with seconds, share and bound at its side."""
    made = style.figure(1.75 + _ROW * (len(shown) + 1))
    title = f"Where a step of {style.duration(step_s)} goes, and what it could win"
    how = "Exposed time: what the step really waits for. At the right: speed-up without that class, at most."
    bottom, top = style.head(made, title, how, foot)
    height = float(made.get_size_inches()[1])
    axes = made.add_axes((0.235, bottom + 0.42 / height, 0.56, top - bottom - 0.5 / height))
    begin = 0.0
    for place, each in enumerate(shown):
        axes.barh(
            place, each.seconds, left=begin, height=0.72, color=style.colour(each.name),
            hatch=style.hatch(each.name), edgecolor=style.SOFT, linewidth=0.6,
        )  # fmt: skip
        end = begin + each.seconds
        if place + 1 < len(shown):
            axes.plot([end, end], [place + 0.36, place + 0.64], color=style.SOFT, linewidth=0.8)
        said = f"{style.duration(each.seconds)} · {100 * each.share:.0f}% · {each.speed_up}"
        axes.text(1.02 * step_s, place, said, va="center", ha="left", fontsize=9.5, color=style.INK, clip_on=False)
        begin = end
    axes.set_yticks(range(len(shown)), [style.fit(style.label(each.name), 10, 150) for each in shown], fontsize=10)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, step_s)
    axes.set_xlabel("seconds of a step; in the order of the account, not of time")
    style.bare(axes)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=style.RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    return made
