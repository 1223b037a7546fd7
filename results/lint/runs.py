"""Identities of one of our runs: between its figures, and row by row in its tables."""

from pathlib import Path

import numpy as np
import pandas as pd

from harness.protocol.errors import SpecError
from harness.protocol.phases import Pool
from results.classes import Class
from results.collect import collect
from results.energy import Energy
from results.figure import Figure
from results.importing.imported import is_imported
from results.lint import energy_identities, identities
from results.lint.check import Check
from results.lint.findings import Linted
from results.lint.given import Given
from results.lint.quantity import Quantity
from results.lint.run_tables import lint_tables
from results.lint.source import lint_file
from results.metrics import RunFigures, compute
from results.staleness import Distribution
from results.store import RunTables, is_collected, load_run
from results.throughput import Ledger
from results.trained import trained_tokens
from results.window import Window

NOT_SHARES = ("selection_ratio", "tail_speed_up_bound")  # ratios of two wholes
TRAIN_BUSY = (Class.TRAIN, Class.LOGPROB, Class.HOST)


def lint_run(run_dir: Path) -> Linted:
    """Checks one run; one that was never collected, or was not sealed when it was, is collected first.

    Raises:
        SpecError: not a run folder, or its spec or tables cannot be read.
    """
    complete = is_collected(run_dir) and (run_dir / "sealed").exists()
    return lint_loaded(load_run(run_dir) if complete else collect(run_dir))


def lint_loaded(run: RunTables) -> Linted:
    """Checks a run that was loaded."""
    linted = Linted(run.run_id)
    lint_tables(run, linted)
    found = compute(run)
    if found.window is None:
        for identity in ("tokens_rate", "leaves_within_wall", "phases_within_step", "ledger_closes", "steps_time"):
            linted.unchecked(identity, "figures", f"no steady window: {found.no_window}")
    else:
        _window(linted, run, found, found.window)
        if found.energy is not None:
            _energy(linted, found.energy, found.window)
    for figure in found.figures.values():
        _figure(linted, figure)
    _staleness(linted, run, found)
    if is_imported(run.spec):
        _source(linted, run)
    return linted


def _source(linted: Linted, run: RunTables) -> None:
    """What an imported run was made from, as it is: tables hold no phase that is longer than its step."""
    logs = run.run_dir / "logs"
    kept = sorted(path for path in logs.iterdir() if path.is_file()) if logs.is_dir() else []
    if not kept:
        linted.notes.append("the file that it was imported from is no longer in logs/: not checked")
    for path in kept:
        try:
            linted.add(lint_file(path, Given(), run.spec.preset), f"imported file {path.name}")
        except SpecError as error:
            linted.notes.append(f"imported file {path.name}: not checked: {error}")


def _exact(value: float) -> Quantity:
    return Quantity.exact(float(value))


def _window(linted: Linted, run: RunTables, found: RunFigures, window: Window) -> None:
    seconds, steps = _exact(window.seconds), _exact(window.steps)
    step_s = found.figures["step_time_s"].value
    if step_s is not None:
        linted.check(identities.steps_time(seconds, steps, _exact(step_s)), "steady window")
    rate = found.figures["throughput_tokens_per_s_gpu"].value
    if rate is None:
        linted.unchecked("tokens_rate", "steady window", "throughput is not known")
    else:
        tokens = _exact(_tokens_inside(run, window))
        check = identities.tokens_rate(tokens, _exact(rate), _exact(run.spec.total_gpus), seconds)
        linted.check(check, "steady window")
    if found.account is not None:
        for unit in found.account.units:
            row = f"time account, unit {unit.unit}"
            linted.check(identities.leaves_within_wall([_exact(s) for s in unit.seconds.values()], seconds), row)
            linted.check(identities.shares_within_one([_exact(s / window.seconds) for s in unit.seconds.values()]), row)
        _hidden(linted, found)
    if found.phases:
        mean = [_exact(row.mean_s) for row in found.phases]
        linted.check(identities.phases_within_step(mean, _exact(window.seconds / window.steps)), "phase table")
    _leaves(linted, run, window)
    if found.throughput is not None:
        for ledger in (found.throughput.token_ledger, found.throughput.trajectory_ledger):
            _ledger(linted, ledger)


