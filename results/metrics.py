"""Everything that is computed from a collected run: its figures by name, and the accounts behind them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from harness.protocol.phases import Phase, Pool
from harness.protocol.scalars import number
from harness.protocol.spec import Device
from results.account import CLIENT, ENGINE, Account, make_account, pool_timelines
from results.adherence import Adherence, check_adherence
from results.classes import Class
from results.contamination import Contamination, contamination, unless_spoiled
from results.energy import Energy, Read, energy
from results.energy_tables import energy_tables
from results.engine_use import FIGURES as ENGINE_FIGURES
from results.engine_use import EnginesUse, engines_use, put_engine_figures
from results.figure import Figure, Figures
from results.importing.imported import withhold
from results.lifetimes import Lifetimes, lifetimes
from results.memory import small_pages
from results.phases import PhaseRow, phase_rows
from results.running import RunningWork, running_work
from results.samples_beside import samples_beside
from results.schema import TABLES
from results.selection import Selection, selection
from results.served import KNOWN_SHARE
from results.staleness import Staleness, TurnVersions, put_staleness_figures, staleness
from results.stats import mean
from results.store import RunTables
from results.straggler import Straggler, batches, straggler, tails
from results.sync_proof import SyncProof, prove_sync
from results.throughput import Lives, Throughput, throughput
from results.tracks import Tracks, tracks
from results.utilisation import Busy, busy
from results.watch import Watch
from results.window import Window, steady_window

__all__ = ["OF_WINDOW", "Figure", "RunFigures", "compute"]

RECORDER_BOUND = 0.005  # of step wall: more, and recording would be part of what is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """A run in figures. What needs a steady window is None where there is none, and `no_window` says why."""

    figures: Mapping[str, Figure]
    contamination: Contamination
    selection: Selection | None
    window: Window | None
    no_window: str | None
    account: Account | None
    engines: EnginesUse | None
    lifetimes: Lifetimes | None
    phases: tuple[PhaseRow, ...]
    straggler: Straggler | None
    energy: Energy | None
    throughput: Throughput | None
    adherence: Adherence
    sync_proof: SyncProof
    staleness: Staleness  # of the trajectories trained in the window; of all where there is none
    staleness_run: Staleness  # of all trajectories trained on
    busy: Busy | None = None  # the GPUs; also None without one

    def metric_rows(self) -> pa.Table:
        """The rows of the `metrics` table."""
        columns = TABLES["metrics"].names
        rows = [{name: getattr(figure, name) for name in columns} for figure in self.figures.values()]
        return pa.Table.from_pylist(rows, schema=TABLES["metrics"])

    def computed_tables(self) -> dict[str, pa.Table]:
        """Every table that is computed after the collection, by name."""
        return {"metrics": self.metric_rows(), **energy_tables(self.energy)}


# Figures that are rates or shares of the window, and their units: all are there, as None, without one.
OF_WINDOW: Mapping[str, str] = {
    "steps": "step",
    "window_s": "s",
    "step_time_s": "s",
    "throughput_tokens_per_s_gpu": "token/s/GPU",
    "goodput_tokens_per_s_gpu": "token/s/GPU",
    "mfu_ratio": "ratio",
    "mfu_train_ratio": "ratio",
    "coverage_ratio": "ratio",
    "other_share": "ratio",
    "overlapping_leaves": "span",
    "tail_gap_share": "ratio",
    "slot_loss_share": "ratio",
    "tail_waste_gpu_s": "GPU s",
    "tail_speed_up_bound": "ratio",
    "group_tail_share": "ratio",
    "power_utilisation_ratio": "ratio",
    "idle_power_ratio": "ratio",
    "joules_per_trained_trajectory": "J/trajectory",
    "joules_per_trained_token": "J/token",
    "joules_per_step": "J/step",
    "recorder_cost_ratio": "ratio",
    "trajectories_trained": "trajectory",
    "trajectories_open_at_end": "trajectory",
    "token_ledger_gap": "token",
    "wait_rollout_share": "ratio",
    "sync_s_mean": "s",
    "rollout_busy_share": "ratio",
    "blocked_sync_s": "s",
    "selection_ratio": "ratio",
    **ENGINE_FIGURES,
}


@small_pages()
def compute(run: RunTables, watch: Watch | None = None) -> RunFigures:
    """All figures of a run, whole or cut short. A figure that cannot be told is None, with the reason in its note."""
    with samples_beside(run) as samples:
        return _compute(run, watch or Watch(), samples)


def _compute(run: RunTables, watch: Watch, samples: Callable[[], Read]) -> RunFigures:
    arrays = tracks(run)
    steady = steady_window(run, arrays)
    figures, window = Figures(), steady.window
    watch.window(window)
    versions = TurnVersions.of(run, arrays.turns.life)
    adherence, proof, stale_run = check_adherence(run), prove_sync(run), staleness(run, turns=versions)
    stale = stale_run
    account: Account | None = None
    used: EnginesUse | None = None
    lived: Lifetimes | None = None
    rows: tuple[PhaseRow, ...] = ()
    wait: Straggler | None = None
    power: Energy | None = None
    chosen: Selection | None = None
    spoiled = contamination(run, window)
    rates: Throughput | None = None
    gpus: Busy | None = None
    cuda = run.spec.device is Device.CUDA
    if window is None:
        watch.account(None)
        for metric, unit in OF_WINDOW.items():
            figures.put(metric, unit, None, note=f"no steady window: {steady.reason}")
    else:
        made = batches(run, arrays, window)
        account = make_account(run, arrays, window, tails=tails(made))
        watch.account(account)
        used = engines_use(run, window)
        lives = Lives.of(run, arrays)
        lived = lifetimes(run, arrays, window, lives.left)
        rows = phase_rows(arrays, window, run.spec.placement)
        wait = straggler(run, window, made, account)
        rates = throughput(run, arrays, window, account, lives)
        work = running_work(run, arrays, lives, made) if cuda else None
        read = samples()
        gpus = busy(run, window, {gpu: each.series for gpu, each in read.readings.gpus.items()}) if cuda else None
        power = _energy(run, arrays, window, account, rates, work, read)
        power = unless_spoiled(power, spoiled)
        chosen = selection(run, window)
        stale = staleness(run, _steps_inside(run, window), versions)
        _window(figures, window)
        _rates(figures, rates)
        _account(figures, account, rows, window)
        queued, why = _queued(account)
        put_engine_figures(figures, used, queued, why)
        _straggler(figures, wait)
        _power(figures, power, window.steps)
        _selection(figures, chosen)
        _recorder(figures, run, window)
    put_staleness_figures(figures, stale, stale_run, window is not None)
    _adherence(figures, adherence)
    figures.put("wall_s", "s", _wall(run), n=1, note=None if _wall(run) is not None else "the run has no end on record")
    found = RunFigures(
        figures=figures,
        contamination=spoiled,
        selection=chosen,
        window=window,
        no_window=steady.reason,
        account=account,
        engines=used,
        lifetimes=lived,
        phases=rows,
        straggler=wait,
        energy=power,
        throughput=rates,
        adherence=adherence,
        sync_proof=proof,
        staleness=stale,
        staleness_run=stale_run,
        busy=gpus,
    )
    return withhold(found, run.spec)


def _steps_inside(run: RunTables, window: Window) -> list[int]:
    steps = run.frame("steps")
    return [int(step) for step in steps.loc[window.holds(steps["end_ns"].to_numpy(np.int64)), "step"]]


def _energy(
    run: RunTables,
    arrays: Tracks,
    window: Window,
    account: Account,
    rates: Throughput,
    work: RunningWork | None,
    read: Read | None = None,
) -> Energy:
    """Energy by the classes of each pool as one unit: which GPU an engine has is not known."""
    timelines = {unit.pool: unit.timeline for unit in account.units}
    if run.rows("samples") and account.granularity != "pool":
        timelines = pool_timelines(run, arrays, window, account)
    trained = int(rates.trajectory_ledger.trained)
    side = Pool.TRAIN.value if Pool.TRAIN.value in timelines else Pool.BOTH.value
    phases = {side: account.phases} if account.phases is not None else None
    return energy(
        run, window, timelines, trained, tokens=rates.token_ledger.trained, work=work, phases=phases, read=read
    )


def _selection(figures: Figures, chosen: Selection) -> None:
    worst = chosen.worst
    if worst is None:
        figures.put("selection_ratio", "ratio", None, n=chosen.groups, note=chosen.note or "no plan is known")
        return
    name, ratio = worst
    figures["selection_ratio"] = Figure(
        metric="selection_ratio",
        unit="ratio",
        value=ratio.value,
        ci_low=ratio.ci_low,
        ci_high=ratio.ci_high,
        n=chosen.groups,
        note=f"planned {name} of trained / admitted trajectories, the farthest from 1; n = groups",
        verdict="bad" if chosen.flagged else "ok",
    )


def _window(figures: Figures, window: Window) -> None:
    note = "not steady: " + "; ".join(window.not_steady) if window.not_steady else None
    figures.put("steps", "step", float(window.steps), n=window.steps, note=note)
    figures.put("window_s", "s", window.seconds, n=window.steps, note=note)
    figures.estimate("step_time_s", "s", mean(window.step_seconds))


def _rates(figures: Figures, rates: Throughput) -> None:
    unit = "token/s/GPU"
    figures.estimate("throughput_tokens_per_s_gpu", unit, rates.tokens)
    bad = [
        f"{count} trajectories {why}"
        for count, why in (
            (rates.stale_trajectories, "were beyond the staleness bound"),
            (rates.unknown_trajectories, "had no version at their first token on record"),
            (rates.unmasked_trajectories, "have no loss mask on record"),
        )
        if count
    ]
    figures.estimate("goodput_tokens_per_s_gpu", unit, rates.goodput, f"not counted: {', '.join(bad)}" if bad else None)
    for metric, value in (("mfu_ratio", rates.mfu), ("mfu_train_ratio", rates.mfu_train)):
        note = rates.mfu_note if value is None else f"processed tokens from the {rates.processed_source}"
        figures.put(metric, "ratio", value, n=rates.processed_tokens, note=note)
    ledger = rates.trajectory_ledger
    figures.put("trajectories_trained", "trajectory", ledger.trained, n=int(ledger.trained))
    left = ledger.in_flight + ledger.queued
    figures.put(
        "trajectories_open_at_end",
        "trajectory",
        left,
        n=int(left),
        note=f"{ledger.in_flight:.0f} in flight, {ledger.queued:.0f} queued",
    )
    gap = rates.token_ledger.gap
    whole = max(rates.generated_tokens, 1.0)
    verdict = "ok" if abs(gap) <= 1e-6 * whole + 0.5 else "bad"
    figures.put("token_ledger_gap", "token", gap, n=int(ledger.trained), verdict=verdict)


def _account(figures: Figures, account: Account, rows: tuple[PhaseRow, ...], window: Window) -> None:
    worst, units = account.worst, len(account.units)
    grain = f"{account.granularity} granularity" + (f": {account.why_pool}" if account.why_pool else "")
    where = f"of unit {worst.unit}, the worst of {units} ({grain})"
    allowed = f"{worst.other_s:.3f} s, allowed {account.allowed_other_s:.3f} s"
    verdict = "ok" if account.covered else "bad"
    figures.put("coverage_ratio", "ratio", account.coverage, n=units, note=where, verdict=verdict)
    figures.put("other_share", "ratio", 1 - account.coverage, n=units, note=f"{where}: {allowed}", verdict=verdict)
    defect = f"{account.overlap_s:.3f} s named twice" if account.overlaps else None
    figures.put(
        "overlapping_leaves",
        "span",
        float(account.overlaps),
        n=window.steps,
        note=defect,
        verdict="bad" if account.overlaps else "ok",
    )
    pools = {unit.pool for unit in account.units}
    waits = "colocated: the trainer waits for no other pool"
    value = None
    if Pool.TRAIN.value in pools:
        value = account.pool_seconds(Pool.TRAIN.value).get(Class.WAIT_ROLLOUT.value, 0.0) / account.window_s
        waits = f"{account.poll_s:.3f} s of it after the data were ready"
    figures.put("wait_rollout_share", "ratio", value, n=window.steps, note=waits)
    side = Pool.BOTH.value if Pool.BOTH.value in pools else Pool.ROLLOUT.value
    busy = account.pool_seconds(side).get(Class.GENERATING.value, 0.0) / account.window_s
    note = f"{account.granularity} granularity"
    if account.evidence == CLIENT:
        note += "; turn open at the client: an upper bound of generating"
    figures.put("rollout_busy_share", "ratio", busy, n=window.steps, note=note)
    blocked = account.blocked_sync_s
    why = "colocated: the pools take turns" if side == Pool.BOTH.value else "no pause of the rollout side is on record"
    known = "of the window: the trainer synced, the engines were not paused, turns were open at the client"
    figures.put("blocked_sync_s", "s", blocked, n=window.steps, note=why if blocked is None else known)
    sync = next((row for row in rows if row.phase == Phase.WEIGHT_SYNC.value), None)
    figures.put(
        "sync_s_mean",
        "s",
        None if sync is None else sync.mean_s,
        n=window.steps,
        note="no weight sync on the train track in the window" if sync is None else "per step",
    )


def _queued(account: Account) -> tuple[float | None, str]:
    """Share of the window that the rollout pool's units had turns open and ran none; else why it is not known."""
    shares = [unit.engine_known for unit in account.units if unit.engine_known is not None]
    if account.evidence != ENGINE or min(shares, default=0.0) < KNOWN_SHARE:
        return None, "the engines' own running counts are not known for the time with a turn open"
    side = next(unit.pool for unit in account.units if unit.pool != Pool.TRAIN.value)
    return account.pool_seconds(side).get(Class.QUEUED.value, 0.0) / account.window_s, ""


