"""The simulator's model once more, as plainly as it can be said: every sequence has its remaining work, every event
moves all of them. Slow, and sharing nothing with the event loop but the draws."""

import math
from dataclasses import dataclass, field

from results.planner import draws
from results.planner.model import Bound, InFlight, Mode, Order, Scenario


@dataclass
class Sequence:
    number: int
    seconds: list[float]  # generation and tool in turn
    version: int
    taken: int
    place: int = 0
    left: float = 0.0

    @property
    def generates(self) -> bool:
        return self.place % 2 == 0


@dataclass
class Plain:
    """Plays `scenario` until `horizon_updates`; `ended`, `ages` (at finish, at start, moved) and counts are found."""

    scenario: Scenario
    now: float = 0.0
    running: list[Sequence] = field(default_factory=list)
    queue: list[list[Sequence]] = field(default_factory=list)
    open_groups: dict[int, list[Sequence]] = field(default_factory=dict)
    held: list[list[Sequence]] = field(default_factory=list)
    next_number: int = 0
    started: int = 0
    taken: int = 0
    trained_version: int = 0
    visible: int = 0
    opened: int = 1  # batches that may start, in the modes that make batches
    trainer: str = "idle"
    trainer_left: float = math.inf
    ended: list[float] = field(default_factory=list)
    at_finish: int = 0
    at_start: int = 0
    at_moved: int = 0
    violations: int = 0
    discarded: int = 0
    cut: int = 0
    busy: float = 0.0

    def play(self) -> "Plain":
        scenario, policy = self.scenario, self.scenario.policy
        assert scenario.horizon_updates is not None
        work = [
            draws.seconds(law, scenario.seed, stream, 0, scenario.horizon_updates + 2)
            for law, stream in (
                (scenario.pools.offload, draws.OFFLOAD),
                (scenario.pools.logprob, draws.LOGPROB),
                (scenario.pools.train, draws.TRAIN),
            )
        ]
        syncs = [
            draws.seconds(law, scenario.seed, stream, 0, scenario.horizon_updates + 2)
            for law, stream in (
                (scenario.pools.pause, draws.PAUSE),
                (scenario.pools.transfer, draws.TRANSFER),
                (scenario.pools.resume, draws.RESUME),
            )
        ]
        self.work = sum(work)
        self.sync = sum(syncs)
        while len(self.ended) < scenario.horizon_updates:
            self.start_all()
            if self.trainer == "idle" and self.take():
                continue
            self.step(policy.in_flight)
        return self

    def batch_starts(self) -> int:
        policy = self.scenario.policy
        return math.ceil(self.scenario.batch_size * (1 + policy.over_sampling) - 1e-9) * policy.group_size

    def limit(self) -> float:
        policy = self.scenario.policy
        if policy.in_flight is InFlight.WAIT and policy.mode is Mode.ASYNC and self.trainer in ("draining", "syncing"):
            return -1
        if policy.mode is Mode.SYNCHRONOUS:
            return (self.visible + 1) * self.batch_starts()
        if policy.mode is Mode.ONE_STEP_OFF:
            return self.opened * self.batch_starts()
        if policy.max_staleness is not None and policy.bound is Bound.ADMISSION:
            return (policy.max_staleness + self.visible + 1) * self.scenario.trajectories_per_step
        return math.inf

    def start_all(self) -> None:
        scenario = self.scenario
        while len(self.running) < scenario.pools.workers and self.next_number < self.limit():
            turns, seconds = draws.durations(scenario.durations, scenario.seed, self.next_number, 1)
            one = Sequence(self.next_number, list(seconds[: 2 * turns[0] - 1]), self.visible, self.taken)
            one.left = one.seconds[0]
            self.running.append(one)
            self.open_groups.setdefault(self.next_number // scenario.policy.group_size, [])
            self.next_number += 1
            self.started += 1

    def take(self) -> bool:
        scenario, policy = self.scenario, self.scenario.policy
        if len(self.queue) + len(self.held) < scenario.batch_size:
            return False
        if policy.order is Order.FIRST_STARTED:
            self.queue.sort(key=lambda group: group[0].number)
        while self.queue and len(self.held) < scenario.batch_size:
            group = self.queue.pop(0)
            oldest = min(one.version for one in group)
            if policy.bound is Bound.DISCARD and self.taken - oldest > (policy.max_staleness or 0):
                self.discarded += len(group)
            else:
                self.held.append(group)
        if len(self.held) < scenario.batch_size:
            return False
        for one in (one for group in self.held for one in group):
            self.at_start += self.taken - one.version
            self.at_moved += self.taken - one.taken
            self.violations += policy.max_staleness is not None and self.taken - one.version > policy.max_staleness
        self.held = []
        self.taken += 1
        if policy.mode is not Mode.ASYNC:
            begun = self.batch_starts() - (self.taken * self.batch_starts() - self.next_number)
            self.cut += begun - scenario.trajectories_per_step
            self.running, self.queue, self.open_groups = [], [], {}
            self.next_number = self.taken * self.batch_starts()
        if policy.mode is Mode.ONE_STEP_OFF and self.trained_version > self.visible:
            self.trainer, self.trainer_left = "syncing", self.sync[self.taken - 2]
        else:
            self.trainer, self.trainer_left = "training", self.work[self.taken - 1]
            self.opened = self.taken + 1
        return True

    def step(self, in_flight: InFlight) -> None:
        scenario, policy = self.scenario, self.scenario.policy
        paused = self.trainer == "syncing" and in_flight is not InFlight.KEEP
        generating = [one for one in self.running if one.generates]
        in_tools = [one for one in self.running if not one.generates]
        slow = scenario.pools.slow_down.at(len(generating) / scenario.pools.engines) if generating else 1.0
        passed = self.trainer_left if self.trainer in ("training", "syncing") else math.inf
        if not paused:
            passed = min([passed, *(one.left * slow for one in generating)])
        passed = min([passed, *(one.left for one in in_tools)])
        assert passed < math.inf
        self.now += passed
        self.busy += passed * len(self.running)
        self.trainer_left -= passed
        for one in generating:
            one.left -= 0.0 if paused else passed / slow
        for one in in_tools:
            one.left -= passed
        for one in [one for one in self.running if one.left <= 1e-9]:
            one.place += 1
            if one.place < len(one.seconds):
                one.left = one.seconds[one.place]
                continue
            self.running.remove(one)
            self.at_finish += self.visible - one.version
            group = self.open_groups[one.number // policy.group_size]
            group.append(one)
            if len(group) == policy.group_size:
                group.sort(key=lambda member: member.number)
                self.queue.append(self.open_groups.pop(one.number // policy.group_size))
        over = False
        if self.trainer == "training" and self.trainer_left <= 1e-9:
            self.trained_version = self.taken
            over = policy.mode is Mode.ONE_STEP_OFF
            self.trainer = "idle" if over else "draining"
            if self.trainer == "draining" and in_flight is not InFlight.WAIT:
                self.begin_sync()
        elif self.trainer == "syncing" and self.trainer_left <= 1e-9:
            self.visible = self.trained_version
            if policy.mode is Mode.ONE_STEP_OFF:
                self.trainer, self.trainer_left = "training", self.work[self.taken - 1]
                self.opened = self.taken + 1
            else:
                self.trainer, over = "idle", True
        if self.trainer == "draining" and not self.running:
            self.begin_sync()
        if over:
            self.ended.append(self.now)

    def begin_sync(self) -> None:
        self.trainer, self.trainer_left = "syncing", self.sync[self.taken - 1]
