"""A cell's measures from night to night, and where they changed.

A point is an occasion: the mean over its runs, of logs for a ratio, so that one long evening counts once (and a machine
that never rests gives one a day). Candidates
for a change come from PELT (Killick, Fearnhead & Eckley 2012, J. American Statistical Association 107; `ruptures`) with
a cost of squared error and a penalty of PENALTY x variance x log n, the variance from the differences of neighbours
(robust: their median absolute value), which a step does not inflate. One is kept when a t test over the points before
and after it finds it at ALPHA and it is at least `least` large. That test's spread is pooled with the neighbours': the
two sides were chosen for their looks, and a few nights that happen to lie close together have none of their own.
"""

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.protocol.errors import EnvError, SpecError
from results.baselines.check import cell_name
from results.baselines.fit import without
from results.baselines.occasions import began, grouped
from results.comparing.alike import SIMULATED
from results.comparing.kept import load_baseline, read_measures, write_measures
from results.comparing.measures import MEASURES, Measure, RunMeasures, on_devices
from results.comparing.welch import Contrast, Noise, compare, mean_of

PENALTY = 4.0
ALPHA = 0.001
LEAST_SIDE = 3  # points on each side of a change
LEAST_POINTS = 2 * LEAST_SIDE  # of a series in which a change is looked for
LEAST_CHANGE = 0.02  # a smaller change of a ratio is not reported
_MAD = 1.4826  # of a normal distribution: standard deviation / median absolute deviation
SHOWN = (
    "step_time_s",
    "phase_train_s",
    "phase_weight_sync_s",
    "exposed_generating_s",
    "goodput_tokens_per_s_gpu",
    "joules_per_trained_trajectory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One occasion: its runs' mean, and the commits that they were of."""

    start: datetime
    value: float
    runs: tuple[str, ...]
    commits: tuple[str, ...]
    versions: tuple[str, ...]  # of the framework
    machines: tuple[str, ...]  # their CPU or GPUs, how many, and the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change between two neighbouring points. `contrast`: the points after it against those before."""

    after: Point  # the last one before the change
    before: Point  # the first one after it
    contrast: Contrast
    worse: bool | None  # None: the measure has no good direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One measure of one cell over time. `why`: why no change was looked for, where none was.

    `without`: runs that are in no point: they have no value, or 0 where ratios are taken.
    """

    cell: str
    measure: Measure
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    why: str = ""
    without: tuple[str, ...] = ()
    simulated: bool = False  # whether any run was made without a framework
    on_cpu: bool = False  # whether any other one ran on CPU


def add(folder: Path, runs: Sequence[RunMeasures]) -> int:
    """Adds runs to the series in `folder`; returns how many were new.

    Raises:
        SpecError: a file in it can't be read.
        OSError: a file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = 0
    for cell in sorted({cell_name(run) for run in runs}):
        path = folder / f"{cell}.parquet"
        kept = {run.run_id: run for run in (read_measures(path) if path.exists() else [])}
        mine = {run.run_id: run for run in runs if cell_name(run) == cell}
        new += len(set(mine) - set(kept))
        ordered = sorted({**kept, **mine}.values(), key=lambda run: (run.started_utc or "", run.run_id))
        write_measures(path, ordered)
    return new


def load(folder: Path, framework: str | None = None, placement: str | None = None) -> dict[str, list[RunMeasures]]:
    """The runs of each cell, in time; those that may not be compared are left out.

    Raises:
        SpecError: no such folder, no series in it or none of that framework and placement, or a file can't be read.
    """
    if not folder.is_dir():
        raise SpecError(f"history = {folder}: no such folder; `bench history {folder} RUN...` makes one")
    cells: dict[str, list[RunMeasures]] = {}
    for run in load_baseline(folder):
        asked = run.framework == (framework or run.framework) and run.placement == (placement or run.placement)
        if asked and run.started_utc and not run.problems:
            cells.setdefault(cell_name(run), []).append(run)
    if not cells:
        raise SpecError(f"history = {folder}: it has no usable run of {framework or 'any'} {placement or ''}".rstrip())
    return cells


def series(cell: str, runs: Iterable[RunMeasures], name: str, *, least: float = LEAST_CHANGE) -> Series:
    """One measure's points and changes.

    Raises:
        SpecError: there is no such measure.
        EnvError: the library that looks for changes is not installed.
    """
    if name not in MEASURES:
        raise SpecError(f"measure = {name}: allowed is one of {', '.join(MEASURES)}")
    held = list(runs)
    measure = on_devices(MEASURES[name], [run.device for run in held])
    points = _points(held, measure)
    within = {run for point in points for run in point.runs}
    without = tuple(run.run_id for run in held if run.run_id not in within)
    simulated = any(run.framework == SIMULATED for run in held)
    on_cpu = any(run.device == "cpu" and run.framework != SIMULATED for run in held)
    why = ""
    if len(points) < LEAST_POINTS:
        why = f"{len(points)} occasion(s) with a value; changes are looked for from {LEAST_POINTS}"
    return Series(
        cell=cell,
        measure=measure,
        points=points,
        changes=() if why else tuple(_changes(points, measure, least)),
        why=why,
        without=without,
        simulated=simulated,
        on_cpu=on_cpu,
    )


def _points(runs: Iterable[RunMeasures], measure: Measure) -> tuple[Point, ...]:
    made = []
    for group in grouped(runs):
        of = [run for run in group if not without(run, measure)]
        value = mean_of([run.value(measure.name) for run in of], measure.kind)
        start = began(group[0])
        if value is None or start is None:
            continue
        made.append(
            Point(
                start=start,
                value=value,
                runs=tuple(run.run_id for run in of),
                commits=tuple(dict.fromkeys(run.commit for run in of if run.commit)),
                versions=tuple(dict.fromkeys(run.framework_version for run in of if run.framework_version)),
                machines=tuple(dict.fromkeys(_machine(run) for run in of)),
            )
        )
    return tuple(made)


def _changes(points: Sequence[Point], measure: Measure, least: float) -> list[Change]:
    scaled = np.array([math.log(p.value) if measure.kind == "ratio" else p.value for p in points], dtype=np.float64)
    spread = _spread(scaled)
    noise = Noise(kind=measure.kind, sd=spread, n=len(points) // 2)  # neighbours' differences share points
    edges = [0, *_breaks(scaled, spread), len(points)]
    kept = [0]
    for (_, middle_), (_, end) in pairwise(pairwise(edges)):
        before = [p.value for p in points[kept[-1] : middle_]]
        after = [p.value for p in points[middle_:end]]
        found = compare(before, after, measure.kind, noise=noise)
        if (
            found is not None
            and found.p is not None
            and found.p <= ALPHA
            and abs(found.effect) >= _least(measure, least)
        ):
            kept.append(middle_)
    # Again over the segments that are left: what lies between two kept changes is one level.
    made = []
    for (begin, middle_), (_, end) in pairwise(pairwise([*kept, len(points)])):
        before, after = ([p.value for p in points[low:high]] for low, high in ((begin, middle_), (middle_, end)))
        found = compare(before, after, measure.kind, noise=noise)
        if found is None or found.p is None or found.p > ALPHA or abs(found.effect) < _least(measure, least):
            continue
        up = found.effect > 0
        worse = None if measure.direction == "none" else up == (measure.direction == "lower")
        made.append(Change(after=points[middle_ - 1], before=points[middle_], contrast=found, worse=worse))
    return made


def _spread(values: npt.NDArray[np.float64]) -> float:
    gaps = np.diff(values)
    return (float(np.median(np.abs(gaps))) * _MAD or float(np.std(gaps))) / math.sqrt(2)


def _breaks(values: npt.NDArray[np.float64], spread: float) -> list[int]:
    try:
        ruptures: Any = importlib.import_module("ruptures")
    except ImportError:
        raise EnvError(
            "looking for changes needs ruptures: pip install 'agentic-rl-bench[history]' (the series is kept)"
        ) from None
    if spread == 0:
        return []
    penalty = PENALTY * spread**2 * math.log(len(values))
    found: list[int] = (
        ruptures.Pelt(model="l2", min_size=LEAST_SIDE, jump=1).fit(values.reshape(-1, 1)).predict(pen=penalty)
    )
    return found[:-1]


def _least(measure: Measure, least: float) -> float:
    return math.log1p(least) if measure.kind == "ratio" else least


def _machine(run: RunMeasures) -> str:
    facts = ("gpus", "gpu_count", "driver") if run.device == "cuda" else ("cpu", "cores")
    return ", ".join(run.machine.get(fact) or f"{fact} unknown" for fact in facts)
