"""Async with what the kernel leaves out: cores that both pools share, and what some frameworks do.

Three things are here and not in `kernel`: while the trainer computes and the engines generate, each slows the other, at
every instant; turns that a sync interrupts may be asked again only after a while; and the trainer may wait for the
oldest groups. Without them it is the kernel's model, draw by draw. It is plain Python, for as few trajectories as a
batch of a run has.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from results.planner import draws
from results.planner.accounts import energy
from results.planner.model import ROLLOUT_CLASSES, TRAIN_CLASSES, Order, Scenario
from results.planner.result import (
    AFTER_UPDATE,
    AT_FINISH,
    AT_START,
    AT_TAKE_MOVED,
    Histogram,
    Ledger,
    Records,
    Result,
)

CHUNK = 256  # trajectories drawn at a time
_IDLE, _TRAINING, _SYNCING = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What one machine adds.

    Args:
        depth: how much longer each side takes while both compute: 0 not at all, 1 twice as long.
        held_s: turns that generate when a sync begins go on at the first multiple of it, from the sync's begin, at
            which the sync is over; 0: when it is over. They keep their tokens.
        in_order: groups are taken in the order they were started in, and waited for.
    """

    depth: float = 0.0
    held_s: float = 0.0
    in_order: bool = False


@dataclass(slots=True)
class _Life:
    """A trajectory: its seconds of generation and tool in turn, where it is in them, and versions at its start."""

    seconds: list[float]
    number: int
    group: int
    version: int
    taken: int
    place: int = 0


@dataclass(slots=True)
class _Counts:
    """Seconds and counts since the beginning; a copy at the warm-up's end tells the window."""

    now: float = 0.0
    busy: float = 0.0
    running: float = 0.0
    train: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TRAIN_CLASSES, 0.0))
    rollout: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLLOUT_CLASSES, 0.0))
    finish: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    violations: int = 0

    def copy(self) -> "_Counts":
        made = _Counts(now=self.now, busy=self.busy, running=self.running, violations=self.violations)
        made.train, made.rollout = dict(self.train), dict(self.rollout)
        made.finish, made.start, made.moved = list(self.finish), list(self.start), list(self.moved)
        return made


