"""What the tool server counts of the calls that it answers."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from workloads.deep_research.tools import Observation, ToolRequest


@dataclass(slots=True)
class Stats:
    """Counters since the start; of a fixed size, however long the server runs."""

    started_ns: int = field(default_factory=time.monotonic_ns)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # (tool, status)
    served_ns: Counter[str] = field(default_factory=Counter)  # by tool, all calls together
    slowest_ns: Counter[str] = field(default_factory=Counter)  # by tool
    wire_bytes: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    abandoned: int = 0  # calls whose answer nobody waited for any more
    rejected: int = 0  # requests that were no calls

    def begin(self) -> int:
        """A call has come in; the moment is what `end` wants."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return time.monotonic_ns()

    def end(self, request: ToolRequest, began_ns: int, answer: Observation | None) -> float:
        """The call is answered, or (None) it was cancelled; returns the seconds that it took."""
        took_ns = time.monotonic_ns() - began_ns
        self.in_flight -= 1
        if answer is None:
            self.abandoned += 1
            return took_ns / 1e9
        self.calls[request.tool, answer.status] += 1
        self.served_ns[request.tool] += took_ns
        self.slowest_ns[request.tool] = max(self.slowest_ns[request.tool], took_ns)
        self.wire_bytes += answer.size or 0
        return took_ns / 1e9

    def snapshot(self) -> Mapping[str, object]:
        """As JSON: calls by tool and status, times in seconds, sizes in bytes."""
        calls: dict[str, dict[str, int]] = {}
        for (tool, status), count in sorted(self.calls.items()):
            calls.setdefault(tool, {})[status] = count
        total = {tool: sum(by_status.values()) for tool, by_status in calls.items()}
        return {
            "up_s": (time.monotonic_ns() - self.started_ns) / 1e9,
            "calls": calls,
            "mean_served_s": {tool: self.served_ns[tool] / total[tool] / 1e9 for tool in calls},
            "slowest_served_s": {tool: self.slowest_ns[tool] / 1e9 for tool in calls},
            "wire_bytes": self.wire_bytes,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
            "abandoned": self.abandoned,
            "rejected": self.rejected,
        }
