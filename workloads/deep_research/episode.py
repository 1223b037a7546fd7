"""The agent loop of the fixed load: every framework's adapter runs this, so that they differ in all but the agent.

It imposes a plan: each turn generates exactly the planned tokens, then calls the planned tool, whatever the model
wrote. What comes back is recorded as it came; whether it was what the plan asked is judged afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.protocol.clock import now_ns
from harness.protocol.recorder import Recorder
from workloads.deep_research.attempt import Attempt
from workloads.deep_research.boundary import Codec, EpisodeResult, Generate, Generated, Sampling, Score
from workloads.deep_research.plan import TrajectoryPlan, Turn
from workloads.deep_research.presets import SEARCH
from workloads.deep_research.questions import question as question_of
from workloads.deep_research.tools import ToolRequest, ToolSet, filler

__all__ = ["Codec", "EpisodeResult", "Generate", "Generated", "Sampling", "Score", "run_episode"]

Reward = Callable[[list[int]], float]
"""Ids that the policy generated, all turns in order -> the trajectory's reward."""


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
    start_url: str | None = None,
    reward: Reward | None = None,
    step: int | None = None,
) -> EpisodeResult:
    """Runs one trajectory as planned and records it.

    A tool that fails or is late becomes an observation of the planned length. An engine that fails ends the trajectory
    as `failed`, the trajectory's own limit as `timeout`. Neither raises: a bad trajectory is data. Both limits hold
    against calls that ignore their cancellation; they are left behind.

    Args:
        pool: the GPU pool that generates (`rollout`, or `both` when colocated).
        question: what the prompt asks; by default the data set's question for the plan's prompt.
        start_url: the page that is opened before a search has named one, where one is known.
        reward: judges what was generated; by default the plan says the reward.
        step: the step that the trajectory is made for, where it is known beforehand.

    Raises:
        asyncio.CancelledError: it was cancelled (recorded as such).
        RecorderFullError: what happened can't be recorded; the run must stop.
        Exception: the codec failed (recorded as failed): an adapter's bug, not an event of the run.
    """
    planned = _Planned(
        plan=plan,
        codec=codec,
        question=question if question is not None else question_of(plan.prompt),
        start_url=start_url,
        judge=reward,
        trajectory_id=trajectory_id,
        group_id=group_id,
        prompt=plan.prompt,
        sample=plan.sample,
        attempt=attempt,
        generate=generate,
        tools=tools,
        recorder=recorder,
        pool=pool,
        version_scheduled=version_scheduled,
        tool_timeout_s=tool_timeout_s,
        trajectory_timeout_s=trajectory_timeout_s,
        step=step,
    )
    return await planned.run()


@dataclass(kw_only=True)
class _Planned(Attempt):
    plan: TrajectoryPlan
    codec: Codec
    question: str
    start_url: str | None
    judge: Reward | None
    unread: list[tuple[str, str]] = field(default_factory=list)  # (title, address), best first
    opened_urls: set[str] = field(default_factory=set)
    title: str = ""  # of the page read last

    async def play(self) -> None:
        self.prompt_ids = self.codec.prompt_ids(self.question, self.plan.prompt_tokens)
        for number, turn in enumerate(self.plan.turns):
            tokens = turn.generated_tokens
            await self.turn(number, self.prompt_ids + self.response_ids, Sampling(max_tokens=tokens, min_tokens=tokens))
            if turn.latency_s is not None:
                await self._tool(number, turn)
        start_ns = now_ns()
        if self.judge is None:
            self.reward = self.plan.reward
        else:
            self.reward = self.judge([token for reply in self.generated for token in reply.ids])
        self.reward_span(start_ns)

    async def _tool(self, number: int, turn: Turn) -> None:
        call = await self.ask_tool(
            number,
            ToolRequest(
                tool=turn.tool,
                argument=self._argument(turn.tool),
                question=self.question,
                trajectory_id=self.trajectory_id,
                call=number,
                planned=turn,
            ),
        )
        answer = call.observation
        if answer is not None and answer.links:
            self.unread = [link for link in answer.links if link[1] not in self.opened_urls]
        text = answer.text if answer is not None else filler(f"{turn.tool}: {call.status}\n", turn.observation_tokens)
        ids = self.codec.observation_ids(text, turn.observation_tokens)
        self.tool_span(call, len(ids), text)
        self.observed(ids)

    def _argument(self, tool: str) -> str:
        """What an agent would ask next: the question (beside the page read last), or the best page not read yet."""
        if tool == SEARCH:
            return f"{self.title} {self.question}".strip()
        if self.unread:
            self.title, url = self.unread.pop(0)
        elif self.start_url is not None and self.start_url not in self.opened_urls:
            url = self.start_url
        else:
            return self.question  # no address is known: the browser looks for one itself
        self.opened_urls.add(url)
        return url
