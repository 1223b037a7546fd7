"""Joules of the window, what share of the power limit they are, and a verdict on how well they are known."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.protocol.phases import Pool
from harness.protocol.spec import Placement
from results.class_energy import Attributed, ClassEnergy, attributed, class_energy
from results.classes import HOST_PHASES
from results.gpu_energy import SILENT_NS, GpuEnergy, gpu_energy, power_integral
from results.gpu_errors import gpus_with_xid
from results.gpu_sensors import GpuSensors, descriptions, gpu_pools, sensors_of
from results.gpu_series import AVERAGE, Readings, readings_of, series_of
from results.intervals import Ns, Timeline, clip
from results.lost_gpus import lost_gpus
from results.power import Floats
from results.running import RunningWork
from results.stats import Estimate, ratio_of_sums
from results.store import RunTables
from results.window import Window

__all__ = ["WORKERS", "Attributed", "ClassEnergy", "Energy", "GpuEnergy", "energy", "run_gpus"]

IDLE_S = 10.0
WORKERS = ("controller", "train", "rollout", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The run's energy over the window. Ratios 0..1; None with `note` where unknown."""

    joules: float | None
    power_utilisation: float | None
    pools: Mapping[str, float]  # power utilisation of the pools whose GPUs all have a valid series
    joules_per_trained: float | None
    trained: int
    idle_watts: float | None  # all GPUs, on every node, before launch; None with `idle_note`
    idle_ratio: float | None
    gpus: tuple[GpuEnergy, ...]
    classes: tuple[ClassEnergy, ...]
    verdict: str | None
    reasons: tuple[str, ...]
    note: str | None
    uncertainty_joules: float | None = None  # of all GPUs, added up
    uncertainty_ratio: float | None = None  # of power_utilisation
    per_step: Estimate | None = None  # power utilisation over the steps, interval for correlated steps (results.stats)
    idle_note: str | None = None
    joules_per_token: float | None = None  # trained (of the loss mask)
    joules_per_step: float | None = None
    attributed: tuple[Attributed, ...] = ()
    meanings: tuple[str, ...] = ()  # of the power readings, one line for each kind of chip
    phases: tuple[ClassEnergy, ...] = ()  # of the class `host`: reward, advantage, data and overhead, each by itself


@dataclass(frozen=True, slots=True)
class Read:
    """What `energy` looks at of the samples: the run's GPUs, their readings, and their sensors."""

    names: Sequence[str] | None
    readings: Readings
    told: Mapping[str, Mapping[str, Any]]  # of each GPU, by meta.json and the samplers
    sensors: Mapping[str, GpuSensors]


def read_gpus(
    run: RunTables,
    more: Collection[str] = (),
    also: Sequence[str] = (),
    wanted: Callable[[], bool] = lambda: True,
) -> Read:
    """Reads the samples, and makes the sums over them that every figure of energy needs.

    It can be done beside other things: most of it is no work of the interpreter's.

    `more`: further GPUs, `also`: further columns to be read with it (`results.gpu_series`).

    Raises:
        SpecError: they cannot be read.
    """
    names = run_gpus(run, gpu_pools(run))
    readings, told = readings_of(run, list(dict.fromkeys((*(names or ()), *more))), also, wanted), descriptions(run)
    sensors = {gpu: sensors_of(readings.gpus[gpu], told.get(gpu, {})) for gpu in names or ()}
    for each in sensors.values():
        if wanted():
            each.instant.sum_up(each.instant_refresh_s)
    return Read(names, readings, told, sensors)


