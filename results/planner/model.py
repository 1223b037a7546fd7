"""What can be simulated: laws of durations, policies, pools and the scenario that joins them.

All times are seconds of virtual time, all powers watts per GPU. A scenario is checked when it is made: one that
exists can be simulated.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.protocol.errors import SpecError
from results.planner.checks import choice, instance, not_negative, number, positive, truth, whole

MOST_WORKERS = 10_000_000
MOST_TURNS = 10_000
SEED_LIMIT = 1 << 64


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number of seconds."""

    seconds: float

    def __post_init__(self) -> None:
        not_negative("seconds", self.seconds)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal seconds: `median_s`, and `sigma`, the standard deviation of the logarithm."""

    median_s: float
    sigma: float

    def __post_init__(self) -> None:
        positive("median_s", self.median_s)
        number("sigma", self.sigma)
        if not 0 <= self.sigma <= 10:
            raise SpecError(f"sigma = {self.sigma}: allowed is 0 to 10 (the spread in log units)")


@dataclass(frozen=True, slots=True)
class Empirical:
    """Recorded seconds, each value equally likely."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise SpecError("values = (): an empirical law needs at least one recorded duration")
        for value in self.values:
            not_negative("values", value)


@dataclass(frozen=True, slots=True)
class Mixture:
    """One of several laws, each with its weight (any scale): 60 % searches and 40 % page reads, say."""

    parts: "tuple[tuple[float, Law], ...]"

    def __post_init__(self) -> None:
        if not self.parts:
            raise SpecError("parts = (): a mixture needs at least one part")
        for weight, law in self.parts:
            positive("weight", weight)
            if not isinstance(law, Law):
                raise SpecError(f"parts: {law!r} is no law; allowed are {LAW_NAMES}")


Law = Fixed | LogNormal | Empirical | Mixture
LAW_NAMES = "Fixed, LogNormal, Empirical, Mixture"


@dataclass(frozen=True, slots=True)
class Composed:
    """A trajectory of turns: each generates, and between two of them a tool is called.

    Args:
        turns: counts of turns, each value equally likely (a tuple of recorded counts, or `tuple(range(2, 10))`).
        generation: seconds of one turn's generation on an engine that runs nothing else; the pool's load slows it.
        tool: seconds of one tool call; no load slows it.
    """

    turns: tuple[int, ...]
    generation: Law
    tool: Law = Fixed(0.0)

    def __post_init__(self) -> None:
        if not self.turns:
            raise SpecError("turns = (): give the counts of turns, e.g. turns = [2, 3, 4]")
        for count in self.turns:
            whole("turns", count, 1, MOST_TURNS)
        _law("generation", self.generation)
        _law("tool", self.tool)


# A law alone is the whole trajectory's generation on an engine that runs nothing else.
Durations = Law | Composed


@dataclass(frozen=True, slots=True)
class SlowDown:
    """How much longer generation takes while `concurrency` sequences run on one engine (straight lines between points).

    Below the first point its factor holds; beyond the last one the last line goes on (of a single point: its factor).
    Nothing there was measured: a plan that depends on it must say so. `SlowDown()` never slows.
    """

    concurrency: tuple[float, ...] = (1.0,)
    factor: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.concurrency or len(self.concurrency) != len(self.factor):
            raise SpecError(
                f"slow_down: {len(self.concurrency)} concurrencies and {len(self.factor)} factors; give as many of each"
            )
        for value in self.concurrency:
            positive("slow_down.concurrency", value)
        for value in self.factor:
            positive("slow_down.factor", value)
        if any(right <= left for left, right in zip(self.concurrency, self.concurrency[1:], strict=False)):
            raise SpecError(f"slow_down.concurrency = {list(self.concurrency)}: it must rise")

    @property
    def flat(self) -> bool:
        """Whether load changes nothing."""
        return all(value == 1.0 for value in self.factor)

    def at(self, concurrency: float) -> float:
        """The factor with this many sequences on an engine."""
        xs, ys = self.concurrency, self.factor
        if concurrency <= xs[0] or len(xs) == 1:
            return ys[0]
        right = next((place for place, x in enumerate(xs) if x >= concurrency), len(xs) - 1)
        slope = (ys[right] - ys[right - 1]) / (xs[right] - xs[right - 1])
        return max(ys[right - 1] + slope * (concurrency - xs[right - 1]), min(ys))


