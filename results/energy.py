"""Joules of the window, what share of the power limit they are, and a verdict on how well they are known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from results.classes import CODES
from results.gpu_sensors import GpuSensors, descriptions, gpu_pools, sensors_of
from results.intervals import Ns, Timeline
from results.power import Floats, Series
from results.sampling import Z95, half_width, unseen_within
from results.stats import Estimate, ratio_of_sums
from results.store import RunTables
from results.window import Window

K_OK, K_WARN = 0.03, 0.05  # |counter / integral of instant power - 1|
GAP_REFRESHES = 3.0  # readings come once a refresh, jittered: up to two refreshes apart
IDLE_S = 10.0
WORKERS = ("controller", "train", "rollout", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEnergy:
    """One GPU over the window. `joules` is None when no sensor's series is valid.

    Reasons: partial_coverage, gpu_lost, gap_too_long, counter_reset, counter_wrap (put right), no_counter,
    average_only, part_time_sensor, window_short, k_off, k_unsure (off, within the errors of both),
    no_limit, mig_whole_gpu (joules are of all its instances), clock_step (the SM clock changed by more than 20 % while
    the GPU was not idle).

    `uncertainty_joules`: of the counter and of averaged power, by how much refresh and averaging may move the window's
    edges, at most; of instant power, the 95 % interval of what happened between the readings, and the edges. None where
    it is not known: a sensor that looks part of the time may be in phase with the load.
    """

    gpu: str
    pool: str | None
    joules: float | None
    limit_joules: float | None  # integral of the enforced power limit
    source: str | None  # counter | instant | average
    k: float | None  # counter / integral of instant power
    verdict: str  # ok | warn | bad
    reasons: tuple[str, ...]
    uncertainty_joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEnergy:
    """Joules of one class of one pool's GPUs; None with a note: `too short`, or why the split is not valid."""

    pool: str
    name: str
    joules: float | None
    uncertainty_joules: float | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The run's energy over the window. Ratios 0..1; None with `note` where unknown."""

    joules: float | None
    power_utilisation: float | None
    pools: Mapping[str, float]  # power utilisation of the pools whose GPUs all have a valid series
    joules_per_trained: float | None
    trained: int
    idle_watts: float | None  # all GPUs, before launch
    idle_ratio: float | None
    gpus: tuple[GpuEnergy, ...]
    classes: tuple[ClassEnergy, ...]
    verdict: str | None
    reasons: tuple[str, ...]
    note: str | None
    uncertainty_joules: float | None = None  # of all GPUs, added up
    uncertainty_ratio: float | None = None  # of power_utilisation
    per_step: Estimate | None = None  # power utilisation over the steps, interval for correlated steps (results.stats)
    meanings: tuple[str, ...] = ()  # of the power readings, one line for each kind of chip


def energy(run: RunTables, window: Window, timelines: Mapping[str, Timeline], trained: int) -> Energy:
    """The run's energy. `timelines`: each pool's classes as one unit; `trained`: trajectories trained in the window."""
    samples = run.tables["samples"]
    rows = samples.filter(pc.is_valid(samples.column("gpu"))).to_pandas()
    if rows.empty:
        return _none("no GPU", trained)
    pools = gpu_pools(run)
    names = run_gpus(run, pools)
    if names is None:
        return _none("which GPUs the run used is not known: neither by their pools nor by their number", trained)
    told = descriptions(run)
    low, high = window.start_ns, window.end_ns
    latest = int(rows["mono_ns"].max())
    sensors = {gpu: sensors_of(rows[rows["gpu"] == gpu], told.get(gpu, {})) for gpu in names}
    gpus = tuple(_gpu(gpu, pools.get(gpu), sensors[gpu], low, high, latest) for gpu in names)
    whole = all(each.joules is not None and each.limit_joules for each in gpus)
    joules = sum(each.joules or 0.0 for each in gpus) if all(each.joules is not None for each in gpus) else None
    doubts = [each.uncertainty_joules for each in gpus]
    doubt = sum(one or 0.0 for one in doubts) if joules is not None and None not in doubts else None
    reasons = tuple(sorted({reason for each in gpus for reason in each.reasons}))
    idle, idle_ratio = _idle(run, sensors)
    return Energy(
        joules=joules,
        power_utilisation=_ratio(gpus) if whole else None,
        pools={
            pool: ratio
            for pool in sorted({each.pool for each in gpus if each.pool})
            if (ratio := _ratio([each for each in gpus if each.pool == pool])) is not None
        },
        joules_per_trained=joules / trained if joules is not None and trained else None,
        trained=trained,
        idle_watts=idle,
        idle_ratio=idle_ratio,
        gpus=gpus,
        classes=tuple(_classes(gpus, sensors, timelines, low, high)),
        verdict=max((each.verdict for each in gpus), key=("ok", "warn", "bad").index),
        reasons=reasons,
        note=None if whole else "not every GPU has a valid series: no figure of the run",
        uncertainty_joules=doubt,
        uncertainty_ratio=doubt / sum(each.limit_joules or 0.0 for each in gpus)
        if whole and doubt is not None
        else None,
        per_step=_per_step(gpus, sensors, window) if whole else None,
        meanings=tuple(dict.fromkeys(one.meaning.words for one in sensors.values() if one.meaning is not None)),
    )


