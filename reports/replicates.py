"""Runs as replicates: what one run of a sweep showed, the runs of one cell together, and intervals over runs."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from harness.sweep.folder import FINISHED, Outcome, SweepFolder
from harness.sweep.plan import POOLED, Cell
from reports.case import Case
from reports.consumed import Consumed, consumed
from results.adherence import Adherence, consumed_digest
from results.metrics import Figure
from results.staleness import Staleness
from results.stats import CONFIDENCE, t_quantile
from results.store import RunTables
from results.sync_proof import SyncProof

# Two runs that differ in these are still replicates of one cell: the limits and the cadence of watching change no work.
NOT_OF_A_CELL = (POOLED, "timeout", "sample_hz", "dcgm")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverRuns:
    """A figure over runs, in its own unit. No interval for fewer than 2 runs; `why` says what is missing."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    why: str = ""


def log_mean(values: Sequence[float | None], why: str = "not known") -> OverRuns:
    """Geometric mean of the known values, with the t interval of the mean of their logs (n - 1 degrees of freedom).

    Runs are independent, so no autocorrelation enters. Where a value is 0 or less there is no log: the arithmetic
    mean without an interval.
    """
    known = [value for value in values if value is not None]
    if not known:
        return OverRuns(value=None, n=0, why=why)
    if min(known) <= 0:
        none = "a run has a value of 0: no mean of logs, no interval"
        return OverRuns(value=sum(known) / len(known), n=len(known), why=none)
    logs = [math.log(value) for value in known]
    middle, half = _mean_and_half(logs)
    if half is None:
        return OverRuns(value=known[0], n=1)
    return OverRuns(value=math.exp(middle), n=len(known), low=math.exp(middle - half), high=math.exp(middle + half))


def plain_mean(values: Sequence[float | None], why: str = "not known") -> OverRuns:
    """Arithmetic mean with its t interval, for figures that may well be 0 (staleness)."""
    known = [value for value in values if value is not None]
    if not known:
        return OverRuns(value=None, n=0, why=why)
    middle, half = _mean_and_half(known)
    if half is None:
        return OverRuns(value=middle, n=1)
    return OverRuns(value=middle, n=len(known), low=middle - half, high=middle + half)


