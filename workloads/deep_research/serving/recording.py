"""Writes down what agents were answered, and after which time, into a trace."""

import asyncio
from collections.abc import Mapping

from workloads.deep_research.tools import Observation, ToolRequest
from workloads.deep_research.trace import Call, TraceWriter


class CallRecorder:
    """Records each call as the gateway answered it: with its time-outs and defects, in the words that the agent read.

    A disk that is full costs the record, not the answer.
    """

    def __init__(self, writer: TraceWriter) -> None:
        """`writer` is closed with the recorder."""
        self._writer = writer

    def record(
        self, request: ToolRequest, answer: Observation, *, started_mono_ns: int, started_wall_ns: int, served_s: float
    ) -> None:
        """Records a call. `served_s`: seconds inside the tool server, waiting for its turn included."""
        self._writer.append(
            Call(
                trajectory_id=request.trajectory_id,
                call=request.call,
                tool=request.tool,
                argument=request.argument,
                question=request.question,
                started_mono_ns=started_mono_ns,
                started_wall_ns=started_wall_ns,
                # An imposed latency is waited for by the agent, not here.
                latency_s=served_s if answer.planned_s is None else answer.planned_s,
                served_s=served_s,
                http_status=answer.http_status,
                size=answer.size,
                status=answer.status,
                detail=answer.detail,
                text=answer.text,
                links=answer.links,
            )
        )

    async def close(self) -> None:
        """Makes the trace whole.

        Raises:
            OSError: it can't be written; what was recorded stays readable in its `.part`.
        """
        await asyncio.to_thread(self._writer.close)

    def stats(self) -> Mapping[str, object]:
        """`recorded_calls`, `lost_calls`, and `recording_error` where there is one."""
        found: dict[str, object] = {"recorded_calls": self._writer.calls, "lost_calls": self._writer.lost}
        if self._writer.error is not None:
            found["recording_error"] = self._writer.error
        return found
