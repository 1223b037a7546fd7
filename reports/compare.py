"""Several runs side by side: the placement table of the study, step times, and how far they may be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.spec import Placement
from reports import figures as pictures
from reports.accounts import accounts_beside
from reports.case import Case, labels
from reports.comparable import bad_run, granularity_of, machines_differ, refusal, tools_differ, warnings
from reports.consumed import consumed, consumed_table, same_work
from reports.cost import cost_section
from reports.fairness import fairness_table
from reports.learning import learning_section
from reports.markdown import Footnotes, code, escape, number, percent, plural, seconds, table
from reports.picture import Picture
from reports.provenance import (
    NON_STANDARD,
    SCRIPTED,
    commit_of,
    device_of,
    differences,
    framework_of,
    is_scripted,
    kinds_of,
    non_standard,
    random_weights,
    settings,
    verified_on,
)
from reports.selected import selection_section
from reports.tables import failures_table, phase_table
from results.adherence import consumed_digest
from results.prices import Prices

NO_GPU = "no GPU power on a run without a GPU"
_OTHERS = ((Placement.ASYNC, "Disagg Async"), (Placement.DISAGGREGATED, "Disaggregated"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The runs of one framework, model and placement, taken together: every ratio is one of sums over them."""

    cases: tuple[Case, ...]
    step_s: float | None
    steps: int
    power: float | None  # joules of all GPUs / integral of their limits
    joules_per_trained: float | None
    why_power: str
    why_step: str
    why_joules: str


def comparison(cases: Sequence[Case], folder: Path, prices: Prices) -> list[str]:
    """The page of several runs; its pictures go to `folder`.

    Raises:
        SpecError: they were offered different work: names the fields.
    """
    same_work([case.run for case in cases])
    notes = Footnotes()
    names = labels(cases)
    lines = [f"# {escape(_title(cases))}", "", *_may_claim(cases), ""]
    for name, case in zip(names, cases, strict=True):
        lines += [f"### {escape(name)}", "", f"{code(case.run.run_id)}", "", *case.verdicts(notes), ""]
    lines += ["## Placements", "", *placement_tables(cases, notes), ""]
    lines += ["## Where a step goes", "", *_steps(cases, names, folder, notes), ""]
    work = [consumed(case.run, case.steps) for case in cases]
    digests = [consumed_digest(case.run, case.steps) for case in cases]
    shown = [escape(name) for name in names]
    lines += ["## Time accounts", "", *accounts_beside(cases, names, notes), "", captions(cases, names, notes), ""]
    lines += [
        "## Work consumed",
        "",
        *consumed_table(cases[0].run.spec, shown, work, digests, notes),
        "",
        captions(cases, names, notes),
        "",
    ]
    lines += selection_section(cases, names, notes)
    lines += learning_section(names, [case.run for case in cases], folder)
    lines += cost_section(cases, prices, notes)
    lines += ["## Same work, same settings?", "", *fairness_table([case.run for case in cases], names, notes), ""]
    lines += [captions(cases, names, notes), ""]
    lines += ["## Machines, versions and settings in which the runs differ", "", *_differences(cases, names), ""]
    lines += ["## Failures", ""]
    for name, case in zip(names, cases, strict=True):
        lines += [f"**{escape(name)}**", "", *failures_table(case.run.frame("failures")), ""]
    lines += ["## Settings", ""]
    for name, case in zip(names, cases, strict=True):
        lines += [f"**{escape(name)}**", "", *settings(case.run)[2:], ""]
    return [*lines, *notes.lines()]


