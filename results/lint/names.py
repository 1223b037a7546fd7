"""The figures that a published table may have, the headings they go by, and the units they are read in."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from results.importing import verl_console

TIME, RATIO, COUNT, NUMBER, ANY, POWER, ENERGY, FLOPS, MULTIPLE, LABEL = (
    "time",
    "ratio",
    "count",
    "number",
    "any",
    "power",
    "energy",
    "flops",
    "multiple",
    "label",
)
DISAGGREGATED = ("disagg_async", "disaggregated", "async")  # headings beside `Colocated`
QUANTILES = ("min", "p5", "p10", "p25", "p50", "median", "p75", "p90", "p95", "p99", "p999", "max")
MEANS = ("mean", "avg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One figure: what it measures, what it is, the unit of a number without one, and headings that mean it."""

    name: str
    kind: str
    doc: str
    unit: str = ""
    headings: tuple[str, ...] = ()


def _name(name: str, kind: str, doc: str, *headings: str, unit: str = "") -> Name:
    return Name(name=name, kind=kind, doc=doc, unit=unit, headings=(name, *headings))


NAMES: Mapping[str, Name] = {
    one.name: one
    for one in (
        _name("group", LABEL, "rows of equal group are compared", "model"),
        _name("phase", LABEL, "names the phase that the row is of", "stage", "component"),
        _name("gpu", LABEL, "model of the GPUs", "gpu_model", "gpu_type", "hardware", "accelerator"),
        _name("gpus", COUNT, "all GPUs of the run", "num_gpus", "n_gpus", "gpu_count", "number_of_gpus"),
        _name("gpus_baseline", COUNT, "all GPUs of the run compared with"),
        _name("steps", COUNT, "steps of the window", "num_steps", "n_steps"),
        _name(
            "step_s",
            TIME,
            "mean time of a step",
            "step_time",
            "time_per_step",
            "seconds_per_step",
            "avg_step_time",
            "total_step_time",
            "mean_step_time",
            "s_step",
            "step_time_s",
        ),
        _name("step_s_baseline", TIME, "mean time of a step of the run compared with", "baseline_step_time"),
        _name("wall_s", TIME, "wall time of the run", "wall_time", "wall_clock", "total_time", "training_time"),
        _name("wall_s_baseline", TIME, "wall time of the run compared with", "baseline_wall_time"),
        _name("window_s", TIME, "time that the steps took, boundary to boundary", "window"),
        _name("tokens", NUMBER, "tokens of the run", "total_tokens"),
        _name("tokens_per_step", NUMBER, "tokens of a step", "tokens_step"),
        _name("tokens_per_s", NUMBER, "tokens per second of the run", "tokens_s", "tok_s", "tokens_sec"),
        _name(
            "tokens_per_s_gpu",
            NUMBER,
            "tokens per second and GPU",
            "tokens_s_gpu",
            "tok_s_gpu",
            "tokens_sec_gpu",
            "tgs",
            "throughput_tokens_per_s_gpu",
        ),
        _name("mfu", RATIO, "model FLOP utilisation", "mfu_ratio", "model_flops_utilization"),
        _name("tflops_per_gpu", FLOPS, "FLOP/s per GPU", "tflops_gpu", "tflops", "tflop_s_gpu", unit="TFLOPS"),
        _name(
            "power_utilisation", RATIO, "mean power / limit", "power_utilization", "power_util", "gpu_power_utilization"
        ),
        _name("power_utilisation_baseline", RATIO, "that of the run compared with"),
        _name("power_utilisation_gain", RATIO, "power_utilisation - power_utilisation_baseline"),
        _name("watts", POWER, "mean power of one GPU", "power", "avg_power", "mean_power", "power_w", "gpu_power"),
        _name("limit_watts", POWER, "power limit of one GPU", "power_limit", "tdp", "power_cap"),
        _name("joules", ENERGY, "energy of all GPUs over the wall time", "energy", "total_energy"),
        _name("joules_per_step", ENERGY, "energy of all GPUs a step", "energy_per_step", "j_step"),
        _name("joules_per_step_baseline", ENERGY, "that of the run compared with"),
        _name("idle", RATIO, "share of the time without work", "idle_ratio", "idle_time", "bubble", "bubble_ratio"),
        _name("utilisation", RATIO, "share of the time at work", "gpu_utilization", "gpu_util", "utilization"),
        _name("share", RATIO, "share of the whole row or step", "of_step", "of_total", "share_of_step", "fraction"),
        _name("speed_up", MULTIPLE, "time before / time after", "speedup", "speed_up_x"),
        _name(
            "time_reduction",
            RATIO,
            "share of the time before that is saved (the sign is not read)",
            "wall_clock_time_reduction",
            "wall_clock_reduction",
            "step_time_reduction",
        ),
        _name("time_change", RATIO, "time after / time before - 1, signed", "step_time_change"),
        _name("phase_s", TIME, "time of the row's phase", "avg_time", "time", "seconds", "duration", "mean_time"),
        _name("staleness_mean", NUMBER, "mean staleness, versions", "mean_staleness", "avg_staleness"),
        _name("staleness_max", COUNT, "most staleness, versions", "max_observed_staleness"),
        _name("staleness_bound", COUNT, "bound on it", "max_staleness", "staleness_threshold"),
        _name("start", ANY, "start, in the unit of end", "start_time", "start_ts", "submit_ts"),
        _name("end", ANY, "end", "end_time", "end_ts", "finalized_ts", "stop_time"),
        _name("gpu_hours", NUMBER, "GPU-hours of the run", "gpu_h", "gpu_hrs"),
        _name("open_at_start", COUNT, "ledger: open at the start"),
        _name("added", COUNT, "ledger: generated, or started", "generated", "started"),
        _name("trained", COUNT, "ledger: trained on", "consumed"),
        _name("dropped", COUNT, "ledger: dropped, stale or not", "discarded"),
        _name("failed", COUNT, "ledger: failed"),
        _name("in_flight", COUNT, "ledger: in flight at the end"),
        _name("queued", COUNT, "ledger: waiting to be trained on at the end"),
    )
}
# Names with a word of the user's own behind a dot: several of them stand in one row.
FAMILIES: Mapping[str, str] = {"phase_s": TIME, "phase_share": RATIO, "leaf_s": TIME, "share": RATIO, "count": COUNT}
_BY_HEADING = {heading: one.name for one in NAMES.values() for heading in one.headings}
_UNIT_AT_END = re.compile(r"[(\[]\s*(?P<unit>[^()\[\]]{1,16}?)\s*[)\]]\s*$")
_QUANTILE = re.compile(rf"^(?P<stem>.*?)[_/. ]?(?P<end>{'|'.join((*QUANTILES, *MEANS))})$")
_UNIT_SUFFIXES = {"_ms": "ms", "_pct": "%", "_percent": "%", "_hours": "h", "_h": "h", "_min": "min", "_kwh": "kWh"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a column is: one of NAMES, or `family.word`, or `stem|quantile`; `unit` of numbers without one."""

    name: str
    kind: str
    unit: str = ""

    @property
    def family(self) -> str:
        """The family of a name with a dot, else ""."""
        return self.name.partition(".")[0] if "." in self.name else ""


def known_column(name: str, unit: str = "") -> Column | None:
    """The column of a name that a user gave, or None where there is no such name."""
    if name in NAMES:
        return Column(name=name, kind=NAMES[name].kind, unit=unit or NAMES[name].unit)
    family, _, word = name.partition(".")
    if family in FAMILIES and word:
        return Column(name=name, kind=FAMILIES[family], unit=unit)
    if "|" in name and name.partition("|")[2] in (*QUANTILES, *MEANS):
        return Column(name=name, kind=ANY, unit=unit)
    return None


def read_heading(heading: str) -> tuple[str, str]:
    """A heading in one form (lower case, words joined by `_`) and the unit that it names, or ""."""
    text = re.sub(r"\[\^[^\]]*\]|[*`]", "", heading).strip()
    unit = ""
    if match := _UNIT_AT_END.search(text):
        unit, text = match["unit"], text[: match.start()]
    elif "%" in text:
        unit = "%"
    plain = re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_")
    return plain, unit


def guessed_column(heading: str) -> Column | None:
    """The column that a heading means by itself, or None."""
    plain, unit = read_heading(heading)
    if plain in ("hours", "hrs"):
        return known_column("wall_s", "h")
    for suffix, of in _UNIT_SUFFIXES.items():
        if not unit and plain not in _BY_HEADING and plain.removesuffix(suffix) in _BY_HEADING:
            plain, unit = plain.removesuffix(suffix), of
    if plain in _BY_HEADING:
        return known_column(_BY_HEADING[plain], unit)
    match = _QUANTILE.match(plain)
    if match and match["stem"] not in ("", "timing_s"):
        return Column(name=f"{match['stem'].strip('_')}|{match['end']}", kind=ANY, unit=unit)
    return None


def guessed_columns(
    headings: Sequence[str], rows: Sequence[Sequence[str]], named: Collection[str]
) -> list[Column | None]:
    """What the headings of a table mean, taken together; `rows` are its cells, `named` what a user named."""
    plain = [read_heading(heading)[0] for heading in headings]
    found = [guessed_column(heading) for heading in headings]
    rows_are_phases = "phase" in named or any(column is not None and column.name == "phase" for column in found)
    if not rows_are_phases:
        # `Time` is the time of a phase only where rows are phases.
        found = [None if column is not None and column.name == "phase_s" else column for column in found]
    if sum(name in verl_console.PHASES for name in plain) >= 2 and "step" in plain:
        timers = {name: known_column(f"phase_s.{name}") for name in verl_console.PHASES}
        found = [timers.get(name) or column for name, column in zip(plain, found, strict=True)]
        found[plain.index("step")] = known_column("step_s")
    for place, column in enumerate(found):
        signed = any(row[place].lstrip("*_ ")[:1] in ("+", "-", "−") for row in rows)
        if column is None or column.name != "power_utilisation" or not signed:
            continue
        # As the study prints it: two levels under the placements' names, and the difference under what differs.
        found[place] = known_column("power_utilisation_gain", column.unit)
        after = next((name for name in DISAGGREGATED if name in plain), None)
        if "colocated" in plain and after is not None:
            found[plain.index("colocated")] = known_column("power_utilisation_baseline", column.unit)
            found[plain.index(after)] = known_column("power_utilisation", column.unit)
    return found
