"""What the tool calls of a run did: by tool and outcome, and what each process added to their latencies.

Overhead is what a call took beyond the latency that was imposed on it (mock tools, replay), or, where none was, beyond
the time inside the tool server. It is the agent's side: event loop, connection, waiting. Nothing is left out: calls of
the whole run, but for the cancelled ones, which were ended from outside.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from results.stats import quantile
from results.store import RunTables

CANCELLED = "cancelled"
NOT_FOUND = "not_found"
SHOWN = 5  # requests that were not found, named
_COLUMNS = ("host", "pid", "tool", "argument", "status", "start_ns", "end_ns", "planned_ns", "served_ns", "wire_bytes")


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
    rows: list[dict[str, Any]] = run.tables["tool_calls"].select([*_COLUMNS]).to_pylist()
    kept = [row for row in rows if row["status"] != CANCELLED]
    roles = {(row["host"], row["pid"]): row["role"] for row in _processes(run)}
    missing = [row for row in kept if row["status"] == NOT_FOUND and row["planned_ns"] is None]
    missing.sort(key=lambda row: row["start_ns"])
    named = dict.fromkeys((row["tool"] or "unknown", row["argument"] or "") for row in missing)
    places = sorted({(row["host"], row["pid"]) for row in kept})
    return ToolFigures(
        why_none=None if kept else "no tool call ended",
        calls=len(kept),
        cancelled=len(rows) - len(kept),
        outcomes=tuple(_outcomes(kept)),
        beyond_planned=_beyond_planned(kept),
        beyond_served=_beyond_served(kept),
        processes=tuple(
            _process(
                host, pid, roles.get((host, pid)), [row for row in kept if (row["host"], row["pid"]) == (host, pid)]
            )
            for host, pid in places
        ),
        not_found=len(missing),
        not_found_first=tuple(named)[:SHOWN],
    )


def _processes(run: RunTables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run.tables["processes"].select(["host", "pid", "role"]).to_pylist()
    return rows


def _outcomes(rows: Sequence[dict[str, Any]]) -> Iterable[Outcome]:
    groups: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    totals: dict[str, int] = {}
    for row in rows:
        tool = row["tool"] or "unknown"
        groups.setdefault((tool, row["status"]), []).append(row)
        totals[tool] = totals.get(tool, 0) + 1
    # Of each tool the good outcome first, then the failures by their number.
    order = sorted(groups, key=lambda key: (key[0], key[1] != "ok", -len(groups[key]), key[1] or ""))
    for tool, status in order:
        mine = groups[tool, status]
        sizes = [row["wire_bytes"] for row in mine if row["wire_bytes"] is not None]
        yield Outcome(
            tool=tool,
            status=status,
            calls=len(mine),
            of=totals[tool],
            latency=_spread(_took(row) for row in mine),
            served=_spread(row["served_ns"] for row in mine),
            wire_bytes=sum(sizes) if sizes else None,
        )


def _process(host: str, pid: int, role: str | None, rows: Sequence[dict[str, Any]]) -> ProcessOverhead:
    return ProcessOverhead(
        host=host,
        pid=pid,
        role=role,
        calls=len(rows),
        beyond_planned=_beyond_planned(rows),
        beyond_served=_beyond_served(rows),
    )


def _beyond_planned(rows: Sequence[dict[str, Any]]) -> Spread:
    return _spread(_took(row) - row["planned_ns"] for row in rows if row["planned_ns"] is not None)


def _beyond_served(rows: Sequence[dict[str, Any]]) -> Spread:
    served = [row for row in rows if row["planned_ns"] is None and row["served_ns"] is not None]
    return _spread(_took(row) - row["served_ns"] for row in served)


def _took(row: dict[str, Any]) -> int:
    took: int = row["end_ns"] - row["start_ns"]
    return took


def _spread(durations_ns: Iterable[int | None]) -> Spread:
    known = [duration for duration in durations_ns if duration is not None]
    p50, p99, most = (quantile(known, q) for q in (0.5, 0.99, 1.0))
    return Spread(
        n=len(known),
        p50_ns=None if p50 is None else int(p50),
        p99_ns=None if p99 is None else int(p99),
        max_ns=None if most is None else int(most),
    )