def placement_tables(cases: Sequence[Case], notes: Footnotes) -> list[str]:
    """The study's table, a row per framework and model; for disaggregated runs a second one of the same columns."""
    lines: list[str] = []
    several = len({case.run.spec.framework for case in cases}) > 1
    for placement, column in _OTHERS:
        given = any(case.run.spec.placement is placement for case in cases)
        if not given and placement is not Placement.ASYNC:
            continue
        rows = []
        for framework, model in dict.fromkeys((case.run.spec.framework, case.run.spec.model) for case in cases):
            mine = [case for case in cases if (case.run.spec.framework, case.run.spec.model) == (framework, model)]
            base = cell([case for case in mine if case.run.spec.placement is Placement.COLOCATED], "colocated")
            other = cell([case for case in mine if case.run.spec.placement is placement], placement.value)
            name = escape(model) + (" (random weights)" if random_weights(mine[0].run.spec) else "")
            rows.append([f"{escape(framework)}, {name}" if several else name, *_row(base, other, notes)])
        header = [
            "Model",
            "Colocated",
            column,
            "Split (Train, Generate)",
            "power utilization",
            "wall clock time reduction",
            "J per trained trajectory, Colocated",
            f"J per trained trajectory, {column}",
            "n, steps",
        ]
        lines += [*table(header, rows, "l"), ""]
    lines += [
        "The columns named after placements: GPU power utilisation. `power utilization`: its "
        "difference in percentage points; more is not better by itself (direction: none), so the energy per trained "
        "trajectory stands beside it. `wall clock time reduction`: the change of the time per step against colocated: "
        "negative is shorter, positive longer. A dash stands where runs may not be compared, with the reason.",
        "",
        captions(cases, labels(cases), notes),
    ]
    return lines


def cell(cases: Sequence[Case], what: str) -> Cell:
    """Runs of one placement as one: sums of seconds, steps, joules and limits over them."""
    absent = f"no {what} run was given"
    windows = [case.figures.window for case in cases]
    known = [window for window in windows if window is not None]
    steps = sum(window.steps for window in known)
    bad = bad_run(cases)
    whole = bool(cases) and len(known) == len(cases) and steps > 0 and bad is None
    windowless = next((case.no_window for case in cases if case.figures.window is None), absent)
    why_step = absent if not cases else bad or windowless
    power = joules = None
    why_power = why_joules = absent if not cases else NO_GPU
    if cases and all(case.gpu for case in cases):
        energies = [case.figures.energy for case in cases]
        sound = [each for each in energies if each is not None and each.joules is not None]
        reason = next((each.note for each in energies if each is not None and each.note), None)
        if bad:
            sound, reason = [], bad
        why_power = why_joules = reason or why_step
        limits = [gpu.limit_joules for each in sound for gpu in each.gpus]
        if sound and len(sound) == len(cases):
            spent = sum(each.joules or 0.0 for each in sound)
            trained = sum(each.trained for each in sound)
            if limits and all(limits) and all(each.power_utilisation is not None for each in sound):
                power = spent / sum(limit or 0.0 for limit in limits)
            joules = spent / trained if trained else None
            why_joules = "no trajectory was trained on in the window"
    return Cell(
        cases=tuple(cases),
        step_s=sum(window.seconds for window in known) / steps if whole else None,
        steps=steps if whole else 0,
        power=power,
        joules_per_trained=joules,
        why_power=why_power,
        why_step=why_step,
        why_joules=why_joules,
    )


def captions(cases: Sequence[Case], names: Sequence[str], notes: Footnotes) -> str:
    """The line under a table of several runs."""
    told = [
        f"{escape(name)}: {case.extent('n = ' + plural(len(case.steps), 'step'), notes)}"
        for name, case in zip(names, cases, strict=True)
    ]
    return f"<sub>{'; '.join(told)}</sub>"


def _row(base: Cell, other: Cell, notes: Footnotes) -> list[str]:
    refused = refusal([*base.cases, *other.cases]) if base.cases and other.cases else None
    return [
        _known(base.power, base.why_power, notes),
        _known(other.power, other.why_power, notes),
        _split(other, notes),
        _points(base, other, refused, notes),
        _reduction(base, other, refused, notes),
        _joules(base, notes),
        _joules(other, notes),
        f"{base.steps:,} and {other.steps:,}",
    ]


def _split(other: Cell, notes: Footnotes) -> str:
    if not other.cases:
        return notes.unknown(other.why_step)
    return ", ".join(dict.fromkeys(str(case.run.spec.gpus) for case in other.cases))


