"""One simulation's figures, and many of them, on all cores: how they are spread changes nothing in them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from harness.protocol.errors import SpecError
from results.planner import draws
from results.planner.calibration.constants import Calibration
from results.planner.candidates import Candidate, Shares, predict
from results.planner.model import Composed
from results.planner.result import AT_START, Result
from results.spread import Progress, cores, spread, told

WORTH_SPREADING = 300  # simulations; fewer are done before other processes have begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One candidate at one place of every range."""

    candidate: Candidate
    shares: Shares
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one simulation's window. Seconds of a step; shares of trained work; joules a trajectory or None."""

    step_s: float
    late_share: float  # of trajectories, trained beyond the bound
    late_tokens: float  # of tokens: long trajectories are late more often
    staleness: float
    joules: float | None
    worker_busy: float
    waiting: float  # of the train side's time, for data
    syncing: float


def outcome(calibration: Calibration, task: Task, updates: int) -> Outcome:
    """Simulates one task."""
    found = predict(calibration, task.candidate, task.shares, updates=updates, seed=task.seed, recorded=True)
    trained = found.updates * calibration.trajectories
    total = math.fsum(found.train_s.values())
    late = found.violations or 0
    return Outcome(
        step_s=found.window_s / max(found.updates, 1),
        late_share=late / trained if trained else 0.0,
        late_tokens=_late_tokens(found) if late else 0.0,
        staleness=found.staleness[AT_START].mean or 0.0,
        joules=found.energy_per_trajectory_j,
        worker_busy=found.worker_busy or 0.0,
        waiting=found.train_s["wait_rollout"] / total if total else 0.0,
        syncing=found.train_s["weight_sync"] / total if total else 0.0,
    )


def _late_tokens(found: Result) -> float:
    """Share of the window's trained tokens that are beyond the bound.

    A trajectory's tokens are in proportion to what it would generate alone, which is drawn by its number.
    """
    scenario, records = found.scenario, found.records
    assert records is not None
    assert isinstance(scenario.durations, Composed)
    count = len(records.update)
    turns, flat = draws.durations(scenario.durations, scenario.seed, 0, count)
    own = flat.reshape(count, -1)[:, ::2]
    made = np.where(np.arange(own.shape[1]) < turns[:, None], own, 0.0).sum(axis=1)
    used = records.update > scenario.warmup_updates
    late = used & (records.update - 1 - records.version > (scenario.policy.max_staleness or 0))
    return float(made[late].sum() / made[used].sum())


def outcomes(
    calibration: Calibration,
    tasks: Sequence[Task],
    updates: int,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """An outcome for each task, in their order.

    Args:
        calibration: what all are predicted from.
        tasks: candidates at places of the ranges.
        updates: simulated in each.
        jobs: processes; all cores when None, where there is enough to do.
        progress: is told how many are done.

    Raises:
        SpecError: jobs below 1.
    """
    if jobs is not None and jobs < 1:
        raise SpecError(f"jobs = {jobs}: allowed is 1 and more")
    workers = min(jobs or cores(), len(tasks))
    if workers <= 1 or (jobs is None and len(tasks) < WORTH_SPREADING):
        return told((outcome(calibration, task, updates) for task in tasks), len(tasks), progress)
    at_once = max(1, min(16, len(tasks) // (4 * workers)))
    begin = partial(_begin, calibration, updates)
    return told(spread(_one, tasks, workers, at_once=at_once, begin=begin), len(tasks), progress)


_given: list[tuple[Calibration, int]] = []  # in a process of the pool: what all its tasks share


def _begin(calibration: Calibration, updates: int) -> None:
    _given.append((calibration, updates))


def _one(task: Task) -> Outcome:
    calibration, updates = _given[-1]
    return outcome(calibration, task, updates)
