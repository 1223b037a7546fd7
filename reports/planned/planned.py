"""A plan: candidates ranked, the picture of the front, what decides, and when async would not pay."""

import itertools
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.protocol.unfinished import made_whole
from reports import style
from reports.markdown import Footnotes, escape, number, percent, plural, seconds, table
from reports.picture import placed_together, write_picture
from results.comparing.measures import RunMeasures
from results.planner.calibration.constants import SIMULATED
from results.planner.candidates import ASYNC, COLOCATED
from results.planner.plans import Deciding, Plan
from results.planner.predictions import Prediction, Range
from results.planner.priors import priors_of
from results.planner.ranking import TIE, burden_of, worth_of
from results.planner.score import FORMAT, Scored

PICTURE = "front"
_DECIDING = 5  # lines of what decides
_COLOURS = {COLOCATED: "#AA3377", ASYNC: "#4477AA"}
# Where a name may stand beside its point: aligned to its left or right end, below (-1) or above it.
_WAYS: tuple[tuple[Literal["left", "right"], int], ...] = (("left", -1), ("right", 1), ("left", 1), ("right", -1))
_MARKS = {COLOCATED: "s", ASYNC: "o"}


def plan_page(plan: Plan) -> list[str]:
    """The page's lines, without its picture."""
    notes = Footnotes()
    calibration = plan.calibration
    lines = [f"# Plan for {_what(plan)}, predicted: nothing here was measured", ""]
    lines += [f"From {escape(calibration.name)} ({calibration.kind}).", ""]
    lines += [f"- {escape(word)}" for word in plan.words]
    lines += ["", *_table(plan, notes), ""]
    first = escape(plan.predictions[0].candidate.name)
    lines += ["## What decides", "", f"Step time of {first}:", "", *_deciding(plan.deciding, "step", seconds)]
    if plan.deciding_joules:
        lines += [f"Joules a trajectory of {first}:", "", *_deciding(plan.deciding_joules, "J/trajectory", number)]
    lines += ["## Assumptions", ""]
    used = {name for one in plan.predictions for name in one.leans_on}
    priors = [one for name, one in priors_of(calibration).items() if name in used]
    for one in priors:
        held = one.constant
        spread = f"{number(held.low)} to {number(held.high)}, {number(held.value)} as it is"
        lines.append(f"- **{escape(one.words)}**: {spread}. {escape(one.reason)}.")
    if calibration.power_scale != 1:
        lines.append(
            f"- All shares of power are scaled by {number(calibration.power_scale)}, with which the published "
            f"placement draws the published {percent(calibration.power_ratio or 0.0)}."
        )
    if not priors:
        lines.append("- none beside the calibration's own constants")
    lines += [
        "",
        f"<sub>Ranked by {plan.by} (--by). {plan.draws} draws of all ranges (Latin hypercube), {plan.updates} updates "
        f"each, seed {plan.seed}; medians, 80% intervals in brackets. Front: no other candidate has both "
        f"{'a shorter step' if calibration.device == 'cpu' else 'more goodput'} and less "
        f"{'energy' if plan.predictions[0].joules is not None else 'staleness'}; what differs by less than "
        f"{percent(TIE)} is taken as equal.</sub>",
        "",
    ]
    return [*lines, *notes.lines()]


def _deciding(found: tuple[Deciding, ...], of: str, shown: Callable[[float], str]) -> list[str]:
    rows = [
        [escape(one.words), percent(one.share), f"{shown(one.low)} to {shown(one.high)}"] for one in found[:_DECIDING]
    ]
    if not rows:
        return ["Nothing it is made from has a range.", ""]
    return [*table(["one at a time, at 10% and 90% of its range", "share", of], rows, "lrr"), ""]


def _what(plan: Plan) -> str:
    """What is planned for, e.g. `8 GPUs`; on CPU there are none to place."""
    if plan.calibration.simulated:
        return "simulated processes"
    return "processes on CPU" if plan.calibration.device == "cpu" else plural(plan.gpus, "GPU")


def _slot(plan: Plan) -> str:
    return "process" if plan.calibration.device == "cpu" else "GPU"


