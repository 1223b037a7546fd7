"""The one agent loop: every framework's adapter runs this, so that they differ in all but the agent.

It imposes a plan (load `fixed`): each turn generates exactly the planned tokens, then calls the planned tool, whatever
the model wrote. What comes back is recorded as it came; whether it was what the plan asked is judged afterwards.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from harness.protocol.events import Trajectory
from harness.protocol.phases import Phase
from harness.protocol.recorder import OpenSpan, Recorder, RecorderFullError
from workloads.deep_research.bounded import LateError, within
from workloads.deep_research.plan import TrajectoryPlan, Turn
from workloads.deep_research.questions import question as question_of
from workloads.deep_research.tools import Observation, ToolSet, filler


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one turn is sampled: exactly N tokens when `min_tokens == max_tokens` and `ignore_eos`; unfiltered."""

    max_tokens: int
    min_tokens: int
    ignore_eos: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One reply: `ids` and their `logprobs` (natural logarithm, same length), as the engine returned them."""

    ids: list[int]
    logprobs: list[float]
    version_start: int | None = None  # policy version at the first token
    version_end: int | None = None  # policy version at the last token
    engine: str | None = None  # address of the server that answered
    stop_reason: str | None = None


Generate = Callable[[str, list[int], Sampling], Awaitable[Generated]]
"""(trajectory id, token ids so far, sampling) -> the reply."""


class Codec(Protocol):
    """An adapter's tokenizer with its chat template, made exact: the lengths are the plan's."""

    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        """The first prompt, exactly `tokens` long, template included."""

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        """A tool's answer and the head of the next turn, exactly `tokens` long, template included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What a trainer needs of one trajectory. `response_ids`, `loss_mask` and `logprobs` have the same length."""

    trajectory_id: str
    group_id: str
    status: str  # ok | failed | timeout
    message: str | None
    prompt_ids: list[int]
    response_ids: list[int]  # everything after the prompt: replies and observations
    loss_mask: list[int]  # 1 on generated tokens, 0 on observations
    logprobs: list[float]  # of the engine; 0.0 on observations
    reward: float | None  # None unless status is ok
    turns: int  # replies that came back
    tool_calls: int
    version_first: int | None
    version_last: int | None
    generated: tuple[Generated, ...]  # by turn, for trainers that want versions per token


async def run_episode(
    *,
    plan: TrajectoryPlan,
    trajectory_id: str,
    group_id: str,
    attempt: int,
    generate: Generate,
    tools: ToolSet,
    codec: Codec,
    recorder: Recorder,
    pool: str,
    version_scheduled: int | None,
    tool_timeout_s: float,
    trajectory_timeout_s: float,
    question: str | None = None,
    step: int | None = None,
) -> EpisodeResult:
    """Runs one trajectory as planned and records it.

    A tool that fails or is late becomes an observation of the planned length. An engine that fails ends the trajectory
    as `failed`, the trajectory's own limit as `timeout`. Neither raises: a bad trajectory is data. Both limits hold
    against calls that ignore their cancellation; they are left behind.

    Args:
        pool: the GPU pool that generates (`rollout`, or `both` when colocated).
        question: what the prompt asks; by default the data set's question for the plan's prompt.
        step: the step that the trajectory is made for, where it is known beforehand.

    Raises:
        asyncio.CancelledError: it was cancelled (recorded as such).
        RecorderFullError: what happened can't be recorded; the run must stop.
        Exception: the codec failed (recorded as failed): an adapter's bug, not an event of the run.
    """
    attempt_ = _Attempt(
        plan=plan,
        trajectory_id=trajectory_id,
        group_id=group_id,
        attempt=attempt,
        generate=generate,
        tools=tools,
        codec=codec,
        recorder=recorder,
        pool=pool,
        version_scheduled=version_scheduled,
        tool_timeout_s=tool_timeout_s,
        trajectory_timeout_s=trajectory_timeout_s,
        question=question if question is not None else question_of(plan.prompt),
        step=step,
        opened=recorder.open(None, "trajectory", pool=pool, step=step, trajectory_id=trajectory_id),
    )
    return await attempt_.run()


