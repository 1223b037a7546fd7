"""What the tool calls of a run did: by tool and outcome, and what each process added to their latencies.

Overhead is what a call took beyond the latency that was imposed on it (mock tools, replay), or, where none was, beyond
the time inside the tool server. It is the agent's side: event loop, connection, waiting. Nothing is left out: calls of
the whole run, but for the cancelled ones, which were ended from outside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from results.stats import quantiles
from results.store import RunTables
from results.tracks import floats, ints

CANCELLED = "cancelled"
NOT_FOUND = "not_found"
UNKNOWN = "unknown"
SHOWN = 5  # requests that were not found, named
_TEXTS = ("host", "tool", "status")
_COLUMNS = (*_TEXTS, "pid", "start_ns", "end_ns", "planned_ns", "served_ns", "wire_bytes")
_NAMED = ("tool", "argument", "start_ns")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quantiles of durations in ns (order statistics); `n` of them are known, None where none is."""

    n: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Calls of one tool that ended with one status (None: unknown)."""

    tool: str
    status: str | None
    calls: int
    of: int
    """Calls of the tool, whatever their status."""
    latency: Spread
    served: Spread
    """Time inside the tool server."""
    wire_bytes: int | None
    """Sum over the calls that know theirs; None: none does."""

    @property
    def rate(self) -> float:
        """Share of the tool's calls."""
        return self.calls / self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOverhead:
    """What the calls of one process took beyond what their tools took."""

    host: str
    pid: int
    role: str | None
    calls: int
    beyond_planned: Spread
    beyond_served: Spread
    """Of calls without an imposed latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """All of it. `why_none` says why there is nothing, else None."""

    why_none: str | None
    calls: int
    cancelled: int
    outcomes: tuple[Outcome, ...]
    beyond_planned: Spread
    beyond_served: Spread
    processes: tuple[ProcessOverhead, ...]
    not_found: int
    """Calls that ended as `not_found` with no latency imposed: of a replay, those that the trace has no recording for
    (what was recorded as not found is none of them)."""
    not_found_first: tuple[tuple[str, str], ...]
    """The first 5 different ones: tool and argument (as recorded: cut)."""


def tool_figures(run: RunTables) -> ToolFigures:
    """The figures of a run's tool calls."""
    every = _Calls.of(run.part("tool_calls", _COLUMNS))
    calls = every.those(np.flatnonzero(every.status.number != every.status.number_of(CANCELLED)))
    missing = np.flatnonzero((every.status.number == every.status.number_of(NOT_FOUND)) & np.isnan(every.planned))
    roles = {(row["host"], row["pid"]): row["role"] for row in _processes(run)}
    beyond = _beyond_planned(calls), _beyond_served(calls)
    return ToolFigures(
        why_none=None if calls.took.size else "no tool call ended",
        calls=calls.took.size,
        cancelled=every.took.size - calls.took.size,
        outcomes=tuple(_outcomes(calls)),
        beyond_planned=beyond[0],
        beyond_served=beyond[1],
        processes=tuple(
            ProcessOverhead(
                host=host,
                pid=pid,
                role=roles.get((host, pid)),
                calls=mine.took.size,
                beyond_planned=beyond[0] if mine is calls else _beyond_planned(mine),
                beyond_served=beyond[1] if mine is calls else _beyond_served(mine),
            )
            for host, pid, mine in _by_process(calls)
        ),
        not_found=missing.size,
        not_found_first=_named(run, missing),
    )


def _named(run: RunTables, rows: Ints) -> tuple[tuple[str, str], ...]:
    """The first different tools and arguments of some calls, in order of time."""
    if not rows.size:
        return ()
    asked = run.part("tool_calls", _NAMED).take(pa.array(rows)).sort_by("start_ns").select(["tool", "argument"])
    return tuple(dict.fromkeys((row["tool"] or UNKNOWN, row["argument"] or "") for row in asked.to_pylist()))[:SHOWN]


