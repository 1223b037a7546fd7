"""Identities in the logs of others: verl's and AReaL's consoles, AReaL's sessions, MLPerf's result logs."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from results.importing import areal_console, verl_console
from results.importing.areal_tracer import Session
from results.importing.log_steps import LogStep
from results.importing.mlperf_log import LogEvent
from results.intervals import merge
from results.lint import identities
from results.lint.findings import Linted
from results.lint.given import Given
from results.lint.quantity import Quantity, too_large

SHARES = ("clip_ratio", "aborted_ratio", "idle_ratio", "_clipfrac", "clipped_ratio", "_fraction", "no_eos_ratios/avg")
MIDDLE = ("mean", "avg")
WHOLE = 0.01  # a number of GPUs that is this near to a whole one is that one
STUCK_ROWS = 3
CLOCK_S = 0.001  # AReaL's console prints milliseconds: half of one at each end


def lint_verl(source: str, steps: Sequence[LogStep], given: Given) -> Linted:
    """Checks a verl log."""
    linted = Linted(source)
    for step in steps:
        row = f"step {step.step}"
        _each_figure(linted, step, row)
        _verl_time(linted, step, row)
        _verl_rate(linted, step, row, given)
        for key in step.values:
            if "trajectory_staleness" in key and key.endswith("/max"):
                _bound(linted, step, row, key, given)
    _not_numbers(linted, steps)
    _verl_counted_gpus(linted, steps, given)
    _stuck_idle(linted, steps)
    return linted


def lint_areal(source: str, steps: Sequence[LogStep], given: Given) -> Linted:
    """Checks an AReaL console log."""
    linted = Linted(source)
    for before, step in zip([None, *steps], steps, strict=False):
        row = f"step {step.step}"
        _each_figure(linted, step, row)
        phases = [step.number(f"timeperf/{name}") for name in areal_console.PHASES]
        known = [phase for phase in phases if phase is not None]
        if before is not None and before.wall_s is not None and step.wall_s is not None and known:
            # The log prints no time of a step: that of its lines stands for it.
            wall = step.wall_s - before.wall_s
            check = identities.phases_within_step(known, Quantity(wall, wall - CLOCK_S, wall + CLOCK_S))
            linted.check(check, row, step.line)
        elif known:
            linted.unchecked("phases_within_step", row, "no step before it with a time", step.line)
        _parts(linted, step, row, "ppo_actor/n_seqs", ("ppo_actor/correct_n_seqs", "ppo_actor/incorrect_n_seqs"))
        valid, all_of = step.number("ppo_actor/n_valid_tokens"), step.number("ppo_actor/n_tokens")
        if valid is not None and all_of is not None:
            pair = [("n_valid_tokens", valid), ("n_tokens", all_of)]
            linted.check_all(identities.ordered(pair, "token"), row, step.line)
        for key in step.values:
            if key.endswith("sample_staleness_theta_max"):
                _bound(linted, step, row, key, given)
    _not_numbers(linted, steps)
    return linted


def lint_sessions(source: str, sessions: Sequence[Session], problems: Iterable[str]) -> Linted:
    """Checks the sessions of an AReaL tracer file. Its times are of the wall clock, printed with all digits."""
    linted = Linted(source, notes=[f"{problem}: left out" for problem in problems])
    for one in sessions:
        row = f"session {one.name}"
        submit = _exact(one.submit_ts)
        if one.finalized_ts is None:
            linted.unchecked("start_before_end", row, f"never finalized (status {one.status})", one.line)
        else:
            linted.check(identities.start_before_end(submit, _exact(one.finalized_ts)), row, one.line)
            _agree(linted, one, row, "total_s", one.finalized_ts - one.submit_ts)
        spans = []
        for name, phases in one.phases.items():
            ended = [(start, end) for start, end in phases if end is not None]
            _agree(linted, one, row, f"{name}_s", sum(end - start for start, end in ended))
            spans += ended
            for start, end in ended:
                linted.check(identities.start_before_end(_exact(start), _exact(end)), f"{row}, {name}", one.line)
                linted.check(identities.start_before_end(submit, _exact(start)), f"{row}, {name}", one.line)
        if one.finalized_ts is not None and spans:
            # Phases of one session may overlap (several tool calls at once): what they cover, each second once.
            edges = np.array(sorted(spans), dtype=np.float64)
            begin, finish = merge((edges[:, 0] * 1e9).astype(np.int64), (edges[:, 1] * 1e9).astype(np.int64))
            covered = _exact(float((finish - begin).sum()) / 1e9)
            total = one.finalized_ts - one.submit_ts
            check = identities.leaves_within_wall([covered], Quantity(total, total, total + 1e-6))
            linted.check(check, row, one.line)
    return linted


def lint_mlperf(source: str, events: Sequence[LogEvent], problems: Iterable[str]) -> Linted:
    """Checks an MLPerf training log: intervals end after they start, counters grow, counts are not negative."""
    linted = Linted(source, notes=[f"{problem}: left out" for problem in problems])
    opened: dict[str, list[LogEvent]] = {}  # of one name, the innermost last
    samples: LogEvent | None = None
    for event in events:
        name = event.key.removesuffix("_start").removesuffix("_stop")
        if event.kind == "INTERVAL_START":
            opened.setdefault(name, []).append(event)
        elif event.kind == "INTERVAL_END":
            if not opened.get(name):
                linted.unchecked("start_before_end", name, "it ends and never started", event.line)
                continue
            begun = opened[name].pop()
            pair = _exact(begun.time_ms / 1e3), _exact(event.time_ms / 1e3)
            linted.check(identities.start_before_end(*pair), f"{name} (from line {begun.line})", event.line)
        count = event.metadata.get("samples_count", event.value if event.key == "samples_count" else None)
        if isinstance(count, int | float) and event.key in ("eval_accuracy", "samples_count", "eval_stop"):
            if samples is not None:
                before = float(samples.metadata.get("samples_count", samples.value))
                check = identities.counter_grows(_exact(before), _exact(float(count)), "samples_count", "sample")
                linted.check(check, f"{event.key} (after line {samples.line})", event.line)
            samples = event
        sized = event.key in ("global_batch_size", "train_samples", "eval_samples", "gradient_accumulation_steps")
        if sized and isinstance(event.value, int | float):
            linted.check(identities.count_not_negative(_exact(float(event.value)), event.key), event.key, event.line)
    for name, left in opened.items():
        for event in left:
            linted.unchecked("start_before_end", name, "it starts and never ends", event.line)
    return linted


def _exact(value: float) -> Quantity:
    return Quantity.exact(float(value))


def _agree(linted: Linted, session: Session, row: str, key: str, computed: float) -> None:
    if key in session.stated:
        # Differences of wall-clock seconds: 10 digits before the point leave 2e-7 s behind it.
        other = Quantity(computed, computed - 1e-6, computed + 1e-6)
        check = identities.counts_agree(_exact(session.stated[key]), other, key, "from its times", "s")
        linted.check(check, row, session.line)


def _parts(linted: Linted, step: LogStep, row: str, whole: str, parts: Sequence[str]) -> None:
    found = [step.number(part) for part in parts]
    total, known = step.number(whole), [part for part in found if part is not None]
    if total is not None and len(known) == len(parts):
        went = dict(zip(parts, known, strict=True))
        linted.check(identities.ledger_closes({whole: total}, went, "trajectory"), row, step.line)


def _bound(linted: Linted, step: LogStep, row: str, key: str, given: Given) -> None:
    value = step.number(key)
    if given.max_staleness is None:
        linted.unchecked("staleness_within_bound", row, f"{key}: no bound is given (--max-staleness)", step.line)
    elif value is not None:
        bound = _exact(given.max_staleness)
        linted.check(identities.staleness_within_bound(value, bound, key), row, step.line)


def _each_figure(linted: Linted, step: LogStep, row: str) -> None:
    """What the name of a figure alone says: shares, MFU, counts and times, and minimum <= mean <= maximum."""
    stems: dict[str, dict[str, Quantity]] = {}
    for key in step.values:
        value = step.number(key)
        if value is None:
            continue
        stem, _, last = key.rpartition("/")
        if last in ("min", "max", *MIDDLE):
            stems.setdefault(stem, {})["mean" if last in MIDDLE else last] = value
        where = f"{row}, {key}"
        if key.startswith(("perf/mfu/", "mfu/")):
            linted.check(identities.mfu_below_one(value), where, step.line)
        elif key.endswith(SHARES) and "rollout_corr" not in key:
            linted.check(identities.share_in_unit(value, key), where, step.line)
        elif _counts(key, last):
            linted.check(identities.count_not_negative(value, key), where, step.line)
    for stem, named in stems.items():
        told = [(f"{stem}/{end}", named[end]) for end in ("min", "mean", "max") if end in named]
        if len(told) > 1:
            linted.check_all(identities.ordered(told), f"{row}, {stem}", step.line)


def _counts(key: str, last: str) -> bool:
    """Whether a figure counts or times something; verl writes -1 for preemptions that it does not know."""
    timed = key.startswith(("timing_s/", "timeperf/"))
    return (timed or "num_tokens" in key or last.startswith("n_")) and "num_preempted" not in key


def _verl_time(linted: Linted, step: LogStep, row: str) -> None:
    whole = step.number("timing_s/step")
    if whole is None:
        return
    phases = [step.number(f"timing_s/{name}") for name in verl_console.PHASES]
    known = [phase for phase in phases if phase is not None]
    if known:
        linted.check(identities.phases_within_step(known, whole), row, step.line)
    stated = step.number("perf/time_per_step")
    if stated is not None:
        check = identities.counts_agree(stated, whole, "perf/time_per_step", "timing_s/step", "s")
        linted.check(check, row, step.line)
    idle, wait = step.number("fully_async/trainer/idle_ratio"), step.number("timing_s/gen")
    if idle is not None and wait is not None:
        linted.check(identities.share_of_whole(idle, wait, whole, "gen"), row, step.line)


def _rate(step: LogStep) -> tuple[Quantity, Quantity, Quantity] | None:
    names = ("perf/total_num_tokens", "perf/throughput", "perf/time_per_step")
    tokens, rate, seconds = (step.number(name) for name in names)
    return None if tokens is None or rate is None or seconds is None else (tokens, rate, seconds)


def _verl_rate(linted: Linted, step: LogStep, row: str, given: Given) -> None:
    found = _rate(step)
    if found is None:
        return
    if given.gpus is None:
        why = "how many GPUs the run had, all pools together, is not given (--gpus)"
        linted.unchecked("tokens_rate", row, why, step.line)
        return
    tokens, rate, seconds = found
    check = identities.tokens_rate(tokens, rate, _exact(given.gpus), seconds, slack=given.slack)
    linted.check(check, row, step.line)


def _verl_counted_gpus(linted: Linted, steps: Sequence[LogStep], given: Given) -> None:
    """How many GPUs a throughput was divided by: what tokens / (throughput x time) comes to, once for the log."""
    if given.gpus is not None:
        return
    counts: dict[int, Quantity] = {}
    for step in steps:
        found = _rate(step)
        if found is None or found[1].value == 0 or found[2].value == 0:
            continue
        gpus = found[0] / (found[1] * found[2])
        if not math.isfinite(gpus.value):
            continue
        if abs(gpus.value - round(gpus.value)) <= WHOLE * gpus.value and round(gpus.value) >= 1:
            counts[round(gpus.value)] = gpus
    for count, gpus in counts.items():
        message = f"perf/throughput is per {count} GPU{'s' if count > 1 else ''}: tokens / (throughput x time); "
        message += "a run whose rollout GPUs are not among them states too much (--gpus checks it)"
        linted.implied("tokens_rate", "all steps", message, gpus, unit="GPU")


def _not_numbers(linted: Linted, steps: Sequence[LogStep]) -> None:
    """Figures that are NaN or infinite: nothing can be checked of them, and one of them spoils every mean it is in."""
    found: dict[str, list[int]] = {}
    for step in steps:
        for key, text in step.values.items():
            said = text.lower().strip("()+-").removeprefix("np.float64(")
            if said in ("nan", "inf") or too_large(said):
                found.setdefault(key, []).append(step.step)
    for key, numbers in found.items():
        linted.notes.append(f"{key} is no number in {len(numbers)} of {len(steps)} steps, first in step {numbers[0]}")


def _stuck_idle(linted: Linted, steps: Sequence[LogStep]) -> None:
    keys = {key for step in steps for key in step.values if key.endswith("idle_ratio")}
    for key in sorted(keys):
        values = [value for step in steps if (value := step.value(key)) is not None]
        if len(values) >= STUCK_ROWS and not any(values):
            message = f"{key} is exactly 0 in all {len(values)} steps: a side that never waits, or a ratio that "
            message += "counts only a pause that began inside its own window"
            linted.implied("share_in_unit", "all steps", message, _exact(0.0), unit="ratio")
