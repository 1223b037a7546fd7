"""Identities that one row of a published table has to keep by itself."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from results.lint import energy_identities, identities
from results.lint.check import Check
from results.lint.findings import Linted
from results.lint.given import Given, gpu_peak
from results.lint.names import ANY, ENERGY, FAMILIES, MEANS, NAMES, POWER, QUANTILES, RATIO
from results.lint.quantity import Quantity

Figures = Mapping[str, Quantity]
_LEDGER_IN = ("open_at_start", "added")
_LEDGER_OUT = ("trained", "dropped", "failed", "in_flight", "queued")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row with its figures, and its labels as text."""

    row: str
    line: int | None
    figures: Figures
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rule:
    """An identity of one row; it is tried where `stated` is there, and says what else it needs where that is not."""

    identity: str
    stated: str
    others: tuple[str, ...]
    make: Callable[[Figures, float], Check]


RULES: tuple[_Rule, ...] = (
    _Rule(
        "tokens_rate",
        "tokens",
        ("tokens_per_s_gpu", "gpus", "wall_s"),
        lambda q, s: identities.tokens_rate(q["tokens"], q["tokens_per_s_gpu"], q["gpus"], q["wall_s"], slack=s),
    ),
    _Rule(
        "tokens_rate",
        "tokens_per_step",
        ("tokens_per_s_gpu", "gpus", "step_s"),
        lambda q, s: identities.tokens_rate(
            q["tokens_per_step"], q["tokens_per_s_gpu"], q["gpus"], q["step_s"], slack=s
        ),
    ),
    _Rule(
        "rate_per_gpu",
        "tokens_per_s",
        ("tokens_per_s_gpu", "gpus"),
        lambda q, s: identities.rate_per_gpu(q["tokens_per_s"], q["tokens_per_s_gpu"], q["gpus"], slack=s),
    ),
    _Rule(
        "power_within_limit",
        "watts",
        ("limit_watts",),
        lambda q, s: energy_identities.power_within_limit(q["watts"], q["limit_watts"]),
    ),
    _Rule(
        "power_utilisation",
        "power_utilisation",
        ("watts", "limit_watts"),
        lambda q, s: energy_identities.power_utilisation(q["power_utilisation"], q["watts"], q["limit_watts"], slack=s),
    ),
    _Rule(
        "energy_is_power",
        "joules",
        ("watts", "gpus", "wall_s"),
        lambda q, s: energy_identities.energy_is_power(q["joules"], q["watts"], q["gpus"], q["wall_s"], slack=s),
    ),
    _Rule(
        "energy_is_power",
        "joules_per_step",
        ("watts", "gpus", "step_s"),
        lambda q, s: energy_identities.energy_is_power(
            q["joules_per_step"], q["watts"], q["gpus"], q["step_s"], slack=s
        ),
    ),
    _Rule(
        "steps_time",
        "window_s",
        ("steps", "step_s"),
        lambda q, s: identities.steps_time(q["window_s"], q["steps"], q["step_s"], slack=s),
    ),
    _Rule(
        "leaves_within_wall",
        "wall_s",
        ("steps", "step_s"),
        lambda q, s: identities.leaves_within_wall([q["steps"] * q["step_s"]], q["wall_s"]),
    ),
    _Rule(
        "difference",
        "power_utilisation_gain",
        ("power_utilisation_baseline", "power_utilisation"),
        lambda q, s: identities.difference(
            q["power_utilisation_gain"],
            q["power_utilisation_baseline"],
            q["power_utilisation"],
            "power utilisation",
            "ratio",
        ),
    ),
    _Rule(
        "staleness_within_bound",
        "staleness_max",
        ("staleness_bound",),
        lambda q, s: identities.staleness_within_bound(q["staleness_max"], q["staleness_bound"]),
    ),
    _Rule(
        "ordered",
        "staleness_mean",
        ("staleness_max",),
        lambda q, s: identities.ordered([("mean", q["staleness_mean"]), ("max", q["staleness_max"])], "version")[0],
    ),
    _Rule("start_before_end", "start", ("end",), lambda q, s: identities.start_before_end(q["start"], q["end"], "")),
    _Rule(
        "gpu_hours",
        "gpu_hours",
        ("gpus", "wall_s"),
        lambda q, s: identities.gpu_hours(q["gpu_hours"], q["gpus"], q["wall_s"], slack=s),
    ),
)


