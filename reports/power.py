"""The telemetry part of a report: GPU energy with its verdict, host load, and nothing of a GPU that is not there."""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from harness.protocol.spec import Device
from reports.markdown import Footnotes, code, escape, number, percent, seconds, table
from reports.provenance import random_weights
from reports.sampled import busy_part, cost_line
from results.class_energy import TAIL_GENERATING, TAIL_WASTE, ClassEnergy
from results.classes import Class
from results.energy import Energy
from results.gpu_energy import GpuEnergy
from results.running import DROPPED_OTHER, DROPPED_STALE, FAILED, OPEN, TRAINED, TRAINED_STALE, TRAINED_UNKNOWN
from results.store import RunTables, frame_of
from results.utilisation import Busy
from results.window import Window

NO_GPU = "the run used no GPU"
HOST = Class.HOST.value
REASONS = {
    "partial_coverage": "the sensor covers only part of the window",
    "gpu_lost": "the GPU stopped answering",
    "gap_too_long": "a gap between readings is too long",
    "counter_reset": "the energy counter was reset",
    "counter_wrap": "the energy counter wrapped, and was put right",
    "no_counter": "there is no energy counter",
    "average_only": "only averaged power is there",
    "part_time_sensor": "the sensor looks only part of the time",
    "window_short": "the window is shorter than two refreshes of the sensor",
    "k_off": "counter and integral of power differ",
    "k_unsure": "counter and integral of power differ; their own errors may explain it",
    "mig_whole_gpu": "the GPU is cut into instances: its power is of all of them",
    "clock_step": "the SM clock moved by more than 20 % under load, as a power limit or heat makes it: the joules "
    "stand, speeds are of several clocks",
    "contaminated": "something else used the GPUs or held them down",
    "no_limit": "the power limit is not known",
    "xid_error": "an Xid error in the window",
}


# Intervals name their method and source: MEASURING.md, results.sampling and results.stats.
_INTERVALS = (
    "Sampling error: of the counter, what its refresh may shift at the window's edges, at most; of power, the 95 % "
    "interval of what happened between readings, by the mean square successive difference (von Neumann and others "
    "1941; Wolter 2007, 8.2). From step to step: Student's t with as many steps as the correlated ones are worth "
    "(Geyer 1992), from 20 steps on."
)
_ATTRIBUTED = {
    TRAINED: "trained on, within the bound",
    TRAINED_STALE: "trained on, beyond the bound",
    TRAINED_UNKNOWN: "trained on, version unknown",
    DROPPED_STALE: "discarded: stale",
    DROPPED_OTHER: "discarded: other",
    FAILED: "failed",
    OPEN: "not ended or not used by the end of the record",
    TAIL_GENERATING: "in the tail: by the trajectories that end it",
    TAIL_WASTE: "in the tail: waste",
}
_ALWAYS = (TRAINED, DROPPED_STALE, TAIL_GENERATING, TAIL_WASTE)  # shown at 0 J too: that there was none is a finding


def has_gpu(run: RunTables) -> bool:
    """Whether the run used GPUs: only then may a GPU number be printed."""
    return run.spec.device is Device.CUDA


def energy_verdict(run: RunTables, energy: Energy | None) -> str:
    """The verdict on the energy figures, with its reasons in words."""
    if not has_gpu(run):
        return f"no energy figures: {NO_GPU}"
    if energy is None or energy.verdict is None:
        return f"none: {escape(energy.note) if energy and energy.note else 'there is no window'}"
    reasons = "; ".join(REASONS.get(reason, reason) for reason in energy.reasons)
    return f"**{energy.verdict}**" + (f" ({escape(reasons)})" if reasons else "")


def telemetry(
    run: RunTables, window: Window | None, energy: Energy | None, notes: Footnotes, busy: Busy | None = None
) -> list[str]:
    """GPU part (absent without a GPU, and said so) and host part; `busy`: where that is known already."""
    lines = _gpu_part(run, energy, notes) if has_gpu(run) else [f"No GPU: {NO_GPU}, so no GPU figure is shown."]
    if has_gpu(run):
        lines += busy_part(run, window, notes, busy)
    return [*lines, "", *_host_part(run, window), "", cost_line(run, notes)]