def _none(note: str, trained: int) -> Energy:
    return Energy(
        joules=None,
        power_utilisation=None,
        pools={},
        joules_per_trained=None,
        trained=trained,
        idle_watts=None,
        idle_ratio=None,
        gpus=(),
        classes=(),
        verdict=None,
        reasons=(),
        note=note,
    )


def run_gpus(run: RunTables, pools: Mapping[str, str]) -> list[str] | None:
    """UUIDs of the run's GPUs: those with a pool, else the machine's where their number is the run's."""
    listed = [str(gpu["uuid"]) for gpu in run.meta.get("gpus") or () if gpu.get("uuid")]
    for names in (sorted(pools), listed):
        if len(names) == run.spec.total_gpus:
            return names
    return None


def _gpu(gpu: str, pool: str | None, sensors: GpuSensors, low: int, high: int, latest: int) -> GpuEnergy:
    """Counter, else instant power, else average power: the first whose series is valid."""
    reasons: list[str] = []
    counted, why = _counted(sensors, low, high)
    reasons += why
    integral, gaps = _integral(sensors.instant, low, high, sensors.instant_refresh_s)
    shift = -int(sensors.average_window_s / 2 * 1e9)
    averaged, lags = _integral(sensors.average.shifted(shift), low, high)
    source, joules = None, None
    if counted is not None:
        source, joules = "counter", counted
    elif integral is not None:
        source, joules = "instant", integral
    elif averaged is not None:
        source, joules, reasons = "average", averaged, [*reasons, "average_only"]
    else:
        reasons += gaps if sensors.instant.times.size else lags
    refresh = sensors.counter_refresh_s if source == "counter" else sensors.instant_refresh_s
    if source == "average":
        refresh = sensors.average_window_s
    if joules is not None and (high - low) / 1e9 < 2 * refresh:
        reasons.append("window_short")
        joules = None
    k = counted / integral if counted is not None and integral else None
    counter_doubt = _counter_doubt(sensors, low, high) if counted is not None else 0.0
    k_doubt = counter_doubt + (_between(sensors, low, high) if k is not None else 0.0)
    excused = k is not None and integral is not None and abs(k - 1) - k_doubt / integral <= K_OK
    if k is not None and abs(k - 1) > K_OK:
        reasons.append("k_unsure" if excused else "k_off")
    if source in ("instant", "average") and sensors.part_time:
        reasons.append("part_time_sensor")
    if sensors.mig:
        reasons.append("mig_whole_gpu")
    if sensors.wraps and source == "counter":
        reasons.append("counter_wrap")
    last = max((int(series.times[-1]) for series in sensors.power if series.times.size), default=0)
    if joules is None and last < high and last < latest - int(2e9):
        reasons.append("gpu_lost")
    if sensors.clock_stepped(low, high):
        reasons.append("clock_step")
    limit = sensors.limit.held(low, high)
    if limit is None:
        reasons.append("no_limit")
    bad = joules is None or (k is not None and abs(k - 1) > K_WARN and not excused)
    return GpuEnergy(
        gpu=gpu,
        pool=pool,
        joules=joules,
        limit_joules=limit,
        source=source if joules is not None else None,
        k=k,
        verdict="bad" if bad else "warn" if reasons else "ok",
        reasons=tuple(dict.fromkeys(reasons)),
        uncertainty_joules=None if joules is None else _uncertainty(sensors, source, low, high, counter_doubt),
    )