def _straggler(figures: Figures, wait: Straggler) -> None:
    figures.estimate("tail_gap_share", "ratio", wait.gap, wait.note)
    figures.estimate("slot_loss_share", "ratio", wait.slot_loss, wait.note)
    n = wait.gap.n
    figures.put("tail_waste_gpu_s", "GPU s", wait.waste_gpu_s, n=n, note=wait.note)
    bound = "no more than this could be won by removing the tail"
    figures.put("tail_speed_up_bound", "ratio", wait.speed_up_bound, n=n, note=wait.note if n == 0 else bound)
    groups = None if wait.group_tail.n else "no group of 2 or more trajectories was trained in the window"
    tail = wait.group_tail
    figures.put("group_tail_share", "ratio", tail.value, n=tail.n, note=groups)


def _power(figures: Figures, power: Energy, steps: int) -> None:
    reasons = ", ".join(power.reasons) or None
    note = "; ".join(part for part in (power.note, reasons) if part) or None
    n = len(power.gpus)
    figures.put("power_utilisation_ratio", "ratio", power.power_utilisation, n=n, note=note, verdict=power.verdict)
    if power.per_step is not None:
        low, high = power.per_step.ci_low, power.per_step.ci_high  # over the steps
        figures["power_utilisation_ratio"] = replace(figures["power_utilisation_ratio"], ci_low=low, ci_high=high)
    idle = None if power.idle_ratio is not None else power.idle_note or power.note or "the power limit is not known"
    figures.put("idle_power_ratio", "ratio", power.idle_ratio, n=n, note=idle)
    each = note if power.trained else "no trajectory was trained in the window"
    for metric, value, count in (
        ("joules_per_trained_trajectory", power.joules_per_trained, power.trained),
        ("joules_per_trained_token", power.joules_per_token, power.trained),
        ("joules_per_step", power.joules_per_step, steps),
    ):
        figures.put(metric, OF_WINDOW[metric], value, n=count, note=each, verdict=power.verdict)


