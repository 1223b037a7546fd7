"""The rollout side: plays the plans of groups of trajectories with the real agent loop."""

import asyncio
from dataclasses import dataclass, field

from adapters.simulated.engine import Codec, Engine, Fleet
from adapters.simulated.faults import OVERSTALE_BATCHES, Faults
from adapters.simulated.pace import pace_of
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec
from workloads.deep_research.boundary import EpisodeResult
from workloads.deep_research.tools import Observation, ToolRequest, ToolSet
from workloads.deep_research.work import Work, make_tools, run_folder

Group = list[EpisodeResult]


@dataclass(frozen=True, kw_only=True)
class SlowTools:
    """Tools that take `slow_s` longer than they do."""

    tools: ToolSet
    slow_s: float

    @property
    def imposes_plan(self) -> bool:
        """As they do."""
        return self.tools.imposes_plan

    async def call(self, request: ToolRequest) -> Observation:
        """As they answer, then the planted delay."""
        observation = await self.tools.call(request)
        await asyncio.sleep(self.slow_s)
        return observation

    async def close(self) -> None:
        """As they do."""
        await self.tools.close()


@dataclass(kw_only=True)
class Rollout:
    """Runs trajectories against the engines."""

    spec: RunSpec
    recorder: Recorder
    faults: Faults
    fleet: Fleet
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        spec, slow_s = self.spec, self.faults.extra_s(Phase.TOOL)
        tools = make_tools(spec, run_folder())
        if slow_s:
            tools = SlowTools(tools=tools, slow_s=slow_s)
        self.work = Work(spec, codec=Codec(), recorder=self.recorder, folder=run_folder(), tools=tools)

    @property
    def live(self) -> int:
        """Trajectories in flight."""
        return self.work.in_flight

    @property
    def pool(self) -> Pool:
        """The GPUs that generate."""
        return self.work.pool

    async def batch(self, step: int) -> list[Group]:
        """All groups of a synchronous step, when the last of them has ended."""
        first = (step - 1) * self.spec.batch_size
        prompts = range(first, first + self.spec.batch_size)
        return list(await asyncio.gather(*(self.group(prompt, step) for prompt in prompts)))

    async def group(self, prompt: int, step: int | None = None) -> Group:
        """All trajectories of one prompt."""
        samples = range(self.spec.group_size)
        return list(await asyncio.gather(*(self._trajectory(prompt, sample, step) for sample in samples)))

    async def _trajectory(self, prompt: int, sample: int, step: int | None) -> EpisodeResult:
        return await self.work.trajectory(
            prompt=prompt,
            sample=sample,
            attempt=0,
            generate=self.fleet.generate,
            score=self.fleet.score,
            version_scheduled=self.fleet.version,
            step=step,
        )


@dataclass(kw_only=True)
class ContinuousRollout:
    """Generation that never waits for the trainer, within a capacity.

    A group is admitted while accepted + running < (max_staleness + version + 1) x batch (the rule of
    SkyRL's fully async trainer, after AReaL, Fu et al. 2025). It bounds what is admitted, not how old a straggler is
    when the trainer takes it: staleness beyond max_staleness can and does occur.
    """

    rollout: Rollout
    accepted: int = 0  # groups finished so far, trained on or not
    running: int = 0
    _finished: "asyncio.Queue[Group | BaseException]" = field(default_factory=asyncio.Queue)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def admit(self, version: int) -> None:
        """Starts the groups that `version` has room for, in the order of the data set."""
        spec = self.rollout.spec
        batches = spec.max_staleness + (OVERSTALE_BATCHES if self.rollout.faults.overstale else 0) + 1
        cap = batches * spec.trajectories_per_step
        recorder = self.rollout.recorder
        recorder.gate(True, f"version {version}", in_flight=self.rollout.live, cap=cap)
        starting = (batches + version) * spec.batch_size - self.accepted - self.running
        for _ in range(starting):
            task = asyncio.create_task(self._group(self.accepted + self.running))
            self.running += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        in_flight = self.rollout.live + starting * spec.group_size
        recorder.gate(False, "capacity", in_flight=in_flight, cap=cap)

    async def take(self, groups: int) -> list[Group]:
        """The `groups` that finished first among those not taken yet; waits for them.

        Raises:
            Exception: a group's generation failed otherwise than as data.
        """
        taken: list[Group] = []
        while len(taken) < groups:
            group = await self._finished.get()
            if isinstance(group, BaseException):
                raise group
            taken.append(group)
        return taken

    async def stop(self, why: str) -> None:
        """Closes admission for good and cancels what is in flight."""
        self.rollout.recorder.gate(False, why, in_flight=self.rollout.live)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _group(self, prompt: int) -> None:
        try:
            self._finished.put_nowait(await self.rollout.group(prompt))
        except Exception as error:  # the trainer, who waits for the queue, must learn of it
            self._finished.put_nowait(error)
        finally:
            self.running -= 1
            self.accepted += 1


def make_fleet(spec: RunSpec, faults: Faults) -> Fleet:
    """One engine per `rollout_tp` GPUs of the pool that generates."""
    slow_s = faults.extra_s(Phase.GENERATION)
    count = max(spec.gpus.rollout // spec.rollout_tp, 1)
    return Fleet(
        engines=tuple(
            Engine(address=f"simulated://engine-{index}", seed=spec.seed, pace=pace_of(spec), slow_s=slow_s)
            for index in range(count)
        )
    )
