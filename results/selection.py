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
MOST_DRAWS = 2**20  # at once, in memory

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
    ratios = _ratios(rows)
    unplanned = None if any(ratios.values()) else "the plans are not known"
    return Selection(ratios=ratios, note=unplanned, **told)


def _none(note: str) -> Selection:
    return Selection(ratios=dict.fromkeys(QUANTITIES), groups=0, admitted=0, trained=0, note=note)


def _ratios(rows: pd.DataFrame) -> dict[str, Ratio | None]:
    """Of each quantity; None where it is not known of a row, or where nothing was trained or planned."""
    trained = rows["trained"].to_numpy(np.float64)
    group = rows.groupby("group_id", sort=True).ngroup().to_numpy(np.int64)
    works = {name: rows[column] for name, column in QUANTITIES.items() if not rows[column].isna().any()}
    known = [work.to_numpy(np.float64) for work in works.values()]
    # One column for each sum over a group, two for each quantity after the two that all need.
    of_group = [trained, np.ones(trained.size), *(part for work in known for part in (work * trained, work))]
    sums = np.stack([np.bincount(group, weights=each) for each in of_group], axis=1).astype(np.float64)
    drawn = _resampled(sums) if works else sums
    whole = sums.sum(axis=0, keepdims=True)
    ratios: dict[str, Ratio | None] = dict.fromkeys(QUANTITIES)
    for place, name in enumerate(works):
        columns = [2 + 2 * place, 0, 3 + 2 * place, 1]
        value = float(_of_means(whole[:, columns].T)[0])
        if not np.isnan(value):
            spread = _of_means(drawn[:, columns].T)
            ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
            low, high = np.quantile(spread[~np.isnan(spread)], ends, method="inverted_cdf")
            ratios[name] = Ratio(value=value, ci_low=float(low), ci_high=float(high))
    return ratios


def _resampled(sums: Floats) -> Floats:
    """The sums (columns) over as many groups (rows) drawn with replacement, once for each of the RESAMPLES.

    Draws are counted, not gathered: there are thousands of them of each group of a long run.
    """
    count = sums.shape[0]
    rng, found = np.random.default_rng(SEED), np.empty((RESAMPLES, sums.shape[1]))
    at_once = max(1, MOST_DRAWS // count)
    for begin in range(0, RESAMPLES, at_once):
        picks = rng.integers(0, count, size=(min(at_once, RESAMPLES - begin), count))
        times = np.stack([np.bincount(each, minlength=count) for each in picks]).astype(np.float64)
        found[begin : begin + len(picks)] = times @ sums
    return found


def _of_means(sums: Floats) -> Floats:
    """(work trained / trained) / (work admitted / admitted), per column; NaN where one of them is nothing."""
    trained_work, trained, work, admitted = sums
    valid = (trained > 0) & (work > 0)
    safe = np.where(valid, trained * work, 1.0)
    return np.asarray(np.where(valid, trained_work * admitted / safe, np.nan), dtype=np.float64)
