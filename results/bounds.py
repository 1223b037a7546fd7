"""What would help, at most: how much faster a step could be without a class of its time, or with another split.

Bounds, not predictions: each assumes that what is taken away costs nothing elsewhere, and that the rest stays as it is.
"""

from dataclasses import dataclass

from harness.protocol.phases import Pool
from harness.protocol.spec import Placement, RunSpec
from results.account import Account
from results.classes import Class

# Work of training: it must be done for every step, by somebody.
WORK = (Class.TRAIN, Class.LOGPROB, Class.HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """One class of the time that a step takes: seconds of it a step, and the bound on a step without it."""

    name: str
    seconds: float  # a step
    share: float  # of the step
    speed_up: float | None  # at most this many times as fast without it; None: nothing else is left of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """GPUs to train with all else overlapped: training alone can't be faster than in proportion to its GPUs."""

    train: int
    rollout: int
    speed_up: float  # at most this many times as fast as the step that was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The exposed account of a step (it sums to the step), and the splits of the same GPUs."""

    step_s: float
    exposed: tuple[Exposed, ...]  # in the order of the account's classes
    splits: tuple[Split, ...]


def bounds(spec: RunSpec, account: Account) -> Bounds:
    """The bounds that a run's time account allows.

    The train unit's classes sum to the wall time of a step, so they are the exposed account (MEASURING.md, "Exposed /
    hidden"); colocated, everything is exposed. Without a class of share s a step takes at least 1 - s of its time. A
    split with t GPUs to train takes at least T x (train + logprob + host) / t a step, T those that trained: training
    scales at best with its GPUs. What generation needs on fewer GPUs one run can't tell, so it bounds nothing here.
    """
    pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.TRAIN
    seconds = account.pool_seconds(pool.value)
    step_s = account.window_s / account.steps
    exposed = []
    for name, total in seconds.items():
        share = total / account.window_s
        exposed.append(
            Exposed(
                name=name,
                seconds=total / account.steps,
                share=share,
                speed_up=1 / (1 - share) if share < 1 - 1e-9 else None,
            )
        )
    work = sum(seconds.get(member.value, 0.0) for member in WORK) / account.steps
    splits = []
    if work > 0:
        for train in range(1, spec.total_gpus):
            least = spec.gpus.train * work / train
            splits.append(Split(train=train, rollout=spec.total_gpus - train, speed_up=step_s / least))
    return Bounds(step_s=step_s, exposed=tuple(exposed), splits=tuple(splits))
