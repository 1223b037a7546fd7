"""A check of new runs against the baseline's: per cell, a few gating measures, and what makes a run no candidate.

The statistics are `results.comparing.claims.gate`, of contrasts in which occasions vary too (`between`). What is added
here is what a gate must not let pass unseen: a run that stopped early or did other work, a measure that is missing, a
baseline too thin to show anything, new runs that are a mixture.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.protocol.errors import SpecError
from results.baselines.between import Spread, over_occasions
from results.baselines.fit import DEFAULT_GATES, baseline_of, doubts, mixed, unfit, unknown, without
from results.baselines.occasions import began, grouped, occasions
from results.baselines.work import work_differs
from results.comparing.claims import GATE_RULE, Compared, Gate, GateRule, gate
from results.comparing.measures import MEASURES, Measure, RunMeasures, on_devices

LEAST_RUNS = 5  # of a baseline
LEAST_OCCASIONS = 2  # that they come from: runs of one evening share its weather
LEAST_CANDIDATES = 2  # a single run is never gated: how it would vary is not seen


class Outcome(StrEnum):
    """What a check says of a cell."""

    PASSED = "passed"
    FAILED = "failed"
    UNDERPOWERED = "underpowered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCheck:
    """One cell's check. `problems` make it fail and `thin` make it underpowered, whatever its gates say.

    `candidates`, `baseline`: run ids. `left_out`: baseline runs that do not count, for all or for one measure, and why.
    `tolerances`: of each gate, a share for a ratio, else in the measure's unit. `spreads`: how runs vary between
    occasions and within one, by measure, where the baseline has occasions enough to tell.
    """

    cell: str
    candidates: tuple[str, ...]
    baseline: tuple[str, ...]
    occasions: int
    gates: tuple[Gate, ...]
    problems: tuple[str, ...]
    thin: tuple[str, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]  # what runs say of themselves that no number shows
    tolerances: Mapping[str, float]
    spreads: Mapping[str, Spread]
    differences: tuple[str, ...]  # versions and machine facts in which candidates and baseline differ

    @property
    def outcome(self) -> Outcome:
        """Failed before underpowered: a regression that was seen stays one."""
        if self.problems or any(one.failed for one in self.gates):
            return Outcome.FAILED
        if self.thin or any(one.underpowered for one in self.gates):
            return Outcome.UNDERPOWERED
        return Outcome.PASSED


def cell_name(run: RunMeasures) -> str:
    """The name of a run's cell: what runs must share to be held against each other."""
    return f"{run.framework}-{run.placement}-{run.spec_digest[:12]}"


def gates_named(words: Sequence[str]) -> dict[str, float | None]:
    """`NAME` or `NAME=PERCENT%` -> measure and its own tolerance as a share (or in the unit of a difference).

    Raises:
        SpecError: no such measure, one that can't gate, a tolerance that is none, or too many.
    """
    named: dict[str, float | None] = {}
    able = [name for name, measure in MEASURES.items() if measure.direction != "none"]
    for word in words:
        name, given, text = word.partition("=")
        if name not in MEASURES:
            raise SpecError(f"gate = {name}: no such measure; those that can gate are {', '.join(able)}")
        if name not in able:
            raise SpecError(f"gate = {name}: more of it is neither better nor worse; can gate: {', '.join(able)}")
        named[name] = _tolerance(word, text, MEASURES[name]) if given else None
    if len(named) > GATE_RULE.most_measures:
        raise SpecError(
            f"gate: {len(named)} measures; at most {GATE_RULE.most_measures} may gate, or what is found is found less"
        )
    return named


