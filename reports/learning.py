"""Reward against steps and against wall clock, one line per run, and how soon each run reached a given reward."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from reports import curves
from reports.markdown import escape, number, seconds, table
from reports.picture import Picture, remove, write_picture
from results.learning import SMOOTHED, Learning, learning
from results.store import RunTables

STEM = "reward"
HALF = 0.5


def learning_section(names: Sequence[str], runs: Sequence[RunTables], folder: Path) -> list[str]:
    """The section of a report on the course of the reward; empty where no run's policy decides its reward."""
    known = [(name, found) for name, run in zip(names, runs, strict=True) if (found := learning(run)) is not None]
    if not known:
        remove(STEM, folder)
        return []
    picture = _picture(known, runs[0].spec.reward, folder)
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
    return write_picture(STEM, text, partial(curves.draw, [curve_of(*one) for one in known], SMOOTHED), folder)


def curve_of(name: str, found: Learning) -> curves.Curve:
    """A run's course as it is drawn."""
    return curves.Curve(
        name=name,
        steps=[point.step for point in found.points],
        ended_s=[point.ended_s for point in found.points],
        means=[point.mean for point in found.points],
        smooth=[_trailing(found, at) for at in range(len(found.points))],
    )


def _trailing(found: Learning, at: int) -> float:
    recent = [reward for point in found.points[max(0, at - SMOOTHED + 1) : at + 1] for reward in point.rewards]
    return sum(recent) / len(recent)
