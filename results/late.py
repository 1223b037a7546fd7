"""The trajectories that came last: which they are, how late each was, and what its time went into."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.spec import Placement
from results.store import RunTables
from results.straggler import FEWEST
from results.tracks import ints

MOST = 10
_COLUMNS = [
    *("trajectory_id", "group_id", "step_consumed", "start_ns", "end_ns", "version_trained", "version_first"),
    *("tool_ns", "turns", "tool_calls", "generated_tokens"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """One trajectory, later than the median one of the batch it was trained in. Seconds; None: not on record.

    `late_s`: in synchronous placements its end less the median consumed trajectory's end; in async, where no step waits
    for a batch, its duration less the median duration of those its step trained on. Medians are order statistics, the
    lower one of two. `generating_s` is the time with a turn open at the client, queueing inside included.
    """

    trajectory_id: str
    group_id: str | None
    step: int
    late_s: float
    duration_s: float
    generating_s: float
    tool_s: float
    turns: int
    tool_calls: int
    generated_tokens: int | None
    at_start: int | None  # staleness: versions between its first token and its training
    engines: tuple[str, ...]  # that answered its turns; empty where the framework hides them

    @property
    def other_s(self) -> float:
        """Neither with a turn open nor in a tool: the agent's own time, rewards, waiting to be scheduled."""
        return round(self.duration_s - self.generating_s - self.tool_s, 9) + 0.0  # events know nanoseconds; and no -0


def late(run: RunTables, steps: Collection[int], most: int = MOST) -> tuple[Late, ...]:
    """The latest trajectories of the batches that those steps trained on, the latest first.

    Batches of fewer than 4 have no meaningful median, and give none; nor is one given that was not late at all.
    """
    lives = run.frame("trajectories")[_COLUMNS]
    used = lives[lives["step_consumed"].isin(list(steps)) & lives["end_ns"].notna()]
    if used.empty:
        return ()
    spent = (used["end_ns"] - used["start_ns"]).to_numpy(np.int64)
    ends = spent if run.spec.placement is Placement.ASYNC else used["end_ns"].to_numpy(np.int64)
    batch = used["step_consumed"].to_numpy(np.int64)
    by_end = np.lexsort((ends, batch))
    _, first, sizes = np.unique(batch[by_end], return_index=True, return_counts=True)
    median = ends[by_end][first + (sizes + 1) // 2 - 1]
    behind = np.full(len(used), np.iinfo(np.int64).min, dtype=np.int64)
    behind[by_end] = np.where(np.repeat(sizes, sizes) >= FEWEST, ends[by_end] - np.repeat(median, sizes), behind)
    latest = np.flatnonzero(behind > 0)
    if latest.size > most > 0:  # those as late as the last of them too: their names decide
        latest = latest[behind[latest] >= np.partition(behind[latest], -most)[-most]]
    names = used["trajectory_id"].iloc[latest].to_numpy(str)
    chosen = latest[np.lexsort((names, -behind[latest]))][:most].tolist()
    generating, engines = _turns(run, used["trajectory_id"].iloc[chosen].tolist())
    rows = used.iloc[chosen].to_dict("records")
    return tuple(
        _late(row, int(behind[place]), int(spent[place]), generating, engines)
        for place, row in zip(chosen, rows, strict=True)
    )


def _late(
    row: Mapping[Hashable, Any],
    behind_ns: int,
    spent_ns: int,
    generating: dict[str, int],
    engines: dict[str, set[str]],
) -> Late:
    name = str(row["trajectory_id"])
    trained, first = _whole(row["version_trained"]), _whole(row["version_first"])
    return Late(
        trajectory_id=name,
        group_id=None if pd.isna(row["group_id"]) else str(row["group_id"]),
        step=_whole(row["step_consumed"]) or 0,
        late_s=behind_ns / 1e9,
        duration_s=spent_ns / 1e9,
        generating_s=generating.get(name, 0) / 1e9,
        tool_s=(_whole(row["tool_ns"]) or 0) / 1e9,
        turns=_whole(row["turns"]) or 0,
        tool_calls=_whole(row["tool_calls"]) or 0,
        generated_tokens=_whole(row["generated_tokens"]),
        at_start=None if trained is None or first is None else trained - first,
        engines=tuple(sorted(engines.get(name, ()))),
    )


def _whole(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _turns(run: RunTables, names: list[str]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Per trajectory: ns with a turn open, and the engines that answered."""
    table = run.part("turns", ("trajectory_id", "start_ns", "end_ns", "engine"))
    mine = table.filter(pc.is_in(table.column("trajectory_id"), pa.array(names, pa.string())))
    spent = ints(mine.column("end_ns")) - ints(mine.column("start_ns"))
    generating: dict[str, int] = dict.fromkeys(names, 0)
    engines: dict[str, set[str]] = {name: set() for name in names}
    told = zip(mine.column("trajectory_id").to_pylist(), spent.tolist(), mine.column("engine").to_pylist(), strict=True)
    for name, ns, engine in told:
        generating[name] += ns
        if engine is not None:
            engines[name].add(engine)
    return generating, engines
