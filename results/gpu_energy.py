"""One GPU's joules of the window, by the first of its sensors whose series is valid, and a verdict on them."""

from dataclasses import dataclass

import numpy as np

from results.gpu_sensors import GpuSensors
from results.intervals import Ns
from results.power import Floats, Series
from results.sampling import half_width

K_OK, K_WARN = 0.03, 0.05  # |counter / integral of instant power - 1|
TOLD_ONLY = frozenset({"clock_step"})  # what a reader must know of the work's speed: the joules are what they are
LIMIT_AGE_S = 2.0  # the sampler asks for it once a second, and one may be late
SILENT_NS = 2_000_000_000  # behind its sampler, a GPU has stopped answering
GAP_REFRESHES = 3.0  # readings come once a refresh, jittered: up to two refreshes apart


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEnergy:
    """One GPU over the window. `joules` is None when no sensor's series is valid.

    Reasons: partial_coverage, gpu_lost, gap_too_long, counter_reset, counter_wrap (put right), no_counter,
    average_only, part_time_sensor, window_short, k_off, k_unsure (off, within the errors of both),
    no_limit, mig_whole_gpu (joules are of all its instances), clock_step (the SM clock changed by more than 20 % while
    the GPU was not idle: told, the joules are none the worse for it), xid_error (the driver told one in the window:
    what ran may not be what was asked for).

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
    limit_uncertainty_joules: float = 0.0  # a limit that changed did so at some time between two readings


def gpu_energy(
    gpu: str,
    pool: str | None,
    sensors: GpuSensors,
    low: int,
    high: int,
    latest: int,
    *,
    lost: bool = False,
    xid: bool = False,
) -> GpuEnergy:
    """Counter, else instant power, else average power: the first whose series is valid.

    `latest`: when its sampler last read anything, the host too; `lost`: the sampler said that the GPU was gone inside
    the window; `xid`: it told an Xid error in it.
    """
    reasons: list[str] = []
    counted, why = counter_difference(sensors, low, high)
    reasons += why
    integral, gaps = power_integral(sensors.instant, low, high, sensors.instant_refresh_s)
    source, joules = None, None
    if counted is not None:
        source, joules = "counter", counted
        # What power did in a gap is not known, so the counter has no check and no class has joules.
        reasons += ["gap_too_long"] if "gap_too_long" in gaps else []
    elif integral is not None:
        source, joules = "instant", integral
    else:
        averaged, lags = power_integral(sensors.average_in_time, low, high)
        if averaged is not None:
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
    if lost or (joules is None and last < high and last < latest - SILENT_NS):
        reasons.append("gpu_lost")
    if xid:
        reasons.append("xid_error")
    if sensors.clock_stepped(low, high):
        reasons.append("clock_step")
    limit = sensors.limit.held(low, high)
    if limit is None:
        reasons.append("no_limit")
    # Their own errors may explain a k that is off: that is told, and excuses nothing.
    bad = joules is None or (k is not None and abs(k - 1) > K_WARN)
    return GpuEnergy(
        gpu=gpu,
        pool=pool,
        joules=joules,
        limit_joules=limit,
        source=source if joules is not None else None,
        k=k,
        verdict="bad" if bad else "warn" if set(reasons) - TOLD_ONLY else "ok",
        reasons=tuple(dict.fromkeys(reasons)),
        uncertainty_joules=None if joules is None else _uncertainty(sensors, source, low, high, counter_doubt),
        limit_uncertainty_joules=_limit_doubt(sensors.limit, low, high),
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
        power = sensors.average_in_time
        refresh_s, smeared_s = power.period_s, max(sensors.average_window_s, power.period_s)
    seen = None if power.around(low, high) is None else half_width(power, refresh_s, low, high)
    if seen is None:
        return None
    return seen + float(edge_doubt(power, smeared_s, np.array([low, high], dtype=np.int64), whole=True).sum())


def _limit_doubt(limit: Series, low: int, high: int) -> float:
    """Joules by which the integral of the limit may be off, at most.

    Each reading is taken to hold until the next, and the limit in it may have been asked for LIMIT_AGE_S before.
    """
    changed = np.flatnonzero(np.diff(limit.values))
    since = np.clip(limit.times[changed] - int(LIMIT_AGE_S * 1e9), low, high)
    gaps = (np.clip(limit.times[changed + 1], low, high) - since) / 1e9
    return float((np.abs(limit.values[changed + 1] - limit.values[changed]) * gaps).sum())


def _between(sensors: GpuSensors, low: int, high: int) -> float:
    """Joules by which instant power's integral may be off for what happened between its readings (95 %)."""
    known = sensors.instant.around(low, high) is not None
    return (half_width(sensors.instant, sensors.instant_refresh_s, low, high) or 0.0) if known else 0.0


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