def _points(base: Cell, other: Cell, refused: str | None, notes: Footnotes) -> str:
    if base.power is not None and other.power is not None:
        if refused:
            return notes.unknown(refused)
        return f"{100 * (other.power - base.power):+.1f} pp" + _marks(base, other, notes)
    return notes.unknown(other.why_power if other.power is None else base.why_power)


def _known(power: float | None, why: str, notes: Footnotes) -> str:
    return notes.unknown(why) if power is None else percent(power)


def _joules(of: Cell, notes: Footnotes) -> str:
    return notes.unknown(of.why_joules) if of.joules_per_trained is None else number(of.joules_per_trained)


def _reduction(base: Cell, other: Cell, refused: str | None, notes: Footnotes) -> str:
    """The change of the time per step, negative when less."""
    for each in (base, other):
        if each.step_s is None:
            return notes.unknown(each.why_step)
    if not base.step_s or other.step_s is None:
        return notes.unknown("the steps took no time")
    if refused:
        return notes.unknown(refused)
    return f"{100 * (other.step_s / base.step_s - 1):+.1f}%" + _marks(base, other, notes)


def _marks(base: Cell, other: Cell, notes: Footnotes) -> str:
    return "".join(notes.mark(said) for said in warnings([*base.cases, *other.cases]))


def _title(cases: Sequence[Case]) -> str:
    frameworks = " and ".join(dict.fromkeys(case.run.spec.framework for case in cases))
    placements = ", ".join(dict.fromkeys(case.run.spec.placement.value for case in cases))
    kinds = kinds_of(case.run.spec for case in cases)
    if any(non_standard(case.run.spec) for case in cases):
        kinds.append(NON_STANDARD)
    return f"{frameworks}: {placements}" + (f" ({', '.join(kinds)})" if kinds else "")


def _may_claim(cases: Sequence[Case]) -> list[str]:
    """What a reader may take from the comparison, and what not."""
    said = []
    if any(not case.gpu for case in cases):
        said.append(
            "**No verdict.** Without GPUs this is a functional check: the frameworks run different engines and share "
            "the cores, so ratios between frameworks, and between placements, say nothing about GPUs."
        )
    if scripts := [code(case.run.run_id) for case in cases if is_scripted(case.run.spec)]:
        said.append(f"**{SCRIPTED}** ({', '.join(scripts)})")
    per_cell: dict[tuple[str, str, str], int] = {}
    for case in cases:
        spec = case.run.spec
        key = (spec.framework, spec.model, spec.placement.value)
        per_cell[key] = per_cell.get(key, 0) + 1
    if min(per_cell.values()) == 1:
        said.append("A run is the replicate: with one run of a placement, a difference is shown here, not proven.")
    grains = {grain for case in cases if (grain := granularity_of(case))}
    if len(grains) > 1:
        said.append(f"The time accounts differ in granularity ({', '.join(sorted(grains))}): they are not compared.")
    if len({case.figures.account.evidence for case in cases if case.figures.account is not None}) > 1:
        said.append(
            "`generating` rests on the engines' own counts in some runs, and on turns open at the client in others, "
            "where it holds what was queued: take `generating` and `queued` together."
        )
    if uneven := tools_differ(cases):
        said.append(f"**Tools took different times**: {escape(uneven)}. Ratios of times hold that difference too.")
    if differs := machines_differ(cases):
        said.append(f"**Not comparable**: {escape(differs)}.")
    spoiled = [f"{code(case.run.run_id)} ({escape(why)})" for case in cases if (why := case.spoiled)]
    if spoiled:
        said.append(f"**Contaminated**, so without a number in any comparison: {', '.join(spoiled)}.")
    odd = [f"{code(case.run.run_id)} ({escape(why)})" for case in cases if (why := non_standard(case.run.spec))]
    if odd:
        said.append(f"**Non-standard**: {', '.join(odd)}.")
    unfinished = [case.run.run_id for case in cases if case.run.meta.get("status") != "finished"]
    if unfinished:
        said.append(f"Not finished: {', '.join(code(name) for name in unfinished)}.")
    never = [
        f"{case.run.spec.framework} {case.run.spec.placement.value}"
        for case in cases
        if (verified_on(case.run.spec) or "").startswith("never")
    ]
    if never:
        said.append(f"Cells that were never verified: {escape(', '.join(dict.fromkeys(never)))}.")
    return [line for text in said for line in (f"> {text}", ">")][:-1]


