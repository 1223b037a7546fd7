"""What a rollout unit did at every instant: its turns, tool calls and trajectories, and what it waited for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.classes import CODES, OTHER_CODE, ROLLOUT_REGION, Class
from results.engine_samples import Series
from results.intervals import NO_NS, Ns, Timeline, clip, grid_of, level, merge
from results.lost_gpus import more_lost_than
from results.replicas import replicas_of
from results.served import by_metric, joined, spoken, unserved
from results.store import RunTables
from results.tracks import UNKNOWN, Index, Tracks, by_life, last_turn_before

_ROWS = ("start_ns", "end_ns", "engine")


@dataclass(frozen=True, slots=True)
class Work:
    """What happens on one rollout unit: turns running, tool calls waited for, trajectories that live there."""

    turns: tuple[Ns, Ns]
    wants: tuple[Ns, Ns]  # from when a turn was submitted to its end
    tools: tuple[Ns, Ns]
    lives: tuple[Ns, Ns]
    idle: tuple[Ns, Ns] = (NO_NS, NO_NS)  # of turns, where a reading says that the engine ran none
    away: tuple[Ns, Ns] = (NO_NS, NO_NS)  # of `lives`, where each generates, on whatever engine
    spoken: tuple[Ns, Ns] | None = None  # where readings say what runs; None: the clients know


@dataclass(frozen=True, slots=True)
class Placed:
    """What belongs to which engine, worked out once for all of them."""

    stay_end: Ns  # per turn: until when its trajectory belongs to its engine
    tool_engine: npt.NDArray[np.int64]  # per tool call: the engine of its trajectory's last turn
    tool_end: Ns

    @classmethod
    def of(cls, tracks: Tracks) -> "Placed":
        """The placement of a run's turns and tool calls."""
        tools, order = tracks.tools, by_life(tracks.turns)
        last = last_turn_before(tracks.turns, tools.life, tools.start, order)
        engine = np.full(tools.life.size, UNKNOWN, dtype=np.int64)
        engine[last != UNKNOWN] = tracks.turn_engine[last[last != UNKNOWN]]
        return cls(_stay_end(tracks, order), engine, _tool_end(tracks))


def pool_work(tracks: Tracks) -> Work:
    """The work of the whole pool."""
    turns, tools = tracks.turns, tracks.tools
    return Work(
        (turns.start, turns.end),
        (tracks.turn_submitted, turns.end),
        (tools.start, _tool_end(tracks)),
        (tracks.life_start, tracks.life_end),
    )


def any_work(tracks: Tracks) -> Work:
    """The work of the whole pool, as far as it says whether anything of a kind happens: not how much at once."""
    whole = pool_work(tracks)
    return Work(merge(*whole.turns), merge(*whole.wants), merge(*whole.tools), merge(*whole.lives))


def engine_work(tracks: Tracks, placed: Placed, names: Sequence[str], readings: Mapping[str, Series]) -> Work:
    """The work of one replica, by the names that its server had (none: no turn came from it), and its own readings."""
    turns = tracks.turns
    numbers = [tracks.engines.index(name) for name in names]
    named = np.zeros(len(tracks.engines) + 1, dtype=np.bool_)  # with a place for UNKNOWN, which is the last of any list
    named[numbers] = True
    mine, its_tools = np.flatnonzero(named[tracks.turn_engine]), np.flatnonzero(named[placed.tool_engine])
    idle = []
    for number, name in zip(numbers, names, strict=True):
        if name in readings:
            asked = np.flatnonzero(tracks.turn_engine == number)
            idle.append(unserved(readings[name], (turns.start[asked], turns.end[asked])))
    starts, ends = turns.start[mine], turns.end[mine]
    return Work(
        (starts, ends),
        (tracks.turn_submitted[mine], ends),
        (tracks.tools.start[its_tools], placed.tool_end[its_tools]),
        (starts, placed.stay_end[mine]),
        joined(idle),
    )


def metric_work(tracks: Tracks, series: Sequence[Series]) -> Work:
    """The work of a replica that turns don't name: what it says it runs; trajectories belong to the pool."""
    whole = pool_work(tracks)
    told = [by_metric(each) for each in series]
    running, stuck = joined([runs for runs, _ in told]), joined([waits for _, waits in told])
    return replace(whole, turns=running, idle=stuck, away=whole.turns, spoken=spoken(series))


def _tool_end(tracks: Tracks) -> Ns:
    """When each tool call ended, or its trajectory did: a tool that nobody waits for is no wait."""
    return np.minimum(tracks.tools.end, tracks.end_of(tracks.tools.life, tracks.tools.end))


