"""The second account: where the trajectories' own seconds went. It closes to the sum of their lifetimes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from results.engine_samples import series_of
from results.intervals import Ns, clip, overlap
from results.rollout import of_unit, sync_rows
from results.served import KNOWN_SHARE, known_share, unserved
from results.store import RunTables
from results.tracks import FOREVER, UNKNOWN, Tracks
from results.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Trajectory-seconds inside the window, from start until trained on, dropped or (not ok, open) ended.

    `seconds`: queued, generating, paused (by a weight sync, inside a turn), tool, reward, agent (the rest of a life),
    buffer_wait (ended ok, waiting to be trained on). `agent` below 0 tells of records that overlap. Where a turn does
    not say when its request was submitted, `queued` is the turns' time in which their engine said that it ran none
    (`queued_by_engine`: a lower bound), and None where that is not known either: what queued is then in `generating`.
    """

    seconds: Mapping[str, float | None]
    total_s: float
    trajectories: int
    queued_by_engine: bool = False


def lifetimes(run: RunTables, tracks: Tracks, window: Window, left: Ns) -> Lifetimes:
    """The account; `left`: when each trajectory was trained on or otherwise left (FOREVER: it did not)."""
    low, high = window.start_ns, window.end_ns

    def inside(starts: Ns, ends: Ns) -> float:
        return float(np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0).sum()) / 1e9

    gone = np.maximum(np.minimum(left, FOREVER), tracks.life_start)
    end = np.minimum(tracks.life_end, gone)
    turns, tools, rewards = tracks.turns, tracks.tools, tracks.rewards
    turn_end = np.minimum(turns.end, tracks.end_of(turns.life, turns.end))
    begin = np.clip(turns.start, low, high)
    stop = np.maximum(np.clip(turn_end, low, high), begin)
    paused, syncs = 0.0, sync_rows(run, tracks)
    unserved_s, told, readings = 0.0, True, series_of(run)
    for engine in (UNKNOWN, *range(len(tracks.engines))):
        mine = np.flatnonzero(tracks.turn_engine == engine)
        name = None if engine == UNKNOWN else tracks.engines[engine]
        others = of_unit(syncs, None if name is None else (name,), tracks.engines)
        mine_open = (begin[mine], stop[mine])
        paused += float(overlap(*mine_open, others).sum()) / 1e9
        series = None if name is None else readings.get(name)
        if series is None:
            told = told and bool((mine_open[0] == mine_open[1]).all())
            continue
        share = known_share((series,), mine_open, low, high)
        told = told and (share is None or share >= KNOWN_SHARE)
        starts, ends = clip(*unserved(series, (turns.start[mine], turn_end[mine])), low, high)
        unserved_s += float((ends - starts - overlap(starts, ends, others)).sum()) / 1e9
    alive = inside(tracks.life_start, end)
    open_inside = (tracks.turn_submitted < high) & (turn_end > low)
    known = bool(tracks.queue_known[open_inside].all())
    queued: float | None = inside(tracks.turn_submitted, np.minimum(turns.start, turn_end))
    generating = inside(turns.start, turn_end) - paused
    if not known:
        generating += queued or 0.0
        queued = unserved_s if told and readings else None
        generating -= queued or 0.0
    seconds: dict[str, float | None] = {
        "queued": queued,
        "generating": generating,
        "paused": paused,
        "tool": inside(tools.start, np.minimum(tools.end, tracks.end_of(tools.life, tools.end))),
        "reward": inside(rewards.start, np.minimum(rewards.end, tracks.end_of(rewards.life, rewards.end))),
        "buffer_wait": inside(end, gone),
    }
    parts = ("queued", "generating", "paused", "tool", "reward")
    seconds["agent"] = alive - sum(seconds[name] or 0.0 for name in parts)
    buffered = seconds["buffer_wait"] or 0.0
    lived = (tracks.life_start < high) & (gone > low)
    return Lifetimes(
        seconds=seconds,
        total_s=alive + buffered,
        trajectories=int(lived.sum()),
        queued_by_engine=not known and queued is not None,
    )
