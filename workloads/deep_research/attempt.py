"""One trajectory being made: what the planned and the live agent loop share, above all what is recorded of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.protocol.clock import now_ns
from harness.protocol.events import Scalar, Trajectory
from harness.protocol.phases import Phase
from harness.protocol.recorder import OpenSpan, Recorder, RecorderFullError
from workloads.deep_research.boundary import EpisodeResult, Generate, Generated, Sampling
from workloads.deep_research.bounded import LateError, within
from workloads.deep_research.tools import Observation, ToolRequest, ToolSet

ARGUMENT_CHARACTERS = 500  # of a query or an address that are recorded


class EndedError(Exception):
    """The trajectory ends here, as `status`."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(kw_only=True)
class Attempt:
    """A trajectory from its first prompt to its end. Subclasses say in `play` what happens in between."""

    trajectory_id: str
    group_id: str
    prompt: int
    sample: int
    attempt: int
    generate: Generate
    tools: ToolSet
    recorder: Recorder
    pool: str
    version_scheduled: int | None
    tool_timeout_s: float
    trajectory_timeout_s: float
    step: int | None = None
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int | None] = field(default_factory=list)
    generated: list[Generated] = field(default_factory=list)
    tool_calls: int = 0
    tool_ns: int = 0
    observation_tokens: int = 0
    reward: float | None = None
    opened: OpenSpan = field(init=False)

    def __post_init__(self) -> None:
        self.opened = self.recorder.open(
            None, "trajectory", pool=self.pool, step=self.step, trajectory_id=self.trajectory_id
        )

    async def play(self) -> None:
        """Everything between the opening and the end; fills the lists and `reward`.

        Raises:
            EndedError: the trajectory ends otherwise than well.
        """
        raise NotImplementedError

    async def run(self) -> EpisodeResult:
        """Plays the trajectory and records its end, whatever it is.

        Raises:
            asyncio.CancelledError: it was cancelled (recorded as such).
            RecorderFullError: what happened can't be recorded; the run must stop.
            Exception: a defect of an adapter or of bench (recorded as failed), not an event of the run.
        """
        status, message = "ok", None
        try:
            await self.play()
        except EndedError as ended:
            status, message = ended.status, str(ended)
        except asyncio.CancelledError:
            self._close("cancelled", "cancelled from outside")
            raise
        except RecorderFullError:
            raise
        except Exception as error:
            self._close("failed", f"{type(error).__name__}: {error}")
            raise
        self._close(status, message)
        return EpisodeResult(
            trajectory_id=self.trajectory_id,
            group_id=self.group_id,
            status=status,
            message=message,
            prompt_ids=self.prompt_ids,
            response_ids=self.response_ids,
            loss_mask=self.loss_mask,
            logprobs=self.logprobs,
            versions=self.versions,
            reward=self.reward,
            turns=len(self.generated),
            tool_calls=self.tool_calls,
            version_first=self._version_first,
            version_last=self._version_last,
            generated=tuple(self.generated),
        )

    @property
    def _version_first(self) -> int | None:
        return self.generated[0].version_start if self.generated else None

    @property
    def _version_last(self) -> int | None:
        return self.generated[-1].version_end if self.generated else None

    def left_s(self) -> float:
        """Seconds until the trajectory's own limit.

        Raises:
            EndedError: it has passed.
        """
        used_s = (now_ns() - self.opened.start_ns) / 1e9
        if used_s >= self.trajectory_timeout_s:
            raise EndedError("timeout", f"took longer than {self.trajectory_timeout_s:g} s")
        return self.trajectory_timeout_s - used_s

    async def turn(self, number: int, ids: list[int], sampling: Sampling, *, cache_break: bool = False) -> Generated:
        """Asks the engine for one reply to `ids`, records it and appends it.

        Args:
            cache_break: `ids` do not begin with those of the turn before.

        Raises:
            EndedError: no reply within the trajectory's limit, or the engine failed.
        """
        left_s = self.left_s()
        start_ns = now_ns()
        reply: Generated | None = None
        stop_reason: str | None = None
        try:
            reply = await within(self.generate(self.trajectory_id, ids, sampling), left_s)
            stop_reason = reply.stop_reason
        except LateError:
            stop_reason = "timeout"
        except asyncio.CancelledError:
            self._turn_span(number, start_ns, len(ids), None, "cancelled", cache_break)
            raise
        except RecorderFullError:
            raise
        except Exception as error:
            self._turn_span(number, start_ns, len(ids), None, "error", cache_break)
            self.recorder.failure("engine", error)
            raise EndedError("failed", f"turn {number}: {type(error).__name__}: {error}") from error
        self._turn_span(number, start_ns, len(ids), reply, stop_reason, cache_break)
        if reply is None:
            message = f"turn {number}: no reply within the trajectory's limit of {self.trajectory_timeout_s:g} s"
            self.recorder.failure("engine", f"{self.trajectory_id}: {message}")
            raise EndedError("timeout", message)
        if len(reply.logprobs) != len(reply.ids):
            message = f"turn {number}: {len(reply.ids)} ids came back with {len(reply.logprobs)} logprobs"
            self.recorder.failure("engine", f"{self.trajectory_id}: {message}")
            raise EndedError("failed", message)
        self.generated.append(reply)
        self.response_ids += reply.ids
        self.loss_mask += [1] * len(reply.ids)
        self.logprobs += reply.logprobs
        self.versions += reply.versions if reply.versions is not None else [reply.version_end] * len(reply.ids)
        return reply

    def observed(self, ids: Sequence[int]) -> None:
        """Appends what no policy wrote: a tool's answer with its template."""
        self.observation_tokens += len(ids)
        self.response_ids += ids
        self.loss_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [None] * len(ids)

    async def ask_tool(self, number: int, request: ToolRequest) -> "ToolCall":
        """Calls one tool within the limits; whatever becomes of it is an answer, to be recorded by `tool_span`.

        Raises:
            EndedError: the trajectory's own limit passed (recorded).
        """
        left_s = self.left_s()
        call = ToolCall(number=number, request=request, start_ns=now_ns())
        try:
            call.observation = await within(self.tools.call(request), min(left_s, self.tool_timeout_s))
            call.status = call.observation.status
        except LateError:
            call.status = "timeout"
            self.recorder.failure("tool", f"{self.trajectory_id}: turn {number}: {request.tool} did not answer in time")
        except asyncio.CancelledError:
            call.status, call.end_ns = "cancelled", now_ns()
            self.tool_span(call, None)
            raise
        except RecorderFullError:
            raise
        except Exception as error:
            call.status = "error"
            self.recorder.failure("tool", error)
        call.end_ns = now_ns()
        if call.status == "timeout" and call.observation is None and left_s <= self.tool_timeout_s:
            self.tool_span(call, None)
            raise EndedError("timeout", f"turn {number}: {request.tool} passed the limit of the trajectory")
        return call

    def tool_span(self, call: "ToolCall", tokens: int | None, text: str | None = None) -> None:
        """Records a call whose answer became `tokens` tokens (None: no answer), of the text `text`."""
        self.tool_calls += 1
        self.tool_ns += call.end_ns - call.start_ns
        answer, request = call.observation, call.request
        served_s = answer.served_s if answer is not None else None
        attributes: dict[str, Any] = {
            "tool": request.tool,
            "call": request.call,
            "argument": request.argument[:ARGUMENT_CHARACTERS],
            "planned_ns": self._planned_ns(call),
            "status": call.status,
            "observation_tokens": tokens,
            "observation_bytes": None if text is None else len(text.encode()),
            "http_status": answer.http_status if answer is not None else None,
            "wire_bytes": answer.size if answer is not None else None,
            "served_ns": None if served_s is None else round(served_s * 1e9),
            "detail": answer.detail if answer is not None else None,
        }
        self.recorder.span(
            Phase.TOOL,
            "tool",
            call.start_ns,
            call.end_ns,
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
            turn=call.number,
            attributes=attributes,
        )

    def _planned_ns(self, call: "ToolCall") -> int | None:
        """The latency that was imposed: as answered; where nothing answered, as planned if the tools keep to a plan."""
        planned = call.request.planned
        if call.observation is not None:
            planned_s = call.observation.planned_s
        else:
            planned_s = planned.latency_s if planned is not None and self.tools.imposes_plan else None
        return None if planned_s is None else round(planned_s * 1e9)

    def reward_span(self, start_ns: int, attributes: Mapping[str, Scalar] | None = None) -> None:
        """Records the judging of the trajectory, from `start_ns` to now."""
        self.recorder.span(
            Phase.REWARD,
            "reward",
            start_ns,
            now_ns(),
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
            attributes=attributes,
        )

    def _turn_span(
        self,
        number: int,
        start_ns: int,
        prompt_tokens: int,
        reply: Generated | None,
        stop_reason: str | None,
        cache_break: bool,
    ) -> None:
        attributes: dict[str, Any] = {
            "engine": reply.engine if reply else None,
            # When the framework handed the request to an engine; the loop sees only its own call.
            "submitted_ns": None,
            "prompt_tokens": prompt_tokens,
            "generated_tokens": len(reply.ids) if reply else None,
            "version_start": reply.version_start if reply else None,
            "version_end": reply.version_end if reply else None,
            "stop_reason": stop_reason,
            "cache_break": cache_break,
        }
        self.recorder.span(
            Phase.GENERATION,
            "turn",
            start_ns,
            now_ns(),
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
            turn=number,
            attributes=attributes,
        )

    def _close(self, status: str, message: str | None) -> None:
        self.recorder.emit(
            Trajectory(
                trajectory_id=self.trajectory_id,
                group_id=self.group_id,
                prompt=self.prompt,
                sample=self.sample,
                attempt=self.attempt,
                status=status,
                start_ns=self.opened.start_ns,
                end_ns=now_ns(),
                turns=len(self.generated),
                tool_calls=self.tool_calls,
                tool_ns=self.tool_ns,
                prompt_tokens=len(self.prompt_ids),
                generated_tokens=sum(len(reply.ids) for reply in self.generated),
                observation_tokens=self.observation_tokens,
                version_scheduled=self.version_scheduled,
                version_first=self._version_first,
                version_last=self._version_last,
                reward=self.reward,
                open_id=self.opened.id,
                message=message,
                loss_tokens=sum(self.loss_mask) if status == "ok" else 0,
                sequence_tokens=len(self.prompt_ids) + len(self.response_ids),
            )
        )


@dataclass(kw_only=True)
class ToolCall:
    """A call that was made in turn `number`: when, and what came of it."""

    number: int
    request: ToolRequest
    start_ns: int
    end_ns: int = 0
    status: str = "error"  # one of tools.STATUSES, or cancelled
    observation: Observation | None = None  # None: nothing answered
