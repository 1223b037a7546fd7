"""AReaL's session tracer (`session_tracer.enabled`): one JSON object a line for each trajectory.

Read in AReaL 1.0.4 (`areal/utils/perf_tracer.py`, `SessionRecord.to_dict`): task_id (the group), session_id, rank,
role, status, reason, submit_ts, finalized_ts, total_s, generate_s, reward_s, toolcall_s, phases, counters. Times are
seconds of the wall clock. A phase that threw has `end_ts: null`. It has no tokens, versions, tool names or turns.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_S = 1e9 * 8  # seconds that fit into 64 bits as nanoseconds
PHASES = ("generate", "toolcall", "reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One trajectory. Times are seconds since 1970; what the file does not say is None. `line`: of the file, from 1."""

    line: int
    task_id: int
    session_id: int
    rank: int
    status: str
    submit_ts: float
    role: str | None = None
    reason: str | None = None
    finalized_ts: float | None = None
    stated: Mapping[str, float] = field(default_factory=dict)  # total_s, generate_s, reward_s, toolcall_s
    phases: Mapping[str, Sequence[tuple[float, float | None]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique in the files of one run."""
        return f"{self.role or 'session'}-r{self.rank}-t{self.task_id}-s{self.session_id}"


def read_sessions(lines: Iterable[str]) -> tuple[list[Session], list[str]]:
    """The sessions of a file, and the lines that could not be read, with why.

    An empty list of sessions says that this is no such file. A last line cut short is such a problem, not an error.
    """
    found, problems = [], []
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            found.append(_session(json.loads(raw), number))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            problems.append(f"line {number}: {type(error).__name__}: {error}"[:160])
    return found, problems


def _session(raw: Any, line: int) -> Session:
    phases = {
        str(name): [(_float(span["start_ts"]), _float_or_none(span.get("end_ts"))) for span in spans]
        for name, spans in (raw.get("phases") or {}).items()
    }
    stated = {key: _float(raw[key]) for key in ("total_s", "generate_s", "reward_s", "toolcall_s") if key in raw}
    return Session(
        line=line,
        task_id=_int(raw["task_id"]),
        session_id=_int(raw["session_id"]),
        rank=_int(raw.get("rank", 0)),
        role=raw.get("role"),
        status=str(raw["status"]),
        reason=raw.get("reason"),
        submit_ts=_float(raw["submit_ts"]),
        finalized_ts=_float_or_none(raw.get("finalized_ts")),
        stated=stated,
        phases=phases,
    )


def _float(value: Any) -> float:
    seconds = float(value)
    if not abs(seconds) < MOST_S:  # also where it is NaN
        raise ValueError(f"{value} is no time in seconds")
    return seconds


def _float_or_none(value: Any) -> float | None:
    return None if value is None else _float(value)


def _int(value: Any) -> int:
    number = int(value)
    if abs(number) >= 2**63:
        raise ValueError(f"{str(value)[:40]} is no number of 64 bits")
    return number