def _tokens_inside(run: RunTables, window: Window) -> float:
    """Tokens generated in the window, counted from the turns, those across an edge pro rata to time."""
    turns = run.frame("turns")
    turns = turns[turns["generated_tokens"].notna()]
    start, end = turns["start_ns"].to_numpy(np.float64), turns["end_ns"].to_numpy(np.float64)
    end = np.maximum(end, start + 1)
    inside = np.clip(np.minimum(end, window.end_ns) - np.maximum(start, window.start_ns), 0, None)
    return float((turns["generated_tokens"].to_numpy(np.float64) * inside / (end - start)).sum())


def _leaves(linted: Linted, run: RunTables, window: Window) -> None:
    """Raw leaf spans of each process of the train side, and of each engine that spans name, against the window.

    They are uncut but for the window: the account's classes are exclusive by construction, and would hide an overlap.
    Turns are no leaves of an engine: it makes many at once.
    """
    spans = run.frame("spans")
    leaves = spans[~spans["container"].astype(bool) & spans["trajectory_id"].isna() & spans["phase"].notna()]
    leaves = leaves.drop_duplicates(["host", "pid", "unit", "phase", "start_ns", "end_ns"])
    train = leaves[leaves["pool"].isin([Pool.TRAIN.value, Pool.BOTH.value])]
    train = train.drop_duplicates(["host", "pid", "phase", "start_ns", "end_ns"])
    for (_, pid), mine in train.groupby(["host", "pid"], sort=True):
        linted.check(_within(mine, window), f"spans of the train side, process {pid}")
    rollout = leaves[(leaves["pool"] == Pool.ROLLOUT.value) & leaves["unit"].notna()]
    for engine, mine in rollout.groupby("unit", sort=True):
        linted.check(_within(mine, window), f"spans of the rollout side, engine {engine}")


def _within(leaves: pd.DataFrame, window: Window) -> Check:
    start = np.maximum(leaves["start_ns"].to_numpy(np.int64), window.start_ns)
    end = np.minimum(leaves["end_ns"].to_numpy(np.int64), window.end_ns)
    took = ((end - start)[end > start] / 1e9).tolist()
    return identities.leaves_within_wall([_exact(one) for one in took], _exact(window.seconds))


def _hidden(linted: Linted, found: RunFigures) -> None:
    assert found.account is not None
    train = [unit for unit in found.account.units if unit.pool == Pool.TRAIN.value]
    if not train:
        return
    busy = _exact(sum(train[0].seconds.get(member.value, 0.0) for member in TRAIN_BUSY))
    for unit in found.account.units:
        # A sync is hidden where it blocks no trajectory, whatever the train unit does.
        hidden = sum(s for name, s in unit.hidden_seconds.items() if name != Class.WEIGHT_SYNC.value)
        if unit.hidden_seconds:
            check = identities.hidden_within_busy(_exact(hidden), busy)
            linted.check(check, f"time account, unit {unit.unit}")


def _ledger(linted: Linted, ledger: Ledger) -> None:
    came = {"open at start": _exact(ledger.open_at_start), "added": _exact(ledger.added)}
    went = {
        "trained": ledger.trained,
        "dropped": ledger.dropped_stale + ledger.dropped_other,
        "failed": ledger.failed,
        "in flight": ledger.in_flight,
        "queued": ledger.queued,
    }
    row = f"{ledger.unit} ledger"
    check = identities.ledger_closes(came, {name: _exact(value) for name, value in went.items()}, ledger.unit)
    linted.check(check, row)
    for name, value in went.items():
        # Pro rata shares are sums of floats: nothing may come out as less than nothing by a rounding.
        rounded = Quantity(value, value - 1e-6, value + 1e-6)
        linted.check(identities.count_not_negative(rounded, name), row)


