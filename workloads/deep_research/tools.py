"""The tools of an agent, and a set of them that only takes the planned time."""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from workloads.deep_research.plan import Turn

_FILLER = "The page lists figures by year and region; the source is given below each table. "
_BYTES_PER_TOKEN = 4  # of English text, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a tool answered."""

    text: str
    status: str = "ok"  # ok | error


class ToolSet(Protocol):
    """Where an agent's tool calls go."""

    async def call(self, tool: str, argument: str, planned: Turn) -> Observation:
        """The tool's answer. Must not block the event loop: the caller's time limits could not fire."""


class MockTools:
    """Tools that wait exactly as long as planned and answer with filler text."""

    async def call(self, tool: str, argument: str, planned: Turn) -> Observation:
        """Waits the planned latency, never less by the monotonic clock, then answers.

        Raises:
            ValueError: the turn plans no tool call.
        """
        if planned.latency_s is None:
            raise ValueError(f"{tool} is no tool call: the turn has no latency")
        end_ns = time.monotonic_ns() + round(planned.latency_s * 1e9)
        # An event loop may wake a sleeper up to one clock tick early.
        while (left_ns := end_ns - time.monotonic_ns()) > 0:
            await asyncio.sleep(left_ns / 1e9)
        return Observation(text=filler(f"{tool}: {argument}\n", planned.observation_tokens))


def filler(head: str, tokens: int) -> str:
    """Text of about `tokens` tokens that begins with `head`; a codec brings it to the exact length."""
    size = tokens * _BYTES_PER_TOKEN
    return (head + _FILLER * (max(size - len(head), 0) // len(_FILLER) + 1))[: max(size, 1)]
