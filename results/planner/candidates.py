"""What could be run instead, and the scenario that says what it would give."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.protocol.errors import SpecError
from results.planner import priors
from results.planner.calibration.constants import PUBLISHED, Calibration
from results.planner.engine import simulate
from results.planner.model import (
    ROLLOUT_CLASSES,
    TRAIN_CLASSES,
    Composed,
    Empirical,
    Fixed,
    InFlight,
    Mode,
    Policy,
    Pools,
    Scenario,
    SlowDown,
)
from results.planner.one_machine import Sharing, simulate_on_one_machine
from results.planner.result import Result

COLOCATED, DISAGGREGATED, ASYNC = "colocated", "disaggregated", "async"
FAR = 16.0  # times the highest concurrency that was seen: where the line beyond it ends
Shares = Mapping[str, float]  # of each constant's and prior's range: 0 low, 0.5 as it is, 1 high


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the work. Colocated: both numbers are the shared GPUs'."""

    placement: str
    train_gpus: int
    rollout_gpus: int
    max_staleness: int = 0

    @property
    def gpus(self) -> int:
        """GPUs, each counted once."""
        return self.train_gpus if self.placement == COLOCATED else self.train_gpus + self.rollout_gpus

    @property
    def name(self) -> str:
        """As tables print it, e.g. `async 4+4, staleness 1`."""
        if self.placement == COLOCATED:
            return f"{COLOCATED} {self.train_gpus}"
        split = f"{self.placement} {self.train_gpus}+{self.rollout_gpus}"
        return f"{split}, staleness {self.max_staleness}" if self.placement == ASYNC else split


def candidates(calibration: Calibration, gpus: int, staleness: tuple[int, ...]) -> list[Candidate]:
    """Every placement, split and bound of that many GPUs whose engines are whole.

    Raises:
        SpecError: the GPUs hold no engine, or a bound is none.
    """
    per = calibration.gpus_per_engine
    if gpus < per:
        raise SpecError(f"gpus = {gpus}: an engine takes {per}")
    if any(bound < 1 for bound in staleness):
        raise SpecError(f"max-staleness = {min(staleness)}: allowed is 1 and more in async")
    found = []
    if gpus % per == 0:
        found.append(Candidate(placement=COLOCATED, train_gpus=gpus, rollout_gpus=gpus))
    for train in range(1, gpus):
        if (gpus - train) % per:
            continue
        split = {"train_gpus": train, "rollout_gpus": gpus - train}
        found.append(Candidate(placement=DISAGGREGATED, **split))
        found += [Candidate(placement=ASYNC, **split, max_staleness=bound) for bound in staleness]
    return found


def needed(calibration: Calibration, candidate: Candidate) -> tuple[str, ...]:
    """The priors of time that this prediction leans on."""
    names = []
    if _concurrency(calibration, candidate) > _seen(calibration) * 1.05:
        names.append(priors.BEYOND.name)
    on_gpus = calibration.device != "cpu"
    if candidate.train_gpus != calibration.train_gpus and on_gpus:
        names.append(priors.TRAIN.name)
    if other_sync(calibration, candidate):
        names.append(priors.SYNC.name)
        if _leaves_its_process(calibration, candidate):
            names.append(priors.SYNC_START.name)
    elif on_gpus and _split(candidate) != (calibration.train_gpus, calibration.rollout_gpus):
        names.append(priors.SYNC_SPLIT.name)
    if candidate.placement == COLOCATED and calibration.placement != COLOCATED:
        names.append(priors.OFFLOAD.name)
    if not on_gpus and candidate.placement == ASYNC and calibration.placement != ASYNC:
        names.append(priors.SHARED.name)
    return tuple(names)


