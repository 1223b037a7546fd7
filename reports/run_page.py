"""The page of one run: its sections in their order, and the pictures among them."""

from pathlib import Path

from harness.protocol.spec import Placement
from reports.answers import answers_section
from reports.case import Case
from reports.cost import cost_section
from reports.drawing import Drawing
from reports.engines import engine_lines
from reports.hosts import hosts_section
from reports.late import late_table
from reports.markdown import Footnotes, escape, percent, plural
from reports.picture import FOLDER, Picture
from reports.power import telemetry
from reports.provenance import caveat, provenance, settings, title
from reports.rates import ledger_table, straggler_table, throughput_table
from reports.selected import selection_section
from reports.served import cache_line
from reports.tables import (
    account_table,
    adherence_table,
    failures_table,
    figure_table,
    hidden_line,
    lifetime_table,
    native_names,
    phase_table,
    staleness_table,
    sync_table,
    tail_table,
    unit_table,
    units_in_words,
)
from reports.tool_table import how_many, tool_section
from results.importing.imported import is_imported
from results.late import late
from results.prices import NO_PRICES, Prices
from results.processes import ended_silently
from results.tool_figures import tool_figures


def single(case: Case, folder: Path, prices: Prices = NO_PRICES, drawn: Drawing | None = None) -> list[str]:
    """The page of one run; its pictures go to `folder`. `drawn`: what is there already."""
    notes = Footnotes()
    spec = case.run.spec
    if is_imported(spec):
        from reports.imported import imported_page  # with what checks figures, which no other report does

        return imported_page(case)
    drawn = drawn or Drawing.of(case, folder)
    lines = [f"# {escape(title(spec))}", ""]
    said = caveat(spec)
    if said:
        lines += [f"> {said}", ""]
    lines += [*case.verdicts(notes), ""]
    sections = [
        _phases(case, drawn.timeline, notes),
        _stragglers(case, drawn.straggler, notes),
        _account(case, drawn, notes),
        _rates(case, notes),
        drawn.learning,
        cost_section([case], prices, notes),
        ["## Staleness", "", *staleness_table(case.figures.staleness, notes), "", case.caption(_consumed(case), notes)],
        selection_section([case], [case.run.run_id], notes)[:-1],
        [
            "## Weight sync",
            "",
            *sync_table(case.figures.sync_proof),
            "",
            case.caption("proof outside the window", notes),
        ],
        [
            "## Plan adherence",
            "",
            *adherence_table(case.figures.adherence, notes),
            "",
            case.caption(_started(case), notes),
        ],
        answers_section(case, notes),
        _tools(case, notes),
        _telemetry(case, notes),
        hosts_section(case, notes),
        _recording(case, notes),
        ["## Failures", "", *failures_table(case.run.frame("failures")), "", case.caption("the whole run", notes)],
        ["## Provenance", "", *provenance(case.run, notes), "", *settings(case.run)],
        _all_figures(case, notes),
    ]
    for section in sections:
        lines += [*section, ""] if section else []
    return [*lines, *notes.lines()]


def _phases(case: Case, timeline: Picture, notes: Footnotes) -> list[str]:
    lines = ["## Where a step goes", ""]
    window = case.figures.window
    if window is None:
        lines += [f"No phase table: {escape(case.no_window)}."]
    else:
        lines += [
            *phase_table(case.figures.phases, window),
            "",
            case.caption(f"n = {plural(window.steps, 'step')}", notes),
            "",
        ]
        lines += ["The train track of the window, boundary to boundary of steps; gaps between steps are inside."]
        lines += ["", "<details><summary>The framework's own timers</summary>", "", *native_names(case.figures.phases)]
        lines += ["", "</details>"]
    return [*lines, "", *show(timeline)]


def _stragglers(case: Case, chart: Picture, notes: Footnotes) -> list[str]:
    lines = ["## Stragglers", "", *show(chart), ""]
    if case.figures.straggler is None:
        return [*lines, f"No straggler numbers: {escape(case.no_window)}."]
    lines += straggler_table(case.figures.straggler, case.gpu, notes)
    lines += ["", *late_table(case.run, late(case.run, case.steps), notes)]
    return [*lines, "", case.caption(f"n = {plural(len(case.steps), 'step')}", notes)]