def check_row(linted: Linted, line: Line, given: Given) -> None:
    """All that one row says alone."""
    q = line.figures
    for rule in RULES:
        if rule.stated not in q:
            continue
        lacking = [name for name in rule.others if name not in q]
        if lacking:
            linted.unchecked(rule.identity, line.row, f"{rule.stated} is there, {', '.join(lacking)} is not", line.line)
        else:
            linted.check(rule.make(q, given.slack), line.row, line.line)
    for name in ("idle", "utilisation", "share", "power_utilisation", "power_utilisation_baseline"):
        if name in q:
            most = energy_identities.POWER_SLACK if name.startswith("power") else 1.0
            linted.check(identities.share_in_unit(q[name], name, most=most), line.row, line.line)
    for name, value in q.items():
        family = name.partition(".")[0]
        if family in ("share", "phase_share") and "." in name:
            linted.check(identities.share_in_unit(value, name), line.row, line.line)
        kind = FAMILIES.get(family) if "." in name else (NAMES[name].kind if name in NAMES else None)
        if kind not in (None, RATIO, ANY):
            linted.check(identities.count_not_negative(value, name), line.row, line.line)
    for name, value in q.items():
        kind = NAMES[name].kind if name in NAMES else None
        if kind in (POWER, ENERGY) and value.value == 0:
            said = f"{name} is exactly 0, which no GPU draws: what some tools write where a sensor is missing"
            linted.implied("not_blank", line.row, said, value, line=line.line)
    _flops(linted, line, given)
    _families(linted, line)
    _ledger(linted, line)
    linted.check_all(_quantiles(q), line.row, line.line)


def _flops(linted: Linted, line: Line, given: Given) -> None:
    q = line.figures
    gpu = line.labels.get("gpu") or given.gpu
    peak = None if gpu is None else gpu_peak(gpu)
    if "mfu" in q:
        linted.check(identities.mfu_below_one(q["mfu"], gpu), line.row, line.line)
        linted.check(identities.count_not_negative(q["mfu"], "MFU"), line.row, line.line)
    if "tflops_per_gpu" not in q:
        return
    if gpu is None or peak is None:
        why = "no GPU is named (--gpu)" if gpu is None else f"the dense peak of {gpu} is not in the table"
        linted.unchecked("flops_below_peak", line.row, why, line.line)
        return
    linted.check(identities.flops_below_peak(q["tflops_per_gpu"], peak, gpu), line.row, line.line)
    if "mfu" in q:
        check = identities.mfu_of_flops(q["mfu"], q["tflops_per_gpu"], peak, gpu, slack=given.slack)
        linted.check(check, line.row, line.line)


def _families(linted: Linted, line: Line) -> None:
    q = line.figures

    def of(family: str) -> list[Quantity]:
        return [value for name, value in q.items() if name.startswith(f"{family}.")]

    for family, whole, make in (
        ("phase_s", "step_s", identities.phases_within_step),
        ("leaf_s", "wall_s", identities.leaves_within_wall),
    ):
        if parts := of(family):
            if whole in q:
                linted.check(make(parts, q[whole]), line.row, line.line)
            else:
                identity = "phases_within_step" if family == "phase_s" else "leaves_within_wall"
                linted.unchecked(identity, line.row, f"{family}.* are there, {whole} is not", line.line)
    for family in ("share", "phase_share"):
        if len(shares := of(family)) > 1:
            linted.check(identities.shares_within_one(shares), line.row, line.line)
    for name, share in q.items():
        family, _, word = name.partition(".")
        if family == "phase_share" and f"phase_s.{word}" in q and "step_s" in q:
            check = identities.share_of_whole(share, q[f"phase_s.{word}"], q["step_s"], word)
            linted.check(check, line.row, line.line)


def _ledger(linted: Linted, line: Line) -> None:
    q = line.figures
    if not any(name in q for name in _LEDGER_OUT) or not any(name in q for name in _LEDGER_IN):
        return
    lacking = [name for name in (*_LEDGER_IN, *_LEDGER_OUT) if name not in q]
    if lacking:
        linted.unchecked("ledger_closes", line.row, f"not in the table: {', '.join(lacking)}", line.line)
        return
    came, went = {name: q[name] for name in _LEDGER_IN}, {name: q[name] for name in _LEDGER_OUT}
    linted.check(identities.ledger_closes(came, went, ""), line.row, line.line)


def _quantiles(q: Figures) -> Iterator[Check]:
    """Neighbouring quantiles of each stem, and its mean between its ends."""
    stems: dict[str, dict[str, Quantity]] = {}
    for name, value in q.items():
        stem, bar, end = name.partition("|")
        if bar:
            stems.setdefault(stem, {})["p50" if end == "median" else end] = value
    for stem, found in stems.items():
        told = [(f"{stem} {end}", found[end]) for end in QUANTILES if end in found]
        yield from identities.ordered(told)
        for mean in MEANS:
            ends = [(f"{stem} {end}", found[end]) for end in ("min", mean, "max") if end in found]
            if mean in found and len(ends) > 1:
                yield from identities.ordered(ends)