def counter_difference(sensors: GpuSensors, low: int, high: int) -> tuple[float | None, list[str]]:
    """Difference of the energy counter, interpolated at the edges."""
    if sensors.counter.times.size == 0:
        return None, ["no_counter"]
    inside = sensors.counter.around(low, high)
    if inside is None:
        return None, ["partial_coverage"]
    if (inside.values[1:] < inside.values[:-1]).any():
        return None, ["counter_reset"]
    if inside.edge_gap_s(low, high) > max(sensors.counter.gap_limit_s, GAP_REFRESHES * sensors.counter_refresh_s):
        return None, ["gap_too_long"]
    edges = inside.at(np.array([low, high], dtype=np.int64))
    return float(edges[1] - edges[0]), []


def power_integral(power: Series, low: int, high: int, refresh_s: float = 0.0) -> tuple[float | None, list[str]]:
    inside = power.around(low, high)
    if inside is None:
        return None, ["partial_coverage"]
    if inside.longest_gap_s() > max(power.gap_limit_s, GAP_REFRESHES * refresh_s):
        return None, ["gap_too_long"]
    edges = power.integral(np.array([low, high], dtype=np.int64))
    return float(edges[1] - edges[0]), []


def edge_doubt(power: Series, refresh_s: float, edges: Ns, *, whole: bool = False) -> Floats:
    """Joules by which each cell may be off, at most: at both its edges, the change of power there x (refresh + gap/2).

    A reading shows a change up to a refresh late, the next comes a gap later, and the trapezoid puts the change into
    the middle between the two. The gap is the longest of those that may have it between them: readings come at random
    within their slots, so it may be almost two periods. The change is what the readings tell as far as that to either
    side (two refreshes at least, since a cell between two edges may be shorter).
    """
    gaps = _gaps(power, edges, edges + int(refresh_s * 1e9))
    reach = np.ceil(1e9 * (refresh_s + np.maximum(gaps, refresh_s))).astype(np.int64)
    first = np.searchsorted(power.times, edges - reach, side="left")
    after = np.searchsorted(power.times, edges + reach, side="right")
    held = power.values
    if (after == held.size).any() or (first == held.size).any():
        held = np.concatenate((held, held[-1:]))  # a stretch may end with the last reading
    stretches = np.stack((first, after), axis=1).ravel()
    one, other = power.at(edges - reach), power.at(edges + reach)
    most, least = np.maximum(one, other), np.minimum(one, other)
    inside = after > first
    most = np.where(inside, np.maximum(most, np.maximum.reduceat(held, stretches)[::2]), most)
    least = np.where(inside, np.minimum(least, np.minimum.reduceat(held, stretches)[::2]), least)
    jump = (most - least) * (refresh_s + gaps / 2)
    if not whole:
        jump[[0, -1]] = 0.0  # the window's own edges cut no class from another
    return np.asarray(jump[:-1] + jump[1:], dtype=np.float64)


def _gaps(power: Series, begins: Ns, ends: Ns) -> Floats:
    """Seconds of the longest gap between readings that has a part in each stretch."""
    if power.times.size < 2:
        return np.zeros(begins.size)
    gaps = np.zeros(power.times.size, dtype=np.int64)
    np.subtract(power.times[1:], power.times[:-1], out=gaps[:-1])
    first = np.clip(np.searchsorted(power.times, begins, side="right") - 1, 0, gaps.size - 2)
    after = np.clip(np.searchsorted(power.times, ends, side="left"), first + 1, gaps.size - 1)
    longest = np.maximum.reduceat(gaps, np.stack((first, after), axis=1).ravel())[::2]
    return np.asarray(longest / 1e9, dtype=np.float64)
