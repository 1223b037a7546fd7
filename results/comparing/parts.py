"""Each step's wall time as exclusive parts: phases of the train track, and what the trainer's wait was for.

Where the trainer waits for the rollout side (disaggregated, async) or is the rollout side (colocated), the wait is
split by the step's critical path: what the trajectory that ended last of those the step took was doing at that
instant. It is the one the step could not begin without; shares of all trajectories' seconds would spread a slower tool
over generation that ran beside it and made nobody wait. The parts of a step sum to its wall time, to the nanosecond.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.intervals import NO_NS, Ns, innermost, merge, overlap
from results.plans import Plans
from results.store import RunTables
from results.tracks import UNKNOWN, Calls, Tracks
from results.window import Window

_CODES = {phase.value: code for code, phase in enumerate(Phase)}
WAITS = (Phase.GENERATION.value, Phase.WAIT_ROLLOUT.value)

Series = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The steps of a window. `ns`: of each step, by the names of `measures.PARTS`, `phase_generation_s` and
    `phase_wait_rollout_s` (the two are sums of exposed parts); `wall`: boundary to boundary. `plans`: see StepSeries.
    """

    steps: tuple[int, ...]
    plans: tuple[str | None, ...]
    wall: Series
    ns: Mapping[str, Series]


def step_parts(run: RunTables, tracks: Tracks, window: Window) -> Parts:
    """The parts of every step of the window."""
    boundaries = np.asarray(window.boundaries_ns, dtype=np.int64)
    steps = _steps(run, window)
    starts, ends, codes = _cells(run, tracks, boundaries)
    step = np.searchsorted(boundaries, starts, side="right") - 1
    count = boundaries.size - 1

    def per_step(weights: Ns, at: Series) -> Series:
        # Exact: sums of ns stay far below 2^53.
        return np.bincount(at, weights=weights.astype(np.float64), minlength=count).astype(np.int64)

    ns: dict[str, Series] = {}
    for phase, code in _CODES.items():
        mine = codes == code
        if mine.any() or phase == Phase.OTHER.value:
            ns[f"phase_{phase}_s"] = per_step((ends - starts)[mine], step[mine])
    waiting = np.isin(codes, [_CODES[phase] for phase in WAITS])
    if waiting.any():
        cells = (starts[waiting], ends[waiting])
        inside = _critical(run, tracks, boundaries, steps)
        reach = [overlap(*cells, each) for each in inside]
        amounts = [reach[0], *(wider - narrower for narrower, wider in pairwise(reach))]
        names = ("exposed_tool_s", "exposed_generating_s", "exposed_queued_s", "exposed_agent_s")
        for name, amount in zip(names, amounts, strict=True):
            ns[name] = per_step(amount, step[waiting])
        ns["exposed_hand_over_s"] = per_step(cells[1] - cells[0] - reach[-1], step[waiting])
    return Parts(steps=steps, plans=_plans(run, steps), wall=np.diff(boundaries), ns=ns)


def _steps(run: RunTables, window: Window) -> tuple[int, ...]:
    """The steps whose ends are the window's boundaries, but for the one it begins with."""
    numbers = run.frame("steps")["step"].drop_duplicates().sort_values()
    return tuple(int(n) for n in numbers if window.after_step < n <= window.last_step)


def _cells(run: RunTables, tracks: Tracks, boundaries: Ns) -> tuple[Ns, Ns, npt.NDArray[np.int8]]:
    """The train track (as `results.phases`), cut at the steps' boundaries: starts, ends, code of the phase."""
    pools = [Pool.TRAIN.value] + ([Pool.BOTH.value] if run.spec.placement is Placement.COLOCATED else [])
    leaves = tracks.leaves
    leaves = leaves[leaves["pool"].isin(pools) & leaves["phase"].isin(list(_CODES))]
    leaves = leaves.drop_duplicates(["host", "pid", "phase", "start_ns", "end_ns"])
    leaves = leaves[(leaves["start_ns"] < boundaries[-1]) & (leaves["end_ns"] > boundaries[0])]
    timeline = innermost(
        leaves["start_ns"].to_numpy(np.int64),
        leaves["end_ns"].to_numpy(np.int64),
        leaves["phase"].map(_CODES).to_numpy().astype(np.int8),
        int(boundaries[0]),
        int(boundaries[-1]),
        _CODES[Phase.OTHER.value],
    ).timeline
    grid = np.unique(np.concatenate((timeline.edges, boundaries)))
    return grid[:-1], grid[1:], timeline.at(grid)