def _uncertainty(sensors: GpuSensors, source: str | None, low: int, high: int, counter_doubt: float) -> float | None:
    if source == "counter":
        return counter_doubt
    if sensors.part_time:
        return None
    power, refresh_s = sensors.instant, sensors.instant_refresh_s
    smeared_s = refresh_s
    if source == "average":
        # The running mean is exact inside; at each edge it has smeared what changed there over its window.
        power = sensors.average.shifted(-int(sensors.average_window_s / 2 * 1e9))
        refresh_s, smeared_s = power.period_s, max(sensors.average_window_s, power.period_s)
    inside = power.around(low, high)
    seen = None if inside is None else half_width(inside, refresh_s)
    if seen is None:
        return None
    return seen + float(_doubt(power, smeared_s, np.array([low, high], dtype=np.int64), whole=True).sum())


def _between(sensors: GpuSensors, low: int, high: int) -> float:
    """Joules by which instant power's integral may be off for what happened between its readings (95 %)."""
    inside = sensors.instant.around(low, high)
    return 0.0 if inside is None else half_width(inside, sensors.instant_refresh_s) or 0.0


def _counter_doubt(sensors: GpuSensors, low: int, high: int) -> float:
    """Joules by which the counter's difference may be off, at most.

    At each edge it lags by up to a refresh (at equal power the lags of both edges cancel in part: one refresh in all),
    and between two readings its slope may have changed.
    """
    counter, refresh_s = sensors.counter, sensors.counter_refresh_s
    step = max(int(refresh_s * 1e9), 1)
    edges = np.array([low, high], dtype=np.int64)
    before, after = (
        (counter.at(edges + far) - counter.at(edges + near)) / refresh_s if refresh_s else edges * 0.0
        for near, far in ((-2 * step, 0), (0, 2 * step))
    )
    watts = np.maximum(before, after) / 2
    return float(watts.max() * refresh_s + (np.abs(after - before) / 2 * refresh_s / 2).sum())


def _per_step(gpus: Sequence[GpuEnergy], sensors: Mapping[str, GpuSensors], window: Window) -> Estimate | None:
    """Power utilisation as a ratio over the window's steps; None where the steps' ends are not on record."""
    edges = np.asarray(window.boundaries_ns, dtype=np.int64)
    if edges.size < 2:
        return None
    joules, limits = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    for each in gpus:
        mine = sensors[each.gpu]
        joules += np.diff(_cumulative(mine, each.source, edges))
        pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        limits += np.array([mine.limit.held(low, high) or 0.0 for low, high in pairs])
    return ratio_of_sums(joules, limits)


def _cumulative(sensors: GpuSensors, source: str | None, edges: Ns) -> Floats:
    if source == "counter":
        return sensors.counter.at(edges)
    if source == "average":
        return sensors.average.shifted(-int(sensors.average_window_s / 2 * 1e9)).integral(edges)
    return sensors.instant.integral(edges)


def _counted(sensors: GpuSensors, low: int, high: int) -> tuple[float | None, list[str]]:
    """Difference of the energy counter, interpolated at the edges."""
    if sensors.counter.times.size == 0:
        return None, ["no_counter"]
    inside = sensors.counter.around(low, high)
    if inside is None:
        return None, ["partial_coverage"]
    if (np.diff(inside.values) < 0).any():
        return None, ["counter_reset"]
    if inside.edge_gap_s(low, high) > max(sensors.counter.gap_limit_s, GAP_REFRESHES * sensors.counter_refresh_s):
        return None, ["gap_too_long"]
    edges = inside.at(np.array([low, high], dtype=np.int64))
    return float(edges[1] - edges[0]), []


def _integral(power: Series, low: int, high: int, refresh_s: float = 0.0) -> tuple[float | None, list[str]]:
    inside = power.around(low, high)
    if inside is None:
        return None, ["partial_coverage"]
    if inside.longest_gap_s() > max(power.gap_limit_s, GAP_REFRESHES * refresh_s):
        return None, ["gap_too_long"]
    edges = inside.integral(np.array([low, high], dtype=np.int64))
    return float(edges[1] - edges[0]), []


