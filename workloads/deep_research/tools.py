"""The tools of an agent: what is asked, what is answered, and a set of them that only takes the planned time."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from harness.protocol.clock import now_ns
from workloads.deep_research.faults import GARBLED, KINDS, garble
from workloads.deep_research.plan import Turn

OK = "ok"
STATUSES = ("ok", "timeout", "error", "refused", "empty", "not_found")

_FILLER = "The page lists figures by year and region; the source is given below each table. "
_BYTES_PER_TOKEN = 4  # of English text, about


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """One call of a tool."""

    tool: str  # search_engine | web_browser
    argument: str  # what to search for, or the address to open
    trajectory_id: str
    call: int  # its number within the trajectory, from 0
    question: str | None = None  # what the browser is asked about the page
    planned: Turn | None = None  # None when nothing is planned: the model decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a tool answered. Times in seconds, sizes in bytes; None where there is nothing to tell."""

    text: str
    status: str = OK  # one of STATUSES
    planned_s: float | None = None  # latency that was imposed; None where the tool takes what it takes
    served_s: float | None = None  # time inside the tool server
    http_status: int | None = None
    size: int | None = None  # of the page or the provider's answer, as it came over the wire
    detail: str | None = None  # why the status is not ok, in one line
    links: tuple[tuple[str, str], ...] = ()  # (title, address): results of a search, links of a page


class ToolSet(Protocol):
    """Where an agent's tool calls go."""

    @property
    def imposes_plan(self) -> bool:
        """Whether a call takes the planned latency, whatever becomes of it."""

    async def call(self, request: ToolRequest) -> Observation:
        """The tool's answer. Must not block the event loop: the caller's time limits could not fire."""

    async def close(self) -> None:
        """Gives back what it holds (connections)."""


class MockTools:
    """Tools that wait exactly as long as planned and answer with filler text, or with the fault that is planned."""

    imposes_plan = True

    async def call(self, request: ToolRequest) -> Observation:
        """Waits the planned latency, never less by the monotonic clock, then answers.

        Raises:
            ValueError: the turn plans no tool call.
        """
        planned = request.planned
        if planned is None or planned.latency_s is None:
            raise ValueError(f"{request.tool} is no planned tool call: it has no latency")
        await wait_until(now_ns() + round(planned.latency_s * 1e9))
        head = f"{request.tool}: {request.argument}\n"
        if planned.fault is None:
            return Observation(text=filler(head, planned.observation_tokens), planned_s=planned.latency_s)
        kind = KINDS[planned.fault]
        text = f"{head}{kind.text}" if kind.text else filler(head, planned.observation_tokens)
        return Observation(
            text=garble(text) if planned.fault == GARBLED else text,
            status=kind.status,
            planned_s=planned.latency_s,
            http_status=kind.http_status,
            detail=kind.detail,
        )

    async def close(self) -> None:
        """Holds nothing."""


async def wait_until(moment_ns: int) -> None:
    """Waits until a moment of the monotonic clock; not a moment less: a loop may wake a sleeper one tick early."""
    while (left_ns := moment_ns - now_ns()) > 0:
        await asyncio.sleep(left_ns / 1e9)


def filler(head: str, tokens: int) -> str:
    """Text of about `tokens` tokens that begins with `head`; a codec brings it to the exact length."""
    size = tokens * _BYTES_PER_TOKEN
    return (head + _FILLER * (max(size - len(head), 0) // len(_FILLER) + 1))[: max(size, 1)]
