"""What answers tool calls inside the tool server."""

from collections.abc import Mapping
from typing import Protocol

from workloads.deep_research.tools import Observation, ToolRequest


class Backend(Protocol):
    """One set of tools: both of them, behind one call. Lives in one event loop, from `start` to `close`."""

    async def start(self) -> None:
        """Gets ready, so that the first call doesn't wait for it. Called once, before any call.

        Raises:
            EnvError: it can't serve here; the message says what to do.
        """

    async def call(self, request: ToolRequest) -> Observation:
        """The answer to one call. Never raises for the world's faults, and never blocks the loop.

        A latency that is to be imposed is not waited for here: `planned_s` says it, counted from the moment at which
        the agent asked, and the agent's side waits what is left of it. May be cancelled at any await.
        """

    async def close(self) -> None:
        """Ends connections, threads and processes, makes durable what it writes. Called once, after the last call."""

    def stats(self) -> Mapping[str, object]:
        """Counters since the start, JSON values; names of its own (`not_found`, `cache_hits`, `cost_usd`...)."""
