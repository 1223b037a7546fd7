"""The tables of a report: one function each, from results to Markdown lines. Unknown is a dash with its reason."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from reports.markdown import Footnotes, code, escape, number, percent, seconds, table
from results.account import Account, UnitAccount
from results.adherence import Adherence
from results.phases import PhaseRow
from results.staleness import Distribution, Staleness
from results.sync_proof import Part, SyncProof
from results.window import Window

_MOST_UNITS = 64
_MOST_FAILURES = 20

PHASE_NAMES = {
    "generation": "Generate (inference + tools)",
    "wait_rollout": "Wait for rollout",
    "logprob": "Forward (logprobs)",
    "advantage": "Advantages",
    "train": "Train (policy update)",
    "weight_sync": "Weight sync",
    "offload": "Offload",
    "reward": "Reward",
    "data": "Data",
    "overhead": "Overhead",
    "checkpoint": "Checkpoint",
    "eval": "Eval",
    "other": "other (nothing recorded)",
}


def phase_table(rows: Sequence[PhaseRow], window: Window) -> list[str]:
    """`Phase | Avg time | % of step` of the train track; the rows sum to the step, `other` is always among them."""
    body = [
        [escape(PHASE_NAMES.get(row.phase, row.phase.replace("_", " "))), seconds(row.mean_s), percent(row.share)]
        for row in sorted(rows, key=lambda row: row.phase == "other")
    ]
    total = sum(row.mean_s for row in rows)
    body.append(["**Total step**", f"**{seconds(total)}**", f"**{percent(total * window.steps / window.seconds)}**"])
    return table(["Phase", "Avg time", "% of step"], body, "l")


def native_names(rows: Sequence[PhaseRow]) -> list[str]:
    """Which of the framework's own timers each phase is made of."""
    named = [row for row in rows if row.native_names]
    return table(
        ["Phase", "Framework's timers", "Spans"],
        [[escape(row.phase), ", ".join(code(name) for name in row.native_names), f"{row.n:,}"] for row in named],
        "llr",
    )


def account_table(account: Account, notes: Footnotes) -> list[str]:
    """Seconds and share of the window per class, one column per pool; then the units whose account differs."""
    pools = list(dict.fromkeys(unit.pool for unit in account.units))
    per_pool = {pool: account.pool_seconds(pool) for pool in pools}
    names = _classes(per_pool.values())
    rows = [
        [escape(name.replace("_", " ")), *(_share(per_pool[pool].get(name), account.window_s) for pool in pools)]
        for name in names
    ]
    rows.append(["**window**", *(f"**{seconds(account.window_s)}**" for _ in pools)])
    heads = [f"{_pool_name(pool)} ({_units(account, pool)})" for pool in pools]
    return table(["Class", *heads], rows, "l")


def unit_table(account: Account, notes: Footnotes) -> list[str]:
    """One row per unit: share of each class, its coverage, and how many turns ran while it generated."""
    units = account.units[:_MOST_UNITS]
    names = _classes([unit.seconds for unit in units])
    header = ["Unit", "GPUs", *(name.replace("_", " ") for name in names), "named", "mean running"]
    rows = [
        [
            code(unit.unit),
            number(unit.gpus),
            *(percent(unit.seconds.get(name, 0.0) / account.window_s) for name in names),
            percent(unit.coverage),
            _running(unit, notes),
        ]
        for unit in units
    ]
    lines = table(header, rows, "l")
    if len(account.units) > _MOST_UNITS:
        lines += ["", f"{len(account.units) - _MOST_UNITS} more units are in the results."]
    return lines


def adherence_table(found: Adherence, notes: Footnotes) -> list[str]:
    """What was done against what was planned."""
    if found.content_ratio is None:
        return [f"Plan adherence: {notes.unknown(found.why_none or 'nothing was planned')}"]
    loss = notes.unknown("no step recorded the sum of its loss mask")
    if found.loss_tokens_match is not None:
        loss = f"{found.consumed_generated_tokens:,} and {found.loss_tokens:,}"
        loss += ": equal" if found.loss_tokens_match else ": **they differ**"
    elif found.loss_tokens is not None:
        loss = notes.unknown("a consumed trajectory has no token count on record")
    rows = [
        ["trajectories started", f"{found.started:,}"],
        ["content as planned", f"{found.adhering:,} of {found.started:,} ({percent(found.content_ratio)})"],
        ["compared up to their last turn only (unfinished)", f"{found.unfinished:,}"],
        [
            "turns, tool calls, generated tokens compared",
            _counts(found.turns, found.tool_calls, found.generated_tokens),
        ],
        ["deviations", f"{found.deviation_count:,}"],
        ["tokens returned by the engine and in the loss mask", loss],
        ["tool time beyond the plan, p50", _ns(found.overshoot_p50_ns, notes)],
        ["tool time beyond the plan, p99", _ns(found.overshoot_p99_ns, notes)],
        ["calls shorter than planned", f"{found.undercut:,} of {found.calls_timed:,}"],
        ["timing distorted", _yes(found.timing_distorted, notes, "no tool call was timed")],
        ["digest of the plans consumed", _digest(found, notes)],
    ]
    lines = table(["Plan adherence", "what"], rows, "ll")
    if found.deviations:
        shown = [f"- {escape(text)}" for text in found.deviations]
        lines += ["", f"The first {len(shown)} of {found.deviation_count:,} deviations:", "", *shown]
    return lines


