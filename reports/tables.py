"""The tables of a report: one function each, from results to Markdown lines. Unknown is a dash with its reason."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from reports.markdown import UNKNOWN, Footnotes, code, escape, number, percent, plural, seconds, table
from results.account import LOW_BAND, Account, UnitAccount
from results.adherence import Adherence
from results.lifetimes import Lifetimes
from results.metrics import Figure
from results.phases import PhaseRow
from results.staleness import Distribution, Staleness
from results.sync_proof import Part, SyncProof
from results.window import Window

_MOST_UNITS = 64
_MOST_FAILURES = 20

GPU_FIGURES = ("mfu", "power_", "idle_power", "joules_")
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
        for row in in_order(rows)
    ]
    total = sum(row.mean_s for row in rows)
    body.append(["**Total step**", f"**{seconds(total)}**", f"**{percent(total * window.steps / window.seconds)}**"])
    return table(["Phase", "Avg time", "% of step"], body, "l")


def in_order(rows: Sequence[PhaseRow]) -> list[PhaseRow]:
    """Phases in the order in which a step goes through them; `other` last."""
    return sorted(rows, key=lambda row: (row.phase == "other", row.phase != "wait_rollout"))


def native_names(rows: Sequence[PhaseRow]) -> list[str]:
    """Which of the framework's own timers each phase is made of."""
    named = [row for row in in_order(rows) if row.native_names]
    return table(
        ["Phase", "Framework's timers", "Spans"],
        [[escape(row.phase), ", ".join(code(name) for name in row.native_names), f"{row.n:,}"] for row in named],
        "llr",
    )


def account_table(account: Account, *, gpu: bool) -> list[str]:
    """Seconds and share of the window per class, one column per pool; then the units whose account differs."""
    pools = list(dict.fromkeys(unit.pool for unit in account.units))
    per_pool = {pool: account.pool_seconds(pool) for pool in pools}
    names = classes(per_pool.values())
    rows = [
        [escape(name.replace("_", " ")), *(_share(per_pool[pool].get(name), account.window_s, name) for pool in pools)]
        for name in names
    ]
    rows.append(["**window**", *(f"**{seconds(account.window_s)}**" for _ in pools)])
    heads = [f"{_pool_name(pool)} ({_units(account, pool, gpu)})" for pool in pools]
    return table(["Class", *heads], rows, "l")


def tail_table(account: Account, *, gpu: bool, synchronous: bool) -> list[str]:
    """Seconds of each class inside the batches' tails, one column per pool: a part of the account, not beside it."""
    if not synchronous or not account.tail_s:
        why = "no batch in the window has one" if synchronous else "in async no step waits for a whole batch"
        return [f"No tail (from the median consumed trajectory's end to the last one's): {why}."]
    pools = list(dict.fromkeys(unit.pool for unit in account.units if unit.pool != "train"))
    rows = []
    for name in classes([unit.tail_seconds for unit in account.units]):
        parts = [_in_tail(account, pool, name) for pool in pools]
        if any(parts):
            rows.append([escape(name.replace("_", " ")), *(_share(part, account.window_s, name) for part in parts)])
    rows.append(["**tail**", *(_share(account.tail_s, account.window_s, "tail") for _ in pools)])
    heads = [f"{_pool_name(pool)} ({_units(account, pool, gpu)})" for pool in pools]
    lines = table(["Inside the tail", *heads], rows, "l")
    return [*lines, "", "Shares are of the window. `generating` inside the tail is work, not lost time."]


def hidden_line(account: Account) -> str | None:
    """How much of the rollout pool's work ran while the train pool trained; None where one pool takes turns."""
    mine = [unit for unit in account.units if unit.pool == "rollout"]
    names = classes([unit.hidden_seconds for unit in mine])
    gpus = sum(unit.gpus for unit in mine)
    if not gpus:
        return None
    told = []
    for name in names:
        whole = sum(unit.seconds.get(name, 0.0) * unit.gpus for unit in mine) / gpus
        part = sum(unit.hidden_seconds.get(name, 0.0) * unit.gpus for unit in mine) / gpus
        if name in ("generating", "tool_wait", "weight_sync") and whole:
            told.append(f"{name.replace('_', ' ')} {seconds(part)} of {seconds(whole)}")
    if not told:
        return None
    behind = "Hidden behind training (the train pool was in train, logprob or host; a weight sync: it held up no turn)"
    return f"{behind}: {', '.join(told)}; the rest is exposed."


