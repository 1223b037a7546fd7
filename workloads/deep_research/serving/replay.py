"""Answers from a trace: the same observation after the same latency, or a scaled one."""

from collections import Counter
from collections.abc import Mapping

from harness.protocol.errors import SpecError
from workloads.deep_research.serving.rendering import failed_observation
from workloads.deep_research.tools import OK, Observation, ToolRequest
from workloads.deep_research.trace import Call, Trace, call_of

SHOWN = 20  # requests that were not found, named in the statistics

_Key = tuple[str, int | None, str, str | None]


class ReplayBackend:
    """Plays a trace.

    A request is answered with the recording of the same trajectory, call number, tool and argument; else with the
    recordings of that tool and argument in the order in which they were made, from the first again after the last;
    else with `not_found`. The answer comes at once: its `planned_s` says how long the agent has to wait.
    """

    def __init__(self, trace: Trace, scale: float = 1.0) -> None:
        """`scale` multiplies the latencies.

        Raises:
            SpecError: the trace has no observations (it was made of a run that was not recorded), or no call at all.
        """
        table = trace.table
        if table.num_rows == 0:
            raise SpecError(f"{trace.path}: has no calls to replay; record a run that makes some")
        if table["text"].null_count == table.num_rows:
            raise SpecError(
                f"{trace.path}: has no observations to replay, only latencies; record a run with `--record FILE`, or"
                " fit a preset to it with `bench tools fit`"
            )
        self._table = table
        self._scale = scale
        self._exact: dict[_Key, int] = {}
        self._by_argument: dict[tuple[str, str | None], list[int]] = {}
        names = ("trajectory_id", "call", "tool", "argument")
        for row, (trajectory_id, call, tool, argument) in enumerate(
            zip(*(table[name].to_pylist() for name in names), strict=True)
        ):
            self._exact.setdefault((trajectory_id, call, tool, argument), row)
            self._by_argument.setdefault((tool, argument), []).append(row)
        self._asked: Counter[tuple[str, str | None]] = Counter()
        self._played: set[int] = set()
        self._counts = {"calls": 0, "exact": 0, "by_argument": 0, "repeated": 0, "not_found": 0}
        self._missing: dict[tuple[str, str], int] = {}

    async def start(self) -> None:
        """Is ready as it is."""

    async def call(self, request: ToolRequest) -> Observation:
        """The recorded answer, at once."""
        self._counts["calls"] += 1
        row = self._row(request)
        if row is None:
            self._counts["not_found"] += 1
            key = (request.tool, request.argument)
            self._missing[key] = self._missing.get(key, 0) + 1
            return Observation(
                text=f"{request.tool} has no recorded answer to this.",
                status="not_found",
                detail=f"not in the trace: {request.tool} {request.argument[:200]!r}",
            )
        self._played.add(row)
        call = call_of(self._table.slice(row, 1).to_pylist()[0])
        return Observation(
            text=call.text if call.text is not None else _unrecorded(call),
            status=call.status,
            planned_s=call.latency_s * self._scale,
            http_status=call.http_status,
            size=call.size,
            detail=call.detail,
            links=call.links or (),
        )

    async def close(self) -> None:
        """Holds nothing."""

    def stats(self) -> Mapping[str, object]:
        """How requests were answered, recordings that were never asked for, and the first requests not found."""
        missing = [
            {"tool": tool, "argument": argument, "calls": calls}
            for (tool, argument), calls in list(self._missing.items())[:SHOWN]
        ]
        return {
            **self._counts,
            "recordings": self._table.num_rows,
            "never_asked": self._table.num_rows - len(self._played),
            "not_found_requests": len(self._missing),
            "not_found_first": missing,
        }

    def in_words(self) -> str:
        """One line for the end of a run: how many requests were answered how, and what was not found."""
        counts = self._counts
        said = (
            f"replay: {counts['calls']:,} calls, {counts['exact']:,} as recorded, {counts['by_argument']:,} by argument"
        )
        if counts["repeated"]:
            said += f" ({counts['repeated']:,} of them repeated a recording)"
        said += f", {counts['not_found']:,} not found"
        if self._missing:
            (tool, argument), _ = next(iter(self._missing.items()))
            said += f"; the first: {tool} {argument[:100]!r}"
        return said

    def _row(self, request: ToolRequest) -> int | None:
        exact = self._exact.get((request.trajectory_id, request.call, request.tool, request.argument))
        if exact is not None:
            self._counts["exact"] += 1
            return exact
        key = (request.tool, request.argument)
        rows = self._by_argument.get(key)
        if rows is None:
            return None
        asked = self._asked[key]
        self._asked[key] += 1
        self._counts["by_argument"] += 1
        self._counts["repeated"] += asked >= len(rows)
        return rows[asked % len(rows)]


def _unrecorded(call: Call) -> str:
    """What stands for an observation that the trace does not have: a failure is told as the tool server tells it."""
    if call.status == OK:
        return ""
    return failed_observation(f"Calling {call.tool}", call.status, call.detail or call.status).text