def energy(
    run: RunTables,
    window: Window,
    timelines: Mapping[str, Timeline],
    trained: int,
    *,
    tokens: float | None = None,
    work: RunningWork | None = None,
    phases: Mapping[str, Timeline] | None = None,
    read: Read | None = None,
) -> Energy:
    """The run's energy; `read`: where the samples were read already.

    `timelines`: each pool's classes as one unit; `trained`: trajectories trained in the window, `tokens`: tokens of
    theirs that were; `work`: the turns that ran, by which joules are attributed; `phases`: as `timelines`, of the pool
    that trains, the phases of `host` by their own codes.
    """
    read = read_gpus(run) if read is None else read
    pools, names, latest = gpu_pools(run), read.names, read.readings.latest
    if latest is None:
        return _none("no GPU", trained)
    if names is None:
        return _none("which GPUs the run used is not known: neither by their pools nor by their number", trained)
    if run.spec.placement is Placement.COLOCATED:
        pools = dict.fromkeys(names, Pool.BOTH.value)  # whatever a process told of its own part: they take turns
    low, high = window.start_ns, window.end_ns
    sensors = dict(read.sensors)
    if latest < high:  # no GPU answered to the end: the sampler may have, of its host
        latest = max(latest, read.readings.latest_host or 0)
    gone = {gpu for gpu, stretches in lost_gpus(run, names).items() if clip(*stretches, low, high)[0].size}
    faulty = gpus_with_xid(run, names, low, high)

    def made(gpu: str) -> GpuEnergy:
        ways = {"lost": gpu in gone, "xid": gpu in faulty}
        return gpu_energy(gpu, pools.get(gpu), sensors[gpu], low, high, latest, **ways)

    found = {gpu: made(gpu) for gpu in names}
    asked = [gpu for gpu in names if _average_may_help(found[gpu], sensors[gpu], high, latest)]
    for gpu, series in series_of(run, asked, (AVERAGE,)).items() if asked else ():
        sensors[gpu] = replace(sensors[gpu], average=series[AVERAGE])
        found[gpu] = made(gpu)
    gpus = tuple(found.values())
    whole = all(each.joules is not None and each.limit_joules for each in gpus)
    joules = sum(each.joules or 0.0 for each in gpus) if all(each.joules is not None for each in gpus) else None
    doubts = [each.uncertainty_joules for each in gpus]
    doubt = sum(one or 0.0 for one in doubts) if joules is not None and None not in doubts else None
    reasons = tuple(sorted({reason for each in gpus for reason in each.reasons}))
    idle = _idle(run, sensors, read.told)
    return Energy(
        joules=joules,
        power_utilisation=_ratio(gpus) if whole else None,
        pools={
            pool: ratio
            for pool in sorted({each.pool for each in gpus if each.pool})
            if (ratio := _ratio([each for each in gpus if each.pool == pool])) is not None
        },
        joules_per_trained=joules / trained if joules is not None and trained else None,
        joules_per_token=joules / tokens if joules is not None and tokens else None,
        joules_per_step=joules / window.steps if joules is not None and window.steps else None,
        trained=trained,
        idle_watts=idle.watts,
        idle_ratio=idle.ratio,
        idle_note=idle.note,
        gpus=gpus,
        classes=tuple(class_energy(gpus, sensors, timelines)),
        phases=tuple(class_energy(gpus, sensors, phases or {}, HOST_PHASES)),
        attributed=() if work is None else tuple(attributed(gpus, sensors, timelines, work)),
        verdict=max((each.verdict for each in gpus), key=("ok", "warn", "bad").index),
        reasons=reasons,
        note=None if whole else "not every GPU has a valid series: no figure of the run",
        uncertainty_joules=doubt,
        uncertainty_ratio=_ratio_doubt(gpus, doubt) if whole and doubt is not None else None,
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
        idle_note=note,
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


def _average_may_help(found: GpuEnergy, sensors: GpuSensors, high: int, latest: int) -> bool:
    """Whether readings of average power may say more of a GPU than what is known without them.

    It has no joules, or no instant power. They can't say more where no sampler read anything to the window's end, and
    the GPU was read as long as anything was.
    """
    if not sensors.instant.times.size:
        return True
    last = max((int(series.times[-1]) for series in sensors.power if series.times.size), default=0)
    return found.joules is None and (latest >= high or last < latest - SILENT_NS)


def _per_step(gpus: Sequence[GpuEnergy], sensors: Mapping[str, GpuSensors], window: Window) -> Estimate | None:
    """Power utilisation as a ratio over the window's steps; None where the steps' ends are not on record.

    The limit of every GPU must be known.
    """
    edges = np.asarray(window.boundaries_ns, dtype=np.int64)
    if edges.size < 2:
        return None
    joules, limits = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    for each in gpus:
        mine = sensors[each.gpu]
        joules += np.diff(_cumulative(mine, each.source, edges))
        limits += np.diff(mine.limit.held_until(edges))
    return ratio_of_sums(joules, limits)


def _cumulative(sensors: GpuSensors, source: str | None, edges: Ns) -> Floats:
    if source == "counter":
        return sensors.counter.at(edges)
    if source == "average":
        return sensors.average_in_time.integral(edges)
    return sensors.instant.integral(edges)


def _ratio(gpus: Sequence[GpuEnergy]) -> float | None:
    if not gpus or any(each.joules is None or not each.limit_joules for each in gpus):
        return None
    return sum(each.joules or 0.0 for each in gpus) / sum(each.limit_joules or 0.0 for each in gpus)


def _ratio_doubt(gpus: Sequence[GpuEnergy], doubt: float) -> float:
    """By how much power utilisation may be off, for the doubts of the joules and of the limit."""
    limit = sum(each.limit_joules or 0.0 for each in gpus)
    return (doubt + (_ratio(gpus) or 0.0) * sum(each.limit_uncertainty_joules for each in gpus)) / limit


@dataclass(frozen=True, slots=True)
class _Idle:
    watts: float | None = None
    ratio: float | None = None
    note: str | None = None


def _idle(run: RunTables, sensors: Mapping[str, GpuSensors], told: Mapping[str, Mapping[str, object]]) -> _Idle:
    """Watts of all GPUs before the first process of the framework, where at least IDLE_S of it was sampled of each."""
    processes = run.frame("processes")
    begun = processes.loc[processes["role"].isin(list(WORKERS)), "mono_ns"].dropna()
    if begun.empty:
        return _Idle(note="no process of the framework is on record: when it was launched is not known")
    launch = int(begun.min())
    watts = limits = 0.0
    for gpu, each in sensors.items():
        host = told.get(gpu, {}).get("host")
        where = f"{gpu} on {host}" if host else gpu
        power = each.instant if each.instant.times.size else each.average
        begin = int(power.times[0]) if power.times.size else launch
        seconds = (launch - begin) / 1e9
        if seconds < IDLE_S:
            sampled = f"{seconds:.1f} s before" if seconds > 0 else "only after"
            return _Idle(note=f"power of {where} was sampled {sampled} the launch, {IDLE_S:g} s before it are needed")
        joules, gaps = power_integral(power, begin, launch)
        if joules is None:
            return _Idle(note=f"power of {where} before the launch: {', '.join(gaps).replace('_', ' ')}")
        limit = each.limit.held(begin, launch)
        watts += joules / seconds
        limits += limit / seconds if limit else float("nan")
    return _Idle(watts=watts, ratio=watts / limits if limits > 0 else None)
