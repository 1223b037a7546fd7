"""What a run's tables hold, as arrays: leaf spans, the lives of trajectories, their turns, tool calls and rewards.

Filtering is done in Arrow, before anything becomes a Python object: a run has millions of turns.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from harness.protocol.phases import Phase
from results.intervals import NO_NS, Ns
from results.store import RunTables

FOREVER = np.iinfo(np.int64).max  # the end of what never ended
UNKNOWN = -1  # an index of nothing

Index = npt.NDArray[np.int64]
_OF_CALLS = ("start_ns", "end_ns")
_OF_TURNS = (*_OF_CALLS, "engine", "generated_tokens", "submitted_ns")
_LEAF = ("host", "pid", "phase", "native_name", "pool", "unit", "step", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True)
class Calls:
    """Turns, tool calls or rewards. `life` indexes the trajectories (UNKNOWN: none known)."""

    life: Index
    start: Ns
    end: Ns


@dataclass(frozen=True, slots=True)
class Tracks:
    """A run as arrays. Times in monotonic ns; what never ended ends at FOREVER."""

    leaves: pd.DataFrame  # leaf spans without a trajectory: columns _LEAF
    ids: pa.Array  # trajectory ids, by life
    life_start: Ns
    life_end: Ns
    turns: Calls
    turn_submitted: Ns  # the turn's start where the recorder did not know
    queue_known: npt.NDArray[np.bool_]  # the recorder did know; else a turn may hold time in a queue
    turn_tokens: npt.NDArray[np.float64]  # generated tokens, NaN where unknown
    turn_engine: Index  # index into `engines`; UNKNOWN where the framework hides it
    answered: npt.NDArray[np.bool_]  # the turn was closed with a reply; only then can it say its engine
    engines: tuple[str, ...]
    tools: Calls
    rewards: Calls

    def engines_known(self, low: int, high: int) -> bool:
        """Whether every answered turn that was open within [low, high) says which engine answered it."""
        inside = self.answered & (self.turns.start < high) & (self.turns.end > low)
        return bool(inside.any()) and bool((self.turn_engine[inside] != UNKNOWN).all())

    def end_of(self, life: Index, otherwise: Ns) -> Ns:
        """The end of each trajectory in `life`, and `otherwise` where the trajectory is not known."""
        if self.life_end.size == 0:
            return otherwise
        return np.where(life == UNKNOWN, otherwise, self.life_end[np.maximum(life, 0)])


def ints(column: pa.ChunkedArray | pa.Array, missing: int = 0) -> npt.NDArray[np.int64]:
    """A column of integers with `missing` where it is null."""
    filled = pc.fill_null(column, pa.scalar(missing, column.type))
    return np.asarray(filled.to_numpy(zero_copy_only=False) if isinstance(filled, pa.Array) else filled.to_numpy())


def floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column of numbers with NaN where it is null."""
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def tracks(run: RunTables) -> Tracks:
    """The arrays of a collected run, whole or killed."""
    lives = run.tables["trajectories"]
    ids = lives.column("trajectory_id").combine_chunks()
    life_start = ints(lives.column("start_ns"))
    life_end = ints(lives.column("end_ns"), FOREVER)

    def wanted(spans: pa.RecordBatch) -> pa.Array:
        leaf = pc.and_(pc.invert(spans.column("container")), spans.column("phase").is_valid())
        of_reward = pc.equal(spans.column("phase"), Phase.REWARD.value)
        return pc.and_(leaf, pc.or_(spans.column("trajectory_id").is_null(), of_reward))

    # Most spans of a long run are turns and tool calls, which have tables of their own.
    text = ("host", "phase", "native_name", "pool", "unit", "trajectory_id")
    spans = run.where("spans", (*_LEAF, "trajectory_id", "container"), wanted, text=text)
    own = pc.is_null(spans.column("trajectory_id"))
    leaves = spans.filter(own).select(list(_LEAF)).to_pandas()
    rewards = spans.filter(pc.invert(own))

    turns, tools, opens = run.part("turns", _OF_TURNS), run.part("tool_calls", _OF_CALLS), run.tables["opens"]
    known = pc.unique(turns.column("engine")).drop_null()
    engines = tuple(sorted(known.to_pylist()))
    engine = pc.index_in(turns.column("engine"), value_set=pa.array(engines, pa.string()))
    closed_turns = _calls(turns, lives_of(run, "turns", ids))
    open_turns = _open_calls(opens, Phase.GENERATION, ids, life_end)
    all_turns = _join(closed_turns, open_turns)
    turn_engine = np.concatenate((ints(engine, UNKNOWN), np.full(open_turns.start.size, UNKNOWN)))
    answered = np.zeros(all_turns.start.size, dtype=np.bool_)
    replied = ~np.isnan(floats(turns.column("generated_tokens"))) | (ints(engine, UNKNOWN) != UNKNOWN)
    answered[: closed_turns.start.size] = replied
    submitted = ints(turns.column("submitted_ns"), UNKNOWN)
    queue_known = np.concatenate((submitted != UNKNOWN, np.zeros(open_turns.start.size, dtype=np.bool_)))
    submitted = np.where(submitted == UNKNOWN, closed_turns.start, np.minimum(submitted, closed_turns.start))
    return Tracks(
        leaves=leaves,
        ids=ids,
        life_start=life_start,
        life_end=life_end,
        turns=all_turns,
        turn_submitted=np.concatenate((submitted, open_turns.start)),
        queue_known=queue_known,
        turn_tokens=np.concatenate((floats(turns.column("generated_tokens")), np.full(open_turns.start.size, np.nan))),
        turn_engine=_told_engine(all_turns, turn_engine.astype(np.int64), answered, len(engines)),
        answered=answered,
        engines=engines,
        tools=_join(_calls(tools, lives_of(run, "tool_calls", ids)), _open_calls(opens, Phase.TOOL, ids, life_end)),
        rewards=_calls(rewards, _index(rewards.column("trajectory_id"), ids)),
    )