def unit_table(account: Account, *, gpu: bool, notes: Footnotes) -> list[str]:
    """One row per unit: share of each class, its coverage, and how many turns ran while it generated."""
    units = account.units[:_MOST_UNITS]
    names = classes([unit.seconds for unit in units])
    header = [
        "Unit",
        "GPUs" if gpu else "processes",
        *(name.replace("_", " ") for name in names),
        "named",
        "mean running",
        f"generating, below {LOW_BAND:.0%} of p95",
    ]
    rows = [
        [
            code(unit.unit),
            number(unit.gpus),
            *(_part(unit.seconds.get(name), account.window_s, name) for name in names),
            percent(unit.coverage),
            _running(unit, notes),
            _few_turns(unit, account.window_s, notes),
        ]
        for unit in units
    ]
    lines = [
        *table(header, rows, "l"),
        "",
        f"The last column is the part of `generating` in which the unit ran fewer turns than {LOW_BAND:.0%} of the "
        "run's 95th percentile: an engine that makes few replies is not busy.",
    ]
    if len(account.units) > _MOST_UNITS:
        lines += ["", f"{len(account.units) - _MOST_UNITS} more units are in the results."]
    return lines


def lifetime_table(found: Lifetimes) -> list[str]:
    """Where the trajectories' own seconds went."""
    whole = found.total_s or 1.0
    rows = [
        [
            escape(name.replace("_", " ")),
            UNKNOWN if value is None else seconds(value),
            UNKNOWN if value is None else percent(value / whole),
        ]
        for name, value in found.seconds.items()
    ]
    rows.append([f"**{plural(found.trajectories, 'trajectory')}**", f"**{seconds(found.total_s)}**", " "])
    lines = table(["Trajectory-seconds", "time", "share"], rows, "l")
    if found.queued_by_engine:
        lines += ["", "`queued` is the turns' time in which their engine said that it ran none: a lower bound."]
    elif found.seconds.get("queued") is None:
        lines += ["", "When a request was queued at its engine is not on record: that time is inside `generating`."]
    return lines


def figure_table(figures: Iterable[Figure], notes: Footnotes, *, gpu: bool) -> list[str]:
    """Every computed figure as it is stored; those that need a GPU are left out where there was none."""
    rows = []
    for each in figures:
        if not gpu and each.metric.startswith(GPU_FIGURES):
            continue
        unit = each.unit if gpu else each.unit.replace("GPU", "process")
        value = notes.unknown(each.note or "not known") if each.value is None else number(each.value, 4)
        interval = " "
        if each.ci_low is not None and each.ci_high is not None:
            interval = f"{number(each.ci_low, 4)} to {number(each.ci_high, 4)}"
        note = escape(each.note) if each.note and each.value is not None else " "
        n = " " if each.n is None else f"{each.n:,}"
        rows.append([code(each.metric), value, escape(unit), interval, n, each.verdict or " ", note])
    return table(["Figure", "value", "unit", "95 % interval", "n", "verdict", "note"], rows, "lrlrrll")


def adherence_table(found: Adherence, notes: Footnotes) -> list[str]:
    """What was done against what was planned."""
    compared = [
        ["tokens to be trained and in the loss mask", _loss(found, notes)],
        ["tokens by the engines' own counters and in the replies", _counters(found, notes)],
    ]
    if found.content_ratio is None:
        said = f"Plan adherence: {notes.unknown(found.why_none or 'nothing was planned')}"
        return [said, "", *table(["Tokens", "what"], compared, "ll")]
    rows = [
        ["trajectories started", f"{found.started:,}"],
        ["content as planned", f"{found.adhering:,} of {found.started:,} ({percent(found.content_ratio)})"],
        ["compared up to their last turn only (unfinished)", f"{found.unfinished:,}"],
        [
            "turns, tool calls, generated tokens compared",
            _counts(found.turns, found.tool_calls, found.generated_tokens),
        ],
        ["deviations", f"{found.deviation_count:,}"],
        *compared,
        ["tool time beyond the plan, p50", _ns(found.overshoot_p50_ns, notes)],
        ["tool time beyond the plan, p99", _ns(found.overshoot_p99_ns, notes)],
        [
            f"calls that did not end as {'planned' if found.imposed else 'ok'}",
            f"{found.failed_calls:,} of {found.finished_calls:,}",
        ],
        *([["faults as planned", f"{found.planned_faults:,}"]] if found.planned_faults else []),
        *([] if found.not_replayed is None else [["calls that got no recording", f"{found.not_replayed:,}"]]),
        ["calls shorter than planned", f"{found.undercut:,} of {found.finished_calls:,}"],
        ["timing distorted", _yes(found.timing_distorted, notes, "no tool call was timed")],
        ["digest of the plans consumed", _digest(found, notes)],
    ]
    lines = table(["Plan adherence", "what"], rows, "ll")
    if found.deviations:
        shown = [f"- {escape(text)}" for text in found.deviations]
        lines += ["", f"The first {len(shown)} of {plural(found.deviation_count, 'deviation')}:", "", *shown]
    return lines


