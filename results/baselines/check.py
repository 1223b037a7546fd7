"""A check of new runs against the baseline's: per cell, a few gating measures, and what makes a run no candidate.

The statistics are `results.comparing.claims.gate`. What is added here is what a gate must not let pass unseen: a run
that stopped early, a measure that is missing, a baseline too thin to show anything.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from harness.protocol.errors import SpecError
from results.comparing.claims import GATE_RULE, Compared, Gate, GateRule, gate
from results.comparing.measures import MEASURES, Measure, RunMeasures

DEFAULT_GATES = ("step_time_s", "phase_train_s", "goodput_tokens_per_s_gpu")
LEAST_RUNS = 5  # of a baseline
LEAST_OCCASIONS = 2  # that they come from: runs of one evening share its weather
LEAST_CANDIDATES = 2  # a single run is never gated: how it would vary is not seen
OCCASION = timedelta(hours=6)  # runs that began further apart are of two occasions
MACHINE = ("cpu", "cores", "gpus", "gpu_count")  # what must be equal; driver and kernel may differ, and are listed


class Outcome(StrEnum):
    """What a check says of a cell."""

    PASSED = "passed"
    FAILED = "failed"
    UNDERPOWERED = "underpowered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCheck:
    """One cell's check. `problems` make it fail and `thin` make it underpowered, whatever its gates say.

    `candidates`, `baseline`: run ids. `left_out`: baseline runs that do not count, and why.
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


def occasions(runs: Iterable[RunMeasures]) -> int:
    """On how many occasions runs were made; those without a start on record are of no occasion."""
    read = [datetime.fromisoformat(run.started_utc) for run in runs if run.started_utc]
    starts = sorted(start if start.tzinfo else start.replace(tzinfo=UTC) for start in read)
    return bool(starts) + sum(later - earlier > OCCASION for earlier, later in pairwise(starts))


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
    problems = [f"{run.run_id}: {problem}" for run in runs for problem in (*run.problems, *_lost(run))]
    held, left_out = _baseline(runs, known)
    thin = []
    if not held:
        thin.append("the baseline has no run of this cell on such a machine: `bench baseline accept RUN --why ...`")
    elif len(held) < LEAST_RUNS:
        thin.append(f"the baseline has {len(held)} run(s) of this cell; at least {LEAST_RUNS} are needed")
    if held and (seen := occasions(held)) < LEAST_OCCASIONS:
        thin.append(f"the baseline's runs come from {seen} occasion(s); at least {LEAST_OCCASIONS} are needed")
    if len(runs) < LEAST_CANDIDATES:
        thin.append(f"{len(runs)} new run; at least {LEAST_CANDIDATES} are needed, a single one is never gated")
    for fact in MACHINE:
        if len(seen_on := sorted({str(run.machine.get(fact)) for run in runs})) > 1:
            thin.append(f"the new runs are of different machines ({fact}: {', '.join(seen_on)}): check them apart")
    usable = [run for run in runs if not run.problems]
    named, notes = _gates(gates, held, usable)
    judged: tuple[Gate, ...] = ()
    if held and usable:
        compared = [_compared(MEASURES[one], held, usable) for one in named]
        tolerances = {one: tolerance for one, tolerance in named.items() if tolerance is not None}
        judged = gate(compared, rule=rule, tolerances=tolerances)
        if not judged:
            thin.append("no measure gates")
    return CellCheck(
        cell=name,
        candidates=tuple(run.run_id for run in runs),
        baseline=tuple(run.run_id for run in held),
        occasions=occasions(held),
        gates=judged,
        problems=tuple(problems),
        thin=tuple(thin),
        left_out=tuple(left_out),
        notes=tuple(notes),
        differences=_differences(held, runs),
    )


def _baseline(runs: Sequence[RunMeasures], known: Sequence[RunMeasures]) -> tuple[list[RunMeasures], list[str]]:
    """The runs that count, and those that don't: of another machine, another granularity, or among the candidates."""
    held, left_out = [], []
    own = {run.run_id for run in runs}
    machine = {fact: {run.machine.get(fact) for run in runs} for fact in MACHINE}
    granularity = {run.granularity for run in runs if run.granularity is not None}
    for run in known:
        other = [fact for fact in MACHINE if run.machine.get(fact) not in machine[fact]]
        if run.run_id in own:
            left_out.append(f"{run.run_id}: it is checked itself")
        elif other:
            left_out.append(f"{run.run_id}: another machine ({other[0]}: {run.machine.get(other[0])})")
        elif granularity and run.granularity not in granularity:
            left_out.append(f"{run.run_id}: accounts by {run.granularity}, the new runs' by {'/'.join(granularity)}")
        elif run.problems:
            left_out.append(f"{run.run_id}: {run.problems[0]}")
        else:
            held.append(run)
    return held, left_out


def _gates(
    asked: Mapping[str, float | None] | None, held: Sequence[RunMeasures], usable: Sequence[RunMeasures]
) -> tuple[dict[str, float | None], list[str]]:
    """The gates of a cell. A default one that no baseline run has is left out, and said; one asked for never is."""
    if asked is not None:
        return dict(asked), []
    named: dict[str, float | None] = {}
    notes = []
    for name in DEFAULT_GATES:
        if held and not any(run.value(name) for run in held) and not any(run.value(name) for run in usable):
            notes.append(f"{name} does not gate: no run has it ({held[0].why(name) or 'it is 0'})")
        else:
            named[name] = None
    return named, notes


def _compared(measure: Measure, held: Sequence[RunMeasures], usable: Sequence[RunMeasures]) -> Compared:
    lacking = next((run for run in (*usable, *held) if _unknown(run.value(measure.name))), None)
    why = "" if lacking is None else f"{lacking.run_id} has none: {lacking.why(measure.name) or 'not a number'}"
    return Compared(
        measure=measure,
        a=[_finite(run.value(measure.name)) for run in held],
        b=[_finite(run.value(measure.name)) for run in usable],
        why_unknown=why,
    )


def _finite(value: float | None) -> float | None:
    return None if _unknown(value) else value


def _unknown(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _lost(run: RunMeasures) -> tuple[str, ...]:
    """On GPUs a run without a power figure lost its samples, or its sensors' trust."""
    if run.device != "cuda" or run.problems or not _unknown(run.value("power_utilisation_ratio")):
        return ()
    return (f"no power figure: {run.why('power_utilisation_ratio') or 'not a number'}",)


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