def _stay_end(tracks: Tracks, order: Index) -> Ns:
    """For each turn, until when its trajectory belongs to its engine: its next turn, or its end."""
    turns = tracks.turns
    life, start = turns.life[order], turns.start[order]
    end = tracks.end_of(life, turns.end[order]).copy()
    again = np.flatnonzero((life[1:] == life[:-1]) & (life[1:] != UNKNOWN))
    end[again] = np.minimum(start[again + 1], end[again])
    stay_end = np.empty_like(end)
    stay_end[order] = end
    return stay_end


@dataclass(frozen=True, slots=True)
class Shared:
    """What all rollout units have in common."""

    low: int
    high: int
    train: Timeline
    lives: tuple[Ns, Ns]
    syncs: pd.DataFrame  # start_ns, end_ns, engine (None: every engine)
    offloads: pd.DataFrame
    waits: tuple[Ns, Ns]  # evidence of waiting for the train side, where no trajectory lives
    down: tuple[Ns, Ns]

    @classmethod
    def of(cls, run: RunTables, tracks: Tracks, train: Timeline, low: int, high: int) -> "Shared":
        leaves = _leaves(tracks)
        waits = leaves[leaves["phase"] == Phase.WAIT_TRAIN.value]
        evidence = [(waits["start_ns"].to_numpy(np.int64), waits["end_ns"].to_numpy(np.int64)), _closed(run, high)]
        if run.spec.placement is Placement.DISAGGREGATED:
            busy = [CODES[c] for c in Class if CODES[Class.DOWN] < CODES[c] < CODES[Class.WAIT_ROLLOUT]]
            evidence.append(train.where(*busy))
        return cls(
            low=low,
            high=high,
            train=train,
            lives=(tracks.life_start, tracks.life_end),
            syncs=sync_rows(run, tracks),
            offloads=leaves.loc[leaves["phase"] == Phase.OFFLOAD.value, list(_ROWS)],
            waits=(np.concatenate([s for s, _ in evidence]), np.concatenate([e for _, e in evidence])),
            down=_rollout_down(run, low, high),
        )


def sync_known(shared: Shared) -> bool:
    """Whether a pause of the rollout side by a weight sync is on record inside the window."""
    syncs = shared.syncs
    return bool(((syncs["start_ns"] < shared.high) & (syncs["end_ns"] > shared.low)).any())


def sync_rows(run: RunTables, tracks: Tracks) -> pd.DataFrame:
    """Pauses of the rollout side by weight syncs: columns start_ns, end_ns, engine (of every engine: no known one)."""
    synced, leaves = run.frame("weight_syncs"), _leaves(tracks)
    synced = synced[synced["pool"].isna() | synced["pool"].isin([Pool.ROLLOUT.value, Pool.BOTH.value])]
    rest = leaves[leaves["phase"] == Phase.WEIGHT_SYNC.value]
    both = [rows[list(_ROWS)] for rows in (synced, rest) if not rows.empty]
    return pd.concat(both) if both else synced[list(_ROWS)]


def _leaves(tracks: Tracks) -> pd.DataFrame:
    """Leaf spans of the rollout track, their unit as the engine's name."""
    return tracks.leaves[tracks.leaves["pool"] == Pool.ROLLOUT.value].rename(columns={"unit": "engine"})


def _closed(run: RunTables, high: int) -> tuple[Ns, Ns]:
    """When admission was closed, or every slot was taken."""
    gates = run.frame("gates").sort_values("mono_ns", kind="stable")
    full = (gates["in_flight"] >= gates["cap"]).fillna(False).to_numpy(np.bool_)
    shut = ~gates["open"].to_numpy(np.bool_) | full
    times = gates["mono_ns"].to_numpy(np.int64)
    return times[shut], np.concatenate((times[1:], [max(high, int(times[-1]))]))[shut] if times.size else NO_NS


def of_unit(rows: pd.DataFrame, names: Sequence[str] | None, engines: tuple[str, ...]) -> tuple[Ns, Ns]:
    """Intervals of one unit (None: the pool): of any of its names, and those that name no known engine."""
    mine = rows if names is None else rows[~rows["engine"].isin(engines) | rows["engine"].isin(list(names))]
    return mine["start_ns"].to_numpy(np.int64), mine["end_ns"].to_numpy(np.int64)


@dataclass(frozen=True, slots=True)
class Unit:
    """One rollout unit over the window, cell by cell."""

    timeline: Timeline
    running: npt.NDArray[np.int64]  # turns open at the client
    wanted: npt.NDArray[np.bool_]  # a trajectory of the unit generates, or waits to
    blocked_s: float  # a turn was open and the unit not paused, while the train unit was in a weight sync


