"""MLPerf training logs: lines of `:::MLLOG {...}`, one event each, among whatever else was printed.

Keys as mlcommons' logging library writes them (mlperf_logging/mllog): namespace, time_ms, event_type, key, value,
metadata.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MARK = ":::MLLOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event. `time_ms`: wall clock; `kind`: POINT_IN_TIME | INTERVAL_START | INTERVAL_END."""

    line: int
    key: str
    value: Any
    time_ms: float
    kind: str
    metadata: Mapping[str, Any]


def read_events(lines: Iterable[str]) -> tuple[list[LogEvent], list[str]]:
    """The events of a log, and the marked lines that could not be read, with why."""
    found, problems = [], []
    for number, raw in enumerate(lines, start=1):
        _, mark, text = raw.partition(MARK)
        if not mark:
            continue
        try:
            read = json.loads(text)
            metadata = read.get("metadata")
            for number_of in (read["time_ms"], read.get("value"), (metadata or {}).get("samples_count")):
                if isinstance(number_of, int | float) and math.isinf(number_of):  # of a huge integer: OverflowError
                    raise ValueError(f"{number_of} is no number")
            found.append(
                LogEvent(
                    line=number,
                    key=str(read["key"]),
                    value=read.get("value"),
                    time_ms=float(read["time_ms"]),
                    kind=str(read["event_type"]),
                    metadata=metadata if isinstance(metadata, dict) else {},
                )
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            problems.append(f"line {number}: {type(error).__name__}: {error}"[:160])
    return found, problems