def _account(case: Case, drawn: Drawing, notes: Footnotes) -> list[str]:
    account = case.figures.account
    lines = ["## Time account", ""]
    if account is None or drawn.units is None:
        return [*lines, f"No time account: {escape(case.no_window)}."]
    lines += [f"Every second of the window in exactly one class, per unit; {units_in_words(account)}.", ""]
    lines += [*account_table(account, gpu=case.gpu), "", *unit_table(account, gpu=case.gpu, notes=notes), ""]
    lines += [*engine_lines(account, case.figures.engines, notes), ""]
    synchronous = case.run.spec.placement is not Placement.ASYNC
    lines += [*tail_table(account, gpu=case.gpu, synchronous=synchronous), ""]
    hidden = hidden_line(account)
    lines += [hidden, ""] if hidden else []
    lines += ["### What would help, at most", "", *drawn.bounds, "", *show(drawn.units)]
    if case.figures.lifetimes is not None:
        lines += ["", *lifetime_table(case.figures.lifetimes)]
    return [
        *lines,
        "",
        case.caption(f"n = {plural(len(account.units), 'unit')} over {plural(account.steps, 'step')}", notes),
    ]


def _rates(case: Case, notes: Footnotes) -> list[str]:
    lines = ["## Throughput, goodput and ledgers" if not case.gpu else "## Throughput, goodput, MFU and ledgers", ""]
    found = case.figures.throughput
    if found is None:
        return [*lines, f"No rates: {escape(case.no_window)}."]
    lines += [*throughput_table(found, case.gpu, notes), ""]
    lines += [*ledger_table(found.token_ledger, found.trajectory_ledger), ""]
    return [*lines, case.caption(f"n = {plural(len(case.steps), 'step')}", notes)]


def _tools(case: Case, notes: Footnotes) -> list[str]:
    found = tool_figures(case.run)
    return [
        "## Tool calls",
        "",
        *tool_section(found, notes, replay=bool(case.run.spec.trace), cache=cache_line(case.run)),
        "",
        case.caption(how_many(found), notes),
    ]


def _telemetry(case: Case, notes: Footnotes) -> list[str]:
    lines = telemetry(case.run, case.figures.window, case.figures.energy, notes, case.figures.busy)
    return [
        "## Telemetry",
        "",
        *lines,
        "",
        case.caption(f"n = {plural(case.run.rows('samples'), 'sample')}", notes),
    ]


def _recording(case: Case, notes: Footnotes) -> list[str]:
    cost = case.figures.figures["recorder_cost_ratio"]
    lines = ["## Recording", ""]
    if cost.value is None:
        lines.append(f"Recorder's own cost, share of the step's wall time: {notes.unknown(cost.note or 'not known')}")
    else:
        over = "" if cost.value <= 0.005 else " (**more than the 0.5 % allowed**)"
        said = f": {escape(cost.note)}" if cost.note else ""
        share = percent(cost.value) if cost.value >= 0.0005 else f"{100 * cost.value:.2g}%"
        lines.append(
            f"Recorder's own cost, summed by itself: {share} of the step's wall time{over}{said}; n = {cost.n}."
        )
    processes = case.run.frame("processes")
    lost = int(processes["events_lost"].fillna(0).sum())
    damaged = int(processes["damaged_lines"].sum())
    silent = ended_silently(case.run)
    lines.append(
        f"{plural(len(processes), 'process')} recorded; {plural(lost, 'event')} lost, "
        f"{plural(damaged, 'damaged line')}, {plural(silent, 'process')} ended without saying so."
    )
    return lines


def _all_figures(case: Case, notes: Footnotes) -> list[str]:
    body = figure_table(case.figures.figures.values(), notes, gpu=case.gpu)
    return [
        "<details><summary>All figures</summary>",
        "",
        *body,
        "",
        case.caption(f"n = {plural(len(case.steps), 'step')}", notes),
        "",
        "</details>",
    ]


def show(picture: Picture) -> list[str]:
    """A picture with what it shows, or why there is none."""
    if picture.path is None:
        return [escape(picture.text)]
    return [f"![{escape(picture.text)}]({FOLDER}/{picture.path.name})", "", f"*{escape(picture.text)}*"]


def _consumed(case: Case) -> str:
    return f"n = {plural(case.figures.staleness.consumed, 'trajectory')}"


def _started(case: Case) -> str:
    return f"n = {plural(case.figures.adherence.started, 'trajectory')}"
