"""How busy the GPUs were, as NVML and DCGM say it, and what the sampling of it cost.

NVML's utilisation says that a kernel ran; DCGM's fields say how full the GPU was. They are told side by side and never
mixed. Means are over time, with the interval of what happened between the samples (`results.sampling`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from harness.protocol.scalars import number
from results.energy import run_gpus
from results.gpu_errors import Xid, xids
from results.gpu_sensors import gpu_pools
from results.gpu_series import series_of
from results.power import Series
from results.sampling import SampledMean, window_mean
from results.store import RunTables
from results.window import Window

FIELDS: Mapping[str, str] = {
    "util_ratio": "NVML: a kernel ran",
    "dcgm_sm_active_ratio": "DCGM: SM active",
    "dcgm_sm_occupancy_ratio": "DCGM: SM occupancy",
    "dcgm_tensor_active_ratio": "DCGM: tensor pipe active",
    "dcgm_dram_active_ratio": "DCGM: memory active",
}
# NVML API reference, "Clocks Event Reasons": bits that say what holds the clocks below what they could be.
HELD_DOWN: Mapping[str, int] = {
    "the power limit": 0x4,
    "a hardware slowdown": 0x8,
    "a sync with other GPUs": 0x10,
    "heat": 0x20 | 0x40,
    "the power brake": 0x80,
}
THROTTLE = "throttle_reasons"
ALL = "all"  # the pool of GPUs of which no process told its pool
MOST_NOTES = 12
ENOUGH = 0.9  # of the window must be covered by samples for a mean to stand for it


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUtilisation:
    """One field over one pool's GPUs: each GPU weighs the same. Ratios 0..1; `mean` None with `note`."""

    pool: str
    field: str
    mean: float | None
    half_width: float | None  # of the 95 % interval
    samples: int
    gpus: int
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the sampler saw of errors: Xid errors, GPUs lost and back, and how memory errors grew in the run."""

    xids: tuple[Xid, ...]  # in order of time
    appeared: int
    returned: int
    corrected: int | None
    uncorrected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmNotes:
    """Where DCGM's readings came from, gaps, what was left out, and the fields that an exporter does not give."""

    notes: tuple[str, ...]
    missing: Mapping[str, str]  # column -> line of the exporter's counters file that turns it on


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerCost:
    """What the samplers themselves took. CPU seconds are of all threads, since their start; None: not on record."""

    cpu_s: float | None
    wall_s: float | None
    ticks: int | None  # power readings
    missed: int | None  # ticks that were skipped because the one before took too long
    rows: int | None
    late: int | None = None  # readings made more than half a period after their tick
    unended: int = 0  # samplers that ended without telling

    @property
    def core_ratio(self) -> float | None:
        """Share of one core."""
        return self.cpu_s / self.wall_s if self.cpu_s is not None and self.wall_s else None

    @property
    def missed_ratio(self) -> float | None:
        """Share of the ticks that were missed."""
        due = (self.ticks or 0) + (self.missed or 0)
        return self.missed / due if self.missed is not None and due else None

    @property
    def on_time_ratio(self) -> float | None:
        """Share of the ticks whose reading was made within half a period."""
        due = (self.ticks or 0) + (self.missed or 0)
        return ((self.ticks or 0) - self.late) / due if self.late is not None and due else None


