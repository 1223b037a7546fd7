"""A cell's nights in a row: a page with the changes and the commits they lie between, and a picture per cell."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.protocol.unfinished import made_whole
from reports import style
from reports.markdown import code, escape, number, percent, plural, table
from reports.picture import placed_together, write_picture
from reports.provenance import ON_CPU, SIMULATED
from results.baselines.history import ALPHA, LEAST_CHANGE, LEAST_POINTS, Change, Series

_SHOWN_COMMITS = 30
_FEWEST_DRAWN = 2  # points of a panel: one has no course
Progress = Callable[[int, int], None]  # done, of how many
_WORSE, _BETTER = "#CC3311", "#228833"


def write_history(
    cells: Mapping[str, Sequence[Series]], folder: Path, repository: Path | None, progress: Progress | None = None
) -> Path:
    """Writes history.md and its pictures; what an earlier one left there stays until all of them are made.

    `repository`: the checkout that the runs' commits are of, if it is at hand. `progress`: is told how many cells are
    done, of how many.

    Raises:
        OSError: it can't be written.
    """
    path = folder / "history.md"
    with ExitStack() as making, placed_together(folder):
        lines = _page(cells, folder, repository, progress)
        folder.mkdir(parents=True, exist_ok=True)
        making.enter_context(made_whole(path)).write_text("\n".join(lines), encoding="utf-8")
    return path


def _page(
    cells: Mapping[str, Sequence[Series]], folder: Path, repository: Path | None, progress: Progress | None
) -> list[str]:
    """The page's lines; its pictures are drawn on the way."""
    every = [one for of in cells.values() for one in of]
    lines = [f"# Nights in a row{_kind_of(every)}", ""]
    for done, (cell, of) in enumerate(cells.items(), start=1):
        lines += [f"## {escape(cell)}{_kind_of(of)}", "", *_cell(of, repository)]
        drawn = [one for one in of if len(one.points) >= _FEWEST_DRAWN]
        if drawn:
            picture = write_picture(f"history-{cell}", cell, partial(draw, cell, drawn), folder)
            if picture.path is not None:
                lines += [f"![{escape(cell)}]({picture.path.name})", ""]
        if progress is not None:
            progress(done, len(cells))
    return [
        *lines,
        f"<sub>A point is an occasion: the mean of its runs. A change: found by PELT, and by a t test over the points "
        f"before and after at {percent(ALPHA)}; ratios of less than {percent(LEAST_CHANGE)} are left out. "
        "The test takes nights as independent. Where one night is like the night before, more changes are named than "
        "there are: with an autocorrelation of 0.3 in about one of six unchanged series of 30 nights, with 0.6 in more "
        "than half.</sub>",
        "",
    ]


def _kind_of(of: Sequence[Series]) -> str:
    """What keeps the runs from being measurements of GPUs, for a title: ` (simulated)`; empty if nothing does."""
    said = [SIMULATED] * any(one.simulated for one in of) + [ON_CPU] * any(one.on_cpu for one in of)
    return f" ({', '.join(said)})" if said else ""


def _cell(of: Sequence[Series], repository: Path | None) -> list[str]:
    rows = []
    for one in of:
        for change in one.changes:
            rows.append(
                [
                    escape(one.measure.name),
                    _kind(change),
                    _size(change, one),
                    change.after.start.strftime("%Y-%m-%d"),
                    change.before.start.strftime("%Y-%m-%d"),
                    _commits(change),
                ]
            )
    lines = []
    if rows:
        header = ["measure", "", "change (95% interval)", "after", "seen from", "commits"]
        lines += [*table(header, rows, "lllll" + "l"), ""]
    elif all(one.why for one in of):
        lines += [f"Too few occasions: no change was looked for (it takes {LEAST_POINTS} with a value).", ""]
    else:
        lines += [f"No change found in {', '.join(escape(one.measure.name) for one in of if not one.why)}.", ""]
    thin = [f"{one.measure.name} ({one.why})" for one in of if one.why]
    if thin:
        lines += [f"Not looked at: {escape('; '.join(thin))}.", ""]
    lacking = [f"{one.measure.name}: {plural(len(one.without), 'run')}" for one in of if one.without and one.points]
    if lacking:
        lines += [f"In no point, without a value or with 0: {escape('; '.join(lacking))}.", ""]
    if repository is not None:
        for spread in dict.fromkeys(_range(change) for one in of for change in one.changes):
            if spread:
                lines += _log(spread, repository)
    return lines


