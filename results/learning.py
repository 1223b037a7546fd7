"""Whether the reward rises, and how soon: reward against steps and wall clock, where the policy decides the reward.

A reward that a plan or a script decides says nothing of learning, and gives none of these figures.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from harness.protocol.spec import Load, Policy
from results.stats import t_quantile
from results.store import RunTables

LEVEL = 0.95  # of the interval of the gain
ENDS = 4  # the first and the last quarter of the steps are compared
SMOOTHED = 3  # steps whose trajectories are averaged before a level counts as reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One policy update: its batch's rewards, and when it ended, in seconds since the first step began."""

    step: int
    ended_s: float
    rewards: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean reward of the trajectories that the step trained on."""
        return math.fsum(self.rewards) / len(self.rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """The course of the reward over a run, warm-up included: learning begins with the first update."""

    points: tuple[Point, ...]
    first: float
    """Mean reward of the trajectories of the first quarter of the steps (one step at least)."""
    last: float
    """The same of the last quarter."""
    low: float | None
    """Lower end of the 95 % interval of last - first: Welch over the means of groups of one step; None: too few."""
    high: float | None
    """Upper end."""

    @property
    def gain(self) -> float:
        """How much the mean reward rose."""
        return self.last - self.first

    @property
    def rises(self) -> bool | None:
        """Whether the interval of the gain lies above 0; None where there is none."""
        return None if self.low is None else self.low > 0

    def reached(self, level: float) -> Point | None:
        """The first step from which on the mean over it and the two before it stays at `level` or above; None: none.

        For good and not for the first time: a noisy beginning may touch any level.
        """
        found: Point | None = None
        for index in reversed(range(SMOOTHED - 1, len(self.points))):
            recent = [reward for point in self.points[index - SMOOTHED + 1 : index + 1] for reward in point.rewards]
            if math.fsum(recent) / len(recent) < level:
                break
            found = self.points[index]
        return found


def decided_by_policy(run: RunTables) -> bool:
    """Whether the run's reward depends on what the policy wrote."""
    spec = run.spec
    return spec.reward == "probe" or (spec.load is Load.LIVE and spec.policy is Policy.MODEL)


def learning(run: RunTables) -> Learning | None:
    """The course of a run's reward; None where the policy does not decide it, or fewer than two steps have rewards."""
    if not decided_by_policy(run):
        return None
    by_step = _rewards(run)
    steps = run.tables["steps"].select(["step", "start_ns", "end_ns"]).sort_by("step").to_pylist()
    if not steps:
        return None
    begin_ns = min(row["start_ns"] for row in steps)
    points, groups = [], []
    for row in steps:
        if row["step"] in by_step:
            names, rewards = by_step[row["step"]]
            points.append(Point(step=row["step"], ended_s=(row["end_ns"] - begin_ns) / 1e9, rewards=tuple(rewards)))
            groups.append((names, rewards))
    if len(points) < 2:
        return None
    quarter = max(1, len(points) // ENDS)
    low, high = _gain(
        [mean for step in groups[:quarter] for mean in _group_means(*step)],
        [mean for step in groups[-quarter:] for mean in _group_means(*step)],
    )
    return Learning(
        points=tuple(points), first=_mean(points[:quarter]), last=_mean(points[-quarter:]), low=low, high=high
    )


def _mean(points: Sequence[Point]) -> float:
    rewards = [reward for point in points for reward in point.rewards]
    return math.fsum(rewards) / len(rewards)


def _rewards(run: RunTables) -> dict[int, tuple[list[str], list[float]]]:
    """Of each step, the groups and the rewards of the trajectories that it trained on; a group of one has its name."""
    lives = run.tables["trajectories"].select(["step_consumed", "group_id", "trajectory_id", "reward"])
    lives = lives.filter(pc.and_(pc.is_valid(lives["step_consumed"]), pc.is_valid(lives["reward"])))
    order = np.argsort(lives["step_consumed"].to_numpy(), kind="stable")
    lives = lives.take(order)
    alone = pc.equal(pc.fill_null(lives["group_id"], ""), "")
    names = pc.if_else(alone, lives["trajectory_id"], lives["group_id"]).to_pylist()
    rewards = lives["reward"].to_pylist()
    numbers, first = np.unique(lives["step_consumed"].to_numpy(), return_index=True)
    edges = [*first.tolist(), len(rewards)]
    return {step: (names[a:b], rewards[a:b]) for step, a, b in zip(numbers.tolist(), edges, edges[1:], strict=False)}


def _group_means(names: Sequence[str], rewards: Sequence[float]) -> list[float]:
    groups: dict[str, list[float]] = {}
    for group, reward in zip(names, rewards, strict=True):
        groups.setdefault(group, []).append(reward)
    return [math.fsum(values) / len(values) for values in groups.values()]


def _gain(first: Sequence[float], last: Sequence[float]) -> tuple[float | None, float | None]:
    """Welch's interval of the difference of two means (Welch 1947; degrees of freedom by Satterthwaite)."""
    if min(len(first), len(last)) < 3:
        return None, None
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, last)]
    difference = float(np.mean(last) - np.mean(first))
    if sum(parts) == 0:
        return difference, difference
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, last), strict=True)
    )
    half = t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(sum(parts))
    return difference - half, difference + half
