"""Identities row by row, on the tables of a run: what was counted twice is one number, and time goes forward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import FLOAT, INT
from results.lint import identities
from results.lint.check import Check
from results.lint.energy_identities import BLANK_32, BLANK_64, not_blank
from results.lint.findings import Linted
from results.lint.quantity import Quantity
from results.schema import COLUMNS
from results.store import RunTables
from results.tracks import floats, ints

MOST_ROWS = 20  # findings of one identity in one table; the rest are counted
COUNTED = {"token", "turn", "call", "byte", "trajectory", "error", "event", "line", "request", "comparison", "row"}
DURATIONS = ("tool_ns", "planned_tool_ns", "planned_ns", "served_ns", "pause_ns", "transfer_ns", "resume_ns")
INTERVALS = ("spans", "steps", "turns", "tool_calls", "weight_syncs", "trajectories")
# Counters: table -> (what makes one series, columns).
COUNTERS = {
    "samples": (("host", "gpu"), ("energy_joules", "nvlink_tx_bytes", "nvlink_rx_bytes")),
    "engine_samples": (("engine",), ("prompt_tokens", "generation_tokens", "preemptions")),
}
TIME_SLACK_NS = 1000.0  # durations are differences of whole ns, summed as often as there are calls

READINGS = ("samples", "engine_samples")  # tables of what sensors said
# What names a row, in the order in which it is said.
NAMING = ("trajectory_id", "step", "turn", "tool", "native_name", "gpu", "engine", "metric")

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Rows:
    """Checks of many rows at once: all are counted, those that fail become findings."""

    linted: Linted

    def check(
        self, identity: str, failed: Flags, made: int, where: str, checks: Callable[[int], tuple[Check, str]]
    ) -> None:
        places = np.flatnonzero(failed)
        self.linted.made[identity] = self.linted.made.get(identity, 0) + made - min(places.size, MOST_ROWS)
        for place in places[:MOST_ROWS].tolist():
            self.linted.check(*checks(place))
        if places.size > MOST_ROWS:
            more = places.size - MOST_ROWS
            self.linted.notes.append(f"{where}: {more} more rows break `{identity}`")


def lint_tables(run: RunTables, linted: Linted) -> None:
    """Checks every table of a run; findings are added to `linted`. Of large tables only what is checked is read."""
    rows = _Rows(linted)
    for name, columns in COLUMNS.items():
        for column in columns:
            counted = column.type in (INT, FLOAT) and column.unit in COUNTED
            if counted or column.name in DURATIONS:
                _signs(rows, run, name, column.name)
            elif column.unit == "ratio":
                _shares(rows, run, name, column.name)
            if name in READINGS and column.type in (INT, FLOAT) and column.name not in ("mono_ns", "uncertainty_ns"):
                _blanks(rows, run, name, column.name)
    for name in INTERVALS:
        _forward(rows, run, name)
    for name, (keys, counters) in COUNTERS.items():
        for counter in counters:
            _growing(rows, run, name, keys, counter)
    _trajectories(rows, run)
    _versions(rows, run)
    _steps(linted, run)


def _exact(value: float) -> Quantity:
    return Quantity.exact(float(value))


def _values(run: RunTables, name: str, column: str) -> Floats:
    return floats(run.part(name, [column]).column(column))


def _name(run: RunTables, name: str, place: int) -> str:
    """A row by what names it, e.g. `turns, trajectory p0-s1-a0, turn 2`."""
    keys = [column.name for column in COLUMNS[name] if column.name in NAMING]
    row = run.part(name, keys).slice(place, 1).to_pylist()[0] if keys else {}
    parts = [f"{key.removesuffix('_id')} {row[key]}" for key in NAMING if row.get(key) is not None]
    return ", ".join([name, *parts]) if parts else f"{name}, row {place + 1}"


def _signs(rows: _Rows, run: RunTables, name: str, column: str) -> None:
    values = _values(run, name, column)
    known = ~np.isnan(values)

    def made(place: int) -> tuple[Check, str]:
        return identities.count_not_negative(_exact(values[place]), column), _name(run, name, place)

    rows.check("count_not_negative", known & (values < 0), int(known.sum()), f"{name}.{column}", made)


def _shares(rows: _Rows, run: RunTables, name: str, column: str) -> None:
    values = _values(run, name, column)
    known = ~np.isnan(values)
    # Engines and DCGM compute shares in single precision, which may pass 1 by a rounding.
    failed = known & ((values < 0) | (values > 1 + 1e-6))

    def made(place: int) -> tuple[Check, str]:
        return identities.share_in_unit(_exact(values[place]), column), _name(run, name, place)

    rows.check("share_in_unit", failed, int(known.sum()), f"{name}.{column}", made)


def _blanks(rows: _Rows, run: RunTables, name: str, column: str) -> None:
    values = _values(run, name, column)
    known = ~np.isnan(values)
    narrow = not column.endswith("_bytes")
    signs = np.array(sorted(BLANK_64 | BLANK_32 if narrow else BLANK_64))

    def made(place: int) -> tuple[Check, str]:
        return not_blank(_exact(values[place]), column, narrow=narrow), _name(run, name, place)

    rows.check("not_blank", known & np.isin(values, signs), int(known.sum()), f"{name}.{column}", made)


def _forward(rows: _Rows, run: RunTables, name: str) -> None:
    start, end = (_values(run, name, column) for column in ("start_ns", "end_ns"))
    known = ~np.isnan(start) & ~np.isnan(end)

    def made(place: int) -> tuple[Check, str]:
        check = identities.start_before_end(_exact(start[place] / 1e9), _exact(end[place] / 1e9))
        return check, _name(run, name, place)

    rows.check("start_before_end", known & (end < start), int(known.sum()), name, made)


def _series(table: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each row, equal where its keys are equal."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for key in keys:
        encoded = pc.dictionary_encode(table.column(key).combine_chunks())
        codes = codes * (len(encoded.dictionary) + 1) + ints(encoded.indices, -1) + 1
    return codes


def _growing(rows: _Rows, run: RunTables, name: str, keys: Sequence[str], column: str) -> None:
    """Each reading of a counter against the next one of its series, in the order of time."""
    table = run.part(name, [*keys, "mono_ns", column])
    known = np.flatnonzero(~np.isnan(floats(table.column(column))))
    if known.size < 2:
        return
    series = _series(table, keys)[known]
    order = np.lexsort((ints(table.column("mono_ns"))[known], series))
    series, places = series[order], known[order]
    values = floats(table.column(column))[places]
    same = series[1:] == series[:-1]

    def made(place: int) -> tuple[Check, str]:
        check = identities.counter_grows(_exact(values[place]), _exact(values[place + 1]), column, "")
        return check, _name(run, name, int(places[place]))

    rows.check("counter_grows", same & (np.diff(values) < 0), int(same.sum()), f"{name}.{column}", made)


def _life(lives: pd.DataFrame, place: int) -> str:
    return f"trajectories, trajectory {lives['trajectory_id'].iloc[place]}"


def _trajectories(rows: _Rows, run: RunTables) -> None:
    """Trajectories that ended well, against the rows of their turns and tool calls."""
    lives = run.frame("trajectories")
    lives = lives[lives["status"] == "ok"].drop_duplicates("trajectory_id", keep=False).reset_index(drop=True)
    turns, calls = run.frame("turns"), run.frame("tool_calls")
    if lives.empty or (turns.empty and calls.empty):
        return
    replies = turns[turns["generated_tokens"].notna()]
    per_life = replies.groupby("trajectory_id")["generated_tokens"].agg(["size", "sum"])
    unknown = set(turns.loc[turns["generated_tokens"].isna(), "trajectory_id"])
    calls = calls.assign(took=calls["end_ns"] - calls["start_ns"])
    per_calls = calls.groupby("trajectory_id")["took"].agg(["size", "sum"])
    ids = lives["trajectory_id"]
    pairs = [
        ("turns", ids.map(per_life["size"]).fillna(0), "rows of turns with a reply", "turn", 0.0),
        ("generated_tokens", ids.map(per_life["sum"]).fillna(0), "tokens of its turns", "token", 0.0),
        ("tool_calls", ids.map(per_calls["size"]).fillna(0), "rows of tool_calls", "call", 0.0),
        ("tool_ns", ids.map(per_calls["sum"]).fillna(0), "time of its tool_calls", "ns", TIME_SLACK_NS),
    ]
    for column, counted, words, unit, slack in pairs:
        stated = lives[column].to_numpy(np.float64, na_value=np.nan)
        other = counted.to_numpy(np.float64, na_value=np.nan)
        known = ~np.isnan(stated) & ~np.isnan(other)
        if column in ("turns", "generated_tokens"):  # a reply is known by its tokens
            known &= ~ids.isin(unknown).to_numpy()

        def made(
            place: int,
            stated: npt.NDArray[np.float64] = stated,
            other: npt.NDArray[np.float64] = other,
            column: str = column,
            words: str = words,
            unit: str = unit,
        ) -> tuple[Check, str]:
            check = identities.counts_agree(_exact(stated[place]), _exact(other[place]), column, words, unit)
            return check, _life(lives, place)

        rows.check("counts_agree", known & (np.abs(stated - other) > slack), int(known.sum()), "trajectories", made)


def _versions(rows: _Rows, run: RunTables) -> None:
    """Nothing is trained on before its version existed, and versions of one trajectory don't go back."""
    lives = run.frame("trajectories")
    names = (
        ("version_first", "version at the first token"),
        ("version_last", "version at the last token"),
        ("version_trained", "version trained at"),
    )
    for (one, one_words), (two, two_words) in pairwise(names):
        low = lives[one].to_numpy(np.float64, na_value=np.nan)
        high = lives[two].to_numpy(np.float64, na_value=np.nan)
        known = ~np.isnan(low) & ~np.isnan(high)

        def made(
            place: int,
            low: npt.NDArray[np.float64] = low,
            high: npt.NDArray[np.float64] = high,
            words: tuple[str, str] = (one_words, two_words),
        ) -> tuple[Check, str]:
            pair = [(words[0], _exact(low[place])), (words[1], _exact(high[place]))]
            return identities.ordered(pair, "version")[0], _life(lives, place)

        rows.check("ordered", known & (low > high), int(known.sum()), "trajectories", made)


def _steps(linted: Linted, run: RunTables) -> None:
    """A batch holds as many trajectories as it says, each once in the run; one controller's steps don't overlap."""
    steps = run.frame("steps").drop_duplicates("step", keep="last")
    times: dict[str, int] = {}
    columns = (steps[name].tolist() for name in ("step", "trajectory_ids", "trajectories"))
    for step, named, count in zip(*columns, strict=True):
        if len(named) and pd.notna(count):
            check = identities.counts_agree(
                _exact(count), _exact(len(named)), "trajectories", "trajectory_ids", "trajectory"
            )
            linted.check(check, f"steps, step {step}")
        for name in named:
            times[name] = times.get(name, 0) + 1
    for name, count in times.items():
        linted.check(identities.used_once(count, name), f"trajectories, trajectory {name}")
    for _, mine in steps.groupby(["host", "pid"], sort=True):
        took = [_exact(float(end - start) / 1e9) for start, end in zip(mine["start_ns"], mine["end_ns"], strict=True)]
        wall = _exact(float(mine["end_ns"].max() - mine["start_ns"].min()) / 1e9)
        linted.check(identities.leaves_within_wall(took, wall), "steps, all of one controller")