def by_life(calls: Calls) -> Index:
    """The calls in order of their lives, those of a life by their start (and as they come, where that is the same)."""
    return np.lexsort((calls.start, calls.life))


def last_turn_before(turns: Calls, life: Index, at: Ns, order: Index | None = None) -> Index:
    """For each (life, instant), the index of the last turn of that life that started at or before it, or UNKNOWN.

    `order`: `by_life` of the turns, where it is there already.
    """
    if not turns.start.size:
        return np.full(life.size, UNKNOWN, dtype=np.int64)
    order = by_life(turns) if order is None else order
    start = turns.start[order]
    # A place for each life, UNKNOWN's the first. Of its turns, how many are early enough: by halving, of all at once.
    lives = 2 + int(max(turns.life.max(), life.max(initial=UNKNOWN)))
    edges = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(turns.life + 1, minlength=lives))))
    first = edges[life + 1]
    low, high = first.copy(), np.where(life == UNKNOWN, first, edges[life + 2])
    while (open_still := low < high).any():
        middle = np.where(open_still, (low + high) // 2, 0)
        early = open_still & (start[middle] <= at)
        low, high = np.where(early, middle + 1, low), np.where(early | ~open_still, high, middle)
    return np.where(low > first, order[np.maximum(low - 1, 0)], UNKNOWN)


def lives_of(run: RunTables, name: str, ids: pa.Array) -> Index:
    """The trajectory of each row of a table, of which it has many more than there are trajectories."""
    parts = [np.empty(0, dtype=np.int64)]
    for batch in run.batches(name, ("trajectory_id",), text=("trajectory_id",)):
        encoded = batch.column("trajectory_id")
        places = np.append(_index(encoded.dictionary, ids), UNKNOWN)
        parts.append(places[ints(encoded.indices, places.size - 1)])
    return np.concatenate(parts)


def _open_calls(opens: pa.Table, phase: Phase, ids: pa.Array, life_end: Ns) -> Calls:
    """Turns or tool calls that were never closed: of a killed run, or cancelled in the middle."""
    wanted = pc.and_(pc.equal(opens.column("phase"), phase.value), pc.is_valid(opens.column("trajectory_id")))
    mine = opens.filter(wanted)
    if mine.num_rows == 0:
        return Calls(NO_NS, NO_NS, NO_NS)
    life = _index(mine.column("trajectory_id"), ids)
    start = ints(mine.column("start_ns"))
    end = start if life_end.size == 0 else np.where(life == UNKNOWN, start, life_end[np.maximum(life, 0)])
    return Calls(life, start, np.maximum(end, start))


def _join(a: Calls, b: Calls) -> Calls:
    return Calls(np.concatenate((a.life, b.life)), np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def _told_engine(turns: Calls, engine: Index, answered: npt.NDArray[np.bool_], engines: int) -> Index:
    """Gives a turn without a reply (cancelled, or never closed) the engine of its trajectory's turn before.

    Its own was not told. Where the run knows one engine only, it is that one.
    """
    silent = ~answered & (engine == UNKNOWN)
    if not silent.any():
        return engine
    filled = engine.copy()
    if engines == 1:
        filled[silent] = 0
        return filled
    told = np.flatnonzero(answered)
    if told.size == 0:
        return engine
    done = Calls(turns.life[told], turns.start[told], turns.end[told])
    before = last_turn_before(done, turns.life[silent], turns.start[silent])
    filled[silent] = np.where(before == UNKNOWN, UNKNOWN, engine[told[np.maximum(before, 0)]])
    return filled


def _calls(table: pa.Table, life: Index) -> Calls:
    return Calls(life, ints(table.column("start_ns")), ints(table.column("end_ns")))


def _index(names: pa.Array | pa.ChunkedArray, ids: pa.Array) -> Index:
    """The place of each trajectory among all, UNKNOWN of one that is none of them."""
    return ints(pc.index_in(names, value_set=ids), UNKNOWN).astype(np.int64)
