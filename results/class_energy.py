"""Joules per class of the time account, and how they are shared among the work that ran (attributed).

The trapezoid of instant power cut at class boundaries, scaled by k = counter / integral. Without a valid check of the
one against the other there is no figure: MEASURING.md, "Energy per class".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from results.classes import CODES, Class
from results.gpu_energy import K_WARN, GpuEnergy, edge_doubt
from results.gpu_sensors import GpuSensors
from results.intervals import Ns, Timeline, grid_of, level, merge
from results.power import Floats
from results.running import RunningWork
from results.sampling import Z95, unseen_within
from results.stats import dot


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEnergy:
    """Joules of one class of one pool's GPUs; None with a note: `too short`, or why the split is not valid."""

    pool: str
    name: str
    joules: float | None
    uncertainty_joules: float | None
    note: str | None
    limit_joules: float | None = None  # integral of the enforced power limit over the class; None: not known

    @property
    def power_utilisation(self) -> float | None:
        """Mean power in the class, as a share of the limit."""
        return self.joules / self.limit_joules if self.joules is not None and self.limit_joules else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributed:
    """Joules of a part of a pool's work, by share of the turns that ran: no sensor tells one turn from another.

    `name`: a fate of results.running (they add up to the class `generating`), `tail_generating` (of the trajectories
    that ended after their batch's median) or `tail_waste` (empty, tool_wait and agent inside the tail: measured like a
    class). None with `note`, as of the classes it is a part of.
    """

    pool: str
    name: str
    joules: float | None
    note: str | None


CLASS_NAMES: Mapping[str, int] = {member.value: code for member, code in CODES.items()}
UNPLACED = "which GPUs the pool has is not known: of one no process told its pool"
MOST_CELLS = 100_000
TAIL_GENERATING, TAIL_WASTE = "tail_generating", "tail_waste"
WASTE = (CODES[Class.EMPTY], CODES[Class.TOOL_WAIT], CODES[Class.AGENT])


@dataclass(frozen=True, slots=True)
class _Metered:
    """One pool's GPUs: those whose power may be cut, and why there is no figure where one may not."""

    usable: tuple[GpuEnergy, ...]
    slowest_s: float
    note: str | None

    @classmethod
    def of(cls, pool: str, gpus: Sequence[GpuEnergy], sensors: Mapping[str, GpuSensors]) -> "_Metered":
        mine = [each for each in gpus if each.pool == pool]
        if not mine or any(each.pool is None for each in gpus):
            return cls((), 0.0, UNPLACED)
        usable = tuple(each for each in mine if each.joules is not None and each.k and abs(each.k - 1) <= K_WARN)
        note = None
        if any(each.joules is None for each in mine):
            note = "the joules of a GPU are not known"
        elif len(usable) < len(mine):
            note = "no valid check of counter against integral"
        return cls(usable, max(_resolution_s(each, sensors[each.gpu]) for each in mine), note)

    def joules(self, sensors: Mapping[str, GpuSensors], edges: Ns) -> Floats:
        """Joules of each cell of `edges`, all usable GPUs together."""
        found = np.zeros(edges.size - 1)
        for each in self.usable:
            found += np.diff(sensors[each.gpu].instant.integral(edges)) * (each.k or 1.0)
        return found

    def limits(self, sensors: Mapping[str, GpuSensors], edges: Ns) -> Floats | None:
        """The same of the power limit; None where a GPU's is not known."""
        found = np.zeros(edges.size - 1)
        for each in self.usable:
            limit = sensors[each.gpu].limit
            if not limit.times.size:
                return None
            found += np.diff(limit.held_until(edges))
        return found

    def why_not(self, lengths: Floats) -> str | None:
        """Why stretches of these lengths (s) have no joules."""
        return "too short" if float(np.median(lengths)) < 2 * self.slowest_s else self.note