def _steps(cases: Sequence[Case], names: Sequence[str], folder: Path, notes: Footnotes) -> list[str]:
    lines: list[str] = []
    prefix = "" if len({case.run.spec.model for case in cases}) > 1 else f"{cases[0].run.spec.model} · "
    rows = [
        case.phase_bar(f"{name}, {case.run.spec.gpus.train if _shared(case) else case.run.spec.gpus}")
        for name, case in zip(names, cases, strict=True)
    ]
    commits = " and ".join(dict.fromkeys(commit_of(case.run) or "unknown commit" for case in cases))
    devices = " and ".join(dict.fromkeys(device_of(case.run) for case in cases))
    kind = "".join(f"{kind} · " for kind in kinds_of(case.run.spec for case in cases))
    versions = dict.fromkeys(framework_of(case.run) or case.run.spec.framework for case in cases)
    line = f"{kind}{prefix}{' and '.join(versions)} · {devices} · bench {commits}"
    how = "Average seconds of a step in the steady window, by phase, on the track of the pool that trains."
    picture = pictures.steps_picture(rows, title=_step_title(cases), how=how, line=line, folder=folder)
    lines += _shown(picture)
    for place, (name, case) in enumerate(zip(names, cases, strict=True), start=1):
        stem = f"{place}-{case.run.spec.placement.value}"
        lines += ["", f"### {escape(name)}", ""]
        if case.figures.window is None:
            lines += [f"No phase table: {escape(case.no_window)}."]
        else:
            lines += phase_table(case.figures.phases, case.figures.window)
            lines += ["", case.caption(f"n = {plural(case.figures.window.steps, 'step')}", notes)]
        spans = pictures.spans_shown(case.run)
        straggler = pictures.straggler_picture(case.run, case.steps, folder, f"{stem}-straggler", spans)
        timeline = pictures.timeline_picture(case.run, case.steps, folder, f"{stem}-timeline", spans)
        lines += ["", *_shown(straggler), "", *_shown(timeline)]
    return lines


def _step_title(cases: Sequence[Case]) -> str:
    """What the picture shows; a difference is only claimed between two runs of one framework on equal GPUs."""
    plain = "Where a step's time goes, run by run"
    if len(cases) != 2 or any(not case.gpu for case in cases):
        return plain
    specs = [case.run.spec for case in cases]
    alike = len({(spec.framework, spec.model) for spec in specs}) == 1 and refusal(cases) is None
    odd = any(non_standard(spec) for spec in specs) or any(map(is_scripted, specs)) or tools_differ(cases) is not None
    one, two = (cell([case], case.run.spec.placement.value).step_s for case in cases)
    if not alike or odd or one is None or two is None or specs[0].placement is specs[1].placement:
        return plain
    more = "less" if two < one else "more"
    return (
        f"A step took {seconds(two)} {specs[1].placement.value} and {seconds(one)} {specs[0].placement.value}: "
        f"{abs(two / one - 1):.0%} {more}"
    )


def _shared(case: Case) -> bool:
    return case.run.spec.placement is Placement.COLOCATED


def _shown(picture: Picture) -> list[str]:
    if picture.path is None:
        return [escape(picture.text)]
    return [f"![{escape(picture.text)}](figures/{picture.path.name})", "", f"*{escape(picture.text)}*"]


def _differences(cases: Sequence[Case], names: Sequence[str]) -> list[str]:
    found = differences([case.run for case in cases])
    if not found:
        return ["None on record, but for the placement."]
    rows = [[escape(what), *(escape(value) for value in values)] for what, values in found]
    return table(["What", *(escape(name) for name in names)], rows, "l" * (len(names) + 1))
