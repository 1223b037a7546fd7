"""What all trajectories of a run share in one worker process, made once from the spec."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from harness.protocol.errors import SpecError
from harness.protocol.phases import Pool
from harness.protocol.recorder import EVENTS_VARIABLE, RUN_DIR_VARIABLE, Recorder
from harness.protocol.spec import Load, Placement, Policy, RunSpec
from workloads.deep_research.boundary import Codec, EpisodeResult, Generate, LiveCodec, Score
from workloads.deep_research.dataset import FILE, Row, read_rows
from workloads.deep_research.episode import run_episode
from workloads.deep_research.live import LIMITS, Live
from workloads.deep_research.plan import Limits, draw_plan, limits
from workloads.deep_research.policy import ScriptedPolicy
from workloads.deep_research.presets import preset_of
from workloads.deep_research.questions import question
from workloads.deep_research.remote import SERVED_S, RemoteTools
from workloads.deep_research.scoring import load_judge
from workloads.deep_research.tools import MockTools, ToolSet

# SGLang takes a prompt of at most context - 7 tokens, and prompt and reply together of context - 2. Kept back for every
# engine: all are to be offered the same work.
KEPT_BACK = 7


def run_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The run's folder, as a worker finds it: as it was told, else the one above the events'."""
    return Path(environ.get(RUN_DIR_VARIABLE) or Path(environ[EVENTS_VARIABLE]).parent)


