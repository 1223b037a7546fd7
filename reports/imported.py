"""The page of an imported run: what its source tells, what that implies, and what it lacks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from harness.protocol.spec import Placement
from reports.case import Case
from reports.linted import markdown
from reports.markdown import UNKNOWN, Footnotes, code, escape, number, percent, plural, seconds, table
from reports.provenance import caveat, title
from reports.tables import native_names, phase_table
from results.importing.imported import LABEL
from results.lint.runs import lint_loaded
from results.stats import quantile

RATIO = "ratio of sums"

# Figures of a verl log that a page shows: name, words, how they are taken together over the window's steps.
SHOWN = (
    ("perf/total_num_tokens", "tokens of a step, prompts and observations too", "mean"),
    ("perf/throughput", "tokens/s/GPU as the log counts GPUs", RATIO),
    ("perf/mfu/actor", "MFU of the actor's update", "mean"),
    ("response_length/mean", "tokens of a response", "mean"),
    ("num_turns/mean", "turns of a trajectory, as verl counts", "mean"),
    ("critic/score/mean", "reward", "mean"),
    ("training/off_policy/trajectory_staleness/mean", "staleness, verl's, mean", "mean"),
    ("training/off_policy/trajectory_staleness_worst/max", "staleness, verl's worst, most", "max"),
    ("fully_async/trainer/idle_ratio", "idle ratio of the trainer", "mean"),
    ("fully_async/rollouter/idle_ratio", "idle ratio of the rollout side", "mean"),
)


def imported_page(case: Case) -> list[str]:
    """The page of one imported run."""
    notes = Footnotes()
    told = case.run.meta.get("imported")
    facts: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    lines = [f"# {escape(title(case.run.spec))}", "", f"> {caveat(case.run.spec)}", "", *_source(case, facts), ""]
    if case.run.tables["steps"].num_rows:
        lines += [*_steps(case, notes), "", *_as_printed(case), ""]
    if case.run.tables["trajectories"].num_rows:
        lines += [*_trajectories(case.run.frame("trajectories")), ""]
        lines += [*_their_time(case), "", *_groups(case.run.frame("trajectories")), ""]
    lines += ["## Do the figures agree with each other?", "", *markdown([lint_loaded(case.run)])[2:], ""]
    lacks = facts.get("lacks")
    lines += ["## What is not known", ""]
    lines += [*(f"- {escape(lack)}" for lack in (lacks if isinstance(lacks, list) else [])), ""]
    return [*lines, *notes.lines()]


def _source(case: Case, facts: Mapping[str, Any]) -> list[str]:
    spec = case.run.spec
    shared = spec.placement is Placement.COLOCATED
    split = f"{spec.gpus.train} shared" if shared else f"{spec.gpus} (train + rollout)"
    rows = [
        ["run", code(case.run.run_id)],
        ["label", f"**{LABEL}**"],
        ["source", f"{code(facts.get('file', UNKNOWN))}, {escape(facts.get('from', UNKNOWN))}"],
        ["SHA-256 of the source", code(facts.get("sha256", UNKNOWN))],
        ["imported", escape(facts.get("imported_utc", UNKNOWN))],
        ["framework", escape(spec.framework)],
        ["placement and GPUs, as the user said", escape(f"{spec.placement.value}, {split} ({spec.device.value})")],
        ["model, as the user said", escape(spec.model)],
    ]
    notes = case.run.meta.get("note")
    rows += [["note", escape(note)] for note in (notes if isinstance(notes, list) else [])]
    return table(["", "what"], rows, "ll")


def _steps(case: Case, notes: Footnotes) -> list[str]:
    lines = ["## Where a step goes", ""]
    window = case.figures.window
    if window is None:
        return [*lines, f"No phase table: {escape(case.no_window)}."]
    lines += [*phase_table(case.figures.phases, window), "", case.caption(f"n = {window.steps} steps", notes), ""]
    lines += [
        "The controller's own timers; `other` is what is left of the log's time of a step. Gaps between steps are not "
        "in the log, so a step may have taken longer. Phases that sum to more than their step are cut at its end: a "
        "note above names them.",
        "",
    ]
    return [*lines, *native_names(case.figures.phases)]


def _as_printed(case: Case) -> list[str]:
    probes = case.run.frame("probes")
    probes = probes[probes["step"].isin(list(case.steps))]
    rows = []
    tokens = probes[probes["name"] == "perf/total_num_tokens"].set_index("step")["value"]
    for name, words, how in SHOWN:
        told = probes[probes["name"] == name].set_index("step")["value"].dropna()
        values = told.to_numpy(np.float64)
        if values.size:
            value = float(values.max() if how == "max" else values.mean())
            if how == RATIO:  # of rates: their tokens / their GPU-seconds
                counted = tokens.reindex(told.index).to_numpy(np.float64)
                value = float(counted.sum() / (counted / values).sum()) if (values > 0).all() else float("nan")
            rows.append([escape(words), code(name), number(value, 4), how, str(values.size)])
    lines = ["## Figures as the log has them", ""]
    if not rows:
        return [*lines, "None that this page shows."]
    lines += table(["Figure", "name", "over the window", "taken as", "n steps"], rows, "lll")
    return [*lines, "", f"All {len(set(probes['name']))} figures of each step are in the table `probes`."]


def _trajectories(lives: pd.DataFrame) -> list[str]:
    ended = lives[lives["end_ns"].notna()]
    rows = []
    for status, mine in lives.groupby("status", sort=True):
        took = ((mine["end_ns"] - mine["start_ns"]) / 1e9).dropna().to_numpy(np.float64)
        told = [UNKNOWN if (value := quantile(took, q)) is None else seconds(value) for q in (0.5, 0.95, 1.0)]
        rows.append([escape(str(status)), f"{len(mine):,}", *told, number(float(mine["tool_calls"].mean()))])
    header = ["Status", "trajectories", "p50", "p95", "longest", "mean tool calls"]
    lines = ["## Trajectories", "", *table(header, rows, "l"), ""]
    why = lives.loc[lives["message"].notna(), "message"].value_counts()
    lines += [f"- {escape(message)}: {count:,}" for message, count in sorted(why.items())]
    lines += [""] if len(why) else []
    return [*lines, f"n = {len(lives):,} trajectories, {len(ended):,} of them ended."]


def _their_time(case: Case) -> list[str]:
    """Where the ended trajectories' seconds went; phases of one that overlap are counted each."""
    lives = case.run.frame("trajectories")
    ended = lives[lives["end_ns"].notna()]
    total = float((ended["end_ns"] - ended["start_ns"]).sum()) / 1e9
    spans = case.run.frame("spans")
    spans = spans[spans["trajectory_id"].isin(list(ended["trajectory_id"]))]
    took = ((spans["end_ns"] - spans["start_ns"]) / 1e9).groupby(spans["phase"]).sum()
    rows = [[escape(str(phase)), seconds(float(s)), percent(float(s) / total)] for phase, s in took.items() if total]
    rest = total - float(took.sum())
    if total and rest >= 0:
        rows.append(["neither (queues, the agent's own code)", seconds(rest), percent(rest / total)])
    lines = ["## Where their time went", ""]
    if not rows:
        return [*lines, "No trajectory ended."]
    return [*lines, *table(["Trajectory-seconds", "time", "share"], rows, "l"), "", f"n = {len(ended):,} trajectories."]


def _groups(lives: pd.DataFrame) -> list[str]:
    """The wait for the last of a group: last - median end, as a share of first submission to last end."""
    waits, lengths = 0.0, 0.0
    counted = 0
    for _, mine in lives[lives["end_ns"].notna()].groupby("group_id", sort=True):
        if len(mine) < 2:
            continue
        counted += 1
        last = float(mine["end_ns"].max())
        waits += last - float(quantile(mine["end_ns"].to_numpy(np.float64), 0.5) or last)
        lengths += last - float(mine["start_ns"].min())
    lines = ["## Groups", ""]
    if not counted or lengths <= 0:
        return [*lines, "No group of two or more ended."]
    return [
        *lines,
        f"The last trajectory of a group ended {percent(waits / lengths)} of the group's time after the median one: "
        f"{plural(counted, 'group')} of 2 or more, ratio of sums.",
    ]