def _loss(found: Adherence, notes: Footnotes) -> str:
    if found.loss_tokens_match is not None:
        text = f"{found.consumed_generated_tokens:,} and {found.loss_tokens:,}"
        return text + (": equal" if found.loss_tokens_match else ": **they differ**")
    if found.loss_tokens is not None and found.loss_steps_unknown:
        return notes.unknown(f"{plural(found.loss_steps_unknown, 'step')} without the sum of their loss mask on record")
    if found.loss_tokens is not None:
        return notes.unknown("a consumed trajectory has no token count on record")
    return notes.unknown("no step recorded the sum of its loss mask")


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
        f"Bound asked for: {found.bound}. Beyond it: {found.violations:,} of {plural(found.at_start.n, 'trajectory')}.",
    ]
    if found.tokens_across_sync:
        lines[-1] += f" {found.tokens_across_sync:,} tokens come from turns that a weight sync cut through."
    if found.negative:
        lines[-1] += f" **{found.negative:,} were trained on before their version existed: the record is wrong.**"
    return lines


def _counters(found: Adherence, notes: Footnotes) -> str:
    check = found.engine_tokens
    if check.match is None:
        return notes.unknown(check.why)
    return f"{check.agreement if check.match else '**they differ**'}: {escape(check.why)}"


def sync_table(proof: SyncProof) -> list[str]:
    """The four parts of the proof."""
    rows = [
        ["1 fresh: within a version, engine and trainer agree", fresh_verdict(proof), escape(proof.fresh.why)],
        ["2 changed: training moves the weights", verdict(proof.changed), escape(proof.changed.why)],
        ["3 follows: the engine has the new weights", verdict(proof.follows), escape(proof.follows.why)],
        ["4 control: without the sync, this fails", "elsewhere", escape(proof.control)],
    ]
    return table(["Weight sync", "holds", "what was seen"], rows, "lll")


def verdict(part: Part) -> str:
    """A part's outcome in a word."""
    return {True: "yes", False: "**no**", None: "not known"}[part.passed]


def fresh_verdict(proof: SyncProof) -> str:
    """Part 1 in a word: where the device has no bound (bf16) the difference is shown, and judged by nobody."""
    unjudged = proof.bound is None and proof.fresh_max is not None and proof.fresh.passed is not False
    return "shown" if unjudged else verdict(proof.fresh)


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
    return f"granularity `{account.granularity}`: {plural(len(rollout), 'rollout unit')}"


def classes(accounts: Iterable[Mapping[str, float]]) -> list[str]:
    """Every class that occurs, in the account's own order; `other` always, and last."""
    seen = list(dict.fromkeys(name for account in accounts for name in account))
    order = {name: place for place, name in enumerate(CLASS_ORDER)}
    return [*sorted((n for n in seen if n != "other"), key=lambda n: (order.get(n, len(order)), n)), "other"]


CLASS_ORDER = (
    "generating",
    "queued",
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


def _share(value: float | None, whole: float, name: str) -> str:
    if value is None and name != "other":
        return " "  # this pool has no such class
    return f"{seconds(value or 0.0)} ({percent((value or 0.0) / whole)})"


def _part(value: float | None, whole: float, name: str) -> str:
    return " " if value is None and name != "other" else percent((value or 0.0) / whole)


def _pool_name(pool: str) -> str:
    return "shared pool" if pool == "both" else f"{pool} pool"


def _units(account: Account, pool: str, gpu: bool) -> str:
    mine: Sequence[UnitAccount] = [unit for unit in account.units if unit.pool == pool]
    slots = f"{number(sum(unit.gpus for unit in mine))} {'GPU' if gpu else 'process'} slots"
    return f"{plural(len(mine), 'unit')}, {slots}"


def _running(unit: UnitAccount, notes: Footnotes) -> str:
    if unit.mean_running is not None:
        return number(unit.mean_running)
    return notes.unknown("the train unit runs no turns" if unit.pool == "train" else "the unit never generated")


def _few_turns(unit: UnitAccount, whole: float, notes: Footnotes) -> str:
    if unit.low_band_s is not None:
        return f"{seconds(unit.low_band_s)} ({percent(unit.low_band_s / whole)})"
    return notes.unknown("the train unit runs no turns" if unit.pool == "train" else "the unit never generated")


def _in_tail(account: Account, pool: str, name: str) -> float:
    """GPU-weighted mean seconds of a class inside the tail over the units of a pool."""
    mine = [unit for unit in account.units if unit.pool == pool]
    return sum(unit.tail_seconds.get(name, 0.0) * unit.gpus for unit in mine) / sum(unit.gpus for unit in mine)


def _counts(*values: int) -> str:
    return ", ".join(f"{value:,}" for value in values)


def _ns(value: int | None, notes: Footnotes) -> str:
    if value is None:
        return notes.unknown("no tool call was timed")
    return f"{number(value / 1e6)} ms" if value == 0 or abs(value) >= 1000 else f"{value} ns"


def _yes(value: bool | None, notes: Footnotes, reason: str) -> str:
    return notes.unknown(reason) if value is None else ("**yes**" if value else "no")


def _digest(found: Adherence, notes: Footnotes) -> str:
    if found.consumed_digest is None:
        return notes.unknown(
            "no step trained on a trajectory" if not found.consumed else "a consumed trajectory has no plan"
        )
    return f"{code(found.consumed_digest)} ({plural(found.consumed, 'trajectory')})"