def _gpu_part(run: RunTables, energy: Energy | None, notes: Footnotes) -> list[str]:
    if energy is None:
        return [f"GPU energy: {notes.unknown('there is no steady window')}"]
    why = energy.note or "not known"
    lines = [f"Energy verdict: {energy_verdict(run, energy)}."]
    if random_weights(run.spec):
        lines[0] += " Power depends on the data: these are **random weights**."
    rows = [
        ["GPU power utilisation, all GPUs", _share(energy.power_utilisation, notes, why)],
        *_sampling_error(energy),
        *_per_step(energy),
        *([f"GPU power utilisation, {pool} pool", percent(ratio)] for pool, ratio in energy.pools.items()),
        ["idle, before the launch", _idle(energy, notes)],
        ["energy of the window", notes.unknown(why) if energy.joules is None else f"{number(energy.joules / 1e3)} kJ"],
        ["energy per trained trajectory", _per_trained(energy, notes, why)],
        ["energy per trained token", _joules(energy.joules_per_token, notes, why)],
        ["energy per step", _joules(energy.joules_per_step, notes, why)],
    ]
    lines += ["", *table(["GPU power and energy", "value"], rows, "l")]
    lines += [f"\n{_INTERVALS}"] if energy.power_utilisation is not None else []
    if energy.meanings:
        lines += ["", "What the power readings mean: " + escape("; ".join(energy.meanings)) + "."]
    if energy.gpus:
        lines += ["", *_per_gpu(energy.gpus, notes)]
    if energy.classes:
        lines += ["", *_per_class(energy.classes, energy.phases, notes)]
    if energy.attributed:
        lines += ["", *_attributed(energy, notes)]
    return lines


def _per_gpu(gpus: Sequence[GpuEnergy], notes: Footnotes) -> list[str]:
    def words(gpu: GpuEnergy) -> str:
        return "; ".join(REASONS.get(reason, reason) for reason in gpu.reasons) or "no valid series"

    rows = [
        [
            code(gpu.gpu),
            escape(gpu.pool) if gpu.pool else notes.unknown("no process told its pool"),
            notes.unknown(words(gpu)) if gpu.joules is None else f"{number(gpu.joules / 1e3)} kJ",
            escape(gpu.source) if gpu.source else notes.unknown(words(gpu)),
            notes.unknown("needs both the counter and instant power") if gpu.k is None else f"{gpu.k:.3f}",
            gpu.verdict,
            escape(words(gpu)) if gpu.reasons else " ",
        ]
        for gpu in gpus
    ]
    return table(["GPU", "pool", "energy", "from", "k", "verdict", "reasons"], rows, "llrlrll")


def _per_class(classes: Sequence[ClassEnergy], phases: Sequence[ClassEnergy], notes: Footnotes) -> list[str]:
    """One row for each class, and after `host` one for each of its phases."""
    rows = []
    ordered = [(each, each.name.replace("_", " ")) for each in classes]
    for each in reversed(phases):
        hosts = (place for place, (one, _) in enumerate(ordered) if one.pool == each.pool and one.name == HOST)
        ordered.insert(next(hosts, len(ordered) - 1) + 1, (each, f"... {each.name}"))
    for each, name in ordered:
        why = each.note or "not known"
        if each.joules is None:
            joules = notes.unknown(why)
        else:
            joules = f"{number(each.joules / 1e3)} kJ"
            if each.uncertainty_joules is not None:
                joules += f" ± {number(each.uncertainty_joules / 1e3)}"
        used = "the power limit is not known" if each.joules is not None else why
        share = _share(each.power_utilisation, notes, used)
        rows.append([escape(each.pool), escape(name), joules, share])
    return table(["Pool", "Class (... phase)", "Energy", "power utilisation"], rows, "ll")


def _attributed(energy: Energy, notes: Footnotes) -> list[str]:
    """What was generated for nothing, and what the tail took."""
    whole = {each.pool: each.joules for each in energy.classes if each.name == "generating"}
    rows = []
    for each in energy.attributed:
        if each.joules == 0 and each.name not in _ALWAYS:
            continue
        of = whole.get(each.pool)
        share = " " if each.name == TAIL_WASTE else notes.unknown(each.note or "not known")
        if each.joules is not None and of and each.name != TAIL_WASTE:
            share = percent(each.joules / of)
        joules = notes.unknown(each.note or "not known") if each.joules is None else f"{number(each.joules / 1e3)} kJ"
        rows.append([escape(each.pool), _ATTRIBUTED[each.name], joules, share])
    head = ["Pool", "Energy of generating, attributed", "Energy", "of generating"]
    return [
        *table(head, rows, "ll"),
        "",
        "Attributed: at every instant the joules of the pool's `generating` are shared equally by the turns that run;"
        " no sensor tells one turn from another. The first rows add up to `generating`; the tail's are parts of them,"
        " and its waste (empty, tool wait, agent) is measured like a class.",
    ]