def check(
    candidates: Sequence[RunMeasures],
    baseline: Sequence[RunMeasures],
    gates: Mapping[str, float | None] | None = None,
    rule: GateRule = GATE_RULE,
) -> tuple[CellCheck, ...]:
    """Each cell of the candidates against the baseline's runs of the same cell. A run that is named twice is one.

    `gates`: measures and their tolerances; DEFAULT_GATES without. The error rate of `rule` is of the whole check: it
    is shared out evenly among its cells.

    Raises:
        SpecError: there is no candidate.
    """
    cells: dict[str, list[RunMeasures]] = {}
    for run in {run.run_id: run for run in candidates}.values():
        cells.setdefault(cell_name(run), []).append(run)
    if not cells:
        raise SpecError("check: no run was named")
    shared = replace(rule, alpha=rule.alpha / len(cells))
    by_cell: dict[str, list[RunMeasures]] = {}
    for run in baseline:
        by_cell.setdefault(cell_name(run), []).append(run)
    return tuple(_cell(name, runs, by_cell.get(name, []), gates, shared) for name, runs in sorted(cells.items()))


def _cell(
    name: str,
    runs: Sequence[RunMeasures],
    known: Sequence[RunMeasures],
    gates: Mapping[str, float | None] | None,
    rule: GateRule,
) -> CellCheck:
    problems = [f"{run.run_id}: {reason}" for run in runs for reason in unfit(run)]
    held, left_out = baseline_of(runs, known)
    usable = [run for run in runs if not run.problems]
    shown, seen = work_differs(held, [run for run in runs if not unfit(run)])
    thin = _thin(held, runs)
    named, notes = _gates(gates, held, usable)
    compared: list[Compared] = []
    spreads: dict[str, Spread] = {}
    devices = [run.device for run in (*held, *usable)]
    for measure in (on_devices(MEASURES[one], devices) for one in named) if held and usable else ():
        good, lacking = _with(held, measure)
        left_out += lacking
        weak = _weak(measure, good, usable, lost=bool(lacking))
        thin += weak
        missing = any(unknown(run.value(measure.name)) for run in usable)  # fails, whatever the baseline has
        if (good or missing) and not any(_vanished(run, measure) for run in usable):
            material, spread = _compared(measure, good, usable, rule.alpha / len(named))
            compared.append(material)
            if spread is not None:
                spreads[measure.name] = spread
    tolerances = {one: rule.tolerance if given is None else given for one, given in named.items()}
    judged = gate(compared, rule=rule, tolerances=tolerances)
    if held and usable and not judged:
        thin.append("no measure gates")
    return CellCheck(
        cell=name,
        candidates=tuple(run.run_id for run in runs),
        baseline=tuple(run.run_id for run in held),
        occasions=occasions(held),
        gates=judged,
        problems=(*problems, *shown),
        thin=tuple(thin),
        left_out=tuple(left_out),
        notes=tuple(notes),
        doubts=(*seen, *doubts(runs, held)),
        tolerances=tolerances,
        spreads=spreads,
        differences=_differences(held, runs),
    )


def _thin(held: Sequence[RunMeasures], runs: Sequence[RunMeasures]) -> list[str]:
    """What leaves the whole cell undecided."""
    thin = []
    if not held:
        thin.append("the baseline has no run of this cell on such a machine: `bench baseline accept RUN --why ...`")
    elif len(held) < LEAST_RUNS:
        thin.append(f"the baseline has {len(held)} run(s) of this cell; at least {LEAST_RUNS} are needed")
    if held and (seen := occasions(held)) < LEAST_OCCASIONS:
        thin.append(f"the baseline's runs come from {seen} occasion(s); at least {LEAST_OCCASIONS} are needed")
    if len(runs) < LEAST_CANDIDATES:
        thin.append(f"{len(runs)} new run; at least {LEAST_CANDIDATES} are needed, a single one is never gated")
    return [*thin, *mixed(runs)]


def _with(held: Sequence[RunMeasures], measure: Measure) -> tuple[list[RunMeasures], list[str]]:
    """The baseline's runs that have a measure, and those that are left out of its test."""
    why = {run.run_id: without(run, measure) for run in held}
    good = [run for run in held if not why[run.run_id]]
    return good, [f"{run_id}, for {measure.name}: {reason}" for run_id, reason in why.items() if reason]


