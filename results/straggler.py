"""Straggler wait of synchronous batches, in three numbers, and one batch's bars for the chart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.account import Account
from results.classes import Class
from results.intervals import Ns
from results.stats import Estimate, ratio_of_sums
from results.store import RunTables
from results.tracks import Tracks
from results.window import Window

FEWEST = 4  # consumed trajectories of a batch; fewer have no meaningful median
WASTE = (Class.EMPTY.value, Class.TOOL_WAIT.value, Class.AGENT.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The trajectories one step trained on. Times in ns, the median an order statistic (the lower one)."""

    step: int
    phase_start_ns: int  # of the rollout phase: the native span, else the first trajectory's start
    phase_end_ns: int
    ends: Ns  # of the consumed trajectories, sorted

    @property
    def median_ns(self) -> int:
        """When half of them had ended."""
        return int(self.ends[(self.ends.size + 1) // 2 - 1])

    @property
    def last_ns(self) -> int:
        """When the last of them ended."""
        return int(self.ends[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """The three numbers of synchronous placements, and the group tail of async; None where undefined, `note` says why.

    `gap`: last - median end, as a share of the rollout phase. `slot_loss`: 1 - mean(end - phase start) /
    (last - phase start). `waste_gpu_s`: GPU-seconds of empty, tool_wait and agent inside the tail.
    `speed_up_bound`: 1 / (1 - tail share of the window): more than removing the tail could give.
    `group_tail`: last - median end of a group over its first start to last end (async: it has no batch tail).
    """

    gap: Estimate
    slot_loss: Estimate
    waste_gpu_s: float | None
    speed_up_bound: float | None
    group_tail: Estimate
    note: str | None = None


NONE = Estimate(value=None, n=0)


def batches(run: RunTables, tracks: Tracks, window: Window) -> list[Batch]:
    """The batches of the steps that ended in the window; a step without consumed trajectories has none."""
    steps = run.frame("steps")
    inside = set(steps.loc[window.holds(steps["end_ns"].to_numpy(np.int64)), "step"].tolist())
    lives = run.tables["trajectories"]
    ended = lives.filter(pc.and_(pc.is_valid(lives["step_consumed"]), pc.is_valid(lives["end_ns"])))
    consumed, starts, ends = (ended[name].to_numpy() for name in ("step_consumed", "start_ns", "end_ns"))
    order = np.lexsort((ends, consumed))
    numbers, first = np.unique(consumed[order], return_index=True)
    phases = _rollout_phases(run, tracks)
    made: list[Batch] = []
    if not numbers.size:
        return made
    for step, mine in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        if step in inside:
            begin, end = phases.get(step, (int(starts[mine].min()), int(ends[mine[-1]])))
            made.append(Batch(step=step, phase_start_ns=begin, phase_end_ns=end, ends=ends[mine]))
    return made


def tails(made: Sequence[Batch]) -> tuple[Ns, Ns]:
    """From the median consumed trajectory's end to the last one's, of each batch large enough to have a median."""
    large = [batch for batch in made if batch.ends.size >= FEWEST]
    starts = np.array([batch.median_ns for batch in large], dtype=np.int64)
    return starts, np.array([batch.last_ns for batch in large], dtype=np.int64)


def straggler(run: RunTables, window: Window, made: Sequence[Batch], account: Account) -> Straggler:
    """The straggler numbers over the window, as ratios of sums over its batches.

    `account` must have been made with the `tails` of the same batches.
    """
    groups = _group_tail(run, window)
    if run.spec.placement is Placement.ASYNC:
        note = "async has no batch tail: see the group tail and wait_rollout"
        return Straggler(gap=NONE, slot_loss=NONE, waste_gpu_s=None, speed_up_bound=None, group_tail=groups, note=note)
    large = [batch for batch in made if batch.ends.size >= FEWEST]
    if not large:
        note = f"no batch of at least {FEWEST} consumed trajectories"
        return Straggler(gap=NONE, slot_loss=NONE, waste_gpu_s=None, speed_up_bound=None, group_tail=groups, note=note)
    gap = ratio_of_sums(
        np.array([(batch.last_ns - batch.median_ns) / 1e9 for batch in large]),
        np.array([(batch.phase_end_ns - batch.phase_start_ns) / 1e9 for batch in large]),
    )
    whole = np.array([(batch.last_ns - batch.phase_start_ns) * batch.ends.size / 1e9 for batch in large])
    used = np.array([float((batch.ends - batch.phase_start_ns).sum()) / 1e9 for batch in large])
    share = account.tail_s / account.window_s
    waste = sum(unit.tail_seconds.get(name, 0.0) * unit.gpus for unit in account.units for name in WASTE)
    return Straggler(
        gap=gap,
        slot_loss=ratio_of_sums(whole - used, whole),
        waste_gpu_s=float(waste),
        speed_up_bound=1 / (1 - share) if share < 1 else None,
        group_tail=groups,
        note=None if len(large) == len(made) else f"{len(made) - len(large)} batches of fewer than {FEWEST} left out",
    )


def bars(run: RunTables, tracks: Tracks, window: Window, step: int) -> pd.DataFrame:
    """One batch as bars, sorted by completion; without rows when the step is not in the window.

    Columns: trajectory_id, group_id, start_s and end_s (from the start of the rollout phase), tool_calls, tool_s,
    generated_tokens. `attrs` holds median_end_s, last_end_s (same origin) and step.
    """
    columns = ["trajectory_id", "group_id", "start_s", "end_s", "tool_calls", "tool_s", "generated_tokens"]
    mine = [batch for batch in batches(run, tracks, window) if batch.step == step]
    if not mine:
        return pd.DataFrame(columns=columns)
    batch, lives = mine[0], run.frame("trajectories")
    rows = lives[(lives["step_consumed"] == step).fillna(False) & lives["end_ns"].notna()].sort_values("end_ns")
    origin = batch.phase_start_ns
    rows = rows.assign(
        start_s=(rows["start_ns"].to_numpy(np.int64) - origin) / 1e9,
        end_s=(rows["end_ns"].to_numpy(np.int64) - origin) / 1e9,
        tool_s=rows["tool_ns"].to_numpy(np.int64) / 1e9,
    )[columns].reset_index(drop=True)
    rows.attrs = {
        "step": step,
        "median_end_s": (batch.median_ns - origin) / 1e9,
        "last_end_s": (batch.last_ns - origin) / 1e9,
    }
    return rows


def _rollout_phases(run: RunTables, tracks: Tracks) -> dict[int, tuple[int, int]]:
    """Step -> begin and end of its native rollout span, in the synchronous placements."""
    if run.spec.placement is Placement.ASYNC:
        return {}
    colocated = run.spec.placement is Placement.COLOCATED
    phase, pool = (Phase.GENERATION, Pool.BOTH) if colocated else (Phase.WAIT_ROLLOUT, Pool.TRAIN)
    leaves = tracks.leaves
    mine = leaves[(leaves["phase"] == phase.value) & (leaves["pool"] == pool.value) & leaves["step"].notna()]
    found = mine.groupby("step").agg(begin=("start_ns", "min"), end=("end_ns", "max"))
    steps, begins, ends = found.index.tolist(), found["begin"].tolist(), found["end"].tolist()
    return {int(s): (int(b), int(e)) for s, b, e in zip(steps, begins, ends, strict=True)}


def _group_tail(run: RunTables, window: Window) -> Estimate:
    """Last - median end of each group consumed in the window, over its first start to last end."""
    lives = run.frame("trajectories")[["group_id", "step_consumed", "consumed_ns", "start_ns", "end_ns"]]
    consumed = lives[lives["consumed_ns"].notna() & lives["end_ns"].notna() & lives["group_id"].notna()]
    consumed = consumed[window.holds(consumed["consumed_ns"].to_numpy(np.int64))]
    if consumed.empty:
        return NONE
    group = consumed.groupby(["step_consumed", "group_id"], sort=True).ngroup().to_numpy(np.int64)
    ends, starts = consumed["end_ns"].to_numpy(np.int64), consumed["start_ns"].to_numpy(np.int64)
    order = np.lexsort((ends, group))
    sizes = np.bincount(group)
    first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)[:-1]))
    last = ends[order][first + sizes - 1]
    median = ends[order][first + (sizes + 1) // 2 - 1]
    begin = np.minimum.reduceat(starts[order], first)
    several = sizes >= 2
    return ratio_of_sums((last - median)[several] / 1e9, (last - begin)[several] / 1e9)