class Work:
    """The load, tools, data set and judge of a run, and how many trajectories are in flight here."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        codec: Codec,
        recorder: Recorder,
        folder: Path | None = None,
        tools: ToolSet | None = None,
    ) -> None:
        """`folder`: the run's, where its data set and the address of its tool server lie.

        Raises:
            SpecError: the data set, the tool server's address or the reward's function can't be read, or the load is
                live and the codec is not made for it.
        """
        self.spec = spec
        self.codec = codec
        self.recorder = recorder
        self.pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.ROLLOUT
        self.preset = preset_of(spec)
        # Hard limits: the frameworks wait for ever for a trajectory that does not come back.
        self.limits = limits_of(spec)
        if spec.load is Load.LIVE and not hasattr(codec, "chat_ids"):
            raise SpecError(f"load = live: the codec of {spec.framework} renders no conversations (boundary.LiveCodec)")
        self._judge = load_judge(spec.reward) if spec.load is Load.LIVE else None
        self.tools = tools if tools is not None else make_tools(spec, folder)
        self.in_flight = 0
        self._rows = rows_of(spec, folder)

    def row(self, prompt: int) -> Row:
        """The question of a prompt; a data set with fewer rows than the run has prompts begins again."""
        if not self._rows:
            return Row(prompt=prompt, question=question(prompt))
        return self._rows[prompt % len(self._rows)]

    async def trajectory(
        self,
        *,
        prompt: int,
        sample: int,
        attempt: int,
        generate: Generate,
        score: Score | None = None,
        version_scheduled: int | None = None,
        step: int | None = None,
    ) -> EpisodeResult:
        """Makes trajectory `attempt` of (prompt, sample), by plan or live, as the spec says; records it.

        Args:
            score: the engine's logprobs of a given reply; needed by scripted policies alone.

        Raises:
            SpecError: a scripted policy, and the adapter can't score.
            Exception: as `run_episode`.
        """
        self.in_flight += 1
        try:
            if self.spec.load is Load.LIVE:
                return await self._live(prompt, sample, attempt, generate, score, version_scheduled, step)
            row = self.row(prompt)
            return await run_episode(
                plan=draw_plan(self.preset, self.spec.seed, prompt, sample, self.spec.latency_scale),
                trajectory_id=f"p{prompt}-s{sample}-a{attempt}",
                group_id=f"p{prompt}",
                attempt=attempt,
                generate=generate,
                tools=self.tools,
                codec=self.codec,
                recorder=self.recorder,
                pool=self.pool.value,
                version_scheduled=version_scheduled,
                tool_timeout_s=self.limits.tool_timeout_s,
                trajectory_timeout_s=self.limits.trajectory_timeout_s,
                question=row.question,
                start_url=row.start_url,
                reward=planned_reward(self.spec),
                step=step,
            )
        finally:
            self.in_flight -= 1

    async def _live(
        self,
        prompt: int,
        sample: int,
        attempt: int,
        generate: Generate,
        score: Score | None,
        version_scheduled: int | None,
        step: int | None,
    ) -> EpisodeResult:
        judge = self._judge
        assert judge is not None  # made with the load
        codec = cast(LiveCodec, self.codec)
        row = self.row(prompt)
        if self.spec.policy is Policy.SCRIPTED:
            if score is None:
                raise SpecError("policy = scripted: this adapter can't ask its engine for the logprobs of given tokens")
            generate = ScriptedPolicy(
                codec=codec, score=score, question=row.question, seed=self.spec.seed, prompt=prompt, sample=sample
            ).generate
        return await Live(
            codec=codec,
            row=row,
            judge=judge,
            context_tokens=self.spec.context_tokens - KEPT_BACK,
            max_turns=self.spec.max_turns,
            turn_tokens=self.spec.turn_tokens,
            thinking=self.spec.thinking,
            trajectory_id=f"p{prompt}-s{sample}-a{attempt}",
            group_id=f"p{prompt}",
            prompt=prompt,
            sample=sample,
            attempt=attempt,
            generate=generate,
            tools=self.tools,
            recorder=self.recorder,
            pool=self.pool.value,
            version_scheduled=version_scheduled,
            tool_timeout_s=self.limits.tool_timeout_s,
            trajectory_timeout_s=self.limits.trajectory_timeout_s,
            step=step,
        ).run()


def planned_reward(spec: RunSpec) -> Callable[[list[int]], float] | None:
    """What judges the trajectories of a fixed load; None: the plan."""
    return probe_reward if spec.reward == "probe" else None


PROBE_EVERY = 32


def probe_reward(ids: list[int]) -> float:
    """The share of the generated ids that are multiples of 32: what any model, also a random one, can learn to raise.

    It begins near 1/32 whatever the tokenizer. A rare target teaches fastest: with advantages normalised by the
    group's spread, the mean advantage of a token in a target of share p, in a trajectory of n tokens, is
    sqrt((1 - p) / (p n)): 0.11 for every second id and 0.6 for every 32nd at n = 80.
    """
    return sum(token % PROBE_EVERY == 0 for token in ids) / len(ids) if ids else 0.0


def limits_of(spec: RunSpec) -> Limits:
    """The hard limits of a run's calls and trajectories; a tool server's own limits come first, so that it says why."""
    found = limits(preset_of(spec), spec.latency_scale) if spec.load is Load.FIXED else LIMITS
    if spec.tools == "mock":
        return found
    return replace(found, tool_timeout_s=max(found.tool_timeout_s, SERVED_S * max(1.0, spec.latency_scale)))


def rows_of(spec: RunSpec, folder: Path | None) -> list[Row]:
    """The rows of the run's data set; none where its questions are made from the prompt's number.

    Raises:
        SpecError: the file is missing (other questions than those that were meant would be asked), or can't be read.
    """
    if spec.dataset == "generated":
        return []
    if folder is None or not (folder / FILE).exists():
        raise SpecError(f"dataset = {spec.dataset}: {FILE} is not in the run's folder {folder}")
    return read_rows(folder / FILE)


def make_tools(spec: RunSpec, folder: Path | None) -> ToolSet:
    """The run's tools: here, or behind its tool server.

    Raises:
        SpecError: the tool server's address can't be read.
    """
    if spec.tools == "mock":
        return MockTools()
    if folder is None:
        raise SpecError(f"tools = {spec.tools}: the run's folder, where its tool server's address lies, is not given")
    return RemoteTools(folder)
