"""Reward against steps and against wall clock, one line per run, and how soon each run reached a given reward."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports import style
from reports.case import Case, labels
from reports.figures import Picture, remove, write_picture
from reports.markdown import escape, number, seconds, table
from results.learning import SMOOTHED, Learning, learning

STEM = "reward"
HALF = 0.5

# Tol's "bright" scheme, then its "muted" one: lines, not areas.
_LINES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#882255", "#44AA99", "#999933", "#332288")
_DASHES = ("-", "--", ":")
_HEIGHT = 4.6


def learning_section(cases: Sequence[Case], folder: Path) -> list[str]:
    """The section of a report on the course of the reward; empty where no run's policy decides its reward."""
    names = labels(cases)
    known = [
        (name, found) for name, case in zip(names, cases, strict=True) if (found := learning(case.run)) is not None
    ]
    if not known:
        remove(STEM, folder)
        return []
    picture = _picture(known, cases[0].run.spec.reward, folder)
    lines = ["## Reward", "", f"![{escape(picture.text)}]({folder.name}/{STEM}.png)", "", picture.text, ""]
    return [*lines, *_table(known), ""]


def level_of(runs: Sequence[Learning]) -> float | None:
    """The reward whose time is compared: half the way from the mean beginning to the lowest end; None: none rose."""
    begin = sum(run.first for run in runs) / len(runs)
    end = min(run.last for run in runs)
    return begin + HALF * (end - begin) if end > begin else None


def _table(known: Sequence[tuple[str, Learning]]) -> list[str]:
    level = level_of([found for _, found in known])
    header = ["run", "first quarter", "last quarter", "gain (95 %)", "rises", "steps"]
    if level is not None:
        header += [f"to {number(level)}: step", "time"]
    rows = []
    for name, found in known:
        interval = "interval unknown" if found.low is None or found.high is None else _interval(found.low, found.high)
        rises = {True: "yes", False: "not shown", None: "unknown"}[found.rises]
        row = [escape(name), number(found.first), number(found.last), f"{found.gain:+.3f} ({interval})", rises]
        row.append(str(len(found.points)))
        if level is not None:
            at = found.reached(level)
            row += ["never", "never"] if at is None else [str(at.step), seconds(at.ended_s)]
        rows.append(row)
    said = (
        "Mean reward of the trajectories trained on, warm-up included. Gain: last quarter of the steps less the first,"
        " Welch's interval over group means."
    )
    if level is not None:
        said += (
            f" Time to reward: from when on the mean over {SMOOTHED} steps stayed at {number(level)} or above: half"
            " the way from the runs' beginning to the lowest of their ends. Seconds since the first step began; one"
            " run each, so without an interval."
        )
    return [*table(header, rows, "l"), "", said]


def _interval(low: float, high: float) -> str:
    return f"{low:+.3f} to {high:+.3f}"


def _picture(known: Sequence[tuple[str, Learning]], reward: str, folder: Path) -> Picture:
    text = f"Mean reward ({escape(reward)}) of each step's batch, against steps and against wall clock."
    return write_picture(STEM, text, lambda: draw(known), folder)


def draw(known: Sequence[tuple[str, Learning]]) -> Figure:
    """Two panels: points are steps, lines means over three of them."""
    made = style.figure(_HEIGHT + 0.2 * ((len(known) - 1) // 2))
    title = "Does the reward rise, and how soon?"
    how = f"Dots: mean reward of one step's trajectories. Lines: mean over {SMOOTHED} steps."
    foot = f"{len(known)} run(s); n = {', '.join(str(len(found.points)) for _, found in known)} steps"
    bottom, top = style.head(made, title, how, foot)
    height = float(made.get_size_inches()[1])
    legend = 0.24 * ((len(known) + 1) // 2) / height
    room = top - bottom - legend - 0.5 / height
    left = made.add_axes((0.09, bottom + 0.45 / height, 0.41, room))
    right = made.add_axes((0.56, bottom + 0.45 / height, 0.42, room), sharey=left)
    handles = []
    for index, (name, found) in enumerate(known):
        colour, dash = _LINES[index % len(_LINES)], _DASHES[(index // len(_LINES)) % len(_DASHES)]
        means = [point.mean for point in found.points]
        smooth = [_trailing(found, at) for at in range(len(found.points))]
        for axes, places in ((left, [p.step for p in found.points]), (right, [p.ended_s for p in found.points])):
            axes.plot(places, means, "o", color=colour, markersize=3.5, alpha=0.4, markeredgewidth=0)
            (line,) = axes.plot(places, smooth, dash, color=colour, linewidth=2, label=style.fit(name, 10, 300))
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


def _trailing(found: Learning, at: int) -> float:
    recent = [reward for point in found.points[max(0, at - SMOOTHED + 1) : at + 1] for reward in point.rewards]
    return sum(recent) / len(recent)


def _dress(axes: Axes, what: str) -> None:
    style.bare(axes, keep=("bottom", "left"))
    axes.grid(axis="y", color=style.RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(what)
