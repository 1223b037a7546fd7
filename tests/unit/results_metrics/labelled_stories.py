"""Stories of a run in whole milliseconds, and what MEASURING.md calls each of them: by looking, one at a time.

Nothing here is shared with the account: no intervals, no sorting of edges, no vector. An instant is the middle of a
millisecond; every rule is a sentence of "Time account" read off at that instant.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from recorded_histories import History

BEGIN, END = -40, 140  # ms of a story
LOW, HIGH = 0, 120  # ms of its window: what began before it is cut, what ends after it too
ENGINES = ("e0", "e1")
TRAIN_CLASS = {
    "weight_sync": "weight_sync",
    "offload": "offload",
    "checkpoint": "checkpoint",
    "eval": "eval",
    "train": "train",
    "logprob": "logprob",
    "reward": "host",
    "advantage": "host",
    "data": "host",
    "overhead": "host",
    "wait_rollout": "wait_rollout",
}
TRAIN_ORDER = (
    "weight_sync",
    "offload",
    "checkpoint",
    "eval",
    "train",
    "logprob",
    "host",
    "wait_rollout",
    "generation",
    "other",
)
WORK = ("train", "logprob", "host")
NEVER = 10**9


@dataclass(frozen=True)
class Leaf:
    """A native timer of one process. `engine`: of the rollout pool's, the unit it names."""

    phase: str
    start: int
    end: int
    pool: str = "train"
    pid: int = 1
    engine: str | None = None


@dataclass(frozen=True)
class Part:
    """What a trajectory does for a while. A turn waits `queued` ms of it before its engine has it."""

    kind: str  # turn | cancelled (a turn without a reply) | tool | reward | agent
    start: int
    end: int
    engine: str | None = None
    queued: int = 0

    @property
    def turn(self) -> bool:
        """Whether a reply is asked for."""
        return self.kind in ("turn", "cancelled")


@dataclass(frozen=True)
class Life:
    """One trajectory: its parts follow each other. `end` None: open to the end of the record."""

    start: int
    end: int | None
    parts: tuple[Part, ...]
    left: int | None  # when a step had trained on it

    def at(self, t: int) -> Part | None:
        """What it does; None before, after and between its parts."""
        return next((part for part in self.parts if part.start <= t < part.end), None)

    def lives(self, t: int) -> bool:
        """Whether it has begun and not ended."""
        return self.start <= t < (NEVER if self.end is None else self.end)