def _figure(linted: Linted, figure: Figure) -> None:
    row = f"figure {figure.metric}"
    if figure.value is None:
        if figure.unit == "ratio" and figure.metric not in NOT_SHARES:
            identity = "mfu_below_one" if figure.metric.startswith("mfu") else "share_in_unit"
            linted.unchecked(identity, row, figure.note or "not known")
        return
    value = _exact(figure.value)
    if figure.metric.startswith("mfu"):
        linted.check(identities.mfu_below_one(value), row)
        linted.check(identities.count_not_negative(value, figure.metric), row)
    elif figure.unit == "ratio" and figure.metric not in NOT_SHARES:
        power = figure.metric in ("power_utilisation_ratio", "idle_power_ratio")
        most = energy_identities.POWER_SLACK if power else 1.0
        linted.check(identities.share_in_unit(value, figure.metric, most=most), row)
    elif figure.unit not in ("ratio", "version") and figure.metric != "token_ledger_gap":
        linted.check(identities.count_not_negative(value, figure.metric), row)
    # The interval of `selection_ratio` is drawn again from groups and need not hold its value.
    if figure.ci_low is not None and figure.ci_high is not None and figure.metric != "selection_ratio":
        ends = [("lower end", _exact(figure.ci_low)), ("value", value), ("upper end", _exact(figure.ci_high))]
        linted.check_all(identities.ordered(ends, figure.unit), row)


def _energy(linted: Linted, power: Energy, window: Window) -> None:
    for each in power.gpus:
        row = f"GPU {each.gpu}"
        if each.joules is None or each.limit_joules is None:
            linted.unchecked("power_within_limit", row, ", ".join(each.reasons) or "energy or limit is not known")
            continue
        watts, limit = _exact(each.joules / window.seconds), _exact(each.limit_joules / window.seconds)
        linted.check(energy_identities.power_within_limit(watts, limit), row)
        linted.check(identities.count_not_negative(_exact(each.joules), "joules"), row)
    known = [each.joules for each in power.gpus if each.joules is not None]
    if power.joules is not None:
        whole = _exact(power.joules)
        check = identities.counts_agree(whole, _exact(sum(known)), "joules of the run", "sum over GPUs", "J")
        linted.check(check, "energy")
        if power.joules_per_trained is not None:
            per = _exact(power.joules_per_trained * power.trained)
            check = identities.counts_agree(
                whole, per, "joules of the run", "joules per trained trajectory x trained", "J"
            )
            linted.check(check, "energy")


def _staleness(linted: Linted, run: RunTables, found: RunFigures) -> None:
    """The bound is asked for, not promised: what is beyond it is counted, and said; it must not be goodput."""
    row, whole = "staleness at start, whole run", found.staleness_run
    lives = run.frame("trajectories")
    age = (lives["version_trained"] - lives["version_first"]).to_numpy(np.float64, na_value=np.nan)
    beyond = int(np.nansum(age > whole.bound))
    if whole.at_start.max is None:
        linted.unchecked("staleness_within_bound", row, "no consumed trajectory has its versions on record")
    else:
        check = identities.counts_agree(
            _exact(whole.violations), _exact(beyond), "violations counted", "rows beyond the bound", "trajectory"
        )
        linted.check(check, row)
        most = identities.staleness_within_bound(_exact(whole.at_start.max), _exact(whole.bound), "most stale")
        if most.holds:
            linted.check(most, row)
        elif check.holds:
            said = f"{beyond} of {whole.at_start.n} trajectories are beyond the bound of {whole.bound}, the most stale "
            said += f"by {whole.at_start.max - whole.bound:.0f}: counted, and no part of goodput"
            linted.implied("staleness_within_bound", row, said, _exact(beyond), unit="trajectory")
    for name in ("at_start", "at_finish", "in_queue", "per_token"):
        shown: Distribution = getattr(whole, name)
        named = [(q, getattr(shown, q)) for q in ("p50", "p95", "max")]
        told = [(q, _exact(value)) for q, value in named if value is not None]
        linted.check_all(identities.ordered(told, "version"), f"staleness {name}")
    goodput = found.figures["goodput_tokens_per_s_gpu"].value
    if goodput is None or found.window is None:
        return
    consumed = lives["consumed_ns"].to_numpy(np.float64, na_value=np.nan)
    good = (consumed > found.window.start_ns) & (consumed <= found.window.end_ns) & (age <= whole.bound)
    loss, _ = trained_tokens(run)
    tokens = float(np.nansum(loss[good & (lives["status"] == "ok").to_numpy(np.bool_)]))
    counted = _exact(goodput * run.spec.total_gpus * found.window.seconds)
    words = "goodput x GPUs x s", "loss tokens of good trajectories within the bound"
    linted.check(identities.counts_agree(counted, _exact(tokens), *words, "token"), "goodput")