class _EndedError(Exception):
    """The trajectory ends here, as `status`."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(kw_only=True)
class _Attempt:
    plan: TrajectoryPlan
    trajectory_id: str
    group_id: str
    attempt: int
    generate: Generate
    tools: ToolSet
    codec: Codec
    recorder: Recorder
    pool: str
    version_scheduled: int | None
    tool_timeout_s: float
    trajectory_timeout_s: float
    question: str
    step: int | None
    opened: OpenSpan
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    generated: list[Generated] = field(default_factory=list)
    tool_calls: int = 0
    tool_ns: int = 0
    observation_tokens: int = 0
    reward: float | None = None

    async def run(self) -> EpisodeResult:
        status, message = "ok", None
        try:
            self.prompt_ids = self.codec.prompt_ids(self.question, self.plan.prompt_tokens)
            for number, turn in enumerate(self.plan.turns):
                await self._turn(number, turn)
                if turn.latency_s is not None:
                    await self._tool(number, turn)
            self._score()
        except _EndedError as ended:
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

    def _left_s(self) -> float:
        used_s = (time.monotonic_ns() - self.opened.start_ns) / 1e9
        if used_s >= self.trajectory_timeout_s:
            raise _EndedError("timeout", f"took longer than {self.trajectory_timeout_s:g} s")
        return self.trajectory_timeout_s - used_s

    async def _turn(self, number: int, turn: Turn) -> None:
        left_s = self._left_s()
        ids = self.prompt_ids + self.response_ids
        sampling = Sampling(max_tokens=turn.generated_tokens, min_tokens=turn.generated_tokens)
        start_ns = time.monotonic_ns()
        reply: Generated | None = None
        stop_reason: str | None = None
        try:
            reply = await within(self.generate(self.trajectory_id, ids, sampling), left_s)
            stop_reason = reply.stop_reason
        except LateError:
            stop_reason = "timeout"
        except asyncio.CancelledError:
            self._turn_span(number, start_ns, len(ids), None, "cancelled")
            raise
        except RecorderFullError:
            raise
        except Exception as error:
            self._turn_span(number, start_ns, len(ids), None, "error")
            self.recorder.failure("engine", error)
            raise _EndedError("failed", f"turn {number}: {type(error).__name__}: {error}") from error
        self._turn_span(number, start_ns, len(ids), reply, stop_reason)
        if reply is None:
            message = f"turn {number}: no reply within the trajectory's limit of {self.trajectory_timeout_s:g} s"
            self.recorder.failure("engine", f"{self.trajectory_id}: {message}")
            raise _EndedError("timeout", message)
        if len(reply.logprobs) != len(reply.ids):
            message = f"turn {number}: {len(reply.ids)} ids came back with {len(reply.logprobs)} logprobs"
            self.recorder.failure("engine", f"{self.trajectory_id}: {message}")
            raise _EndedError("failed", message)
        self.generated.append(reply)
        self.response_ids += reply.ids
        self.loss_mask += [1] * len(reply.ids)
        self.logprobs += reply.logprobs

    def _turn_span(
        self, number: int, start_ns: int, prompt_tokens: int, reply: Generated | None, stop_reason: str | None
    ) -> None:
        self.recorder.span(
            Phase.GENERATION,
            "turn",
            start_ns,
            time.monotonic_ns(),
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
            turn=number,
            attributes={
                "engine": reply.engine if reply else None,
                # When the framework handed the request to an engine; the loop sees only its own call.
                "submitted_ns": None,
                "prompt_tokens": prompt_tokens,
                "generated_tokens": len(reply.ids) if reply else None,
                "version_start": reply.version_start if reply else None,
                "version_end": reply.version_end if reply else None,
                "stop_reason": stop_reason,
            },
        )

    async def _tool(self, number: int, turn: Turn) -> None:
        left_s = self._left_s()
        start_ns = time.monotonic_ns()
        observation: Observation | None = None
        try:
            call = self.tools.call(turn.tool, self.question, turn)
            observation = await within(call, min(left_s, self.tool_timeout_s))
            status = observation.status
        except LateError:
            status = "timeout"
            self.recorder.failure("tool", f"{self.trajectory_id}: turn {number}: {turn.tool} did not answer in time")
        except asyncio.CancelledError:
            self._tool_span(number, turn, start_ns, time.monotonic_ns(), "cancelled", None, None)
            raise
        except RecorderFullError:
            raise
        except Exception as error:
            status = "error"
            self.recorder.failure("tool", error)
        end_ns = time.monotonic_ns()
        if status == "timeout" and left_s <= self.tool_timeout_s:
            self._tool_span(number, turn, start_ns, end_ns, status, None, None)
            raise _EndedError("timeout", f"turn {number}: {turn.tool} passed the limit of the trajectory")
        if observation is None:
            observation = Observation(text=filler(f"{turn.tool}: {status}\n", turn.observation_tokens), status=status)
        ids = self.codec.observation_ids(observation.text, turn.observation_tokens)
        self._tool_span(number, turn, start_ns, end_ns, status, len(ids), len(observation.text.encode()))
        self.observation_tokens += len(ids)
        self.response_ids += ids
        self.loss_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def _tool_span(
        self, number: int, turn: Turn, start_ns: int, end_ns: int, status: str, tokens: int | None, size: int | None
    ) -> None:
        self.tool_calls += 1
        self.tool_ns += end_ns - start_ns
        self.recorder.span(
            Phase.TOOL,
            "tool",
            start_ns,
            end_ns,
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
            turn=number,
            attributes={
                "tool": turn.tool,
                "planned_ns": None if turn.latency_s is None else round(turn.latency_s * 1e9),
                "status": status,
                "observation_tokens": tokens,
                "observation_bytes": size,
            },
        )

    def _score(self) -> None:
        start_ns = time.monotonic_ns()
        self.reward = self.plan.reward
        self.recorder.span(
            Phase.REWARD,
            "reward",
            start_ns,
            time.monotonic_ns(),
            pool=self.pool,
            step=self.step,
            trajectory_id=self.trajectory_id,
        )

    def _close(self, status: str, message: str | None) -> None:
        self.recorder.emit(
            Trajectory(
                trajectory_id=self.trajectory_id,
                group_id=self.group_id,
                prompt=self.plan.prompt,
                sample=self.plan.sample,
                attempt=self.attempt,
                status=status,
                start_ns=self.opened.start_ns,
                end_ns=time.monotonic_ns(),
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
            )
        )
