"""What the event loop works on: its arrays, made for a scenario and given more draws and more room when it asks."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.protocol.errors import SpecError
from results.planner import draws
from results.planner import kernel as k
from results.planner.model import Bound, Composed, InFlight, Mode, Order, Scenario, expected_trajectories, mean_of

CHUNK = 1 << 16  # trajectories drawn at a time; results do not depend on it
SMALL_CHUNK = 1 << 12
MOST_TURN_DRAWS = 1 << 20  # of a chunk
FIRST_UPDATES = 1 << 12
FIRST_GROUPS = 1 << 13
MOST_UPDATES_AT_ONCE = 1 << 18

# The kernel's arguments after `first`, in its order.
ARGUMENTS = (
    "turns", "draws", "work_s", "sync_s", "gkey", "gitem", "tkey", "titem", "slot_member", "slot_group", "slot_place",
    "slot_last",
    "slot_draws", "free_slots", "group_first", "group_left", "group_oldest", "member_version", "member_taken",
    "free_groups", "queue", "queue_key", "held", "taken_s", "ended_s", "left", "at_finish", "at_start", "at_moved",
    "warm_st", "warm_clk", "warm_finish", "warm_start", "warm_moved", "rec_start", "rec_end", "rec_worker",
    "rec_version", "rec_update",
)  # fmt: skip


@dataclass(slots=True)
class Arrays:
    """The kernel's arrays, numpy's or lists, by its own names."""

    use_lists: bool
    by_name: dict[str, Any] = field(default_factory=dict)
    zeros: dict[str, Any] = field(default_factory=dict)

    def make(self, name: str, size: int, kind: Any, value: float = 0) -> None:
        """A new array, filled."""
        if self.use_lists:
            self.zeros[name] = kind(0).item()
            self.by_name[name] = [kind(value).item()] * size
        else:
            self.by_name[name] = np.full(size, value, dtype=kind) if value else np.zeros(size, dtype=kind)

    def put(self, name: str, values: Any) -> None:
        """An array with these values."""
        self.by_name[name] = values.tolist() if self.use_lists else values

    def grow(self, name: str, size: int) -> None:
        """More room at an array's end, its values kept."""
        old = self.by_name[name]
        if self.use_lists:
            old.extend([self.zeros[name]] * (size - len(old)))
        else:
            new = np.zeros(size, dtype=old.dtype)
            new[: len(old)] = old
            self.by_name[name] = new

    def numpy(self, name: str, kind: Any) -> Any:
        """An array as numpy's; it may be the one the loop works on."""
        return np.asarray(self.by_name[name], dtype=kind)


def plain(scenario: Scenario) -> bool:
    """Whether groups, turns, load and the order of starts play no part: the kernel has a shorter way for that."""
    law, policy = scenario.durations, scenario.policy
    turns = max(law.turns) if isinstance(law, Composed) else 1
    first_finished = policy.order is not Order.FIRST_STARTED
    return turns == 1 and policy.group_size == 1 and first_finished and scenario.pools.slow_down.flat


