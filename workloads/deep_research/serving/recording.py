"""Records what another backend answers, with the time it took, into a trace."""

import asyncio
import time
from collections.abc import Mapping

from workloads.deep_research.serving.backend import Backend
from workloads.deep_research.tools import Observation, ToolRequest
from workloads.deep_research.trace import Call, TraceWriter


class RecordingBackend:
    """Answers as `inner` does, and writes each call down. A disk that is full costs the record, not the answer."""

    def __init__(self, inner: Backend, writer: TraceWriter) -> None:
        """`writer` is closed with the backend."""
        self._inner = inner
        self._writer = writer

    async def start(self) -> None:
        """As `inner`.

        Raises:
            EnvError: it can't serve here.
        """
        await self._inner.start()

    async def call(self, request: ToolRequest) -> Observation:
        """The answer of `inner`; recorded with its latency, or as a time-out where the agent gave up waiting."""
        wall_ns, start_ns = time.time_ns(), time.monotonic_ns()
        try:
            answer = await self._inner.call(request)
        except asyncio.CancelledError:
            given_up = Observation(text="", status="timeout", detail="the agent gave up waiting")
            self._record(request, given_up, start_ns, wall_ns, text=None)
            raise
        except Exception as error:
            defect = Observation(text="", status="error", detail=f"{type(error).__name__}: {error}"[:500])
            self._record(request, defect, start_ns, wall_ns, text=None)
            raise
        self._record(request, answer, start_ns, wall_ns, text=answer.text)
        return answer

    async def close(self) -> None:
        """Closes `inner`, then makes the trace whole.

        Raises:
            OSError: the trace can't be written; what was recorded stays readable in its `.part`.
        """
        try:
            await self._inner.close()
        finally:
            await asyncio.to_thread(self._writer.close)

    def stats(self) -> Mapping[str, object]:
        """Those of `inner`, and `recorded_calls`, `lost_calls`, and `recording_error` where there is one."""
        own: dict[str, object] = {"recorded_calls": self._writer.calls, "lost_calls": self._writer.lost}
        if self._writer.error is not None:
            own["recording_error"] = self._writer.error
        return {**self._inner.stats(), **own}

    def _record(
        self, request: ToolRequest, answer: Observation, start_ns: int, wall_ns: int, *, text: str | None
    ) -> None:
        took_s = (time.monotonic_ns() - start_ns) / 1e9
        self._writer.append(
            Call(
                trajectory_id=request.trajectory_id,
                call=request.call,
                tool=request.tool,
                argument=request.argument,
                question=request.question,
                started_mono_ns=start_ns,
                started_wall_ns=wall_ns,
                # An imposed latency is waited for by the agent, not here.
                latency_s=took_s if answer.planned_s is None else answer.planned_s,
                served_s=took_s if answer.served_s is None else answer.served_s,
                http_status=answer.http_status,
                size=answer.size,
                status=answer.status,
                detail=answer.detail,
                text=text,
                links=answer.links,
            )
        )