def _host_part(run: RunTables, window: Window | None) -> list[str]:
    columns = ("host", "gpu", "mono_ns", "cpu_ratio", "host_memory_used_bytes")
    read = run.where("samples", columns, _of_host, text=("host", "gpu"), unknown=("gpu",))
    host = frame_of(read)
    if window is not None and not host.empty:
        host = host[(host["mono_ns"] >= window.start_ns) & (host["mono_ns"] < window.end_ns)]
    if host.empty:
        return ["No samples of the host lie in the window."]
    where = "the steady window" if window is not None else "the whole run (there is no window)"
    rows = []
    for name, mine in host.groupby("host", sort=True):
        cpu, memory = mine["cpu_ratio"].dropna(), mine["host_memory_used_bytes"].dropna()
        span = float(mine["mono_ns"].max() - mine["mono_ns"].min()) / 1e9
        rows.append([escape(name), _mean(cpu), _most(memory), f"{len(mine):,}", seconds(span)])
    lines = table(["Host", "CPU in use, mean", "memory in use, most", "samples", "over"], rows, "l")
    return [*lines, "", f"Host readings over {where}."]


def _of_host(batch: pa.RecordBatch) -> pa.Array:
    return batch.column("gpu").is_null()


def _mean(values: "pd.Series[float]") -> str:
    return "not read" if values.empty else percent(float(values.mean()))


def _most(values: "pd.Series[int]") -> str:
    return "not read" if values.empty else f"{number(float(values.max()) / 2**30)} GiB"


def _share(value: float | None, notes: Footnotes, why: str) -> str:
    return notes.unknown(why) if value is None else percent(value)


def _idle(energy: Energy, notes: Footnotes) -> str:
    if energy.idle_watts is None:
        return notes.unknown(energy.idle_note or "not known")
    share = "" if energy.idle_ratio is None else f" ({percent(energy.idle_ratio)} of the limit)"
    return f"{number(energy.idle_watts)} W{share}"


def _sampling_error(energy: Energy) -> list[list[str]]:
    """How far the figures of the window may be off for refresh, averaging and what the samples don't see."""
    if energy.power_utilisation is None:
        return []
    if energy.uncertainty_ratio is None or energy.uncertainty_joules is None:
        return [["... sampling error", "not known: the sensor looks part of the time, or gave too few readings"]]
    points, joules = 100 * energy.uncertainty_ratio, number(energy.uncertainty_joules / 1e3)
    sources = " and ".join(dict.fromkeys(gpu.source for gpu in energy.gpus if gpu.source))
    return [["... sampling error", f"± {points:.2f} points, ± {joules} kJ (from: {escape(sources)})"]]


def _per_step(energy: Energy) -> list[list[str]]:
    """Its spread over the steps: an interval for correlated steps, or the range where there are too few."""
    found = energy.per_step
    if found is None or found.value is None or found.low is None or found.high is None:
        return []
    if found.ci_low is None or found.ci_high is None:
        return [["... from step to step", f"{percent(found.low)} to {percent(found.high)} (range of {found.n} steps)"]]
    text = f"{percent(found.ci_low)} to {percent(found.ci_high)} (95 % of {found.n} steps"
    return [["... from step to step", f"{text}, worth {found.effective_n:.0f} independent ones)"]]


def _joules(value: float | None, notes: Footnotes, why: str) -> str:
    return notes.unknown(why) if value is None else f"{number(value)} J"


def _per_trained(energy: Energy, notes: Footnotes, why: str) -> str:
    if energy.joules_per_trained is None:
        return notes.unknown(why if energy.joules is None else "no trajectory was trained on in the window")
    return f"{number(energy.joules_per_trained)} J (n = {energy.trained:,})"