def _table(plan: Plan, notes: Footnotes) -> list[str]:
    unknown = "no watts: a CPU, or a calibration without power and --watts-limit"
    header = [
        "",
        "candidate",
        "step",
        f"throughput, tok/s/{_slot(plan)}",
        f"goodput, tok/s/{_slot(plan)}",
        "staleness",
        "beyond the bound",
        "power",
        "J/trajectory",
    ]
    prices = plan.prices.gpu_hour is not None
    energy = plan.prices.kwh is not None
    if prices:
        header.append("cost of 1,000")
    if energy:
        header.append("energy cost of 1,000")
    header.append("quicker than colocated")
    rows = []
    for one in plan.predictions:
        row = [
            "**front**" if one.best else "",
            escape(one.candidate.name),
            _range(one.step_s, seconds),
            _range(one.throughput, number),
            _range(one.goodput, number),
            _range(one.staleness, number),
            _range(one.late_share, percent),
            notes.unknown(unknown) if one.power_ratio is None else _range(one.power_ratio, percent),
            notes.unknown(unknown) if one.joules is None else _range(one.joules, number),
        ]
        if prices:
            row.append("" if one.cost is None else _range(one.cost, number))
        if energy:
            row.append(notes.unknown(unknown) if one.energy_cost is None else _range(one.energy_cost, number))
        row.append(_quicker(one))
        rows.append(row)
    return table(header, rows, "ll")


def _quicker(one: Prediction) -> str:
    return "" if one.quicker is None else f"{one.quicker:.0%} of draws"


def _range(value: Range, shown: Callable[[float], str]) -> str:
    if value.low == value.high:
        return shown(value.value)
    return f"{shown(value.value)} ({shown(value.low)} to {shown(value.high)})"


def write_plan(plan: Plan, out: Path) -> list[Path]:
    """Writes plan.md, plan.json and the picture of the front; what an earlier plan left stays until all are made.

    Raises:
        OSError: it can't be written.
    """
    page, document = out / "plan.md", out / "plan.json"
    with ExitStack() as making, placed_together(out):
        picture = write_picture(PICTURE, "The front of the choices.", lambda: draw(plan), out)
        lines = plan_page(plan)
        if picture.path is not None:
            lines += ["", f"![The front of the choices]({picture.path.name})", ""]
        data = json.dumps(document_of(plan), indent=1, sort_keys=True) + "\n"
        out.mkdir(parents=True, exist_ok=True)
        for path, text in ((page, "\n".join(lines)), (document, data)):
            making.enter_context(made_whole(path)).write_text(text, encoding="utf-8")
    return [page, document, *([] if picture.path is None else [picture.path])]


def document_of(plan: Plan) -> dict[str, object]:
    """The plan as plain data: what `bench score` reads. Unknown is null."""
    calibration = plan.calibration
    about = ("name", "source", "device", "placement", "framework", "model", "batch_size", "group_size", "work_digest")
    return {
        "format": FORMAT,
        "predicted": True,
        "gpus": plan.gpus,
        "draws": plan.draws,
        "updates": plan.updates,
        "seed": plan.seed,
        "by": plan.by,
        "words": list(plan.words),
        "calibration": {name: getattr(calibration, name) for name in about} | {"work": dict(calibration.work)},
        "predictions": [{"name": one.candidate.name, **asdict(one)} for one in plan.predictions],
        "deciding": [asdict(one) for one in plan.deciding],
        "deciding_joules": [asdict(one) for one in plan.deciding_joules],
    }


