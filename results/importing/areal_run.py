"""AReaL's session traces as the tables of a partial run: trajectories with their turns, tool calls and rewards."""

import math
from collections.abc import Sequence
from typing import Any

from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.importing.areal_tracer import Session
from results.importing.partial import Built, Facts, process_row

LACKS = (
    "steps: what was trained when, and on what; no phase of the train side",
    "tokens: no throughput, no goodput, no MFU",
    "policy versions: no staleness",
    "engines, tools' names and answers",
    "GPUs: power, energy, utilisation, and which they were",
    "what was planned: no plan adherence, no proof of the weight sync",
)
# AReaL's status -> ours; `rejected` and `dropped` ended, and were not to be trained on.
STATUS = {"accepted": "ok", "rejected": "cancelled", "dropped": "cancelled", "failed": "failed", "pending": "open"}
_PHASES = {"generate": Phase.GENERATION, "toolcall": Phase.TOOL, "reward": Phase.REWARD}


def build_areal(sessions: Sequence[Session], problems: Sequence[str], facts: Facts) -> Built:
    """The rows of the sessions; times count from the first submission, wall clock beside them in `processes`.

    Raises:
        SpecError: two sessions have one name, or a time is no number.
    """
    names = [session.name for session in sessions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SpecError(f"session {twice} is in the file twice; import the traces of one run")
    times = [one.submit_ts for one in sessions]
    if not all(map(math.isfinite, times)):
        raise SpecError("a session has a submit_ts that is no number")
    origin = min(times)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("trajectories", "spans", "turns", "tool_calls", "opens")
    }
    pool = Pool.BOTH.value if facts.placement is Placement.COLOCATED else Pool.ROLLOUT.value
    last = 0
    for session in sessions:
        last = max(last, _session(rows, session, origin, pool))
    rows["processes"] = [process_row(0, last, sum(map(len, rows.values())), round(origin * 1e9))]
    return Built(
        framework="areal",
        kind="areal-tracer",
        rows=rows,
        lacks=LACKS,
        notes=[f"left out: {problem}" for problem in problems],
    )


def _session(rows: dict[str, list[dict[str, Any]]], session: Session, origin: float, pool: str) -> int:
    """Adds one session; returns its last instant, ns since `origin`."""
    start = _ns(session.submit_ts, origin)
    ends = [start]
    counts = {"generate": 0, "toolcall": 0}
    tool_ns = 0
    for name, phases in session.phases.items():
        phase = _PHASES.get(name)
        for number, (begun, ended) in enumerate(phases):
            begin = _ns(begun, origin)
            of = {"trajectory_id": session.name, "turn": number, "start_ns": begin}
            if ended is None:
                rows["opens"].append(
                    {**of, "id": len(rows["opens"]), "phase": phase and phase.value, "native_name": name, "pool": pool}
                )
                ends.append(begin)
                continue
            end = max(_ns(ended, origin), begin)
            ends.append(end)
            rows["spans"].append(
                {
                    **of,
                    "role": "rollout",
                    "phase": phase and phase.value,
                    "native_name": name,
                    "pool": pool,
                    "container": phase is None,
                    "end_ns": end,
                    "attributes_json": "{}",
                }
            )
            if name in counts:
                counts[name] += 1
            if phase is Phase.GENERATION:
                rows["turns"].append({**of, "pool": pool, "end_ns": end})
            elif phase is Phase.TOOL:
                rows["tool_calls"].append({**of, "call": number, "end_ns": end})
                tool_ns += end - begin
    finished = None if session.finalized_ts is None else max(_ns(session.finalized_ts, origin), start)
    ends.append(finished or start)
    status = STATUS.get(session.status, "failed") if finished is not None else "open"
    said = session.status if session.reason is None else f"{session.status}: {session.reason}"
    rows["trajectories"].append(
        {
            "trajectory_id": session.name,
            "group_id": f"t{session.task_id}",
            "sample": session.session_id,
            "status": status,
            "start_ns": start,
            "end_ns": finished,
            "turns": counts["generate"],
            "tool_calls": counts["toolcall"],
            "tool_ns": tool_ns,
            "message": None if status == "ok" else said,
        }
    )
    return max(ends)


def _ns(seconds: float, origin: float) -> int:
    return round((seconds - origin) * 1e9)