def _weak(measure: Measure, good: Sequence[RunMeasures], usable: Sequence[RunMeasures], *, lost: bool) -> list[str]:
    """What leaves one measure undecided: too few baseline runs have it, or new ones have 0 of what should be low."""
    said = []
    if lost and len(good) < LEAST_RUNS:
        said.append(f"{len(good)} baseline run(s) can be judged by {measure.name}; at least {LEAST_RUNS} are needed")
    elif lost and (seen := occasions(good)) < LEAST_OCCASIONS:
        said.append(f"baseline runs with {measure.name} come from {seen} occasion(s); {LEAST_OCCASIONS} are needed")
    if none := [run.run_id for run in usable if _vanished(run, measure)]:
        said.append(
            f"{measure.name} is 0 in {', '.join(none)}: less than ever, or no longer measured; no ratio tells which"
        )
    return said


def _vanished(run: RunMeasures, measure: Measure) -> bool:
    """Whether there is nothing of what should be low: no worsening, and no ratio either."""
    return measure.kind == "ratio" and measure.direction == "lower" and run.value(measure.name) == 0


def _gates(
    asked: Mapping[str, float | None] | None, held: Sequence[RunMeasures], usable: Sequence[RunMeasures]
) -> tuple[dict[str, float | None], list[str]]:
    """The gates of a cell. A default one that no run has is left out, and said; one asked for never is."""
    if asked is not None:
        return dict(asked), []
    named: dict[str, float | None] = {}
    notes = []
    for name in DEFAULT_GATES:
        if held and not any(run.value(name) for run in (*held, *usable)):
            notes.append(f"{name} does not gate: no run has it ({held[0].why(name) or 'it is 0'})")
        else:
            named[name] = None
    return named, notes


def _compared(
    measure: Measure, good: Sequence[RunMeasures], usable: Sequence[RunMeasures], level: float
) -> tuple[Compared, Spread | None]:
    lacking = next((f"{run.run_id} {why}" for run in usable if (why := without(run, measure))), "")
    a = [[_value(run, measure) for run in group] for group in grouped(good)]
    # A new run without a start on record is an occasion of its own: its neighbours are not known.
    alone = [[run] for run in usable if began(run) is None]
    b = [[_value(run, measure) for run in group] for group in (*grouped(usable), *alone)]
    contrast, spread = (None, None) if lacking else over_occasions(a, b, measure.kind, level)
    material = Compared(
        measure=measure,
        a=[value for group in a for value in group],
        b=[run.value(measure.name) if not unknown(run.value(measure.name)) else None for run in usable],
        contrast=contrast,
        why_unknown=lacking,
    )
    return material, spread


def _value(run: RunMeasures, measure: Measure) -> float:
    value = run.value(measure.name)
    return math.nan if value is None else value


def _differences(held: Sequence[RunMeasures], runs: Sequence[RunMeasures]) -> tuple[str, ...]:
    if not held:
        return ()
    said = []
    for title, of in (
        ("framework", lambda run: {"version": run.framework_version}),
        ("bench", lambda run: {"version": run.bench_version, "commit": run.commit}),
        ("machine", lambda run: run.machine),
        ("version of", lambda run: run.versions),
    ):
        names = sorted({name for run in (*held, *runs) for name in of(run)})
        for name in names:
            before = sorted({str(of(run).get(name)) for run in held})
            after = sorted({str(of(run).get(name)) for run in runs})
            if before != after:
                said.append(f"{title} {name}: {', '.join(before)} -> {', '.join(after)}")
    return tuple(said)


def _tolerance(word: str, text: str, measure: Measure) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < 100 or not math.isfinite(value):
        raise SpecError(f"gate = {word}: the tolerance is a number of percent, 0 to 100, as in {measure.name}=10%")
    if value / 100 >= GATE_RULE.most_detectable:
        most = f"{100 * GATE_RULE.most_detectable:g}"
        raise SpecError(
            f"gate = {word}: what lets {value:g}% pass can't show a worsening of {most}%, and would never be green;"
            f" give less than {most}%"
        )
    return value / 100