def other_sync(calibration: Calibration, candidate: Candidate) -> bool:
    """Whether its weights move in another way than was measured: by what the adapter says, else by its placement."""
    own, other = calibration.mechanism(calibration.placement), calibration.mechanism(candidate.placement)
    if own.transport and other.transport:
        return own.transport != other.transport
    return (candidate.placement == COLOCATED) != (calibration.placement == COLOCATED)


def _leaves_its_process(calibration: Calibration, candidate: Candidate) -> bool:
    own, other = calibration.mechanism(calibration.placement), calibration.mechanism(candidate.placement)
    return own.within and not other.within


def _split(candidate: Candidate) -> tuple[int, int]:
    return candidate.train_gpus, candidate.rollout_gpus


def predict(
    calibration: Calibration,
    candidate: Candidate,
    shares: Shares,
    *,
    updates: int,
    seed: int,
    recorded: bool = False,
    backend: str = "auto",
) -> Result:
    """Simulates one candidate with the constants and priors at these places of their ranges.

    `recorded`: with every trajectory that an async one trained on.
    """
    made = scenario(calibration, candidate, shares, updates=updates, seed=seed)
    asynchronous, mechanism = candidate.placement == ASYNC, calibration.mechanism(ASYNC)
    shared = calibration.device == "cpu"
    if not asynchronous or not (shared or mechanism.held_s or mechanism.whole_batches):
        ahead = (updates + _warm(candidate) + candidate.max_staleness + 1) * calibration.trajectories
        return simulate(made, backend=backend, records=ahead if recorded and asynchronous else 0)
    # An async run's constants hold what the two sides did to each other already.
    slowed = shared and calibration.placement != ASYNC
    sharing = Sharing(
        depth=_place(calibration, priors.SHARED, shares) if slowed else 0.0,
        held_s=mechanism.held_s,
        in_order=mechanism.whole_batches,
    )
    return simulate_on_one_machine(made, sharing)


