"""A run's tool calls as a trace: what was asked and how it went, without the observations, which no run keeps."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.store import RunTables
from workloads.deep_research.fit import CALL_COUNTS
from workloads.deep_research.trace import SCHEMA, Call, Trace

_ENDED = ("ok", "failed", "timeout")  # trajectories that came to an end of their own


def trace_of_run(run: RunTables) -> Trace:
    """The trace of a run's calls. Cancelled calls have no outcome and are left out.

    Latencies are those that the agents saw, times of the recording hosts' monotonic clocks.
    """
    table = pa.Table.from_pylist([call.row() for call in _calls(run)], schema=SCHEMA)
    table = table.sort_by([("started_mono_ns", "ascending"), ("trajectory_id", "ascending")])
    return Trace(path=run.run_dir, table=table, facts=trace_facts(run), complete=True)


def trace_facts(run: RunTables) -> dict[str, Any]:
    """What a trace of this run says of its source."""
    ended = run.tables["trajectories"].filter(pc.is_in(run.tables["trajectories"]["status"], pa.array(_ENDED)))
    counts = Counter(ended["tool_calls"].to_pylist())
    return {
        "source": "run",
        "run_id": run.run_id,
        "tools": run.spec.tools,
        "load": run.spec.load.value,
        "preset": run.spec.preset,
        "latency_scale": run.spec.latency_scale,
        CALL_COUNTS: {str(calls): times for calls, times in sorted(counts.items())},
    }


def token_lengths(run: RunTables) -> dict[str, list[int]]:
    """Tokens of each prompt and of each reply, as `fit_trace` takes them."""
    return {
        "prompt": run.tables["trajectories"]["prompt_tokens"].drop_null().to_pylist(),
        "generated": run.tables["turns"]["generated_tokens"].drop_null().to_pylist(),
    }


def _calls(run: RunTables) -> Iterator[Call]:
    offsets = {
        (row["host"], row["pid"]): row["wall_minus_mono_ns"]
        for row in run.tables["processes"].select(["host", "pid", "wall_minus_mono_ns"]).to_pylist()
    }
    for row in run.tables["tool_calls"].to_pylist():
        if row["status"] in (None, "cancelled") or row["tool"] is None:
            continue
        offset = offsets.get((row["host"], row["pid"]))
        yield Call(
            trajectory_id=row["trajectory_id"],
            call=row["call"],
            tool=row["tool"],
            argument=row["argument"],
            started_mono_ns=row["start_ns"],
            started_wall_ns=None if offset is None else row["start_ns"] + offset,
            latency_s=(row["end_ns"] - row["start_ns"]) / 1e9,
            served_s=None if row["served_ns"] is None else row["served_ns"] / 1e9,
            http_status=row["http_status"],
            size=row["wire_bytes"],
            status=row["status"],
            detail=row["detail"],
            observation_tokens=row["observation_tokens"],
        )