@dataclass
class Story:
    """All that happened."""

    placement: str
    named: bool  # turns say their engine
    lives: list[Life]
    leaves: list[Leaf]
    syncs: list[tuple[int, int, str | None]]
    gates: list[tuple[int, bool, int | None, int | None]]  # at, open, in flight, cap
    tails: list[tuple[int, int]]
    controller: tuple[int, int | None] | None  # its Hello and Bye, where there is one
    engines_bye: int | None
    readings: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  # engine -> at, running, waiting
    trains: dict[int, str] = field(default_factory=dict, repr=False)  # what was looked up already

    # -- what is open at an instant

    def leaf(self, pools: tuple[str, ...], phases: tuple[str, ...], t: int) -> str:
        """The first class in order over processes, of each process's innermost leaf."""
        found = ["other"]
        for pid in {each.pid for each in self.leaves}:
            open_now = [
                each
                for each in self.leaves
                if each.pid == pid and each.pool in pools and each.phase in phases and each.start <= t < each.end
            ]
            if open_now:
                inner = max(open_now, key=lambda each: (each.start, -each.end))
                found.append(TRAIN_CLASS.get(inner.phase, inner.phase))
        return min(found, key=TRAIN_ORDER.index)

    def train(self, t: int) -> str:
        """The class of the unit that trains (colocated: of all GPUs, `generation` inside the native generate span)."""
        if t not in self.trains:
            self.trains[t] = self._train(t)
        return self.trains[t]

    def _train(self, t: int) -> str:
        if self.controller is not None and not (self.controller[0] <= t < _never(self.controller[1])):
            return "down"
        together = self.placement == "colocated"
        pools = ("train", "both") if together else ("train",)
        return self.leaf(pools, (*TRAIN_CLASS, *(["generation"] if together else [])), t)

    def engine_of(self, life: Life, t: int) -> str | None:
        """The engine of its last turn that has begun; a turn that told none has that of the one before."""
        engine = None
        for part in life.parts:
            if part.turn and part.start + part.queued <= t:
                engine = part.engine or engine
        return engine

    def generating(self, life: Life, t: int) -> bool:
        """Whether an engine has a turn of it."""
        part = life.at(t)
        return part is not None and part.turn and part.start + part.queued <= t

    def paused(self, unit: str | None, t: int) -> bool:
        """Whether a sync holds the unit up: one of its own, or of every engine."""
        spans = [(s, e, n) for s, e, n in self.syncs]
        spans += [(x.start, x.end, x.engine) for x in self.leaves if x.pool == "rollout" and x.phase == "weight_sync"]
        return any(s <= t < e and (unit is None or n is None or n == unit) for s, e, n in spans)

    def wanted(self, unit: str | None, granularity: str, t: int) -> bool:
        """Whether a trajectory of the unit generates or waits for its engine to."""
        for life in self.lives:
            part = life.at(t)
            if part is not None and part.turn:
                mine = self.engine_of(life, part.start + part.queued)
                if granularity != "engine" or mine == unit:
                    return True
        return False

    def reading(self, unit: str, t: int) -> tuple[int, int, int] | None:
        """The reading that speaks for an instant: the nearest, no farther than two periods."""
        mine = self.readings.get(unit, [])
        if len(mine) < 2:
            return None
        gaps = sorted(b[0] - a[0] for a, b in pairwise(mine))
        middle = len(gaps) // 2
        period = gaps[middle] if len(gaps) % 2 else (gaps[middle - 1] + gaps[middle]) / 2
        near = min(mine, key=lambda each: (abs(t + 0.5 - each[0]), each[0]))
        return near if abs(t + 0.5 - near[0]) <= 2 * period else None

    def rollout(self, unit: str | None, granularity: str, t: int) -> str:
        """The class of a rollout unit; `unit` None: the pool as one."""
        train = self.train(t)
        together = self.placement == "colocated"
        if together and train != "generation":
            return train
        if not together and self.controller is not None:
            hello, bye = self.controller
            if not hello <= t < _never(bye):
                return "down"
        if self.engines_bye is not None and t >= self.engines_bye:
            return "down"
        if self.paused(unit, t):
            return "weight_sync"
        away = [x for x in self.leaves if x.pool == "rollout" and x.phase == "offload" and x.start <= t < x.end]
        if any(unit is None or x.engine is None or x.engine == unit for x in away):
            return "offload"
        here: list[Life] = []
        elsewhere: list[Life] = []
        for life in self.lives:
            if life.lives(t):
                mine = granularity != "engine" or (unit is not None and self.engine_of(life, t) == unit)
                (here if mine else elsewhere).append(life)
        turns = [life for life in here if self.generating(life, t)]
        if granularity == "metric":
            assert unit is not None
            elsewhere += turns  # on whichever engine: nobody knows
            here = [life for life in here if life not in turns]
            told = self.reading(unit, t)
            if told is None and turns:  # one of them may run here: nothing shows that any does, nor that none does
                return "other"
            if told is not None and (told[1] > 0 or told[2] > 0):
                return "generating" if told[1] > 0 else "queued"
        elif turns:
            told = self.reading(unit, t) if unit is not None and granularity == "engine" else None
            if told is not None and told[1] == 0 and all(self._open_at(life, t, told[0]) for life in turns):
                return "queued"
            return "generating"
        doing = [part.kind if (part := life.at(t)) is not None else "agent" for life in here]
        if "tool" in doing:
            return "tool_wait"
        if doing:
            return "agent"
        if elsewhere:
            return "empty"
        if not self._waits_for_training(train, t):
            return "other"
        return "agent" if together else "wait_train"  # together there is no other pool to wait for

    def _open_at(self, life: Life, t: int, at: int) -> bool:
        part = life.at(t)
        return part is not None and part.start + part.queued <= at <= part.end

    def _waits_for_training(self, train: str, t: int) -> bool:
        if any(x.pool == "rollout" and x.phase == "wait_train" and x.start <= t < x.end for x in self.leaves):
            return True
        if self.placement == "disaggregated" and train in (*WORK, "weight_sync", "offload", "checkpoint", "eval"):
            return True
        said = [gate for gate in self.gates if gate[0] <= t]
        if not said:
            return False
        _, is_open, in_flight, cap = said[-1]
        return not is_open or (in_flight is not None and cap is not None and in_flight >= cap)

    def hidden(self, name: str, unit: str | None, granularity: str, t: int) -> bool:
        """Whether a second of a rollout unit, of the class `name`, cost the run nothing."""
        if name == "weight_sync":
            return not self.wanted(unit, granularity, t)
        return name != "other" and self.train(t) in WORK

    def tail(self, t: int) -> bool:
        """Whether a batch waits for its last ones."""
        return self.placement != "async" and any(s <= t < e for s, e in self.tails)

    def lifetime(self, life: Life, t: int) -> str | None:
        """What a trajectory's own time went to; None: it is not there."""
        left = _never(life.left)
        if life.end is not None and life.end <= t:
            return "buffer_wait" if t < left else None
        if not life.lives(t):
            return None
        part = life.at(t)
        if part is None or part.kind == "agent":
            return "agent"
        if not part.turn:
            return part.kind
        if part.start + part.queued > t:
            return "queued"
        # Of a turn that told no engine, and none before it: any engine's pause may be its own.
        return "paused" if self.paused(self.engine_of(life, t), t) else "generating"

    # -- the record that a run would have left

    def history(self) -> History:
        """The tables' rows."""
        made = History(self.placement, {"rollout_tp": 1})  # two replicas, whatever the placement
        for number, life in enumerate(self.lives):
            _record(made, f"t{number}", life, self.named)
        for place, engine in enumerate(ENGINES):  # both are known from before the window
            made.life(f"early {engine}", (BEGIN - 20) / 1e3, (BEGIN - 10) / 1e3)
            at = (BEGIN - 20 + place) / 1e3
            made.turn(f"early {engine}", at, at + 0.001, engine if self.named else None, generated_tokens=1)
        for leaf in self.leaves:
            more: dict[str, Any] = {"unit": leaf.engine} if leaf.engine else {}
            made.span(leaf.phase, leaf.start / 1e3, leaf.end / 1e3, leaf.pool, pid=leaf.pid, **more)
        made.span(None, LOW / 1e3, HIGH / 1e3, container=True, native_name="step")
        for start, end, engine in self.syncs:
            made.sync(1, start / 1e3, end / 1e3, engine)
        for at, is_open, in_flight, cap in self.gates:
            made.gate(at / 1e3, is_open, in_flight, cap)
        if self.controller is not None:
            hello, bye = self.controller
            made.process("controller", hello / 1e3, None if bye is None else bye / 1e3)
        if self.engines_bye is not None:
            made.process("rollout", (BEGIN - 30) / 1e3, self.engines_bye / 1e3)
        for name in ENGINES if self.readings else ():
            if name not in self.readings:  # it was asked, and its page never answered
                made.add("engine_samples", engine=name, mono_ns=10**12, uncertainty_ns=0, reason="HTTP 500")
        for name, rows in self.readings.items():
            for at, running, waiting in rows:
                values = {"running_requests": float(running), "waiting_requests": float(waiting)}
                row: dict[str, Any] = {"engine": name, "mono_ns": 10**12 + at * 10**6, "family": "vllm", **values}
                made.add("engine_samples", uncertainty_ns=0, **row)
        return made


def _never(at: int | None) -> int:
    return NEVER if at is None else at


def _record(made: History, name: str, life: Life, named: bool) -> None:
    made.life(name, life.start / 1e3, None if life.end is None else life.end / 1e3)
    if life.left is not None:
        made.rows["trajectories"][-1].update(step_consumed=1, version_trained=0, consumed_ns=10**12 + life.left * 10**6)
    for part in life.parts:
        begin, end = (part.start + part.queued) / 1e3, part.end / 1e3
        if part.turn:
            answered = {"generated_tokens": 5} if part.kind == "turn" else {"stop_reason": "cancelled"}
            engine = part.engine if named and part.kind == "turn" else None
            made.turn(name, begin, end, engine, submitted_ns=10**12 + part.start * 10**6, **answered)
        elif part.kind == "tool":
            made.tool(name, begin, end)
        elif part.kind == "reward":
            made.span("reward", begin, end, "rollout", trajectory_id=name)