def scenario(calibration: Calibration, candidate: Candidate, shares: Shares, *, updates: int, seed: int) -> Scenario:
    """The scenario of a candidate."""

    def constant(name: str) -> float:
        return calibration.constants[name].at(shares.get(name, 0.5))

    base = max(constant("token_s"), 1e-12)
    leans = needed(calibration, candidate)
    grown = 1.0
    if priors.TRAIN.name in leans:
        exponent = _place(calibration, priors.TRAIN, shares)
        grown = (calibration.train_gpus / candidate.train_gpus) ** exponent
    colocated = candidate.placement == COLOCATED
    offload = constant("offload_s") if colocated else 0.0
    if priors.OFFLOAD.name in leans:
        offload = constant("train_s") * grown * _place(calibration, priors.OFFLOAD, shares)
    asynchronous = candidate.placement == ASYNC
    whole = asynchronous and calibration.mechanism(ASYNC).whole_batches
    trajectories = calibration.trajectories
    policy = Policy(
        mode=Mode.ASYNC if asynchronous else Mode.SYNCHRONOUS,
        colocated=colocated,
        max_staleness=candidate.max_staleness if asynchronous else None,
        in_flight=InFlight.PARTIAL,
        # A batch that is dispatched and taken whole is one group.
        group_size=trajectories if whole else calibration.group_size,
    )
    pools = Pools(
        workers=trajectories * (1 + candidate.max_staleness) if asynchronous else trajectories,
        engines=max(1, candidate.rollout_gpus // calibration.gpus_per_engine),
        slow_down=_slow_down(calibration, constant("token_s_per_sequence") / max(constant("token_s"), 1e-12), shares),
        logprob=Fixed(constant("logprob_s") * grown + constant("host_s")),
        train=Fixed(constant("train_s") * grown),
        pause=Fixed(constant("sync_pause_s")),
        transfer=Fixed(_transfer_s(calibration, candidate, constant("sync_transfer_s"), shares)),
        resume=Fixed(constant("sync_resume_s")),
        offload=Fixed(offload),
    )
    pools = _powered(pools, calibration, candidate, shares)
    return Scenario(
        durations=_durations(calibration, base, constant("agent_s")),
        policy=policy,
        pools=pools,
        batch_size=1 if whole else calibration.batch_size,
        horizon_updates=updates + _warm(candidate),
        warmup_updates=_warm(candidate),
        seed=seed,
    )


def _durations(calibration: Calibration, token_s: float, agent_s: float) -> Composed:
    """Of trajectories. The agent's seconds of every turn are spread over the calls: no load slows them, as tools.

    Where nothing calls a tool they are added to generation.
    """
    turns = sum(calibration.turns)
    calls = turns - len(calibration.turns)
    beside, within = (agent_s * turns / calls, 0.0) if calls else (0.0, agent_s)
    return Composed(
        turns=calibration.turns,
        generation=Empirical(tuple(tokens * token_s + within for tokens in calibration.turn_tokens)),
        tool=Empirical(tuple(seconds + beside for seconds in calibration.tool_s)),
    )


def _transfer_s(calibration: Calibration, candidate: Candidate, measured_s: float, shares: Shares) -> float:
    """Seconds of the sync's transfer: as measured, or by another mechanism or between other numbers of GPUs."""
    leans = needed(calibration, candidate)
    if priors.SYNC_SPLIT.name in leans:
        return measured_s * _place(calibration, priors.SYNC_SPLIT, shares)
    if priors.SYNC.name not in leans:
        return measured_s
    own, other = calibration.mechanism(calibration.placement), calibration.mechanism(candidate.placement)
    # The first look finds nothing yet, so a polled sync lasts one interval at least: what the other does not wait for.
    work_s = measured_s - own.polled_s if own.polled_s < measured_s else measured_s
    begins = _place(calibration, priors.SYNC_START, shares) if priors.SYNC_START.name in leans else 0.0
    return begins + work_s * _place(calibration, priors.SYNC, shares) + other.polled_s


def _place(calibration: Calibration, prior: priors.Prior, shares: Shares) -> float:
    return priors.priors_of(calibration)[prior.name].at(shares.get(prior.name, 0.5))


def _warm(candidate: Candidate) -> int:
    return candidate.max_staleness + 2


def _seen(calibration: Calibration) -> float:
    if calibration.fit is not None:
        return max(calibration.fit.most, 1.0)
    engines = max(1, calibration.rollout_gpus // calibration.gpus_per_engine)
    return max(1.0, calibration.trajectories / engines)


def _concurrency(calibration: Calibration, candidate: Candidate) -> float:
    engines = max(1, candidate.rollout_gpus // calibration.gpus_per_engine)
    ahead = 1 + candidate.max_staleness if candidate.placement == ASYNC else 1
    return calibration.trajectories * ahead / engines


def _slow_down(calibration: Calibration, slope: float, shares: Shares) -> SlowDown:
    """Factor 1 with one sequence, the fitted line up to what was seen, and beyond it between flat and in proportion."""
    seen = _seen(calibration)
    # What one row's load slowed is in its seconds a token already.
    at_seen = 1.0 if calibration.source == PUBLISHED else 1 + slope * (seen - 1)
    place = _place(calibration, priors.BEYOND, shares)
    if calibration.source != PUBLISHED and place <= 0.5:
        # As it is means: the line goes on; below, it bends towards flat.
        far = at_seen + (slope * seen * (FAR - 1)) * (place / 0.5)
    elif calibration.source != PUBLISHED:
        on = at_seen + slope * seen * (FAR - 1)
        far = on * (max(at_seen * FAR, on) / on) ** ((place - 0.5) / 0.5)
    else:
        far = at_seen * FAR**place
    if seen <= 1.0:
        return SlowDown((1.0, FAR), (at_seen, max(far, at_seen)))
    return SlowDown((1.0, seen, seen * FAR), (1.0, at_seen, max(far, at_seen)))


def _powered(pools: Pools, calibration: Calibration, candidate: Candidate, shares: Shares) -> Pools:
    """With GPUs and watts by class: measured where the calibration has them, else a prior's share of the limit."""
    limit = calibration.watts_limit
    if calibration.device == "cpu" or limit is None:
        return pools

    def watts(side: str, name: str) -> float:
        measured = _measured_watts(calibration, side, name)
        if measured is not None:
            return measured
        prior = priors.POWER.get(name, priors.POWER["idle"])
        return min(limit, limit * calibration.power_scale * prior.at(shares.get(prior.name, 0.5)))

    # Logprob and host are one stretch of the simulated trainer: by their seconds, each with its own power.
    seconds = {
        name: calibration.constants[f"{name}_s"].at(shares.get(f"{name}_s", 0.5)) for name in ("logprob", "host")
    }
    if priors.TRAIN.name in needed(calibration, candidate):
        exponent = _place(calibration, priors.TRAIN, shares)
        seconds["logprob"] *= (calibration.train_gpus / candidate.train_gpus) ** exponent
    train = {name: watts("train", name) for name in TRAIN_CLASSES}
    if (both := sum(seconds.values())) > 0:
        train["logprob"] = sum(length * watts("train", name) for name, length in seconds.items()) / both
    return replace(
        pools,
        train_gpus=candidate.train_gpus,
        rollout_gpus=candidate.rollout_gpus,
        train_watts=train,
        rollout_watts={name: watts("rollout", name) for name in ROLLOUT_CLASSES},
    )


def _measured_watts(calibration: Calibration, side: str, name: str) -> float | None:
    pool = "both" if calibration.placement == COLOCATED else side
    measured = calibration.watts.get(f"{pool}.{name}")
    if measured is None and name not in priors.POWER:  # one of those that wait
        return calibration.watts.get("idle")
    return measured


def powered_by(calibration: Calibration) -> tuple[str, ...]:
    """The priors of power that every prediction leans on: of the classes whose watts were not measured."""
    if calibration.device == "cpu" or calibration.watts_limit is None:
        return ()
    sides = [*(("train", name) for name in (*TRAIN_CLASSES, "host")), *(("rollout", name) for name in ROLLOUT_CLASSES)]
    unknown = [name for side, name in sides if _measured_watts(calibration, side, name) is None]
    names = [priors.POWER.get(name, priors.POWER["idle"]).name for name in unknown]
    return tuple(dict.fromkeys(names))


def centre(calibration: Calibration) -> dict[str, float]:
    """Every constant and prior in the middle of its range."""
    return dict.fromkeys([*calibration.constants, *priors.priors_of(calibration)], 0.5)


def naive_step_s(calibration: Calibration) -> float | None:
    """max(generation, train) + sync: what a first guess of async is, on as many GPUs each; None without a step."""
    constants = calibration.constants
    work = sum(constants[name].value for name in ("train_s", "logprob_s", "host_s"))
    sync = sum(constants[name].value for name in ("sync_pause_s", "sync_transfer_s", "sync_resume_s"))
    if calibration.step_s is None:
        return None
    generation = calibration.step_s - work - sync - constants["offload_s"].value
    return max(generation, work) + sync


def scaled_to_its_power(calibration: Calibration) -> Calibration:
    """With the power priors scaled so that its own placement, simulated, draws what was published of it."""
    limit, published = calibration.watts_limit, calibration.power_ratio
    if limit is None or published is None or calibration.watts:
        return calibration
    own = Candidate(
        placement=calibration.placement, train_gpus=calibration.train_gpus, rollout_gpus=calibration.rollout_gpus
    )
    found = predict(calibration, own, centre(calibration), updates=100, seed=1)
    drawn = found.energy_per_trajectory_j
    if not drawn:
        return calibration
    ratio = drawn * calibration.trajectories * found.updates / (found.window_s * own.gpus * limit)
    return replace(calibration, power_scale=published / ratio)
