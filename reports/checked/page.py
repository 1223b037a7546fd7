"""A check as markdown: for a step summary, a comment, an issue, or the terminal; equal input, equal bytes."""

from collections.abc import Sequence

from reports.markdown import Footnotes, code, escape, number, percent, plural, table
from results.baselines import between
from results.baselines.check import LEAST_OCCASIONS, LEAST_RUNS, CellCheck, Outcome
from results.baselines.store import Baseline
from results.comparing.claims import GATE_RULE, Gate, GateRule
from results.comparing.measures import MEASURES

_WORDS = {
    Outcome.PASSED: "passed: no regression",
    Outcome.FAILED: "FAILED",
    Outcome.UNDERPOWERED: "underpowered: neither passed nor failed",
}


def outcome(cells: Sequence[CellCheck]) -> Outcome:
    """Of the whole check: the worst of its cells."""
    found = {cell.outcome for cell in cells}
    for one in (Outcome.FAILED, Outcome.UNDERPOWERED):
        if one in found:
            return one
    return Outcome.PASSED


def page(cells: Sequence[CellCheck], baseline: Baseline, rule: GateRule = GATE_RULE) -> str:
    """The whole check as markdown."""
    notes = Footnotes()
    lines = [f"# Regression check: {_WORDS[outcome(cells)]}", ""]
    if not (baseline.runs or baseline.ignored or baseline.accepted or baseline.trusted):
        lines += [
            f"**Nothing to check against**: {code(baseline.where)} has no ledger and no run. If that is not the folder "
            "that was meant, name another; else `bench baseline accept RUN --why ...` puts the first runs into it.",
            "",
        ]
    for cell in cells:
        lines += _cell(cell, notes)
    lines += [
        f"A measure fails when it is worse by more than its tolerance and the test says so: Welch's t over runs, "
        f"one-sided, Holm-corrected, {percent(rule.alpha)} false alarms for the whole check. It is underpowered when a "
        f"worsening of {percent(rule.most_detectable)} would be missed more often than {percent(1 - rule.power)}, or "
        f"with fewer than {LEAST_RUNS} baseline runs from {LEAST_OCCASIONS} occasions. "
        f"From {between.LEAST_OCCASIONS} occasions in the baseline on, the test allows for occasions that differ by "
        "more than their runs do.",
        "",
    ]
    if baseline.ignored:
        lines += ["Not used of the baseline:", "", *(f"- {escape(reason)}" for reason in baseline.ignored), ""]
    return "\n".join([*lines, *notes.lines()]).rstrip() + "\n"


def _cell(cell: CellCheck, notes: Footnotes) -> list[str]:
    lines = [f"## {escape(cell.cell)}: {_WORDS[cell.outcome]}", ""]
    lines += [
        f"{plural(len(cell.candidates), 'new run')} against {plural(len(cell.baseline), 'baseline run')} "
        f"from {plural(cell.occasions, 'occasion')}.",
        "",
    ]
    lines += [f"- {escape(problem)}" for problem in (*cell.problems, *cell.thin)]
    if cell.problems or cell.thin:
        lines.append("")
    if cell.gates:
        header = ["measure", "outcome", "change", "95% interval", "p (Holm)", "tolerance", "smallest change found"]
        rows = [_gate(one, cell.tolerances[one.measure.name], notes) for one in cell.gates]
        lines += [*table(header, rows, "ll"), "", *_occasions(cell)]
    for title, said in (
        ("Doubts", cell.doubts),
        ("Differs from the baseline", cell.differences),
        ("Left out", (*cell.left_out, *cell.notes)),
    ):
        if said:
            lines += [f"{title}:", "", *(f"- {escape(line)}" for line in said), ""]
    runs = ", ".join(code(run) for run in cell.candidates)
    return [*lines, f"<sub>new: {runs}</sub>", ""]


def _occasions(cell: CellCheck) -> list[str]:
    """What the baseline's occasions tell of how much nights differ, or that they tell nothing."""
    if not cell.spreads:
        if cell.occasions >= between.LEAST_OCCASIONS:
            return []
        return [
            f"{plural(cell.occasions, 'occasion')}: how much nights differ is not known, and the test takes runs as "
            "independent. Where nights differ by 5% and the runs of one by 1%, about one check in fifteen of runs "
            f"that did not change fails. From {between.LEAST_OCCASIONS} occasions on it is tested.",
            "",
        ]
    told = []
    for name, spread in cell.spreads.items():
        ratio = MEASURES[name].kind == "ratio"
        shown = [
            "unknown" if sd is None else percent(sd) if ratio else number(sd) for sd in (spread.between, spread.within)
        ]
        told.append(f"{escape(name)} {shown[0]} and {shown[1]}")
    return [f"Runs vary from occasion to occasion, and within one, by (standard deviations): {'; '.join(told)}.", ""]


def _gate(one: Gate, tolerance: float, notes: Footnotes) -> list[str]:
    contrast = one.contrast
    allowed = percent(tolerance) if one.measure.kind == "ratio" else number(tolerance)
    if contrast is None or one.change is None:
        unknown = notes.unknown(one.why)
        return [escape(one.measure.name), "**failed**: " + escape(one.why), *[unknown] * 3, allowed, unknown]
    said = "**failed**" if one.failed else "underpowered" if one.underpowered else _seen(one)
    why = one.why or "there is no spread to tell it from"
    ratio = contrast.kind == "ratio"

    def shown(value: float) -> str:
        return percent(value - 1) if ratio else number(value)

    def signed(text: str) -> str:
        return text if text.startswith(("-", ">-", "<")) else f"+{text}"

    interval = (
        notes.unknown(why)
        if contrast.low is None or contrast.high is None
        else f"{signed(shown(contrast.low))} to {signed(shown(contrast.high))}"
    )
    p = (
        notes.unknown(why)
        if one.p_adjusted is None
        else "<0.001"
        if one.p_adjusted < 0.001
        else f"{one.p_adjusted:.3f}"
    )
    if one.detectable is None:
        least = notes.unknown(why)
    else:
        least = percent(one.detectable) if ratio else number(one.detectable)
    return [escape(one.measure.name), said, signed(shown(contrast.estimate)), interval, p, allowed, least]


def _seen(one: Gate) -> str:
    assert one.change is not None
    return "passed" if one.change >= 0 else "passed, not worse"


def value_line(one: Gate) -> str:
    """One gate in a line, for a log or a test report."""
    said = ", failed" if one.failed else ", underpowered" if one.underpowered else ""
    if one.change is None or one.contrast is None:
        return f"{one.measure.name}: {one.why}{said}"
    size = abs(one.change)
    text = percent(size) if one.contrast.kind == "ratio" else f"{number(size)} {one.measure.unit}"
    return f"{one.measure.name}: {text} {'worse' if one.change >= 0 else 'better'}{said}"
