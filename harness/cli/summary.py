"""The few figures that `bench run` ends with; the report has all of them, with their definitions."""

import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cli.output import table
from reports.served import cache_use, cache_words
from results.answers import answers, doubts
from results.learning import decided_by_policy, learning
from results.metrics import Figure, RunFigures
from results.store import RunTables
from results.tool_figures import tool_figures

Row = tuple[str, str, str, str]

# Figure, words, how its value is shown. SLOT: GPU, or process on a machine without.
_SHOWN: tuple[tuple[str, str, str], ...] = (
    ("wall_s", "worker, real time", "{:.1f} s"),
    ("step_time_s", "step", "{:.2f} s"),
    ("throughput_tokens_per_s_gpu", "throughput", "{:.1f} generated tokens/s/SLOT"),
    ("goodput_tokens_per_s_gpu", "goodput", "{:.1f} tokens/s/SLOT"),
    ("rollout_busy_share", "rollout generating", "{:.1%} of the window"),
    ("wait_rollout_share", "training waits for data", "{:.1%} of the window"),
    ("tail_gap_share", "straggler gap", "{:.1%} of the rollout phase"),
    ("staleness_at_start_mean", "staleness at start, mean", "{:.2f}"),
    ("staleness_at_start_max", "staleness at start, max", "{:.0f}"),
    ("staleness_violations", "beyond max_staleness", "{:.0f} trajectories"),
    ("power_utilisation_ratio", "GPU power utilisation", "{:.1%}"),
    ("joules_per_trained_trajectory", "energy", "{:.0f} J/trained trajectory"),
    ("adherence_ratio", "plan adherence", "{:.1%}"),
    ("other_share", "time without a name", "{:.2%}"),
    ("recorder_cost_ratio", "recording's own cost", "{:.2%}"),
)
_HEADER = ("figure", "value", "n", "")
_NARROWEST = 24  # of the notes' column: below it, wrapped notes are harder to read than long ones
_OF_GPUS = frozenset({"power_utilisation_ratio", "joules_per_trained_trajectory"})


def summary(found: RunFigures, report: Path, *, gpus: bool, more: Sequence[Row] = (), width: int | None = None) -> str:
    """A small table and the report's path. Without GPUs no GPU figure is shown at all, not even as unknown.

    `more`: rows of this run alone (`rows_of`). `width`: columns that notes are wrapped to; None: those of the terminal,
    and no limit where there is none.
    """
    width = _terminal_width() if width is None else width
    slot = "GPU" if gpus else "process"
    rows = [
        _row(found.figures, metric, words, form.replace("SLOT", slot), found.no_window)
        for metric, words, form in _SHOWN
        if gpus or metric not in _OF_GPUS
    ]
    rows += more
    proof = found.sync_proof
    if proof.proven:
        sync = "proven"
    else:
        parts = (("fresh", proof.fresh), ("changed", proof.changed), ("follows", proof.follows))
        sync = "; ".join(f"{name}: {part.why}" for name, part in parts if part.passed is not True)
    rows.append(("weight sync", sync if proof.proven else "NOT proven", "", "" if proof.proven else sync))
    if found.window is not None:
        n = found.window.steps
        steady = "steady" if not found.window.not_steady else "not steady: " + "; ".join(found.window.not_steady)
        head = f"steady window: {n} step{'s' * (n != 1)}, {found.window.seconds:.1f} s, {_singular(steady)}"
    else:
        head = f"no steady window: {_singular(found.no_window or 'not known why')}"
    if width:
        head = textwrap.fill(head, width, break_long_words=False, break_on_hyphens=False)
    return f"{head}\n\n{table(_wrapped(rows, width), _HEADER)}\n\nreport: {report}"


def rows_of(run: RunTables, *, planned_faults: int) -> list[Row]:
    """Rows that only some runs have: tool calls that could go wrong, a reward that the policy decides, odd answers.

    `planned_faults`: calls that were planned to fail or to answer badly.
    """
    rows = []
    if run.spec.tools != "mock" or planned_faults:
        rows.append(_tool_calls(run, planned_faults))
    if decided_by_policy(run):
        rows.append(_reward(run))
    if warned := doubts(found := answers(run)):
        given = found.ended.get("answered", 0)
        rows.append(
            ("answers", f"{given:,} of {found.trajectories:,}", str(found.trajectories), f"WARNING {'; '.join(warned)}")
        )
    return rows


def _tool_calls(run: RunTables, planned_faults: int) -> Row:
    found = tool_figures(run)
    if found.why_none is not None:
        return "tool calls", "none", "0", found.why_none
    failed = sum(each.calls for each in found.outcomes if each.status != "ok")
    added = found.beyond_planned if found.beyond_planned.n else found.beyond_served
    notes = ["overhead unknown" if added.p99_ns is None else f"overhead p99 {added.p99_ns / 1e6:.1f} ms"]
    if planned_faults:
        notes.append(f"{planned_faults:,} planned to fail or to answer badly")
    if (use := cache_use(run)) is not None and use.hits:
        notes.append(f"cache: {cache_words(use)}")
    return "tool calls", f"{failed:,} of {found.calls:,} not ok", str(found.calls), "; ".join(notes)


def _reward(run: RunTables) -> Row:
    course = learning(run)
    if course is None:
        return "reward", "unknown", "", "fewer than two steps have rewards on record"
    note = "mean of the first quarter of the steps, then of the last"
    if course.low is not None and course.high is not None:
        note += f"; change {course.gain:+.3f}, 95 % interval {course.low:+.3f} to {course.high:+.3f}"
    return "reward", f"{course.first:.3f} to {course.last:.3f}", str(len(course.points)), note


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _singular(text: str) -> str:
    return re.sub(r"(?<![\d.,])1 steps\b", "1 step", text)


def _wrapped(rows: Sequence[Row], width: int) -> list[tuple[str, str, str, str]]:
    """Rows whose notes go on in lines below, under the notes' own column. No width: as they are."""
    before = sum(max(len(row[i]) for row in [_HEADER, *rows]) + 2 for i in range(3))
    room = max(width - before, _NARROWEST)
    if not width:
        return list(rows)
    lines = []
    for first, value, n, note in rows:
        parts = textwrap.wrap(note, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [(first, value, n, parts[0]), *(("", "", "", part) for part in parts[1:])]
    return lines


def _row(figures: Mapping[str, Figure], metric: str, words: str, form: str, no_window: str | None) -> Row:
    figure = figures.get(metric)
    if figure is None or figure.value is None:
        note = (figure.note if figure else None) or ""
        if no_window is not None and no_window in note:
            return words, "", "", ""  # said once, above the table
        return words, "unknown", "", note
    n = "" if figure.n is None else str(figure.n)
    mark = figure.verdict.upper() + " " if figure.verdict not in (None, "ok") and figure.verdict else ""
    note = figure.note or ""
    if figure.n == 1:
        note = re.sub(r"(; )?\brange (\S+) to \2(?=;|$)", "", note).removeprefix("; ")
    return words, form.format(figure.value), n, (mark + note).strip()