def _critical(run: RunTables, tracks: Tracks, boundaries: Ns, steps: tuple[int, ...]) -> list[tuple[Ns, Ns]]:
    """Of each step's last trajectory, inside that step: tools; with turns; with queued turns too; its whole life."""
    if tracks.life_start.size == 0 or len(steps) != boundaries.size - 1:
        return [(NO_NS, NO_NS)] * 4
    lives = run.frame("trajectories")
    took = lives["step_consumed"].fillna(lives["step_dropped"])
    place = {step: index for index, step in enumerate(steps)}
    mine = pd.DataFrame({"step": took, "end": lives["end_ns"], "life": np.arange(len(lives))})
    mine = mine[took.isin(list(steps)) & lives["end_ns"].notna()].sort_values("end", kind="stable")
    last = mine.drop_duplicates("step", keep="last")
    life = last["life"].to_numpy(np.int64)
    at = np.array([place[int(step)] for step in last["step"]], dtype=np.int64)
    of_life = np.full(tracks.life_start.size, UNKNOWN, dtype=np.int64)
    of_life[life] = at

    def inside(index: Series, starts: Ns, ends: Ns) -> tuple[Ns, Ns]:
        low, high = boundaries[index], boundaries[index + 1]
        return np.maximum(starts, low), np.minimum(ends, high)

    def calls(which: Calls, starts: Ns, ends: Ns) -> tuple[Ns, Ns]:
        keep = which.life != UNKNOWN
        keep[keep] = of_life[which.life[keep]] != UNKNOWN
        index = of_life[which.life[keep]]
        stop = np.minimum(ends[keep], tracks.life_end[which.life[keep]])
        return inside(index, np.maximum(starts[keep], tracks.life_start[which.life[keep]]), stop)

    parts = [
        calls(tracks.tools, tracks.tools.start, tracks.tools.end),
        calls(tracks.turns, tracks.turns.start, tracks.turns.end),
        calls(tracks.turns, tracks.turn_submitted, tracks.turns.start),
        inside(at, tracks.life_start[life], tracks.life_end[life]),
    ]
    wider: list[tuple[Ns, Ns]] = []
    for starts, ends in parts:
        before = wider[-1] if wider else (NO_NS, NO_NS)
        wider.append(merge(np.concatenate((before[0], starts)), np.concatenate((before[1], ends))))
    return wider


def _plans(run: RunTables, steps: tuple[int, ...]) -> tuple[str | None, ...]:
    """Names the plans that each step trained on, in any order; None where one is not known."""
    plans = Plans(run.spec)
    lives = run.frame("trajectories")
    lives = lives[lives["step_consumed"].isin(list(steps))]
    held: dict[int, list[str | None]] = {}
    columns = (lives[name].tolist() for name in ("step_consumed", "prompt", "sample"))
    for step, prompt, sample in zip(*columns, strict=True):
        known = not (pd.isna(prompt) or pd.isna(sample))
        plan = plans.get(int(prompt), int(sample)) if known else None
        held.setdefault(int(step), []).append(None if plan is None else plan.digest)
    return tuple(_name(held.get(step, [])) for step in steps)


def _name(digests: list[str | None]) -> str | None:
    told = sorted(digest for digest in digests if digest is not None)
    if not told or len(told) < len(digests):
        return None
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:12]
