"""What all trajectories of a run share in one worker process, made once from the spec."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.protocol.errors import SpecError
from harness.protocol.phases import Pool
from harness.protocol.recorder import EVENTS_VARIABLE, Recorder
from harness.protocol.spec import Load, Placement, RunSpec
from workloads.deep_research.boundary import Codec, EpisodeResult, Generate, Score
from workloads.deep_research.dataset import FILE, Row, read_rows
from workloads.deep_research.episode import run_episode
from workloads.deep_research.plan import draw_plan, limits
from workloads.deep_research.presets import preset_of
from workloads.deep_research.questions import question
from workloads.deep_research.tools import MockTools, ToolSet


def run_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The run's folder, as a worker finds it: the one above the events'."""
    return Path(environ[EVENTS_VARIABLE]).parent


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
            SpecError: the data set or the tool server's address can't be read.
        """
        self.spec = spec
        self.codec = codec
        self.recorder = recorder
        self.pool = Pool.BOTH if spec.placement is Placement.COLOCATED else Pool.ROLLOUT
        self.preset = preset_of(spec)
        # Hard limits: the frameworks wait for ever for a trajectory that does not come back.
        self.limits = limits(self.preset, spec.latency_scale)
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
        raise SpecError("load = live: this version has no live load")


def planned_reward(spec: RunSpec) -> Callable[[list[int]], float] | None:
    """What judges the trajectories of a fixed load; None: the plan."""
    return probe_reward if spec.reward == "probe" else None


def probe_reward(ids: list[int]) -> float:
    """The share of the generated ids that are even: what any model, also one of random weights, can learn to raise.

    It begins near one half, whatever the tokenizer, and every token counts: the signal is as dense as it can be.
    """
    return sum(token % 2 == 0 for token in ids) / len(ids) if ids else 0.0


def rows_of(spec: RunSpec, folder: Path | None) -> list[Row]:
    """The rows of the run's data set; none where its questions are made from the prompt's number."""
    if folder is None or not (folder / FILE).exists():
        if spec.dataset_digest:
            raise SpecError(f"dataset = {spec.dataset}: {FILE} is not in the run's folder {folder}")
        return []
    return read_rows(folder / FILE)


def make_tools(spec: RunSpec, folder: Path | None) -> ToolSet:
    """The run's tools: here, or behind its tool server."""
    if spec.tools == "mock":
        return MockTools()
    raise SpecError(f"tools = {spec.tools}: unknown to this version")
