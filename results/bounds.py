"""What would help, at most: how much faster a step could be without a class of its time, or with another split.

Bounds, not predictions: each assumes that what is taken away costs nothing elsewhere, and that the rest stays as it is.
"""

from dataclasses import dataclass

from harness.protocol.phases import Pool
from harness.protocol.spec import Placement, RunSpec
from results.account import Account
from results.classes import Class
from results.straggler import WASTE

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
    """A split of the same GPUs: what scales is at best faster in proportion to its GPUs.

    On fewer GPUs it is at best as fast as it was: what it loses by sharing work is not known. `in_proportion` is no
    bound: it is what comes out where work slows down, too, in proportion to its GPUs.
    """

    train: int
    rollout: int
    speed_up: float  # at most this many times as fast as the step that was measured
    in_proportion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The exposed account of a step (it sums to the step), and the splits of the same GPUs."""

    step_s: float
    exposed: tuple[Exposed, ...]  # in the order of the account's classes
    tail: Exposed | None  # of the batches, whatever class it is in; None: no batch has one (async: none at all)
    tail_waste_share: float | None  # of the rollout GPUs' window: empty, tool_wait and agent inside the tail
    turns: bool  # synchronous and disaggregated: rollout and training take turns, in the splits too
    splits: tuple[Split, ...]
    nearest: tuple[Split, ...]  # of `splits`: one GPU to the other side; colocated: half and half


def bounds(spec: RunSpec, account: Account) -> Bounds:
    """The bounds that a run's time account allows.

    The train unit's classes sum to the wall time of a step, so they are the exposed account (MEASURING.md, "Exposed /
    hidden"); colocated, everything is exposed. Without a class of share s a step takes at least 1 - s of its time; the
    same of the tail. On a split with t GPUs to train the work of training (train, logprob, host) takes at least
    min(1, T / t) of its time, T those that trained: it scales at best with its GPUs. Synchronous and disaggregated,
    rollout and training take turns, so that the wait for rollout, at least min(1, R / r) of itself, is added. Otherwise
    they may overlap, and what generation needs on other GPUs one run can't tell: it bounds nothing.
    """
    pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.TRAIN
    seconds = account.pool_seconds(pool.value)
    step_s = account.window_s / account.steps
    exposed = [_without(name, total / account.steps, step_s) for name, total in seconds.items()]
    tail, wasted = None, None
    if account.tail_s > 0:
        tail = _without("tail", account.tail_s / account.steps, step_s)
        mine = [unit for unit in account.units if unit.pool != Pool.TRAIN.value]
        seconds_wasted = sum(unit.tail_seconds.get(name, 0.0) * unit.gpus for unit in mine for name in WASTE)
        wasted = seconds_wasted / sum(unit.gpus for unit in mine) / account.window_s
    work = sum(seconds.get(member.value, 0.0) for member in WORK) / account.steps
    turns = spec.placement is Placement.DISAGGREGATED
    wait = seconds.get(Class.WAIT_ROLLOUT.value, 0.0) / account.steps if turns else 0.0
    splits = []
    for train in range(1, spec.total_gpus) if work > 0 else ():
        rollout = spec.total_gpus - train
        parts = ((work, spec.gpus.train / train), (wait, spec.gpus.rollout / rollout))
        splits.append(
            Split(
                train=train,
                rollout=rollout,
                speed_up=step_s / sum(part * min(1.0, scale) for part, scale in parts),
                in_proportion=step_s / sum(part * scale for part, scale in parts),
            )
        )
    near = {spec.gpus.train - 1, spec.gpus.train + 1}
    if spec.placement is Placement.COLOCATED:
        near = {spec.total_gpus // 2}
    nearest = tuple(split for split in splits if split.train in near)
    return Bounds(
        step_s=step_s,
        exposed=tuple(exposed),
        tail=tail,
        tail_waste_share=wasted,
        turns=turns,
        splits=tuple(splits),
        nearest=nearest,
    )


def _without(name: str, seconds: float, step_s: float) -> Exposed:
    share = seconds / step_s
    return Exposed(name=name, seconds=seconds, share=share, speed_up=1 / (1 - share) if share < 1 - 1e-9 else None)