BusyReadings = Mapping[str, Mapping[str, Series]]  # GPU -> column
BUSY_COLUMNS = (*FIELDS, THROTTLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """How busy the run's GPUs were in the window, as `utilisation` says it, and as `held_down` does by what."""

    utilisation: tuple[PoolUtilisation, ...]
    held_down: Mapping[str, float]


def busy(run: RunTables, window: Window, readings: BusyReadings | None = None) -> Busy:
    """Both; `readings`, where they were read already: as of `busy_readings`, and maybe more."""
    readings = busy_readings(run) if readings is None else readings
    return Busy(utilisation=utilisation(run, window, readings), held_down=held_down(run, window, readings))


def busy_readings(run: RunTables) -> BusyReadings:
    """What `utilisation` and `held_down` look at, of the run's GPUs."""
    return series_of(run, busy_gpus(run), BUSY_COLUMNS)


def busy_gpus(run: RunTables) -> list[str]:
    """The GPUs that it is told of: those with a pool, else the machine's where their number is the run's."""
    return sorted(_pools(run))


def _pools(run: RunTables) -> Mapping[str, str]:
    return gpu_pools(run) or dict.fromkeys(run_gpus(run, {}) or (), ALL)


def utilisation(run: RunTables, window: Window, readings: BusyReadings | None = None) -> tuple[PoolUtilisation, ...]:
    """Every field that any GPU of the run has, per pool. `readings`, where they were read already: `busy_readings`."""
    pools = _pools(run)
    readings = busy_readings(run) if readings is None else readings
    refresh_s = _exporter_refresh(run)
    found = []
    for pool in sorted(set(pools.values())):
        mine = sorted(gpu for gpu, of in pools.items() if of == pool)
        for name in FIELDS:
            means = []
            for gpu in mine:
                slow = refresh_s if name.startswith("dcgm_") else 0.0
                means.append(window_mean(readings[gpu][name], window.start_ns, window.end_ns, slow))
            if any(one.n for one in means):
                found.append(_pooled(pool, name, means))
    return tuple(found)


def held_down(run: RunTables, window: Window, readings: BusyReadings | None = None) -> dict[str, float]:
    """Share of the window's readings, over the run's GPUs, in which each reason held the clocks down; those above 0."""
    readings = busy_readings(run) if readings is None else readings
    edges = (window.start_ns, window.end_ns)
    told = [readings[gpu][THROTTLE] for gpu in busy_gpus(run)]
    inside = [each.values[slice(*np.searchsorted(each.times, edges, side="left"))] for each in told]
    bits = np.concatenate([np.empty(0), *inside]).astype(np.int64)
    ever = int(np.bitwise_or.reduce(bits)) if bits.size else 0
    return {name: float(np.mean((bits & mask) != 0)) for name, mask in HELD_DOWN.items() if ever & mask}


def health(run: RunTables) -> Health:
    """Errors of the whole run."""
    return Health(
        xids=xids(run),
        appeared=len(_told(run, "telemetry.gpu_appeared")),
        returned=len(_told(run, "telemetry.gpu_returned")),
        corrected=_growth(run, "ecc_corrected_errors"),
        uncorrected=_growth(run, "ecc_uncorrected_errors"),
    )


def sampler_cost(run: RunTables) -> SamplerCost:
    """The cost of all samplers of the run; of each, its last word."""
    probes = run.tables["probes"]
    latest: dict[tuple[str, int], tuple[float, float]] = {}
    for row in probes.filter(pc.equal(probes.column("name"), "telemetry.cpu")).to_pylist():
        wall_s = number(json.loads(row["labels_json"]).get("wall_s"), 0.0)
        if row["value"] is not None and wall_s is not None:
            latest[row["host"], row["pid"]] = (float(row["value"]), wall_s)
    ticks, rows = _told(run, "telemetry.ticks"), _told(run, "telemetry.rows")
    begun, ended = _tellers(run, "telemetry.cpu"), _tellers(run, "telemetry.rows")
    return SamplerCost(
        cpu_s=sum(cpu for cpu, _ in latest.values()) if latest else None,
        wall_s=max(wall for _, wall in latest.values()) if latest else None,
        ticks=round(sum(value or 0 for value, _ in ticks)) if ticks else None,
        missed=_sum([labels.get("skipped", 0) for _, labels in ticks]),
        rows=round(sum(value or 0 for value, _ in rows)) if rows else None,
        late=_sum([labels.get("late") for _, labels in ticks]),
        unended=len(begun - ended),
    )


def _sum(counts: Sequence[object]) -> int | None:
    """The sum of what the labels of several say; None where there are none, or one is not known."""
    known = [count for one in counts if (count := number(one, 0.0)) is not None]
    return round(sum(known)) if counts and len(known) == len(counts) else None


def dcgm_notes(run: RunTables) -> DcgmNotes:
    """What is to be said of DCGM."""
    notes, sources = [], _told(run, "dcgm.source")
    good = [labels for value, labels in sources if value]
    for labels in good or [labels for _, labels in sources]:
        asked = f" from {labels['source']}" if labels.get("source") else ""
        notes.append(f"DCGM{asked}" if good else f"no DCGM{asked}: {labels.get('reason')}")
    notes += _gap_notes(run)
    for value, labels in _told(run, "dcgm.refresh"):
        if value is not None and labels.get("how"):
            notes.append(f"DCGM's readings are new every {value:.1f} s only: {labels['how']}")
    for _, labels in _told(run, "dcgm.left_out"):
        which = " of ".join(str(labels[name]) for name in ("field", "gpu") if labels.get(name))
        notes.append(f"not taken from DCGM: {which}: {labels.get('reason')}")
    told = _told(run, "dcgm.missing")
    last = {str(labels.get("field")): (value, str(labels.get("line"))) for value, labels in told}
    missing = {field: line for field, (value, line) in last.items() if value is None}
    notes += [f"{field} was given by DCGM only part of the time" for field in last if field not in missing]
    kept = list(dict.fromkeys(notes))
    more = [f"and {len(kept) - MOST_NOTES} more of DCGM, in the probes"] if len(kept) > MOST_NOTES else []
    return DcgmNotes(notes=(*kept[:MOST_NOTES], *more), missing=missing)


def _gap_notes(run: RunTables) -> list[str]:
    """Gaps with an end and, where a sampler was killed, one without."""
    gaps = [(value, labels) for value, labels in _told(run, "dcgm.gap") if value is not None]
    silent = _told(run, "dcgm.unreachable")
    closed = {labels.get("begin_ns") for _, labels in gaps}
    opened = {labels["begin_ns"] for _, labels in silent if labels.get("begin_ns") is not None}
    reasons = "; ".join(dict.fromkeys(str(labels.get("reason")) for _, labels in silent))
    notes = []
    if gaps:
        text = f"DCGM was silent {len(gaps)} times, {sum(value for value, _ in gaps):.1f} s in all"
        to_the_end = ", the last to the end of the run" if any(labels.get("ended") for _, labels in gaps) else ""
        notes.append(f"{text}{to_the_end}" + (f" ({reasons})" if reasons else ""))
    if opened - closed:
        notes.append(f"DCGM fell silent and it is not on record that it came back ({reasons})")
    return notes


def _pooled(pool: str, name: str, means: Sequence[SampledMean]) -> PoolUtilisation:
    known = [one for one in means if one.value is not None]
    widths = [one.half_width for one in known]
    note, covered = None, min(one.covered for one in means)
    if len(known) < len(means):
        note = f"{len(means) - len(known)} of {len(means)} GPUs gave nothing"
    elif covered < ENOUGH:
        note = f"samples cover {covered:.0%} of the window"
    wide = None
    if note is None and None not in widths:
        # GPUs are sampled at times of their own: their errors don't add up.
        wide = float(np.sqrt(sum((width or 0.0) ** 2 for width in widths))) / len(widths)
    return PoolUtilisation(
        pool=pool,
        field=name,
        mean=None if note else float(np.mean([one.value or 0.0 for one in known])),
        half_width=wide,
        samples=sum(one.n for one in means),
        gpus=len(means),
        note=note,
    )


def _told(run: RunTables, name: str) -> list[tuple[float | None, Mapping[str, object]]]:
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes.column("name"), name)).sort_by("mono_ns").to_pylist()
    return [(row["value"], json.loads(row["labels_json"])) for row in rows]


def _tellers(run: RunTables, name: str) -> set[tuple[str, int]]:
    """Host and pid of the processes that recorded such a metric."""
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes.column("name"), name)).select(["host", "pid"]).to_pylist()
    return {(row["host"], row["pid"]) for row in rows}


def _exporter_refresh(run: RunTables) -> float:
    """How often DCGM's readings are new (s), as the sampler measured; 0: not known, every sample counts as new."""
    return max((value for value, _ in _told(run, "dcgm.refresh") if value is not None), default=0.0)


def _growth(run: RunTables, name: str) -> int | None:
    """Errors that were added in the run, over all GPUs; a GPU that was reset counts from 0 again."""
    columns = ("mono_ns", "gpu", name)
    read = run.where("samples", columns, lambda batch: batch.column(name).is_valid(), text=("gpu",), known=(name,))
    rows = read.sort_by("mono_ns").select(["gpu", name]).to_pylist()
    if not rows:
        return None
    before: dict[str, int] = {}
    added = 0
    for row in rows:
        last = before.get(row["gpu"], row[name])
        added += row[name] - last if row[name] >= last else row[name]
        before[row["gpu"]] = row[name]
    return int(added)