def _mean_and_half(values: Sequence[float]) -> tuple[float, float | None]:
    n = len(values)
    middle = sum(values) / n
    if n < 2:
        return middle, None
    spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (n - 1))
    return middle, t_quantile((1 + CONFIDENCE) / 2, n - 1) * spread / math.sqrt(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a finished run showed, without its tables: a sweep has more runs than fit into memory.

    `run` has spec and meta, and no table. `phases`: seconds of the window per phase, in the order of a step.
    """

    run: RunTables
    figures: dict[str, Figure]
    steps: int
    no_window: str
    not_steady: tuple[str, ...]
    phases: dict[str, float]
    granularity: str | None
    covered: bool | None
    adherence: Adherence
    staleness: Staleness  # of the whole run
    proof: SyncProof
    work: Consumed
    digest: str | None
    spoiled: str | None  # why its numbers are left out: not alone on its GPUs

    @classmethod
    def load(cls, run_dir: Path) -> "Seen":
        """Loads a run and its figures; collects it first where that was not done.

        Raises:
            SpecError: the folder, its spec or its tables cannot be read.
        """
        case = Case.load(run_dir)
        found, run = case.figures, case.run
        return cls(
            run=replace(run, tables={}),
            figures=dict(found.figures),
            steps=found.window.steps if found.window else 0,
            no_window="" if found.window else case.no_window,
            not_steady=found.window.not_steady if found.window else (),
            phases=dict(case.phase_seconds()),
            granularity=found.account.granularity if found.account else None,
            covered=found.account.covered if found.account else None,
            adherence=found.adherence,
            staleness=found.staleness_run,
            proof=found.sync_proof,
            work=consumed(run, case.steps),
            digest=consumed_digest(run, case.steps),
            spoiled=case.spoiled,
        )

    def value(self, metric: str) -> float | None:
        """A figure's value; None when it is not known or there is none of that name."""
        figure = self.figures.get(metric)
        return None if figure is None else figure.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One entry of the plan with what came of it. `seen` is None unless its run finished and could be read."""

    number: int
    round: int
    cell: Cell
    outcome: Outcome
    seen: Seen | None
    unread: str = ""

    @property
    def why(self) -> str:
        """Why there is nothing to see."""
        return self.unread or self.outcome.reason.partition("\n")[0] or self.outcome.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One cell of the report: all runs whose specs are equal but for the seed."""

    label: str
    variant: str  # what else than framework and placement names it
    framework: str
    placement: str
    attempts: tuple[Attempt, ...]
    refused: str | None

    @property
    def seen(self) -> list[Seen]:
        """Its finished runs."""
        return [attempt.seen for attempt in self.attempts if attempt.seen is not None]

    @property
    def planned_seeds(self) -> list[int]:
        """The seed of every planned run, sorted."""
        return sorted(attempt.cell.spec.seed for attempt in self.attempts if attempt.cell.spec is not None)

    @property
    def missing_seeds(self) -> list[int]:
        """Seeds that were planned and of which no run can be seen."""
        have = {seen.run.spec.seed for seen in self.seen}
        return sorted(set(self.planned_seeds) - have)

    def over(self, metric: str) -> OverRuns:
        """The log mean of a figure over the finished runs."""
        why = next((f.note for s in self.seen if (f := s.figures.get(metric)) and f.value is None and f.note), None)
        return log_mean([seen.value(metric) for seen in self.seen], why or self.nothing)

    @property
    def nothing(self) -> str:
        """Why no run can be seen."""
        if self.refused:
            return self.refused
        failed = [attempt.why for attempt in self.attempts if attempt.seen is None]
        return failed[0] if failed else "not known"


def attempts(folder: SweepFolder) -> list[Attempt]:
    """Every planned run, in the plan's order; one whose folder is gone or unreadable says so."""
    found = []
    for entry, outcome in zip(folder.plan.entries, folder.state(), strict=True):
        cell = folder.plan.cells[entry.cell]
        seen, unread = None, ""
        if outcome.status == FINISHED:
            seen, unread = _load(outcome.run_dir, cell.spec)
        found.append(
            Attempt(number=entry.number, round=entry.round, cell=cell, outcome=outcome, seen=seen, unread=unread)
        )
    return found


def pools(folder: SweepFolder, tried: Sequence[Attempt]) -> list[Pool]:
    """The cells of the report, in the plan's order; refused ones among them."""
    keyed: dict[object, list[Cell]] = {}
    for cell in folder.plan.cells:
        keyed.setdefault(_key(cell), []).append(cell)
    made = []
    for cells in keyed.values():
        label = re.sub(rf"\s{POOLED}=\S+", "", cells[0].label)
        numbers = {cell.number for cell in cells}
        made.append(
            Pool(
                label=label,
                variant=label.removeprefix(f"{cells[0].framework} {cells[0].placement}").strip(),
                framework=cells[0].framework,
                placement=cells[0].placement,
                attempts=tuple(attempt for attempt in tried if attempt.cell.number in numbers),
                refused=cells[0].refused,
            )
        )
    return made


def together(work: Sequence[Consumed]) -> Consumed:
    """Consumed work of several runs: per trained trajectory of all of them."""
    total = sum(each.trajectories for each in work)

    def mean(name: str) -> float | None:
        known = [(getattr(each, name), each.trajectories) for each in work if each.trajectories]
        if not known or any(value is None for value, _ in known):
            return None
        return float(sum(value * count for value, count in known)) / total

    return Consumed(
        trajectories=total,
        generated_tokens=mean("generated_tokens"),
        observation_tokens=mean("observation_tokens"),
        tool_calls=mean("tool_calls"),
        tool_s=mean("tool_s"),
    )


def _load(run_dir: Path | None, planned: RunSpec | None) -> tuple[Seen | None, str]:
    if run_dir is None or not run_dir.is_dir():
        return None, "its run folder is gone"
    try:
        seen = Seen.load(run_dir)
    except SpecError as error:
        return None, str(error)
    if planned is None or seen.run.spec.spec_digest != planned.spec_digest:
        return None, f"{run_dir.name} is a run of another spec than planned"
    if seen.spoiled:
        return None, seen.spoiled
    return seen, ""


def _key(cell: Cell) -> object:
    if cell.spec is None:
        return str({key: value for key, value in cell.asked.items() if key not in NOT_OF_A_CELL})
    return str({key: value for key, value in asdict(cell.spec).items() if key not in NOT_OF_A_CELL})