class Mode(StrEnum):
    """When trajectories are made, as seen from the trainer."""

    SYNCHRONOUS = "synchronous"  # a batch, then its update, in turn
    ONE_STEP_OFF = "one_step_off"  # the next batch is made while the trainer works on this one
    ASYNC = "async"  # workers never stop but for the bound


class Bound(StrEnum):
    """How max_staleness is kept."""

    # A trajectory starts while started < (max_staleness + version + 1) x batch: the capacity rule of AReaL (Fu et al.
    # 2025, arXiv:2505.24298, section 4) and SkyRL. It bounds what is admitted; a long straggler passes it.
    ADMISSION = "admission"
    DISCARD = "discard"  # what is too old when the trainer takes it is thrown away


class Order(StrEnum):
    """Which of the finished groups the trainer takes."""

    FIRST_FINISHED = "first_finished"
    FIRST_STARTED = "first_started"  # among the finished


class InFlight(StrEnum):
    """What new weights do to trajectories that are in flight."""

    PARTIAL = "partial"  # pause, and go on under the new version (partial rollouts)
    WAIT = "wait"  # the sync waits until all have ended; none is admitted meanwhile
    KEEP = "keep"  # nothing: each ends under the version it began with, as in the workshop


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How rollout and training are woven.

    Args:
        mode: see `Mode`.
        colocated: rollout and training take turns on the same GPUs; synchronous only.
        max_staleness: versions a trajectory may lag; None is unbounded. Async only.
        bound: see `Bound`.
        order: see `Order`.
        in_flight: see `InFlight`.
        over_sampling: share of groups started beyond a batch, and cut when the batch is full (0.25: a quarter more).
            Not in async.
        group_size: trajectories of one prompt; a group counts when its last one ends.
    """

    mode: Mode = Mode.ASYNC
    colocated: bool = False
    max_staleness: int | None = None
    bound: Bound = Bound.ADMISSION
    order: Order = Order.FIRST_FINISHED
    in_flight: InFlight = InFlight.PARTIAL
    over_sampling: float = 0.0
    group_size: int = 1

    def __post_init__(self) -> None:
        for name, kind in (("mode", Mode), ("bound", Bound), ("order", Order), ("in_flight", InFlight)):
            object.__setattr__(self, name, choice(name, getattr(self, name), kind))
        truth("colocated", self.colocated)
        whole("group_size", self.group_size, 1, MOST_WORKERS)
        not_negative("over_sampling", self.over_sampling)
        if self.max_staleness is not None:
            whole("max_staleness", self.max_staleness, 0, 1_000_000)
            if self.mode is not Mode.ASYNC:
                raise SpecError(
                    f"max_staleness = {self.max_staleness} with mode = {self.mode.value}: "
                    "its staleness is fixed; give none, or mode = async"
                )
        elif self.bound is Bound.DISCARD:
            raise SpecError("bound = discard: give max_staleness, the age from which a trajectory is thrown away")
        if self.over_sampling > 100:
            raise SpecError(f"over_sampling = {self.over_sampling}: allowed is 0 to 100 (1 starts twice a batch)")
        if self.over_sampling and self.mode is Mode.ASYNC:
            raise SpecError("over_sampling with mode = async: nothing is cut there; allowed with the other modes")
        if self.colocated and self.mode is not Mode.SYNCHRONOUS:
            raise SpecError(f"colocated with mode = {self.mode.value}: GPUs that take turns allow synchronous only")


TRAIN_CLASSES = ("offload", "logprob", "train", "weight_sync", "wait_drain", "wait_rollout")
ROLLOUT_CLASSES = ("generating", "tool_wait", "weight_sync", "wait_train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The machines.

    Args:
        workers: trajectories at once.
        engines: replicas that share the running sequences evenly.
        slow_down: generation against sequences on one engine.
        logprob, train: seconds of an update's two parts.
        pause, transfer, resume: seconds of a weight sync's three.
        offload: seconds per update of moving states off the GPUs and back; colocated only.
        rollout_gpus, train_gpus: for energy; colocated GPUs are both, and count once (give the same number).
        rollout_watts, train_watts: watts of one GPU in each class (ROLLOUT_CLASSES, TRAIN_CLASSES). A class without
            one has unknown energy, and so has the whole.
    """

    workers: int = 64
    engines: int = 1
    slow_down: SlowDown = field(default_factory=SlowDown)
    logprob: Law = Fixed(0.0)
    train: Law = Fixed(0.0)
    pause: Law = Fixed(0.0)
    transfer: Law = Fixed(0.0)
    resume: Law = Fixed(0.0)
    offload: Law = Fixed(0.0)
    rollout_gpus: int | None = None
    train_gpus: int | None = None
    rollout_watts: Mapping[str, float] = field(default_factory=dict)
    train_watts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("workers", self.workers, 1, MOST_WORKERS)
        whole("engines", self.engines, 1, MOST_WORKERS)
        instance("slow_down", self.slow_down, SlowDown)
        for name in ("logprob", "train", "pause", "transfer", "resume", "offload"):
            _law(name, getattr(self, name))
        for name in ("rollout_gpus", "train_gpus"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1, MOST_WORKERS)
        for name, allowed in (("rollout_watts", ROLLOUT_CLASSES), ("train_watts", TRAIN_CLASSES)):
            instance(name, getattr(self, name), Mapping)
            for key, value in getattr(self, name).items():
                if key not in allowed:
                    raise SpecError(f"{name}.{key}: allowed is one of {', '.join(allowed)}")
                not_negative(f"{name}.{key}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to simulate.

    Args:
        durations: of trajectories.
        policy, pools: how and where.
        batch_size: groups in an update (prompts per step); trajectories when group_size is 1.
        horizon_s: virtual seconds after which it ends; None: not by time.
        horizon_updates: updates after which it ends; None: not by count. One of the two is needed.
        warmup_updates: updates left out of rates, shares and staleness (0: all counts, from the empty start).
        seed: 0 to 2**64 - 1.
    """

    durations: Durations
    policy: Policy = field(default_factory=Policy)
    pools: Pools = field(default_factory=Pools)
    batch_size: int = 64
    horizon_s: float | None = None
    horizon_updates: int | None = None
    warmup_updates: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.durations, Durations):
            raise SpecError(f"durations = {self.durations!r}: allowed are {LAW_NAMES}, Composed")
        instance("policy", self.policy, Policy)
        instance("pools", self.pools, Pools)
        whole("batch_size", self.batch_size, 1, MOST_WORKERS)
        whole("warmup_updates", self.warmup_updates, 0, 1 << 40)
        whole("seed", self.seed, 0, SEED_LIMIT - 1)
        if self.horizon_s is None and self.horizon_updates is None:
            raise SpecError("horizon_s, horizon_updates: give one, else the simulation never ends")
        if self.horizon_s is not None:
            positive("horizon_s", self.horizon_s)
        if self.horizon_updates is not None:
            whole("horizon_updates", self.horizon_updates, 1, 1 << 40)
            if self.warmup_updates >= self.horizon_updates:
                raise SpecError(
                    f"warmup_updates = {self.warmup_updates}: nothing of {self.horizon_updates} updates would be left"
                )
        if not self.policy.colocated and mean_of(self.pools.offload) != 0:
            raise SpecError("offload: separate pools move nothing off their GPUs; allowed with colocated")
        if mean_duration(self.durations) == 0:
            raise SpecError("durations: all trajectories would take no time at all")

    @property
    def trajectories_per_step(self) -> int:
        """Trajectories in one update."""
        return self.batch_size * self.policy.group_size


def mean_of(law: Law) -> float:
    """The mean of a law, in seconds."""
    match law:
        case Fixed():
            return law.seconds
        case LogNormal():
            return law.median_s * math.exp(law.sigma**2 / 2)
        case Empirical():
            return math.fsum(law.values) / len(law.values)
        case Mixture():
            total = math.fsum(weight for weight, _ in law.parts)
            return math.fsum(weight * mean_of(part) for weight, part in law.parts) / total


def mean_duration(durations: Durations) -> float:
    """The mean duration of a trajectory that nothing slows, in seconds."""
    if not isinstance(durations, Composed):
        return mean_of(durations)
    turns = sum(durations.turns) / len(durations.turns)
    return turns * mean_of(durations.generation) + (turns - 1) * mean_of(durations.tool)


def expected_trajectories(scenario: Scenario) -> float:
    """About how many trajectories a scenario starts, if load slows nothing and no worker waits: an upper guess."""
    counts = []
    if scenario.horizon_updates is not None:
        counts.append(scenario.horizon_updates * scenario.trajectories_per_step * (1 + scenario.policy.over_sampling))
    if scenario.horizon_s is not None:
        counts.append(scenario.horizon_s * scenario.pools.workers / mean_duration(scenario.durations))
    return min(counts)


def _law(name: str, value: object) -> None:
    if not isinstance(value, Law):
        raise SpecError(f"{name} = {value!r}: allowed are the laws {LAW_NAMES}")
