"""The train side: the phases of an update, each with its native timer, on a policy of one number."""

import asyncio
import random
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain

from adapters.simulated.engine import Fleet
from adapters.simulated.faults import Faults
from adapters.simulated.pace import Pace, pace_of
from adapters.simulated.rollout import Group
from adapters.simulated.weights import group_advantages, logprob, probe, trainer_logprobs, update
from harness.protocol.clock import now_ns
from harness.protocol.events import Scalar, Step
from harness.protocol.phases import Phase, Pool
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Offload, Placement, RunSpec
from workloads.deep_research.episode import EpisodeResult

NOISE_SIGMA = 0.1

# The initial sync belongs to no update: its spans have step 0.
START = 0


@dataclass(kw_only=True)
class Trainer:
    """The policy (`theta`, of `version`) and what an update of it takes."""

    spec: RunSpec
    recorder: Recorder
    faults: Faults
    fleet: Fleet
    theta: float = 0.0
    version: int = 0
    pace: Pace = field(init=False)
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.pace = pace_of(self.spec)
        self._dice = random.Random(f"{self.spec.seed}:trainer")

    @property
    def pool(self) -> Pool:
        """The GPUs that train."""
        return Pool.BOTH if self.spec.placement is Placement.COLOCATED else Pool.TRAIN

    async def begin(self) -> None:
        """Makes version 0 visible on the engines."""
        await self._sync(START)
        self._probe(START)

    async def update(self, step: int, groups: list[Group], start_ns: int) -> None:
        """One policy update from finished groups, the sync of its weights, and its `Step`, begun at `start_ns`."""
        done = list(chain.from_iterable(groups))
        trained = [result for result in done if result.status == "ok"]
        with self._timed(Phase.DATA, "make_batch", step):
            tokens = sum(len(result.prompt_ids) + len(result.response_ids) for result in trained)
            await self._take(self.pace.data_s, Phase.DATA)
        await self._offload("load_optimizer", step)
        with self._timed(Phase.LOGPROB, "logprob", step):
            differences: list[float] = []
            for result in trained:
                differences += self._differences(result)
                await asyncio.sleep(0)  # the engines share this event loop: their tools must wake in time
            await self._take(self.pace.logprob_s + tokens * self.pace.logprob_token_s, Phase.LOGPROB)
        with self._timed(Phase.ADVANTAGE, "advantage", step):
            advantages = [
                advantage
                for group in groups
                if (rewards := [result.reward for result in group if result.reward is not None])
                for advantage in group_advantages(rewards)
            ]
            await self._take(self.pace.advantage_s, Phase.ADVANTAGE)
        if self.faults.sleep_between_s:  # planted: no timer names this time
            slept_ns = now_ns()
            await asyncio.sleep(self.faults.sleep_between_s)
            slept_ns = now_ns() - slept_ns
            print(f"simulated: planted sleep of step {step} took {slept_ns} ns", flush=True)
        with self._timed(Phase.TRAIN, "train", step):
            half_s = (self.pace.train_s + tokens * self.pace.train_token_s) / 2
            await self._take(half_s)
            self.faults.strike(step, self.recorder)
            await self._take(half_s, Phase.TRAIN)
            self.theta, grad_norm = update(self.theta, advantages, self._dice)
            self.version = step
        await self._offload("offload_optimizer", step)
        await self._sync(step)
        self._probe(step)
        with self._timed(Phase.OVERHEAD, "log_step", step):
            if differences:
                labels: dict[str, Scalar] = {"staleness": 0, "same_version": True}
                mean = sum(differences) / len(differences)
                self.recorder.metric("logprob_diff_max", max(differences), unit="nat", step=step, labels=labels)
                self.recorder.metric("logprob_diff_mean", mean, unit="nat", step=step, labels=labels)
            print(f"simulated: step {step}/{self.spec.steps}, {len(trained)} trajectories", flush=True)
            await self._take(self.pace.log_s, Phase.OVERHEAD)
        rewards = [result.reward for result in trained if result.reward is not None]
        self.recorder.emit(
            Step(
                step=step,
                policy_version=self.version,
                start_ns=start_ns,
                end_ns=now_ns(),
                trajectory_ids=tuple(result.trajectory_id for result in trained),
                dropped_ids=tuple(result.trajectory_id for result in done if result.status != "ok"),
                loss_tokens=sum(sum(result.loss_mask) for result in trained),
                processed_tokens=tokens,
                reward_mean=sum(rewards) / len(rewards) if rewards else None,
                grad_norm=grad_norm,
                recorder_ns=self.recorder.cost_ns,
            )
        )

    def _differences(self, result: EpisodeResult) -> list[float]:
        """|engine - trainer| log-probability of each generated token of an on-policy trajectory, else nothing."""
        if not result.version_first == result.version_last == self.version:
            return []
        first = len(result.prompt_ids)
        return [
            abs(served - logprob(self.theta, token, first + index))
            for index, (token, served, loss) in enumerate(
                zip(result.response_ids, result.logprobs, result.loss_mask, strict=True)
            )
            if loss
        ]

    async def _sync(self, step: int) -> None:
        """Weights to every engine: pause, transfer, resume. A stubbed sync does all of it but the weights."""
        colocated = self.spec.placement is Placement.COLOCATED
        theta = None if self.faults.no_sync else self.theta
        own = self.recorder.open(Phase.WEIGHT_SYNC, "weight_sync", pool=self.pool, step=step)
        for engine in self.fleet.engines:
            engine.pause()
        await self._take(self.pace.pause_s)
        paused_ns = now_ns()
        await self._take(self.pace.transfer_s, Phase.WEIGHT_SYNC)
        transferred_ns = now_ns()
        await self._take(self.pace.resume_s)
        for engine in self.fleet.engines:
            engine.resume(self.version, theta)
        resumed_ns = now_ns()
        stages = {
            "version": self.version,
            "pause_ns": paused_ns - own.start_ns,
            "transfer_ns": transferred_ns - paused_ns,
            "resume_ns": resumed_ns - transferred_ns,
        }
        if colocated:  # one pool: the trainer's span is the engines', and names the version
            single = self.fleet.engines[0].address if len(self.fleet.engines) == 1 else None
            self.recorder.close(own, attributes={**stages, "engine": single})
            return
        for engine in self.fleet.engines:
            self.recorder.span(
                Phase.WEIGHT_SYNC,
                "update_weights",
                own.start_ns,
                resumed_ns,
                pool=Pool.ROLLOUT,
                unit=engine.address,
                step=step,
                attributes={**stages, "engine": engine.address},
            )
        self.recorder.close(own)

    def _probe(self, step: int) -> None:
        """Trainer and engines on the same text, after each sync of the warm-up: the material of the sync's proof."""
        if step > self.spec.warmup_steps:
            return
        with self._timed(Phase.OVERHEAD, "probe", step):
            tokens = probe(self.spec.seed)
            own = tuple(trainer_logprobs(self.theta, tokens))
            labels: dict[str, Scalar] = {"source": "trainer", "version": self.version}
            self.recorder.metric("probe_logprobs", values=own, unit="nat", step=step, labels=labels)
            for engine in self.fleet.engines:
                self.recorder.metric(
                    "probe_logprobs",
                    values=tuple(engine.probe(tokens)),
                    unit="nat",
                    step=step,
                    labels={"source": "engine", "version": engine.version, "engine": engine.address},
                )

    async def _offload(self, native_name: str, step: int) -> None:
        if self.spec.placement is Placement.COLOCATED and self.spec.offload is not Offload.NONE:
            with self._timed(Phase.OFFLOAD, native_name, step):
                await self._take(self.pace.offload_s, Phase.OFFLOAD)

    def _timed(self, phase: Phase, native_name: str, step: int) -> AbstractContextManager[None]:
        return self.recorder.timed(phase, native_name, pool=self.pool, step=step)

    async def _take(self, seconds: float, phase: Phase | None = None) -> None:
        """Waits, with seeded noise and what is planted for `phase`."""
        extra_s = self.faults.extra_s(phase) if phase else 0.0
        await asyncio.sleep(seconds * self._dice.lognormvariate(0.0, NOISE_SIGMA) + extra_s)