class _Machine:
    """The state of one simulation."""

    def __init__(self, scenario: Scenario, sharing: Sharing) -> None:
        assert scenario.policy.max_staleness is not None
        assert scenario.horizon_updates is not None
        self.scenario, self.sharing = scenario, sharing
        self.bound, self.group = scenario.policy.max_staleness, scenario.policy.group_size
        self.per_step = scenario.trajectories_per_step
        self.updates = scenario.horizon_updates
        pools = scenario.pools
        slow = [1.0, *(pools.slow_down.at(n / pools.engines) for n in range(1, pools.workers + 1))]
        self.speed = [1 / each for each in slow]
        self.work = {
            name: draws.seconds(law, scenario.seed, stream, 0, self.updates)
            for name, law, stream in (
                ("logprob", pools.logprob, draws.LOGPROB),
                ("train", pools.train, draws.TRAIN),
            )
        }
        self.sync = draws.seconds(pools.pause, scenario.seed, draws.PAUSE, 0, self.updates)
        self.sync = self.sync + draws.seconds(pools.transfer, scenario.seed, draws.TRANSFER, 0, self.updates)
        self.sync = self.sync + draws.seconds(pools.resume, scenario.seed, draws.RESUME, 0, self.updates)
        self.count = _Counts()
        self.gen = 0.0  # the clock that all generation shares: seconds of a sequence alone
        self.generating: list[tuple[float, int]] = []  # until which `gen`, and who
        self.waiting: list[tuple[float, int]] = []  # in a tool, or held by a sync: until when, and who
        self.rest: dict[int, float] = {}  # of the held ones: what they have still to generate
        self.lives: dict[int, _Life] = {}
        self.left: dict[int, int] = {}  # members of a group that have not ended
        self.members: dict[int, list[_Life]] = {}
        self.finished: list[int] = []  # groups, in order of their ends
        self.next = 0
        self.drawn: list[list[float]] = []
        self.first = 0
        self.trainer, self.part, self.todo = _IDLE, 0, 0.0
        self.taken = self.visible = 0
        self.taken_s: list[float] = []
        self.ended_s: list[float] = []
        self.queue: list[int] = []
        self.records: list[list[float]] = []  # start, end, version and update of each trajectory, by number
        self.warm: _Counts | None = None if scenario.warmup_updates else _Counts()

    def play(self) -> None:
        while len(self.ended_s) < self.updates:
            self._start()
            if self.trainer == _IDLE and self._ready():
                self._take()
            self._next_event()

    def _start(self) -> None:
        limit = (self.bound + self.visible + 1) * self.per_step
        while len(self.lives) < self.scenario.pools.workers and self.next < limit:
            if self.next - self.first >= len(self.drawn):
                self.first = self.next
                turns, flat = draws.durations(self.scenario.durations, self.scenario.seed, self.first, CHUNK)
                rows = flat.reshape(CHUNK, -1)
                self.drawn = [row[: 2 * count - 1].tolist() for row, count in zip(rows, turns, strict=True)]
            number = self.next
            life = _Life(self.drawn[number - self.first], number, number // self.group, self.visible, self.taken)
            self.lives[number] = life
            self.records.append([self.count.now, math.nan, self.visible, -1])
            self.members.setdefault(life.group, []).append(life)
            self.left[life.group] = self.left.get(life.group, self.group)
            heapq.heappush(self.generating, (self.gen + life.seconds[0], number))
            self.next += 1

    def _ready(self) -> bool:
        batch = self.scenario.batch_size
        if not self.sharing.in_order:
            return len(self.finished) >= batch
        return sum(group < (self.taken + 1) * batch for group in self.finished) == batch

    def _take(self) -> None:
        if self.scenario.policy.order is Order.FIRST_STARTED or self.sharing.in_order:
            self.finished.sort()
        for _ in range(self.scenario.batch_size):
            group = self.finished.pop(0)
            for life in self.members.pop(group):
                age = self.taken - life.version
                self.count.start.append(age)
                self.count.moved.append(self.taken - life.taken)
                self.count.violations += age > self.bound
                self.records[life.number][3] = self.taken + 1
        self.taken_s.append(self.count.now)
        self.queue.append(len(self.finished) * self.group)
        self.trainer, self.part = _TRAINING, 0
        self.todo = float(self.work["logprob"][self.taken])
        self.taken += 1

    def _next_event(self) -> None:
        """Moves to the next end of a turn, of a tool or of the trainer's part; ties in this order, as the kernel's."""
        paused = self.trainer == _SYNCING
        both = self.trainer == _TRAINING and bool(self.generating)
        slower = 1 + self.sharing.depth if both else 1.0
        speed = 0.0 if paused else self.speed[len(self.generating)] / slower
        ends = [math.inf] * 3
        if self.generating and not paused:
            ends[0] = max((self.generating[0][0] - self.gen) / speed, 0.0)
        if self.waiting:
            ends[1] = max(self.waiting[0][0] - self.count.now, 0.0)
        if self.trainer != _IDLE:
            ends[2] = self.todo * (slower if self.trainer == _TRAINING else 1.0)
        passed = min(ends)
        if passed == math.inf:
            raise RuntimeError(f"nothing more can happen at {self.count.now} s: a defect of the simulator")
        kind = ends.index(passed)
        self._account(passed, paused)
        self.gen += passed * speed
        if self.trainer != _IDLE:
            self.todo = 0.0 if kind == 2 else self.todo - passed / (slower if self.trainer == _TRAINING else 1.0)
        if kind == 0:
            self.gen, number = heapq.heappop(self.generating)
            self._turn_ended(number)
        elif kind == 1:
            _, number = heapq.heappop(self.waiting)
            if number in self.rest:
                more = self.rest.pop(number)
            else:
                life = self.lives[number]
                life.place += 1
                more = life.seconds[life.place]
            heapq.heappush(self.generating, (self.gen + more, number))
        else:
            self._trainer_went_on()

    def _account(self, passed: float, paused: bool) -> None:
        count = self.count
        count.now += passed
        count.busy += passed * len(self.lives)
        if paused:
            count.train["weight_sync"] += passed
            count.rollout["weight_sync"] += passed
            return
        count.train[("logprob", "train")[self.part] if self.trainer == _TRAINING else "wait_rollout"] += passed
        if self.generating:
            count.running += passed * len(self.generating)
        count.rollout["generating" if self.generating else "tool_wait" if self.waiting else "wait_train"] += passed

    def _turn_ended(self, number: int) -> None:
        life = self.lives[number]
        life.place += 1
        if life.place < len(life.seconds):
            heapq.heappush(self.waiting, (self.count.now + life.seconds[life.place], number))
            return
        del self.lives[number]
        self.records[number][1] = self.count.now
        self.count.finish.append(self.visible - life.version)
        self.left[life.group] -= 1
        if not self.left[life.group]:
            del self.left[life.group]
            self.finished.append(life.group)

    def _trainer_went_on(self) -> None:
        if self.trainer == _TRAINING and self.part == 0:
            self.part, self.todo = 1, float(self.work["train"][self.taken - 1])
        elif self.trainer == _TRAINING:
            self.trainer, self.todo = _SYNCING, float(self.sync[self.taken - 1])
            self._hold()
        else:
            self.trainer = _IDLE
            self.visible = self.taken
            self.ended_s.append(self.count.now)
            if len(self.ended_s) == self.scenario.warmup_updates:
                self.warm = self.count.copy()

    def _hold(self) -> None:
        held = self.sharing.held_s
        if held <= 0:
            return
        until = self.count.now + held * max(1, math.ceil(self.todo / held - 1e-9))
        for end, number in self.generating:
            self.rest[number] = end - self.gen
            heapq.heappush(self.waiting, (until, number))
        self.generating.clear()


def simulate_on_one_machine(scenario: Scenario, sharing: Sharing) -> Result:
    """Plays an async scenario with a bound kept by admission and partial rollouts.

    Its updates' horizon must be given. What is held by a sync counts as `tool_wait` where nothing generates beside it.
    """
    machine = _Machine(scenario, sharing)
    machine.play()
    count, before = machine.count, machine.warm
    assert before is not None
    window = count.now - before.now
    workers = scenario.pools.workers
    updates = machine.updates - scenario.warmup_updates
    train_s, rollout_s = _since(count.train, before.train), _since(count.rollout, before.rollout)
    live = len(machine.lives)
    done = machine.next - live
    return Result(
        scenario=scenario,
        seconds=count.now,
        window_s=window,
        updates=updates,
        taken_s=np.array(machine.taken_s),
        ended_s=np.array(machine.ended_s),
        queue=np.array(machine.queue, dtype=np.int64),
        worker_busy=(count.busy - before.busy) / (workers * window) if window > 0 else None,
        mean_running=(count.running - before.running) / window if window > 0 else None,
        staleness={
            AT_FINISH: _histogram(count.finish[len(before.finish) :]),
            AT_START: _histogram(count.start[len(before.start) :]),
            AT_TAKE_MOVED: _histogram(count.moved[len(before.moved) :]),
            AFTER_UPDATE: _histogram(count.start[len(before.start) :], least=1),
        },
        violations=count.violations - before.violations,
        ledger=Ledger(
            started=machine.next,
            trained=machine.taken * machine.per_step,
            discarded=0,
            cut=0,
            in_flight=live,
            queued=done - machine.taken * machine.per_step,
        ),
        train_s=train_s,
        rollout_s=rollout_s,
        energy_j=energy(scenario, train_s, rollout_s),
        unstable=False,  # admission bounds what starts
        records=_records(machine.records),
    )


def _records(rows: list[list[float]]) -> Records:
    start, end, version, update = np.array(rows).T
    return Records(
        start_s=start,
        end_s=end,
        worker=np.full(len(rows), -1, dtype=np.int64),  # workers have no numbers here
        version=version.astype(np.int64),
        update=update.astype(np.int64),
    )


def _since(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in now.items()}


def _histogram(values: list[int], least: int = 0) -> Histogram:
    counts = np.bincount(np.array(values, dtype=np.int64), minlength=1)
    return Histogram(counts=np.append(counts, 0), total=sum(values), least=least)