def _recorder(figures: Figures, run: RunTables, window: Window) -> None:
    """The controller's recorder over the window; what other processes spent in their whole lives is in the note."""
    steps = run.frame("steps").drop_duplicates("step", keep="last").set_index("step")["recorder_ns"]
    edges = steps.reindex([window.after_step, window.last_step])
    unit = "ratio"
    if edges.isna().any():
        figures.put("recorder_cost_ratio", unit, None, n=0, note="steps did not record the recorder's cost")
        return
    spent = (int(edges.iloc[1]) - int(edges.iloc[0])) / 1e9
    processes = run.frame("processes")
    others = processes.loc[processes["role"] != "controller", "recorder_ns"].dropna()
    note = f"{spent / window.steps * 1e3:.3f} ms a step in the controller"
    if not others.empty:
        note += f"; {len(others)} other processes {int(others.sum()) / 1e6:.3f} ms in their whole lives"
    share = spent / window.seconds
    verdict = "ok" if share <= RECORDER_BOUND else "bad"
    figures.put("recorder_cost_ratio", unit, share, n=window.steps, note=note, verdict=verdict)


def _adherence(figures: Figures, adherence: Adherence) -> None:
    ratio = adherence.content_ratio
    verdict = None if ratio is None else "ok" if ratio == 1.0 else "bad"
    figures.put("adherence_ratio", "ratio", ratio, n=adherence.started, note=adherence.why_none, verdict=verdict)
    note = None if adherence.calls_timed else "no tool call was timed"
    for metric, value in (
        ("tool_overrun_p50_s", adherence.overshoot_p50_ns),
        ("tool_overrun_p99_s", adherence.overshoot_p99_ns),
    ):
        figures.put(metric, "s", None if value is None else value / 1e9, n=adherence.calls_timed, note=note)


def _wall(run: RunTables) -> float | None:
    return number(run.meta.get("wall_s"))