def class_energy(
    gpus: Sequence[GpuEnergy],
    sensors: Mapping[str, GpuSensors],
    timelines: Mapping[str, Timeline],
    names: Mapping[str, int] = CLASS_NAMES,
) -> list[ClassEnergy]:
    """Trapezoid of instant power cut at class boundaries, scaled by k, per pool.

    `names`: what is asked for, and its code in the timelines.
    """
    found: list[ClassEnergy] = []
    for pool, timeline in sorted(timelines.items()):
        metered = _Metered.of(pool, gpus, sensors)
        lengths, codes = np.diff(timeline.edges) / 1e9, timeline.codes
        joules, limits = metered.joules(sensors, timeline.edges), metered.limits(sensors, timeline.edges)
        doubt, variance = np.zeros(codes.size), np.zeros(codes.size)
        for each in metered.usable:
            power = sensors[each.gpu].instant
            apart_s = sensors[each.gpu].instant_refresh_s + sensors[each.gpu].host_doubt_s
            doubt += edge_doubt(power, apart_s, timeline.edges)
            variance += unseen_within(power, sensors[each.gpu].instant_refresh_s, timeline.edges)
        for name, code in names.items():
            hit = codes == code
            if not hit.any():
                continue
            note = metered.why_not(lengths[hit])
            known = note is None
            found.append(
                ClassEnergy(
                    pool=pool,
                    name=name,
                    joules=float(joules[hit].sum()) if known else None,
                    uncertainty_joules=_both(doubt[hit], variance[hit]) if known else None,
                    note=note,
                    limit_joules=float(limits[hit].sum()) if known and limits is not None else None,
                )
            )
    return found


def attributed(
    gpus: Sequence[GpuEnergy], sensors: Mapping[str, GpuSensors], timelines: Mapping[str, Timeline], work: RunningWork
) -> list[Attributed]:
    """Joules of generating by what became of the turns that ran, and of what happened inside the batches' tails.

    At every instant the joules of the class `generating` belong to the running turns in equal parts: in cells of half
    the sensors' resolution, by each one's share of the turn-seconds.
    """
    found: list[Attributed] = []
    for pool, timeline in sorted(timelines.items()):
        metered = _Metered.of(pool, gpus, sensors)
        if metered.note == UNPLACED or CODES[Class.GENERATING] not in timeline.codes:
            continue
        edges = _cells(timeline.edges, work.tail, metered.slowest_s / 2)
        codes, joules = timeline.at(edges), metered.joules(sensors, edges)
        tail = level(*work.tail, edges) > 0
        generating = np.where(codes == CODES[Class.GENERATING], joules, 0.0)
        shares, late = work.shares(edges)
        note = metered.why_not((np.diff(timeline.edges) / 1e9)[timeline.codes == CODES[Class.GENERATING]])
        parts = {name: dot(generating, share) for name, share in shares.items()}
        if tail.any():
            parts[TAIL_GENERATING] = dot(generating[tail], late[tail])
        found += [Attributed(pool=pool, name=n, joules=None if note else j, note=note) for n, j in parts.items()]
        if tail.any():
            wasted = tail & np.isin(codes, WASTE)
            starts, ends = merge(edges[:-1][wasted], edges[1:][wasted])
            note = metered.why_not((ends - starts) / 1e9) if starts.size else metered.note
            total = float(joules[wasted].sum())
            found.append(Attributed(pool=pool, name=TAIL_WASTE, joules=None if note else total, note=note))
    return found


def _cells(edges: Ns, tail: tuple[Ns, Ns], step_s: float) -> Ns:
    """The edges, those of the tail, and between them one every `step_s` (at most MOST_CELLS of these)."""
    low, high = int(edges[0]), int(edges[-1])
    step = max(round(step_s * 1e9), (high - low) // MOST_CELLS, 1)
    return grid_of(low, high, edges, *tail, np.arange(low, high, step, dtype=np.int64))


def _resolution_s(gpu: GpuEnergy, sensors: GpuSensors) -> float:
    """The shortest time in which the power that is used tells one moment from another."""
    averaged = gpu.source == "average" or sensors.instant.times.size == 0
    return max(sensors.instant_refresh_s, sensors.average_window_s if averaged else 0.0, 2 * sensors.host_doubt_s)


def _both(edges: Floats, variance: Floats) -> float:
    return float(edges.sum()) + Z95 * math.sqrt(float(variance.sum()))
