"""Trajectories, turns and tool calls one by one: all of them, or all of a stretch of the run that fits the page."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reports import style
from reports.case import Case
from reports.html.axis import Axis, Fineness
from reports.html.packing import packed
from reports.html.timeline import live_ends
from results.intervals import Ns
from results.tracks import FOREVER, UNKNOWN, Calls, Index, Tracks, ints

NO_LANE = 65_535
_ARGUMENT = 300  # letters of one query or address
_REFINED = 24  # times that the stretch is halved or doubled towards what fits

Clean = Callable[[Sequence[str]], list[str]]


def lives_of(
    case: Case, found: Tracks, axis: Axis, fine: Fineness, also: Sequence[str], clean: Clean
) -> dict[str, Any]:
    """Trajectories of the stretch that is drawn one by one, and of `also` (ids) wherever they are.

    `clean` takes the places of this machine out of queries and addresses.
    """
    ends = live_ends(found, axis)
    stretch = _stretch(case, found, ends, axis, fine.items)
    low, high = stretch or (axis.start_ns, axis.start_ns)
    drawn = (found.life_start <= high) & (ends >= low) & (stretch is not None)
    ids: list[str] = found.ids.to_pylist()
    wanted = set(also)
    extra = np.array([name in wanted for name in ids], dtype=np.bool_) & ~drawn
    chosen = np.flatnonzero(drawn | extra)
    chosen = chosen[np.argsort(found.life_start[chosen], kind="stable")]
    lanes, count = _lanes(found.life_start[chosen], ends[chosen], drawn[chosen])
    whole = stretch is not None and bool(drawn.all())
    return {
        "from": axis.seconds(low),
        "until": axis.seconds(high),
        "whole": whole,
        "how": _how(len(ids), int(drawn.sum()), low, high, axis, whole),
        "lanes": count,
        "id": [ids[place] for place in chosen],
        "start": axis.ticks(found.life_start[chosen]),
        "end": axis.ticks(ends[chosen]),
        "lane": packed(lanes, "u2"),
        **_facts(case.run.tables["trajectories"], chosen, found.life_end[chosen] == FOREVER),
        "turns": _turns(case.run.tables["turns"], found, chosen, axis),
        "tools": _tools(case.run.tables["tool_calls"], found, chosen, axis, fine.letters, clean),
    }


def _stretch(case: Case, found: Tracks, ends: Ns, axis: Axis, most: int) -> tuple[int, int] | None:
    """The longest stretch about the middle of the steady window whose trajectories have at most so many items.

    None: those of one instant have more.
    """
    size = found.life_start.size
    items = np.ones(size, dtype=np.int64)
    for calls in (found.turns, found.tools):
        items += np.bincount(calls.life[calls.life != UNKNOWN], minlength=size)[:size]
    if int(items.sum()) <= most:
        return axis.start_ns, axis.end_ns
    window = case.figures.window
    middle = (axis.start_ns + axis.end_ns) // 2 if window is None else (window.start_ns + window.end_ns) // 2
    fits, too_long = -1, axis.end_ns - axis.start_ns
    for turn in range(_REFINED):
        half = (fits + too_long) // 2 if turn else 0
        inside = (found.life_start <= middle + half) & (ends >= middle - half)
        if int(items[inside].sum()) <= most:
            fits = half
        else:
            too_long = half
        if too_long == 0:
            return None
    return max(middle - fits, axis.start_ns), min(middle + fits, axis.end_ns)


def _how(known: int, drawn: int, low: int, high: int, axis: Axis, whole: bool) -> str:
    if whole:
        return "every trajectory, turn and tool call, as recorded"
    if not drawn:
        return f"none of {known:,}: more are in flight at one instant than fit into this page; see the counts above"
    length, begin = style.duration((high - low) / 1e9), style.duration((low - axis.start_ns) / 1e9)
    return (
        f"{drawn:,} of {known:,} trajectories: all that were in flight in the {length} from {begin} on, as recorded; "
        "the others are only in the counts above"
    )


def _lanes(starts: Ns, ends: Ns, drawn: npt.NDArray[np.bool_]) -> tuple[list[int], int]:
    """A lane for each trajectory, the lowest that is free at its start; those that are not drawn have none."""
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    lanes, count = [], 0
    for start, end, shown in zip(starts.tolist(), ends.tolist(), drawn.tolist(), strict=True):
        if not shown:
            lanes.append(NO_LANE)
            continue
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (end, lane))
        lanes.append(min(lane, NO_LANE - 1))
    return lanes, min(count, NO_LANE - 1)


def _facts(table: pa.Table, chosen: Index, still_open: npt.NDArray[np.bool_]) -> dict[str, Any]:
    rows = table.take(pa.array(chosen))
    status, names = _coded(rows.column("status").to_pylist())
    groups, group_names = _coded(rows.column("group_id").to_pylist())
    trained, first = ints(rows.column("version_trained"), UNKNOWN), ints(rows.column("version_first"), UNKNOWN)
    stale = np.where((trained == UNKNOWN) | (first == UNKNOWN), -(2**31), trained - first)
    return {
        "status": packed(status, "u4"),
        "statuses": names,
        "group": packed(groups, "u4"),
        "groups": group_names,
        "open": packed(still_open, "u1"),
        "step": packed(ints(rows.column("step_consumed"), UNKNOWN), "i4"),
        "stale": packed(stale, "i4"),
        "tokens": packed(ints(rows.column("generated_tokens"), UNKNOWN), "i4"),
        "reward": [None if value is None else round(value, 6) for value in rows.column("reward").to_pylist()],
        "message": [None if text is None else text[:_ARGUMENT] for text in rows.column("message").to_pylist()],
    }


def _turns(table: pa.Table, found: Tracks, chosen: Index, axis: Axis) -> dict[str, Any]:
    order, offsets = _of_lives(found.turns, chosen, found.life_start.size)
    version = _padded(ints(table.column("version_start"), UNKNOWN), found.turns.start.size)
    tokens = np.nan_to_num(found.turn_tokens[order], nan=UNKNOWN)
    return {
        "offset": packed(offsets, "u4"),
        "start": axis.ticks(found.turns.start[order]),
        "end": axis.ticks(found.turns.end[order]),
        "tokens": packed(tokens, "i4"),
        "engine": packed(found.turn_engine[order], "i4"),
        "engines": list(found.engines),
        "version": packed(version[order], "i4"),
    }


def _tools(table: pa.Table, found: Tracks, chosen: Index, axis: Axis, letters: int, clean: Clean) -> dict[str, Any]:
    order, offsets = _of_lives(found.tools, chosen, found.life_start.size)
    closed = np.where(order < table.num_rows, order, 0)
    there = order < table.num_rows
    rows = table.take(pa.array(closed)) if table.num_rows else table
    columns: dict[str, list[Any]] = {}
    for name in ("tool", "status", "argument", "detail", "observation_tokens"):
        values = rows.column(name).to_pylist() if table.num_rows else [None] * order.size
        columns[name] = [value if seen else None for value, seen in zip(values, there.tolist(), strict=True)]
    tool, tools = _coded(columns["tool"])
    status, statuses = _coded(columns["status"])
    arguments, kept = _texts(columns["argument"], letters, clean)
    details, _ = _texts(columns["detail"], letters, clean)
    tokens = [UNKNOWN if value is None else value for value in columns["observation_tokens"]]
    return {
        "offset": packed(offsets, "u4"),
        "start": axis.ticks(found.tools.start[order]),
        "end": axis.ticks(found.tools.end[order]),
        "tool": packed(tool, "u4"),
        "tools": tools,
        "status": packed(status, "u4"),
        "statuses": statuses,
        "tokens": packed(tokens, "i4"),
        "argument": arguments,
        "detail": details,
        "how": None if kept else f"queries and addresses are left out beyond {letters:,} letters",
    }


def _of_lives(calls: Calls, chosen: Index, lives: int) -> tuple[Index, Index]:
    """Indices of the calls of those trajectories, by trajectory and start; and where each trajectory's begin."""
    place = np.full(lives + 1, UNKNOWN, dtype=np.int64)  # the last stands for a call of no known trajectory
    place[chosen] = np.arange(chosen.size)
    mine = np.flatnonzero(place[calls.life] != UNKNOWN)
    owner = place[calls.life[mine]]
    order = np.lexsort((calls.start[mine], owner))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=chosen.size))))
    return mine[order].astype(np.int64), offsets.astype(np.int64)


def _padded(values: Index, size: int) -> Index:
    """Turns that never closed come after those of the table, and have no more than their start."""
    return np.concatenate((values, np.full(size - values.size, UNKNOWN, dtype=np.int64)))


def _coded(values: Sequence[Any]) -> tuple[list[int], list[str | None]]:
    names: dict[Any, int] = {}
    codes = [names.setdefault(value, len(names)) for value in values]
    return codes, [None if name is None else str(name) for name in names]


def _texts(values: Sequence[Any], letters: int, clean: Clean) -> tuple[list[str | None], bool]:
    """Texts, each cut, as long as there is room for them; and whether there was for all."""
    made: list[str | None] = []
    left, whole = letters, True
    for value in values:
        text = None if value is None else style.shorten(str(value), _ARGUMENT)
        if text is not None:
            left -= len(text)
            if left < 0:
                text, whole = None, False
        made.append(text)
    known = [text for text in made if text is not None]
    cleaned = iter(clean(known)) if known else iter(())
    return [None if text is None else next(cleaned) for text in made], whole