def draw(plan: Plan) -> Figure:
    """Goodput against joules a trajectory, with 80 % bars; the front joined.

    Without watts: against staleness. On CPU, where goodput per process says nothing: updates per hour.
    """
    device = plan.calibration.device
    energy = all(one.joules is not None for one in plan.predictions)
    made = style.figure(5.6)
    what = _what(plan)
    title = f"{what[0].upper()}{what[1:]}: {_worth(plan)} against {'energy' if energy else 'staleness'}, predicted"
    foot = f"Predicted from {plan.calibration.name} ({plan.calibration.kind}). Bars: 80% of {plan.draws} draws."
    low, high = style.head(made, title, "Up and to the left is better; the line joins what no other beats.", foot)
    axes = made.add_axes((0.08, low + 0.09, 0.88, high - low - 0.11))
    for one in plan.predictions:
        x = one.joules if energy and one.joules is not None else one.staleness
        placement = one.candidate.placement
        colour = _COLOURS.get(placement, "#228833")
        worth = worth_of(one, device)
        low_y, high_y = _worth_interval(one, device)
        axes.errorbar(
            x.value,
            worth,
            xerr=[[x.value - x.low], [x.high - x.value]],
            yerr=[[worth - low_y], [high_y - worth]],
            fmt=_MARKS.get(placement, "^"),
            color=colour,
            alpha=1.0 if one.best else 0.45,
            linewidth=0.9,
            markersize=6,
        )
    front = sorted(
        (burden_of(one) if energy else one.staleness.value, worth_of(one, device))
        for one in plan.predictions
        if one.best
    )
    axes.plot([x for x, _ in front], [y for _, y in front], color=style.SOFT, linewidth=1, zorder=0)
    axes.set_xlabel("J per trained trajectory" if energy else "mean staleness, versions")
    axes.set_ylabel("updates/h" if device == "cpu" else f"goodput, tokens/s/{_slot(plan)}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08)
    _labels(plan, axes, energy=energy)
    style.bare(axes, keep=("bottom", "left"))
    axes.grid(color=style.RULE, linewidth=0.6)
    return made


def _worth(plan: Plan) -> str:
    return "updates per hour" if plan.calibration.device == "cpu" else "goodput"


def _worth_interval(one: Prediction, device: str) -> tuple[float, float]:
    if device == "cpu":
        return 3600 / one.step_s.high, 3600 / one.step_s.low
    return one.goodput.low, one.goodput.high


def _labels(plan: Plan, axes: Axes, *, energy: bool) -> None:
    """Names of the front and of colocated: beside their point, inside the axes, and none over another.

    Below and to the right of its point, as the front rises to the right; at the right edge to the left of it and above.
    """
    figure = axes.get_figure()
    canvas: Any = None if figure is None else figure.canvas
    renderer = canvas.get_renderer()
    canvas.draw()
    room = axes.get_window_extent(renderer)
    taken: list[Any] = []
    for one in plan.predictions:
        if not (one.best or one.candidate.placement == COLOCATED):
            continue
        x = burden_of(one) if energy else one.staleness.value
        text = axes.annotate(
            one.candidate.name,
            (x, worth_of(one, plan.calibration.device)),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=9,
            color=style.INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )
        for aside, (align, up) in itertools.product((8, 20, 34, 50), _WAYS):
            text.set_horizontalalignment(align)
            text.set_verticalalignment("bottom" if up > 0 else "top")
            text.set_position((8 if align == "left" else -8, up * aside))
            box = text.get_window_extent(renderer)
            inside = box.x0 >= room.x0 and box.x1 <= room.x1 and box.y0 >= room.y0 and box.y1 <= room.y1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(text.get_window_extent(renderer))


def score_page(name: str, run: RunMeasures, scored: list[Scored], updates: int) -> list[str]:
    """The prediction beside the run. `updates`: of the plan's simulations."""
    notes = Footnotes()
    simulated = run.framework == SIMULATED
    seen = "simulated" if simulated else "measured"
    kind = " (functional check on CPU)" if run.device == "cpu" and not simulated else ""
    lines = [f"# {escape(name)}, predicted and {seen}{kind}: {escape(run.run_id)}", ""]
    if simulated:
        lines += ["> The run is simulated: plans were played without a model. Nothing here was measured.", ""]
    rows = []
    for one in scored:
        unknown = one.error is None
        rows.append(
            [
                one.name,
                notes.unknown(one.why)
                if one.predicted is None or one.low is None or one.high is None
                else f"{number(one.predicted)} ({number(one.low)} to {number(one.high)})",
                notes.unknown(one.why) if one.measured is None else number(one.measured),
                notes.unknown(one.why) if unknown or one.error is None else f"{100 * one.error:+.1f}%",
                notes.unknown(one.why) if one.inside is None else "inside" if one.inside else "**outside**",
            ]
        )
    lines += [*table(["", "predicted (80%)", seen, "error", f"{seen} lies"], rows, "lrrrl"), ""]
    holds = (
        f"and how runs of {plural(run.steps, 'step')} vary by chance, as simulated (the plan's own have {updates})"
        if any(one.widened for one in scored)
        else f"and how runs of {updates} updates vary by chance: a run of fewer steps varies more (a new plan tells)"
    )
    lines += [
        f"<sub>The interval holds the constants and assumptions that are not known {holds}. It does not hold how "
        "machines or days differ, nor what the model leaves out; of five figures of one run about one lies outside by "
        "chance.</sub>",
        "",
    ]
    return [*lines, *notes.lines()]