def rollout_unit(
    shared: Shared, work: Work, names: Sequence[str] | None, engines: tuple[str, ...], colocated: bool
) -> Unit:
    """One rollout unit's classes, and what happened beside them. `names`: of its server; None: the pool as one."""
    # How many is asked of turns alone, and of lives less those away; of the rest, whether any: unions have few edges.
    sync, offload, wants, tools, anyones, waits = (
        merge(*each)
        for each in (
            of_unit(shared.syncs, names, engines),
            of_unit(shared.offloads, names, engines),
            work.wants,
            work.tools,
            shared.lives,
            shared.waits,
        )
    )
    spoken_for = merge(*work.spoken) if work.spoken else (NO_NS, NO_NS)
    lives = work.lives if work.away[0].size else merge(*work.lives)
    marks = (shared.down, sync, offload, work.turns, wants, tools, lives, work.idle, work.away, spoken_for)
    times = (*(time for pair in (*marks, anyones, waits) for time in pair), shared.train.edges)
    grid = grid_of(shared.low, shared.high, *times)
    running, here, anywhere = (level(*each, grid) for each in (work.turns, lives, anyones))
    away = level(*work.away, grid)
    here = here - away
    unserved_here = level(*work.idle, grid)
    evidence = {
        Class.DOWN: level(*shared.down, grid) > 0,
        Class.WEIGHT_SYNC: level(*sync, grid) > 0,
        Class.OFFLOAD: level(*offload, grid) > 0,
        # Turns are open somewhere in the pool, and no reading says whether this engine ran any of them: no one knows.
        Class.OTHER: (away > 0) & (level(*spoken_for, grid) == 0) & (work.spoken is not None),
        # One turn that no reading speaks for is enough: then the client's word stands.
        Class.QUEUED: (unserved_here > 0) & (unserved_here >= running),
        Class.GENERATING: running > 0,
        Class.TOOL_WAIT: (here > 0) & (level(*tools, grid) > 0),
        Class.AGENT: here > 0,
        Class.EMPTY: anywhere > 0,
        Class.WAIT_TRAIN: level(*waits, grid) > 0,
    }
    codes = np.select(list(evidence.values()), [CODES[member] for member in evidence], OTHER_CODE).astype(np.int8)
    beside = shared.train.at(grid)
    blocked = (beside == CODES[Class.WEIGHT_SYNC]) & ~evidence[Class.WEIGHT_SYNC] & (running > 0)
    if colocated:
        # No other pool to wait for: a closed gate inside the generate span is the framework between trajectories.
        codes[codes == CODES[Class.WAIT_TRAIN]] = CODES[Class.AGENT]
        codes = np.where(beside == ROLLOUT_REGION, codes, beside).astype(np.int8)
    wanted = level(*wants, grid) > 0
    return Unit(Timeline(grid, codes), running, wanted, float(np.diff(grid)[blocked].sum()) / 1e9)


def down_times(run: RunTables, roles: tuple[str, ...], low: int, high: int) -> tuple[Ns, Ns]:
    """When no process of these roles was there: before its Hello, after its Bye. None recorded: no evidence."""
    processes = run.frame("processes")
    mine = processes[processes["role"].isin(list(roles)) & processes["mono_ns"].notna()]
    if mine.empty:
        return NO_NS, NO_NS
    up_s, up_e = merge(
        mine["mono_ns"].to_numpy(np.int64), mine["bye_ns"].fillna(high).clip(upper=high).to_numpy(np.int64)
    )
    starts, ends = np.concatenate(([low], up_e)), np.concatenate((up_s, [high]))
    return clip(starts.astype(np.int64), ends.astype(np.int64), low, high)


def _rollout_down(run: RunTables, low: int, high: int) -> tuple[Ns, Ns]:
    """When the rollout side was not there: no controller, the last engine said Bye, or too few GPUs left for any.

    An engine's Hello is no evidence: it may open its recorder long after it began to serve. Which GPU an engine has is
    not known: while some replica may still have all of its own, a lost GPU puts none down.
    """
    pools = (Pool.BOTH.value,) if run.spec.placement is Placement.COLOCATED else (Pool.ROLLOUT.value,)
    gpus = run.spec.gpus.rollout
    lost = more_lost_than(run, pools, gpus - gpus // replicas_of(run.spec), low, high)
    processes = run.frame("processes")
    engines = processes[processes["role"].isin(["engine", "rollout"])]
    starts, ends = down_times(run, ("controller",), low, high)
    starts, ends = np.concatenate((starts, lost[0])), np.concatenate((ends, lost[1]))
    if engines.empty or engines["bye_ns"].isna().any():
        return starts, ends
    gone = int(engines["bye_ns"].max())
    return clip(np.concatenate((starts, [gone])), np.concatenate((ends, [high])), low, high)