def staleness_table(found: Staleness, notes: Footnotes) -> list[str]:
    """The four figures, in policy versions."""

    def row(name: str, what: Distribution) -> list[str]:
        why = "no consumed trajectory has the versions on record"
        cells = [notes.unknown(why) if v is None else number(v) for v in (what.mean, what.p50, what.p95, what.max)]
        return [name, *cells, f"{what.n:,}", f"{what.unknown:,}"]

    rows = [
        row("at start (the bound applies to it)", found.at_start),
        row("at finish", found.at_finish),
        row("in queue", found.in_queue),
        row(f"per token (resolution: {found.resolution})", found.per_token),
    ]
    lines = table(["Staleness, versions", "mean", "p50", "p95", "max", "n", "unknown"], rows, "l")
    lines += [
        "",
        f"Bound asked for: {found.bound}. Beyond it: {found.violations:,} of {found.at_start.n:,} trajectories.",
    ]
    if found.tokens_across_sync:
        lines[-1] += f" {found.tokens_across_sync:,} tokens come from turns that a weight sync cut through."
    if found.negative:
        lines[-1] += f" **{found.negative:,} were trained on before their version existed: the record is wrong.**"
    return lines


def sync_table(proof: SyncProof) -> list[str]:
    """The four parts of the proof."""
    rows = [
        ["1 fresh: within a version, engine and trainer agree", verdict(proof.fresh), escape(proof.fresh.why)],
        ["2 changed: training moves the weights", verdict(proof.changed), escape(proof.changed.why)],
        ["3 follows: the engine has the new weights", verdict(proof.follows), escape(proof.follows.why)],
        ["4 control: without the sync, this fails", "elsewhere", escape(proof.control)],
    ]
    return table(["Weight sync", "holds", "what was seen"], rows, "lll")


def verdict(part: Part) -> str:
    """A part's outcome in a word."""
    return {True: "yes", False: "**no**", None: "not known"}[part.passed]


def failures_table(failures: pd.DataFrame) -> list[str]:
    """What failed, by boundary and kind, with the first message of each."""
    if failures.empty:
        return ["No failures were recorded."]
    groups: dict[tuple[str, str], list[str]] = {}
    for boundary, kind, message in zip(failures["boundary"], failures["type"], failures["message"], strict=True):
        groups.setdefault((str(boundary), str(kind)), []).append(str(message))
    rows = [
        [escape(boundary), escape(kind), f"{len(messages):,}", escape(messages[0][:300])]
        for (boundary, kind), messages in groups.items()
    ]
    lines = table(["Boundary", "Kind", "Count", "First message"], rows[:_MOST_FAILURES], "llrl")
    if len(rows) > _MOST_FAILURES:
        lines += ["", f"{len(rows) - _MOST_FAILURES} more kinds are in the table `failures`."]
    return lines


def units_in_words(account: Account) -> str:
    """E.g. `granularity engine: 8 rollout units`."""
    rollout = [unit for unit in account.units if unit.pool != "train"]
    return f"granularity `{account.granularity}`: {len(rollout)} rollout unit{'' if len(rollout) == 1 else 's'}"


def _classes(accounts: Iterable[Mapping[str, float]]) -> list[str]:
    """Every class that occurs, in the account's own order; `other` always, and last."""
    seen = list(dict.fromkeys(name for account in accounts for name in account))
    order = {name: place for place, name in enumerate(_ORDER)}
    return [*sorted((n for n in seen if n != "other"), key=lambda n: (order.get(n, len(order)), n)), "other"]


_ORDER = (
    "generating",
    "tool_wait",
    "agent",
    "empty",
    "wait_train",
    "wait_rollout",
    "logprob",
    "train",
    "host",
    "weight_sync",
    "offload",
    "checkpoint",
    "eval",
    "down",
)


def _share(value: float | None, whole: float) -> str:
    return f"{seconds(value or 0.0)} ({percent((value or 0.0) / whole)})"


def _pool_name(pool: str) -> str:
    return "shared pool" if pool == "both" else f"{pool} pool"


def _units(account: Account, pool: str) -> str:
    mine: Sequence[UnitAccount] = [unit for unit in account.units if unit.pool == pool]
    return f"{len(mine)} unit{'' if len(mine) == 1 else 's'}, {number(sum(unit.gpus for unit in mine))} GPU slots"


def _running(unit: UnitAccount, notes: Footnotes) -> str:
    if unit.mean_running is not None:
        return number(unit.mean_running)
    return notes.unknown("the train unit runs no turns" if unit.pool == "train" else "the unit never generated")


def _counts(*values: int) -> str:
    return ", ".join(f"{value:,}" for value in values)


def _ns(value: int | None, notes: Footnotes) -> str:
    return notes.unknown("no tool call was timed") if value is None else f"{number(value / 1e6)} ms"


def _yes(value: bool | None, notes: Footnotes, reason: str) -> str:
    return notes.unknown(reason) if value is None else ("**yes**" if value else "no")


def _digest(found: Adherence, notes: Footnotes) -> str:
    if found.consumed_digest is None:
        return notes.unknown(
            "no step trained on a trajectory" if not found.consumed else "a consumed trajectory has no plan"
        )
    return f"{code(found.consumed_digest)} ({found.consumed:,} trajectories)"