@dataclass(frozen=True, slots=True)
class _Texts:
    """A column of few different texts: the number of each row's, and what the numbers stand for; None: unknown."""

    number: Ints
    names: tuple[str | None, ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Texts":
        encoded = column.combine_chunks().dictionary_encode()
        names = (*encoded.dictionary.to_pylist(), None)
        return cls(ints(encoded.indices, len(names) - 1).astype(np.int64), names)

    def number_of(self, name: str) -> int:
        """-1 where no row has it."""
        return self.names.index(name) if name in self.names else -1

    def those(self, rows: Ints) -> "_Texts":
        return _Texts(self.number[rows], self.names)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls, a value each: durations in ns, NaN where unknown."""

    host: _Texts
    tool: _Texts
    status: _Texts
    pid: Ints
    took: Floats
    planned: Floats
    served: Floats
    wire_bytes: Floats

    @classmethod
    def of(cls, table: pa.Table) -> "_Calls":
        """The calls of the table."""
        host, tool, status = (_Texts.of(table[name]) for name in _TEXTS)
        took = (ints(table["end_ns"]) - ints(table["start_ns"])).astype(np.float64)
        return cls(
            host,
            tool,
            status,
            ints(table["pid"]),
            took,
            *(floats(table[name]) for name in ("planned_ns", "served_ns", "wire_bytes")),
        )

    def those(self, rows: Ints) -> "_Calls":
        """Some of them; all: the same."""
        if rows.size == self.took.size:
            return self
        return _Calls(
            self.host.those(rows),
            self.tool.those(rows),
            self.status.those(rows),
            self.pid[rows],
            self.took[rows],
            self.planned[rows],
            self.served[rows],
            self.wire_bytes[rows],
        )


def _processes(run: RunTables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.tables["processes"].select(["host", "pid", "role"]).to_pylist()
    return rows


def _by_process(calls: _Calls) -> Iterator[tuple[str, int, _Calls]]:
    hosts = {
        str(calls.host.names[number]): number for number in np.flatnonzero(np.bincount(calls.host.number)).tolist()
    }
    for host, number in sorted(hosts.items()):
        of_host = calls.host.number == number
        for pid in np.unique(calls.pid[of_host]).tolist():
            yield host, pid, calls.those(np.flatnonzero(of_host & (calls.pid == pid)))


def _outcomes(calls: _Calls) -> Iterator[Outcome]:
    # A tool may have no name, or an empty one: both are unknown.
    names = [name or UNKNOWN for name in calls.tool.names]
    tools = sorted(set(names))
    tool = np.array([tools.index(name) for name in names], dtype=np.int64)[calls.tool.number]
    statuses = calls.status.names
    both = tool * len(statuses) + calls.status.number
    sizes, totals = np.bincount(both).tolist(), np.bincount(tool).tolist()
    found = [(*divmod(number, len(statuses)), size) for number, size in enumerate(sizes) if size]
    # Of each tool the good outcome first, then the failures by their number.
    found.sort(key=lambda each: (tools[each[0]], statuses[each[1]] != "ok", -each[2], statuses[each[1]] or ""))
    for name, status, size in found:
        mine = calls.those(np.flatnonzero(both == name * len(statuses) + status))
        wire = mine.wire_bytes[~np.isnan(mine.wire_bytes)]
        yield Outcome(
            tool=tools[name],
            status=statuses[status],
            calls=size,
            of=totals[name],
            latency=_spread(mine.took),
            served=_spread(mine.served),
            wire_bytes=int(wire.sum()) if wire.size else None,
        )


def _beyond_planned(calls: _Calls) -> Spread:
    return _spread(calls.took - calls.planned)


def _beyond_served(calls: _Calls) -> Spread:
    return _spread((calls.took - calls.served)[np.isnan(calls.planned)])


def _spread(durations_ns: Floats) -> Spread:
    known = durations_ns[~np.isnan(durations_ns)]
    p50, p99, most = quantiles(known, (0.5, 0.99, 1.0))
    return Spread(
        n=known.size,
        p50_ns=None if p50 is None else int(p50),
        p99_ns=None if p99 is None else int(p99),
        max_ns=None if most is None else int(most),
    )
