"""Whether what was trained on is like what was admitted: a pipeline that passes long trajectories over looks faster.

MEASURING.md, "Selection": planned work, which is known even of trajectories in flight, of trained against admitted
trajectories of the same admission interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from results.store import RunTables
from results.window import Window

QUANTITIES: Mapping[str, str] = {
    "tokens": "planned_generated_tokens",
    "tool_seconds": "planned_tool_ns",
    "tool_calls": "planned_tool_calls",
}
_COLUMNS = ["group_id", "sample", "status", "start_ns", "consumed_ns", *QUANTITIES.values()]
FEWEST_GROUPS = 4
TOLERANCE = 0.02  # a ratio farther from 1, its interval off 1, is flagged
RESAMPLES, SEED = 2_000, 1
CONFIDENCE = 0.95

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Mean planned work of the trained / of the admitted, with a bootstrap interval over groups."""

    value: float
    ci_low: float
    ci_high: float

    @property
    def flagged(self) -> bool:
        """Beyond 2 %, and the interval does not hold 1."""
        return abs(self.value - 1) > TOLERANCE and not self.ci_low <= 1 <= self.ci_high


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`ratios` by quantity (tokens, tool_seconds, tool_calls); None where undefined. `note` says why there are none."""

    ratios: Mapping[str, Ratio | None]
    groups: int
    admitted: int
    trained: int
    note: str | None

    @property
    def worst(self) -> tuple[str, Ratio] | None:
        """The quantity whose ratio is farthest from 1."""
        known = [(name, ratio) for name, ratio in self.ratios.items() if ratio is not None]
        return max(known, key=lambda each: abs(each[1].value - 1)) if known else None

    @property
    def flagged(self) -> bool | None:
        """Whether a quantity differs; None: not known."""
        known = [ratio for ratio in self.ratios.values() if ratio is not None]
        return any(ratio.flagged for ratio in known) if known else None


def selection(run: RunTables, window: Window) -> Selection:
    """The comparison over one admission interval.

    It begins with the window and ends so early that whatever was admitted in it had, up to the window's end, as long
    as the slowest trained trajectory took from its start to the end of its step: what was not trained by then was
    passed over, not merely late. Attempts at one plan count once, as trained if one of them was.
    """
    lives = run.frame("trajectories")[_COLUMNS]
    trained = (lives["status"] == "ok") & (lives["consumed_ns"] <= window.end_ns).fillna(False)
    lives = lives.assign(trained=trained.to_numpy(np.bool_))
    inside = lives[lives["trained"] & (lives["start_ns"] >= window.start_ns)]
    if inside.empty:
        return _none("no trajectory was admitted and trained on inside the window")
    slowest = int((inside["consumed_ns"] - inside["start_ns"]).max())
    until = window.end_ns - slowest
    rows = lives[(lives["start_ns"] >= window.start_ns) & (lives["start_ns"] <= until)]
    if rows.empty:
        return _none("the window is too short: the slowest trajectory took as long as all of it")
    if rows["group_id"].isna().any() or rows["sample"].isna().any():
        return _none("the group of a trajectory is not known")
    rows = rows.sort_values("trained").drop_duplicates(["group_id", "sample"], keep="last")
    groups = int(rows["group_id"].nunique())
    told = {"groups": groups, "admitted": len(rows), "trained": int(rows["trained"].sum())}
    if groups < FEWEST_GROUPS:
        were = "group was" if groups == 1 else "groups were"
        note = f"{groups} {were} admitted early enough in the window, fewer than {FEWEST_GROUPS}"
        return Selection(ratios=dict.fromkeys(QUANTITIES), note=note, **told)
    ratios = {name: _ratio(rows, column) for name, column in QUANTITIES.items()}
    unplanned = None if any(ratios.values()) else "the plans are not known"
    return Selection(ratios=ratios, note=unplanned, **told)


def _none(note: str) -> Selection:
    return Selection(ratios=dict.fromkeys(QUANTITIES), groups=0, admitted=0, trained=0, note=note)


def _ratio(rows: pd.DataFrame, column: str) -> Ratio | None:
    if rows[column].isna().any():
        return None
    work, trained = rows[column].to_numpy(np.float64), rows["trained"].to_numpy(np.float64)
    group = rows.groupby("group_id", sort=True).ngroup().to_numpy(np.int64)
    sums = np.array([np.bincount(group, weights=w) for w in (work * trained, trained, work, np.ones(work.size))])
    value = _of_means(sums.sum(axis=1, keepdims=True))[0]
    if np.isnan(value):
        return None
    count = sums.shape[1]
    picks = np.random.default_rng(SEED).integers(0, count, size=(RESAMPLES, count))
    drawn = _of_means(sums[:, picks].sum(axis=2))
    drawn = drawn[~np.isnan(drawn)]
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="inverted_cdf")
    return Ratio(value=float(value), ci_low=float(low), ci_high=float(high))


def _of_means(sums: Floats) -> Floats:
    """(work trained / trained) / (work admitted / admitted), per column; NaN where one of them is nothing."""
    trained_work, trained, work, admitted = sums
    valid = (trained > 0) & (work > 0)
    safe = np.where(valid, trained * work, 1.0)
    return np.asarray(np.where(valid, trained_work * admitted / safe, np.nan), dtype=np.float64)