class State:
    """The kernel's arrays for one scenario, and more of them as it asks."""

    def __init__(
        self, scenario: Scenario, *, use_lists: bool, records: int = 0, fast: draws.Fast | None = None
    ) -> None:
        self.scenario = scenario
        self.arrays = Arrays(use_lists=use_lists)
        self.records = records
        self.fast = fast
        self.parts = np.zeros((4, 0))  # seconds of offload, logprob, train and sync of each update drawn
        self.most_turns = max(scenario.durations.turns) if isinstance(scenario.durations, Composed) else 1
        self.stride = 2 * self.most_turns - 1
        chunk = SMALL_CHUNK if use_lists else CHUNK
        # No more than are likely to be played, and a few: a short simulation is not to wait for draws it never uses.
        self.likely = 1.05 * expected_trajectories(scenario) + scenario.pools.workers
        self.chunk = max(16, int(min(chunk, MOST_TURN_DRAWS // self.stride, self.likely)))
        self.first = 0
        self._prepare()

    def _prepare(self) -> None:
        scenario, policy, pools, arrays = self.scenario, self.scenario.policy, self.scenario.pools, self.arrays
        workers, group = pools.workers, policy.group_size
        started = max(scenario.batch_size, math.ceil(scenario.batch_size * (1 + policy.over_sampling) - 1e-9))
        per_step = scenario.trajectories_per_step
        rule = {Mode.SYNCHRONOUS: k.BATCHES, Mode.ONE_STEP_OFF: k.ONE_STEP_OFF}.get(policy.mode, k.FREE)
        bound = -1 if policy.max_staleness is None else policy.max_staleness
        discards = policy.bound is Bound.DISCARD
        if rule == k.FREE and bound >= 0 and not discards:
            rule = k.ADMISSION
        self.rule = rule
        flat = pools.slow_down.flat
        bins = max(64, 16 * (1 + math.ceil(workers / per_step)), 4 * (bound + 2)) if bound < 1 << 16 else 1 << 16
        par = np.zeros(k.PARAMETERS, dtype=np.int64)
        for place, value in (
            (k.WORKERS, workers),
            (k.GROUP, group),
            (k.BATCH, scenario.batch_size),
            (k.STARTED_BATCH, started),
            (k.RULE, rule),
            (k.MAX_STALENESS, bound),
            (k.DISCARDS, discards),
            (k.BY_START, policy.order is Order.FIRST_STARTED),
            (k.WAITS, policy.in_flight is InFlight.WAIT),
            (k.KEEPS, policy.in_flight is InFlight.KEEP),
            (k.FLAT, flat),
            (k.STRIDE, self.stride),
            (k.LAST_UPDATE, scenario.horizon_updates or 0),
            (k.WARMUP, scenario.warmup_updates),
            (k.BINS, bins),
            (k.RECORDED, self.records),
        ):
            par[place] = value
        arrays.put("par", par)
        state = np.zeros(k.STATE, dtype=np.int64)
        state[k.LIMIT] = {
            k.BATCHES: started * group,
            k.ONE_STEP_OFF: started * group,
            k.ADMISSION: (bound + 1) * per_step,
            k.FREE: 1 << 62,
        }[rule]
        state[k.FREE_SLOTS] = workers
        arrays.put("st", state)
        arrays.make("clk", k.CLOCKS, np.float64)
        rate = np.ones(1) if flat else np.array([1 / pools.slow_down.at(n / pools.engines) for n in range(workers + 1)])
        arrays.put("rate", rate)
        arrays.make("turns", 0, np.int64)
        arrays.make("draws", 0, np.float64)
        arrays.make("work_s", 0, np.float64)
        arrays.make("sync_s", 0, np.float64)
        for name, kind in (("gkey", np.float64), ("gitem", np.uint32), ("tkey", np.float64), ("titem", np.uint32)):
            used = name[0] == "g" or self.stride > 1
            arrays.make(name, workers if used else 1, kind)
        for name in ("slot_member", "slot_group", "slot_place", "slot_last"):
            arrays.make(name, workers if name in ("slot_member", "slot_group") or self.stride > 1 else 1, np.int64)
        arrays.make("slot_draws", workers * self.stride if self.stride > 1 else 1, np.float64)
        arrays.put("free_slots", np.arange(workers - 1, -1, -1, dtype=np.uint32))  # worker 0 is given out first
        for name in ("group_first", "group_left", "group_oldest", "member_version", "member_taken"):
            arrays.make(name, 0, np.int64)
        for name in ("free_groups", "queue", "queue_key"):
            arrays.make(name, 0, np.int64)
        pile = int(min(FIRST_GROUPS, self.likely / group)) if rule == k.FREE else 0  # without a bound they may pile up
        self.more_groups(max(workers + started + 2, pile))
        arrays.make("held", scenario.batch_size, np.int64)
        arrays.make("taken_s", 0, np.float64)
        arrays.make("ended_s", 0, np.float64)
        arrays.make("left", 0, np.int64)
        for name in ("at_finish", "at_start", "at_moved", "warm_finish", "warm_start", "warm_moved"):
            arrays.make(name, bins, np.int64)
        arrays.make("warm_st", k.STATE, np.int64)
        arrays.make("warm_clk", k.CLOCKS, np.float64)
        for name in ("rec_start", "rec_end"):
            arrays.make(name, self.records, np.float64, math.nan)
        for name in ("rec_worker", "rec_version", "rec_update"):
            arrays.make(name, self.records, np.int64, -1)
        self.more_updates()

    def more_draws(self) -> None:
        """The next trajectories' draws.

        Raises:
            SpecError: what takes no time is drawn for ever, so that the clock does not move.
        """
        names = self.arrays.by_name
        self.first = int(names["st"][k.NEXT])
        if names["clk"][k.NOW] == 0 and self.first > 16 * max(self.chunk, self.scenario.pools.workers):
            raise SpecError("durations, train: so many take no time that the virtual clock does not move")
        turns, seconds = draws.durations(self.scenario.durations, self.scenario.seed, self.first, self.chunk, self.fast)
        self.arrays.put("turns", turns)
        self.arrays.put("draws", seconds)

    def more_groups(self, size: int) -> None:
        """Room for `size` groups that have begun and are not taken."""
        arrays = self.arrays
        old = len(arrays.by_name["queue"])
        state = arrays.by_name["st"]
        for name in ("group_first", "group_left", "group_oldest", "free_groups", "queue_key", "queue"):
            arrays.grow(name, size)
        for name in ("member_version", "member_taken"):
            arrays.grow(name, size * self.scenario.policy.group_size)
        free, queue, head = arrays.by_name["free_groups"], arrays.by_name["queue"], int(state[k.HEAD])
        if head:  # the ring's two ends are put together again
            ring = (
                queue[head:old] + queue[:head] if arrays.use_lists else np.concatenate([queue[head:old], queue[:head]])
            )
            queue[:old] = ring
            state[k.HEAD] = 0
        count = int(state[k.FREE_GROUPS])
        new = np.arange(old, size, dtype=np.int64)
        free[count : count + size - old] = new.tolist() if arrays.use_lists else new
        state[k.FREE_GROUPS] = count + size - old

    def more_updates(self) -> None:
        """The next updates' draws, and room for what is told of them."""
        scenario, pools, arrays = self.scenario, self.scenario.pools, self.arrays
        have = self.parts.shape[1]
        count = min(max(have, FIRST_UPDATES), MOST_UPDATES_AT_ONCE)
        if scenario.horizon_updates is not None and not have:
            count = min(MOST_UPDATES_AT_ONCE, scenario.horizon_updates + 1)
        elif scenario.horizon_s is not None and not have:
            busy_s = sum(map(mean_of, (pools.offload, pools.logprob, pools.train)))
            likely = self.likely / scenario.trajectories_per_step
            count = min(count, 16 + int(min(likely, 1.05 * scenario.horizon_s / busy_s if busy_s else likely)))
        drawn = [
            draws.seconds(law, scenario.seed, stream, have, count)
            for law, stream in (
                (pools.offload, draws.OFFLOAD),
                (pools.logprob, draws.LOGPROB),
                (pools.train, draws.TRAIN),
                (pools.pause, draws.PAUSE),
                (pools.transfer, draws.TRANSFER),
                (pools.resume, draws.RESUME),
            )
        ]
        more = np.array([*drawn[:3], drawn[3] + drawn[4] + drawn[5]])
        self.parts = np.concatenate([self.parts, more], axis=1)
        arrays.put("work_s", self.parts[0] + self.parts[1] + self.parts[2])
        arrays.put("sync_s", self.parts[3].copy())
        for name in ("taken_s", "ended_s", "left"):
            arrays.grow(name, have + count)
