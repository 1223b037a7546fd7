"""The report of a sweep: the framework x placement matrix, with intervals over runs, and every run as a row."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from harness.protocol.spec import Device, Placement
from harness.protocol.unfinished import made_whole
from harness.sweep.folder import FINISHED, SweepFolder
from harness.sweep.words import order_line, summary_line, took
from reports import bars
from reports import figures as pictures
from reports.consumed import consumed_table, same_work
from reports.fairness import fairness_table
from reports.markdown import Footnotes, code, escape, number, percent, plural, seconds, table
from reports.picture import FOLDER, placed_together
from reports.places import without_places
from reports.provenance import (
    device_of,
    differences,
    kinds_of,
    random_weights,
    settings,
)
from reports.replicates import Attempt, OverRuns, Pool, Seen, attempts, plain_mean, pools, together
from reports.sweep_words import captions, claims, commit, joined, pooling, title

Form = Callable[[float], str]


def write_matrix(sweep_dir: Path, out: Path) -> Path:
    """Writes `report.md` and `figures/` of a sweep under `out`, whole or as far as it got.

    Returns:
        The path of `report.md`.

    Raises:
        SpecError: not a sweep folder, or its runs were offered different work (names the fields).
        OSError: `out` cannot be written.
    """
    folder = SweepFolder.open(sweep_dir)
    tried = attempts(folder)
    cells = pools(folder, tried)
    seen = [each for cell in cells for each in cell.seen]
    if seen:
        same_work([replace(each.run, spec=replace(each.run.spec, seed=seen[0].run.spec.seed)) for each in seen])
    out.mkdir(parents=True, exist_ok=True)
    path = out / "report.md"
    with ExitStack() as making, placed_together(out / FOLDER):
        lines = page(folder, cells, tried, out / FOLDER)
        making.enter_context(made_whole(path)).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def page(folder: SweepFolder, cells: Sequence[Pool], tried: Sequence[Attempt], pictures_to: Path) -> list[str]:
    """The page; its picture goes to `pictures_to`."""
    notes = Footnotes()
    shown = [cell for cell in cells if cell.seen]
    seen = [each for cell in shown for each in cell.seen]
    lines = [f"# {escape(title(cells, seen))}", "", *claims(cells, seen), ""]
    lines += [f"- **runs**: {escape(summary_line(folder, folder.state()))}"]
    lines += [f"- **order**: {escape(order_line(folder.plan))}; plan {code(folder.plan.digest)}"]
    lines += [f"- **replicate**: the run; {pooling(cells)}"]
    if damaged := folder.damaged_lines():
        lines += [f"- **journal**: {plural(damaged, 'line')} cut by a kill; runs were asked for their own status"]
    lines += ["", "## Frameworks x placements", "", *_grid(cells, notes), ""]
    sections = [
        ["## Speed and energy", "", *_speed(cells, notes), "", *captions(shown)],
        ["## Whether it may be believed", "", *_trust(cells, notes), "", *captions(shown)],
        ["## Same settings?", "", *_fairness(shown, notes)],
        ["## Where a step goes", "", *_steps(shown, pictures_to)],
        ["## Work consumed", "", *_work(shown, notes)],
        ["## Failed and refused", "", *_failed(cells)],
        ["## Runs, in the order in which they were planned", "", *_runs(tried, notes)],
        ["## Machines, versions and settings in which the cells differ", "", *_differences(shown)],
        ["## Settings", "", *_settings(shown)],
    ]
    for section in sections:
        lines += [*section, ""]
    known = {each.outcome.run_dir.name: each.outcome.run_dir for each in tried if each.outcome.run_dir is not None}
    return without_places([*lines, *notes.lines()], known)


def over_runs(found: OverRuns, form: Form, notes: Footnotes) -> str:
    """E.g. `12.3 s (11.9 s to 12.7 s; n = 3)`; one run has no interval."""
    if found.value is None:
        return notes.unknown(found.why)
    mark = notes.mark(found.why) if found.why else ""
    if found.low is None or found.high is None:
        return f"{form(found.value)} (n = {found.n}){mark}"
    return f"{form(found.value)} ({form(found.low)} to {form(found.high)}; n = {found.n}){mark}"


def _grid(cells: Sequence[Pool], notes: Footnotes) -> list[str]:
    order = {placement.value: place for place, placement in enumerate(Placement)}
    placements = sorted({cell.placement for cell in cells}, key=lambda name: order.get(name, len(order)))
    rows = []
    for framework in dict.fromkeys(cell.framework for cell in cells):
        row = [escape(framework)]
        for placement in placements:
            mine = [cell for cell in cells if (cell.framework, cell.placement) == (framework, placement)]
            row.append("<br>".join(_grid_cell(cell, notes) for cell in mine) or notes.unknown("not asked for"))
        rows.append(row)
    legend = "Time per step: geometric mean over runs (95 % interval). Smaller is faster; see what it stands on below."
    return [*table(["Framework", *placements], rows, "l" * (len(placements) + 1)), "", legend]


def _grid_cell(cell: Pool, notes: Footnotes) -> str:
    head = f"{escape(cell.variant)}: " if cell.variant else ""
    if cell.refused:
        return f"{head}refused{notes.mark(cell.refused)}"
    if not cell.seen:
        return f"{head}**{escape(_status(cell))}**{notes.mark(cell.nothing)}"
    text = head + over_runs(cell.over("step_time_s"), seconds, notes)
    return text if len(cell.seen) == len(cell.attempts) else f"{text}, {escape(_status(cell))}"


def _status(cell: Pool) -> str:
    if cell.refused:
        return "refused"
    counts = Counter("left out" if attempt.unread else attempt.outcome.status for attempt in cell.attempts)
    finished = counts.pop(FINISHED, 0)
    text = f"{finished} of {len(cell.attempts)} finished"
    return ", ".join([text, *(f"{count} {status}" for status, count in counts.items())])


def _name(cell: Pool, notes: Footnotes) -> list[str]:
    """Its name and status, with the reason where it is not whole."""
    status = escape(_status(cell))
    whole = not cell.refused and len(cell.seen) == len(cell.attempts)
    return [escape(cell.label), status if whole else f"**{status}**{notes.mark(cell.nothing)}"]


def _speed(cells: Sequence[Pool], notes: Footnotes) -> list[str]:
    gpu = any(each.run.spec.device is Device.CUDA for cell in cells for each in cell.seen)
    slot = "GPU" if gpu else "process"
    columns: list[tuple[str, str, Form]] = [
        ("step time", "step_time_s", seconds),
        (f"throughput, tokens/s/{slot}", "throughput_tokens_per_s_gpu", number),
        (f"goodput, tokens/s/{slot}", "goodput_tokens_per_s_gpu", number),
    ]
    if gpu:
        columns += [
            ("GPU power utilisation", "power_utilisation_ratio", percent),
            ("J per trained trajectory", "joules_per_trained_trajectory", number),
        ]
    rows = [
        [*_name(cell, notes), *(over_runs(cell.over(metric), form, notes) for _, metric, form in columns)]
        for cell in cells
    ]
    lines = table(["Cell", "runs", *(name for name, _, _ in columns)], rows, "ll")
    if not gpu:
        return [*lines, "", "No run used a GPU, so no GPU figure is shown."]
    weak = [
        f"{cell.label} ({figure.verdict})"
        for cell in cells
        for seen in cell.seen
        if (figure := seen.figures.get("joules_per_trained_trajectory")) and figure.verdict in ("warn", "bad")
    ]
    if weak:
        lines += [
            "",
            f"**Energy verdict not ok** in: {escape(', '.join(dict.fromkeys(weak)))}; the runs' pages say why.",
        ]
    if any(random_weights(each.run.spec) for cell in cells for each in cell.seen):
        lines += ["", "Power depends on the data: these are **random weights**."]
    return lines


def _trust(cells: Sequence[Pool], notes: Footnotes) -> list[str]:
    header = ["Cell", "runs", "coverage, worst run", "adherence", "staleness, mean", "max", "violations"]
    header += ["weight sync proven", "steady"]
    rows = [
        [*_name(cell, notes), *([notes.unknown(cell.nothing)] * 7 if not cell.seen else _trusted(cell, notes))]
        for cell in cells
    ]
    words = (
        "Coverage: named share of the window, of the worst unit of the worst run. Adherence: started trajectories as "
        "planned, of all runs. Staleness at start; its max and the violations (of all trained trajectories) carry no "
        "interval."
    )
    return [*table(header, rows, "ll"), "", words]


def _trusted(cell: Pool, notes: Footnotes) -> list[str]:
    seen = cell.seen
    named = [value for each in seen if (value := each.value("coverage_ratio")) is not None]
    coverage = notes.unknown(cell.over("coverage_ratio").why) if not named else percent(min(named))
    if any(each.covered is False for each in seen):
        coverage = f"**{coverage}**"
    started = sum(each.adherence.started for each in seen)
    adhering = sum(each.adherence.adhering for each in seen)
    if not started or any(each.adherence.content_ratio is None for each in seen):
        why = next((each.adherence.why_none for each in seen if each.adherence.why_none), "nothing was planned")
        adherence = notes.unknown(why)
    else:
        text = percent(adhering / started)
        adherence = text if adhering == started else f"**{text}** ({started - adhering:,} of {started:,} not)"
    unknown = "no trained trajectory has its versions on record"
    mean = plain_mean([each.value("staleness_at_start_mean") for each in seen], unknown)
    most = [value for each in seen if (value := each.value("staleness_at_start_max")) is not None]
    counted = sum(each.staleness.at_start.n for each in seen)
    beyond = sum(each.staleness.violations for each in seen)
    violations = f"{beyond:,} of {counted:,}" if counted else notes.unknown(unknown)
    proven = sum(each.proof.proven for each in seen)
    sync = f"{proven} of {len(seen)}"
    if proven < len(seen):
        sync = f"**{sync}**{notes.mark(next(_unproven(each) for each in seen if not each.proof.proven))}"
    shaky = [reason for each in seen for reason in (each.not_steady or ((each.no_window,) if each.no_window else ()))]
    steady = sum(not each.not_steady and not each.no_window for each in seen)
    return [
        coverage,
        adherence,
        over_runs(mean, "{:.2f}".format, notes),
        f"{max(most):.0f}" if most else notes.unknown(unknown),
        f"**{violations}**" if beyond else violations,
        sync,
        f"{steady} of {len(seen)}" + (notes.mark("; ".join(dict.fromkeys(shaky))) if shaky else ""),
    ]


def _unproven(seen: Seen) -> str:
    proof = seen.proof
    parts = (("fresh", proof.fresh), ("changed", proof.changed), ("follows", proof.follows))
    return "; ".join(f"{name}: {part.why}" for name, part in parts if part.passed is not True)


def _steps(shown: Sequence[Pool], folder: Path) -> list[str]:
    rows = []
    for cell in shown:
        windows = [each for each in cell.seen if each.steps]
        total = sum(each.steps for each in windows)
        names = dict.fromkeys(name for each in windows for name in each.phases)
        ordered = sorted(names, key=lambda name: name == "other")
        parts = {name: sum(each.phases.get(name, 0.0) for each in windows) / total for name in ordered}
        rows.append(bars.Row(name=cell.label, parts=parts, note=f"n = {plural(len(windows), 'run')}"))
    seen = [each for cell in shown for each in cell.seen]
    kind = "".join(f"{kind} · " for kind in kinds_of(each.run.spec for each in seen))
    models = " and ".join(dict.fromkeys(each.run.spec.model for each in seen))
    facts = [joined(device_of(each.run) for each in seen), f"bench {joined(commit(each) for each in seen)}"]
    picture = pictures.steps_picture(
        rows,
        title="Where a step's time goes, cell by cell",
        how="Average seconds of a step in the steady windows of a cell's runs, by phase, on the track that trains.",
        line=f"{kind}{models} · {' · '.join(facts)}",
        folder=folder,
        what="cell",
    )
    if picture.path is None:
        return [escape(picture.text)]
    mean = "The bars are arithmetic means over all steps, the tables geometric means over runs."
    return [f"![{escape(picture.text)}]({FOLDER}/{picture.path.name})", "", f"*{escape(picture.text)}* {mean}"]


def _fairness(shown: Sequence[Pool], notes: Footnotes) -> list[str]:
    """Of the first run of each cell: the others were started with the same."""
    if not shown:
        return ["No run finished."]
    return fairness_table([cell.seen[0].run for cell in shown], [cell.label for cell in shown], notes)


def _work(shown: Sequence[Pool], notes: Footnotes) -> list[str]:
    if not shown:
        return ["No run finished."]
    work = [together([each.work for each in cell.seen]) for cell in shown]
    digests = []
    for cell in shown:
        found = {each.digest for each in cell.seen}
        digests.append(None if None in found else found.pop() if len(found) == 1 else f"{len(found)} different")
    spec = shown[0].seen[0].run.spec
    lines = consumed_table(spec, [escape(cell.label) for cell in shown], work, digests, notes)
    return [*lines, "", "`plans consumed`: one digest where all runs of the cell trained on the same plans."]


def _failed(cells: Sequence[Pool]) -> list[str]:
    rows = [[escape(cell.label), "", "refused", escape(cell.refused)] for cell in cells if cell.refused]
    rows += [
        [escape(cell.label), str(each.number), escape(each.outcome.status), escape(each.why)]
        for cell in cells
        for each in cell.attempts
        if each.seen is None
    ]
    return table(["Cell", "run", "status", "reason"], rows, "llll") if rows else ["None."]


def _runs(tried: Sequence[Attempt], notes: Footnotes) -> list[str]:
    rows = []
    for each in tried:
        step = None if each.seen is None else each.seen.value("step_time_s")
        why = each.why if each.seen is None else each.seen.no_window
        folder = each.outcome.run_dir
        rows.append(
            [
                str(each.number),
                str(each.round),
                escape(each.cell.label),
                escape(each.outcome.status)
                + (f", attempt {each.outcome.attempts}" if each.outcome.attempts > 1 else ""),
                notes.unknown(why) if step is None else seconds(step),
                notes.unknown("not on record") if each.outcome.took_s is None else took(each.outcome.took_s),
                notes.unknown(each.why) if folder is None else code(folder.name),
            ]
        )
    header = ["Place", "round", "cell", "status", "step time", "whole run took", "run"]
    return [*table(header, rows, "lllllll"), "", f"{code('bench report RUN')} writes the page of one of them."]


def _differences(shown: Sequence[Pool]) -> list[str]:
    runs = [cell.seen[0].run for cell in shown]
    found = differences(runs) if runs else []
    if not found:
        return ["None on record, but for what the cells are named after."]
    rows = [[escape(what), *(escape(value) for value in values)] for what, values in found]
    return table(["What", *(escape(cell.label) for cell in shown)], rows, "l" * (len(shown) + 1))


def _settings(shown: Sequence[Pool]) -> list[str]:
    lines: list[str] = []
    for cell in shown:
        lines += [f"**{escape(cell.label)}**", "", *settings(cell.seen[0].run)[2:], ""]
    return lines or ["No run finished."]
