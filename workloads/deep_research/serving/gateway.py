"""Every call's way through the tool server: counted, limited, timed, and answered whatever becomes of it."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from workloads.deep_research.presets import BROWSE, SEARCH
from workloads.deep_research.serving.backend import Backend
from workloads.deep_research.serving.rendering import failed_observation, one_line
from workloads.deep_research.serving.stats import Stats
from workloads.deep_research.tools import OK, Observation, ToolRequest

TOOLS = (SEARCH, BROWSE)
AT_ONCE = 1024  # calls that are worked on; more wait their turn
LIMIT_S = 100.0  # for one call, waiting included; agents wait a little longer (remote.SERVED_S)
GIVEN_UP = "the agent gave up waiting"

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HOST_LIKE = re.compile(r"^[\w-]+(\.[\w-]+)+(:\d+)?([/?#]\S*)?$")


class Recorder(Protocol):
    """What keeps the calls and their answers."""

    def record(
        self, request: ToolRequest, answer: Observation, *, started_mono_ns: int, started_wall_ns: int, served_s: float
    ) -> None:
        """Keeps one. Never raises, never waits."""

    async def close(self) -> None:
        """Makes durable what was kept. Called once, after the last call."""

    def stats(self) -> Mapping[str, object]:
        """Counters since the start, JSON values."""


class Gateway:
    """A backend with limits around it. Never raises for a call, except when the call is cancelled."""

    def __init__(
        self,
        backend: Backend,
        *,
        at_once: int = AT_ONCE,
        limit_s: float = LIMIT_S,
        recorder: Recorder | None = None,
    ) -> None:
        """`at_once`: calls worked on at a time; `limit_s`: seconds for one call; `recorder` is told each answer."""
        self.backend = backend
        self._recorder = recorder
        self.counters = Stats()
        self._turns = asyncio.Semaphore(at_once)
        self._limit_s = limit_s

    async def call(self, request: ToolRequest) -> Observation:
        """The backend's answer with `served_s`, or an observation that says why there is none."""
        began_ns, wall_ns = self.counters.begin(), time.time_ns()
        answer: Observation | None = None
        try:
            answer = await self._answer(request)
        finally:
            served_s = self.counters.end(request, began_ns, answer)
            if self._recorder is not None:
                self._recorder.record(
                    request,
                    answer or failed_observation(_what(request), "timeout", GIVEN_UP),
                    started_mono_ns=began_ns,
                    started_wall_ns=wall_ns,
                    served_s=served_s,
                )
        return replace(answer, served_s=served_s)

    async def close(self) -> None:
        """Closes the backend, then the recorder.

        Raises:
            OSError: what was recorded can't be written.
        """
        try:
            await self.backend.close()
        finally:
            if self._recorder is not None:
                await self._recorder.close()

    async def _answer(self, request: ToolRequest) -> Observation:
        what = _what(request)
        if request.tool not in TOOLS:
            return failed_observation(what, "error", f"there is no such tool; there are {', '.join(TOOLS)}")
        try:
            async with asyncio.timeout(self._limit_s), self._turns:
                return await self.backend.call(request)
        except TimeoutError:
            return failed_observation(what, "timeout", f"no answer within {self._limit_s:g} s")
        except Exception as error:  # a backend's defect ends its call, not the server
            return failed_observation(what, "error", f"{type(error).__name__} in the tool server: {error}")

    def stats(self) -> Mapping[str, object]:
        """Counters of the calls, the backend's own, and the recorder's."""
        recorded = self._recorder.stats() if self._recorder is not None else {}
        return {**self.counters.snapshot(), "backend": dict(self.backend.stats()), **recorded}


def _what(request: ToolRequest) -> str:
    return f"Calling {request.tool}"


class Finding:
    """Tools whose browser, asked for what is no address, searches for it and opens the first hit.

    Agents do that, and a plan that is imposed has nothing to open before its first search.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.found = 0

    async def start(self) -> None:
        """As the backend."""
        await self.backend.start()

    async def call(self, request: ToolRequest) -> Observation:
        """The answer; `size` of a page that was searched for counts both answers."""
        if request.tool != BROWSE or _SCHEME.match(request.argument.strip()):
            return await self.backend.call(request)
        text = request.argument.strip()
        if _HOST_LIKE.match(text):
            return await self.backend.call(replace(request, argument=f"http://{text}"))
        hits = await self.backend.call(replace(request, tool=SEARCH, argument=text))
        if hits.status != OK or not hits.links:
            detail = f"no address, and searching for it: {hits.detail or hits.status}"
            return replace(
                failed_observation(
                    f"Opening {one_line(text, 100)}", "empty" if hits.status == OK else hits.status, detail
                ),
                http_status=hits.http_status,
                size=hits.size,
            )
        self.found += 1
        page = await self.backend.call(replace(request, argument=hits.links[0][1]))
        return replace(page, size=(page.size or 0) + (hits.size or 0) if page.size or hits.size else None)

    async def close(self) -> None:
        """As the backend."""
        await self.backend.close()

    def stats(self) -> Mapping[str, object]:
        """The backend's, and how many pages were searched for."""
        return {**self.backend.stats(), "found_by_search": self.found}