def _ratio(gpus: Sequence[GpuEnergy]) -> float | None:
    if not gpus or any(each.joules is None or not each.limit_joules for each in gpus):
        return None
    return sum(each.joules or 0.0 for each in gpus) / sum(each.limit_joules or 0.0 for each in gpus)


def _idle(run: RunTables, sensors: Mapping[str, GpuSensors]) -> tuple[float | None, float | None]:
    """Watts of all GPUs before the first process of the framework, where at least IDLE_S of it was sampled."""
    processes = run.frame("processes")
    begun = processes.loc[processes["role"].isin(list(WORKERS)), "mono_ns"].dropna()
    if begun.empty:
        return None, None
    launch = int(begun.min())
    watts = limits = 0.0
    for each in sensors.values():
        begin = int(each.instant.times[0]) if each.instant.times.size else launch
        joules, _ = _integral(each.instant, begin, launch)
        limit = each.limit.held(begin, launch)
        if launch - begin < IDLE_S * 1e9 or joules is None:
            return None, None
        seconds = (launch - begin) / 1e9
        watts += joules / seconds
        limits += limit / seconds if limit else float("nan")
    return watts, watts / limits if limits > 0 else None


def _classes(
    gpus: Sequence[GpuEnergy], sensors: Mapping[str, GpuSensors], timelines: Mapping[str, Timeline], low: int, high: int
) -> list[ClassEnergy]:
    """Trapezoid of instant power cut at class boundaries, scaled by k, per pool."""
    found: list[ClassEnergy] = []
    for pool, timeline in sorted(timelines.items()):
        mine = [each for each in gpus if each.pool == pool]
        usable = [each for each in mine if each.joules is not None and each.k and abs(each.k - 1) <= K_WARN]
        if not mine:
            continue
        lengths, codes = np.diff(timeline.edges) / 1e9, timeline.codes
        joules, doubt, variance = np.zeros(codes.size), np.zeros(codes.size), np.zeros(codes.size)
        for each in usable:
            power = sensors[each.gpu].instant
            joules += np.diff(power.integral(timeline.edges)) * (each.k or 1.0)
            apart_s = sensors[each.gpu].instant_refresh_s + 2 * sensors[each.gpu].host_doubt_s
            doubt += _doubt(power, apart_s, timeline.edges)
            variance += unseen_within(power, sensors[each.gpu].instant_refresh_s, timeline.edges)
        slowest = max(_resolution_s(each, sensors[each.gpu]) for each in mine)
        for member, code in CODES.items():
            hit = codes == code
            if not hit.any():
                continue
            note = None
            if float(np.median(lengths[hit])) < 2 * slowest:
                note = "too short"
            elif any(each.joules is None for each in mine):
                note = "the joules of a GPU are not known"
            elif len(usable) < len(mine):
                note = "no valid check of counter against integral"
            known = note is None
            found.append(
                ClassEnergy(
                    pool=pool,
                    name=member.value,
                    joules=float(joules[hit].sum()) if known else None,
                    uncertainty_joules=_both(doubt[hit], variance[hit]) if known else None,
                    note=note,
                )
            )
    return found


def _resolution_s(gpu: GpuEnergy, sensors: GpuSensors) -> float:
    """The shortest time in which the power that is used tells one moment from another."""
    averaged = gpu.source == "average" or sensors.instant.times.size == 0
    return max(sensors.instant_refresh_s, sensors.average_window_s if averaged else 0.0, 2 * sensors.host_doubt_s)


def _both(edges: Floats, variance: Floats) -> float:
    return float(edges.sum()) + Z95 * math.sqrt(float(variance.sum()))


def _doubt(power: Series, refresh_s: float, edges: Ns, *, whole: bool = False) -> Floats:
    """Joules by which each cell may be off: at both its edges, the change of power there x refresh / 2."""
    delta = int(refresh_s * 1e9)
    jump = np.abs(power.at(edges + delta) - power.at(edges - delta)) * refresh_s / 2
    if not whole:
        jump[[0, -1]] = 0.0  # the window's own edges cut no class from another
    return np.asarray(jump[:-1] + jump[1:], dtype=np.float64)
