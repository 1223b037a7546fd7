"""What a simulation found."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from results.planner.model import Scenario

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

# The conventions of staleness; `at_start` is the headline, on which a bound applies (see docs/measuring.md).
AT_FINISH = "at_finish"  # version at a trajectory's end - version at its start
AT_START = "at_start"  # version when its batch is taken - version at its start; it moves when an update has ended
AT_TAKE_MOVED = "at_take_moved"  # the same, for a version that moves already when a batch is taken
AFTER_UPDATE = "after_update"  # at_start + 1: as seen from the weights it was trained into
CONVENTIONS = (AT_FINISH, AT_START, AT_TAKE_MOVED, AFTER_UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of whole values from `least`; the last bin holds all above. `mean` is exact, None when nothing counts."""

    counts: Whole
    total: int  # the sum of the values
    least: int = 0

    @property
    def n(self) -> int:
        """How many values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return self.total / self.n + self.least if self.n else None

    def quantile(self, q: float) -> int | None:
        """The smallest value with a share `q` at or below it; None when there is none, or it is in the last bin."""
        if not self.n:
            return None
        place = int(np.searchsorted(np.cumsum(self.counts), math.ceil(q * self.n - 1e-9)))
        return place + self.least if place < len(self.counts) - 1 else None

    @property
    def shares(self) -> dict[int, float]:
        """Share of each value that occurs; the last bin under its lowest value."""
        return {int(place) + self.least: float(self.counts[place] / self.n) for place in np.flatnonzero(self.counts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Trajectories of the whole run, each counted by itself: `started` is the sum of the others.

    `trained`: taken by the trainer. `discarded`: too old when it took them. `cut`: of an over-sampled batch.
    `queued`: finished and not taken, the members of groups that are not complete among them.
    """

    started: int
    trained: int
    discarded: int
    cut: int
    in_flight: int
    queued: int

    @property
    def closes(self) -> bool:
        """Whether nothing was lost."""
        return self.started == self.trained + self.discarded + self.cut + self.in_flight + self.queued


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The first trajectories, by number (the order of their starts). Times in seconds; nan and -1: not yet."""

    start_s: Floats
    end_s: Floats
    worker: Whole
    version: Whole
    update: Whole  # that trained on it, from 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """What a scenario gave. The window runs from the end of the warm-up (else time 0) to the end.

    Attributes:
        scenario: what was simulated.
        seconds: virtual time at the end.
        window_s: length of the window.
        updates: updates that ended in the window.
        taken_s, ended_s: of every update: when its batch was taken, and when it had ended (with its weight sync,
            but in one_step_off, where that comes before the next batch). The last one taken may not have ended.
        queue: trajectories left finished when each batch was taken.
        worker_busy: share of the workers' time in the window with a trajectory; None for an empty window.
        mean_running: sequences that generated at once, mean over the window.
        staleness: a histogram for each of CONVENTIONS; of trajectories that finished, resp. were taken, in the window.
        violations: trained trajectories of the window whose at_start is beyond max_staleness; None without a bound.
        ledger: of the whole run.
        train_s, rollout_s: seconds of the window by class; each sums to window_s. Colocated: the train side's
            wait_rollout is the rollout phase.
        energy_j: joules of the window by "train.<class>" and "rollout.<class>"; None where GPUs or watts are unknown.
        unstable: finished work piles up without end: the trainer can't keep up, and nothing bounds what starts. By
            closed form where there is one (`oracles.trainer_load` above 1), else by the queue (`grows`).
        records: the first trajectories, where asked for.
    """

    scenario: Scenario
    seconds: float
    window_s: float
    updates: int
    taken_s: Floats
    ended_s: Floats
    queue: Whole
    worker_busy: float | None
    mean_running: float | None
    staleness: Mapping[str, Histogram]
    violations: int | None
    ledger: Ledger
    train_s: Mapping[str, float]
    rollout_s: Mapping[str, float]
    energy_j: Mapping[str, float | None]
    unstable: bool
    records: Records | None = field(default=None, repr=False)

    @property
    def updates_per_hour(self) -> float | None:
        """Updates that ended in the window, per hour of it: the counting rule of a horizon in seconds.

        A run that ends with an update, or has a warm-up, counts whole intervals: its long-run rate.
        """
        return 3600 * self.updates / self.window_s if self.window_s > 0 else None

    @property
    def trajectories_per_hour(self) -> float | None:
        """Trajectories of the updates that ended in the window, per hour of it."""
        rate = self.updates_per_hour
        return None if rate is None else rate * self.scenario.trajectories_per_step

    @property
    def total_energy_j(self) -> float | None:
        """Joules of the window; None where a part is unknown."""
        parts = list(self.energy_j.values())
        known = [value for value in parts if value is not None]
        return math.fsum(known) if parts and len(known) == len(parts) else None

    @property
    def energy_per_trajectory_j(self) -> float | None:
        """Joules per trained trajectory of the window."""
        total, count = self.total_energy_j, self.updates * self.scenario.trajectories_per_step
        return total / count if total is not None and count else None

    @property
    def digest(self) -> str:
        """SHA-256 of all that was found: equal on every machine, and for both ways to run the loop."""
        data = hashlib.sha256()
        for array in (self.taken_s, self.ended_s, self.queue):
            data.update(np.ascontiguousarray(array).tobytes())
        for name in sorted(self.staleness):
            data.update(self.staleness[name].counts.tobytes())
        rest = (
            self.seconds,
            self.window_s,
            self.updates,
            self.worker_busy,
            self.mean_running,
            self.violations,
            self.ledger,
            sorted(self.train_s.items()),
            sorted(self.rollout_s.items()),
            self.unstable,
        )
        data.update(repr(rest).encode())
        return data.hexdigest()


_FEWEST_BLOCKS = 5
# Quantiles of Student's t at 1 - 1e-4, by blocks (two fewer degrees of freedom).
_ERRORS = {5: 22.2, 6: 13.0, 7: 9.68, 8: 8.02, 9: 7.06, 10: 6.44}


def grows(queue: Whole, batch: int) -> bool:
    """Whether the queue left at each take rises without end: a line through the second half of the run.

    Ten block means, or at least five where there are fewer takes; the line must rise by more than a batch over that
    half, and its slope be so many standard errors from 0 that chance does it once in ten thousand (of the residuals; a
    queue that returns to empty again and again has none).
    """
    half = queue[len(queue) // 2 :]
    blocks = min(10, len(half))
    if blocks < _FEWEST_BLOCKS:
        return False
    size = len(half) // blocks
    # The newest ones, where they don't divide.
    means = half[len(half) - size * blocks :].reshape(blocks, size).mean(axis=1)
    at = np.arange(blocks) - (blocks - 1) / 2
    squares = float((at * at).sum())
    slope = float((at * means).sum()) / squares
    residuals = means - means.mean() - slope * at
    error = math.sqrt(float((residuals * residuals).sum()) / (blocks - 2) / squares)
    return slope * blocks > batch and slope > _ERRORS[blocks] * error
