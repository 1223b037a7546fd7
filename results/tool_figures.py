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
import pyarrow.compute as pc

from results.stats import quantile
from results.store import RunTables

CANCELLED = "cancelled"
NOT_FOUND = "not_found"
UNKNOWN = "unknown"
SHOWN = 5  # requests that were not found, named
_COLUMNS = ("host", "pid", "tool", "argument", "status", "start_ns", "end_ns", "planned_ns", "served_ns", "wire_bytes")

Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]


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
    table = run.part("tool_calls", _COLUMNS)
    status = table["status"].fill_null("")
    calls = _Calls.of(table.filter(pc.not_equal(status, CANCELLED)))
    missing = (calls.status == NOT_FOUND) & np.isnan(calls.planned)
    first = calls.table.filter(pa.array(missing)).sort_by("start_ns").select(["tool", "argument"])
    named = dict.fromkeys((row["tool"] or UNKNOWN, row["argument"] or "") for row in first.to_pylist())
    roles = {(row["host"], row["pid"]): row["role"] for row in _processes(run)}
    return ToolFigures(
        why_none=None if calls.took.size else "no tool call ended",
        calls=calls.took.size,
        cancelled=table.num_rows - calls.took.size,
        outcomes=tuple(_outcomes(calls)),
        beyond_planned=_beyond_planned(calls),
        beyond_served=_beyond_served(calls),
        processes=tuple(_process(host, pid, roles.get((host, pid)), mine) for (host, pid), mine in _by_process(calls)),
        not_found=int(missing.sum()),
        not_found_first=tuple(named)[:SHOWN],
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """Calls, a value each: durations in ns, NaN where unknown; texts as objects, None where unknown."""

    table: pa.Table
    tool: Texts
    status: Texts
    took: Floats
    planned: Floats
    served: Floats
    wire_bytes: Floats

    @classmethod
    def of(cls, table: pa.Table) -> "_Calls":
        """The calls of some rows of the table."""
        numbers = (
            np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("planned_ns", "served_ns", "wire_bytes")
        )
        # One object for each different text: comparing them then compares pointers first.
        tool, status = (
            np.array([*encoded.dictionary.to_pylist(), None], dtype=object)[
                encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
            ]
            for encoded in (table[name].combine_chunks().dictionary_encode() for name in ("tool", "status"))
        )
        tool[_is_none(tool) | (tool == "")] = UNKNOWN
        took = (table["end_ns"].to_numpy() - table["start_ns"].to_numpy()).astype(np.float64)
        return cls(table, tool, status, took, *numbers)

    def those(self, rows: npt.NDArray[np.bool_]) -> "_Calls":
        """Some of them."""
        return _Calls(
            self.table,
            self.tool[rows],
            self.status[rows],
            self.took[rows],
            self.planned[rows],
            self.served[rows],
            self.wire_bytes[rows],
        )


def _is_none(texts: Texts) -> npt.NDArray[np.bool_]:
    nothing: Any = None
    return np.asarray(np.equal(texts, nothing), dtype=np.bool_)


def _processes(run: RunTables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.tables["processes"].select(["host", "pid", "role"]).to_pylist()
    return rows


def _by_process(calls: _Calls) -> Iterator[tuple[tuple[str, int], _Calls]]:
    hosts, pids = calls.table["host"], calls.table["pid"]
    for host in sorted(pc.unique(hosts).to_pylist()):
        of_host = pc.equal(hosts, host).to_numpy(zero_copy_only=False)
        of_pid = pids.to_numpy()
        for pid in np.unique(of_pid[of_host]).tolist():
            yield (host, pid), calls.those(of_host & (of_pid == pid))


def _outcomes(calls: _Calls) -> Iterator[Outcome]:
    groups: dict[tuple[str, str | None], _Calls] = {}
    totals = {}
    for tool in dict.fromkeys(calls.tool):
        of_tool = calls.tool == tool
        totals[tool] = int(of_tool.sum())
        for status in dict.fromkeys(calls.status[of_tool]):
            with_status = _is_none(calls.status) if status is None else calls.status == status
            groups[tool, status] = calls.those(of_tool & with_status)
    # Of each tool the good outcome first, then the failures by their number.
    order = sorted(groups, key=lambda key: (key[0], key[1] != "ok", -groups[key].took.size, key[1] or ""))
    for tool, status in order:
        mine = groups[tool, status]
        sizes = mine.wire_bytes[~np.isnan(mine.wire_bytes)]
        yield Outcome(
            tool=tool,
            status=status,
            calls=mine.took.size,
            of=totals[tool],
            latency=_spread(mine.took),
            served=_spread(mine.served),
            wire_bytes=int(sizes.sum()) if sizes.size else None,
        )


def _process(host: str, pid: int, role: str | None, calls: _Calls) -> ProcessOverhead:
    return ProcessOverhead(
        host=host,
        pid=pid,
        role=role,
        calls=calls.took.size,
        beyond_planned=_beyond_planned(calls),
        beyond_served=_beyond_served(calls),
    )


def _beyond_planned(calls: _Calls) -> Spread:
    return _spread(calls.took - calls.planned)


def _beyond_served(calls: _Calls) -> Spread:
    return _spread((calls.took - calls.served)[np.isnan(calls.planned)])


def _spread(durations_ns: Floats) -> Spread:
    known = durations_ns[~np.isnan(durations_ns)]
    p50, p99, most = (quantile(known, q) for q in (0.5, 0.99, 1.0))
    return Spread(
        n=known.size,
        p50_ns=None if p50 is None else int(p50),
        p99_ns=None if p99 is None else int(p99),
        max_ns=None if most is None else int(most),
    )