def _kind(change: Change) -> str:
    return "changed" if change.worse is None else "**worse**" if change.worse else "better"


def _size(change: Change, one: Series) -> str:
    found = change.contrast

    def shown(value: float) -> str:
        text = percent(value - 1) if found.kind == "ratio" else f"{number(value)} {one.measure.unit}"
        return text if text.startswith(("-", ">-", "<")) else f"+{text}"

    interval = "" if found.low is None or found.high is None else f" ({shown(found.low)} to {shown(found.high)})"
    return shown(found.estimate) + interval


def _range(change: Change) -> str:
    if not change.after.commits or not change.before.commits:
        return ""
    old, new = change.after.commits[-1].rstrip("+"), change.before.commits[0].rstrip("+")
    return "" if old == new else f"{old}..{new}"


def _commits(change: Change) -> str:
    versions = (change.after.versions[-1:], change.before.versions[:1])
    told = f"; framework {escape(versions[0][0])} to {escape(versions[1][0])}" if _moved(versions) else ""
    machines = (change.after.machines[-1:], change.before.machines[:1])
    if _moved(machines):
        told += f"; machine {escape(machines[0][0])} to {escape(machines[1][0])}"
    spread = _range(change)
    return (code(spread) if spread else "the same, or not on record") + told


def _moved(versions: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    return bool(versions[0] and versions[1] and versions[0] != versions[1])


def _log(spread: str, repository: Path) -> list[str]:
    """The commits between, as the repository's log has them."""
    command = ["git", "-C", str(repository), "log", "--format=%h %s", "--end-of-options", spread, "--"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return []
    if told.returncode:
        return [f"The commits {code(spread)} are not in the repository at hand.", ""]
    found = told.stdout.splitlines()
    lines = [f"{code(spread)}, {plural(len(found), 'commit')}:", ""]
    lines += [f"- {escape(line)}" for line in found[:_SHOWN_COMMITS]]
    if len(found) > _SHOWN_COMMITS:
        lines.append(f"- and {len(found) - _SHOWN_COMMITS} more")
    return [*lines, ""]


def draw(cell: str, of: Sequence[Series]) -> Figure:
    """One panel per measure: points in time, levels between changes, and the changes."""
    figure = style.figure(0.7 + 1.7 * len(of))
    figure.set_layout_engine("constrained")
    figure.suptitle(f"{cell}{_kind_of(of)}", x=0.01, ha="left", fontweight="bold")
    panels = figure.subplots(len(of), 1, sharex=True, squeeze=False)
    for axes, one in zip(panels[:, 0], of, strict=True):
        _panel(axes, one)
    plain: Any = dates  # untyped
    locator = plain.AutoDateLocator(minticks=3, maxticks=9)
    panels[-1, 0].xaxis.set_major_locator(locator)
    panels[-1, 0].xaxis.set_major_formatter(plain.ConciseDateFormatter(locator))
    return figure


def _panel(axes: Axes, one: Series) -> None:
    times = [_day(point.start) for point in one.points]
    values = [point.value for point in one.points]
    axes.plot(times, values, color=style.SOFT, linewidth=0.8, zorder=1)
    axes.scatter(times, values, s=16, color=style.COLOURS["generation"], zorder=2)
    edges = [0, *(one.points.index(change.before) for change in one.changes), len(one.points)]
    for begin, end in pairwise(edges):
        level = sum(values[begin:end]) / (end - begin)
        axes.plot([times[begin], times[end - 1]], [level, level], color=style.INK, linewidth=1.6, zorder=3)
    for change in one.changes:
        colour = style.INK if change.worse is None else _WORSE if change.worse else _BETTER
        middle = (_day(change.after.start) + _day(change.before.start)) / 2
        axes.axvline(middle, color=colour, linewidth=1.2, linestyle="--")
        axes.annotate(
            f"{_kind(change).strip('*')} {_size(change, one).split(' (')[0]}",
            (middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(4, -12),
            textcoords="offset points",
            color=colour,
            fontsize=9,
        )
    axes.set_title(f"{one.measure.name}, {one.measure.unit}", loc="left", fontsize=10)
    low, high = min(values), max(values)
    room = high - low or abs(high) or 1.0
    axes.set_ylim(low - 0.25 * room, high + 0.35 * room)
    style.bare(axes, keep=("bottom", "left"))
    axes.grid(axis="y", color=style.RULE, linewidth=0.6)


def _day(moment: datetime) -> float:
    """As matplotlib counts days; a date axis puts the dates back."""
    plain: Any = dates
    return float(plain.date2num(moment))
