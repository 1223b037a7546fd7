"""Which placement, split and staleness bound: each simulated over what is not known, ranked, and what decides named."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.protocol.errors import SpecError
from results.cost import JOULES_PER_KWH, Prices
from results.planner import priors
from results.planner.calibration.constants import Calibration, Constant
from results.planner.candidates import ASYNC, COLOCATED, Candidate, centre, needed, predict
from results.planner.result import AT_START, Result

LOW, HIGH = 0.1, 0.9  # the 80 % interval
DRAWS = 48
UPDATES = 40
PAYS = 0.9  # of the draws in which async must be quicker to be said to pay
Progress = Callable[[int, int], None]
Shares = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The median and the 80 % interval over the draws; None: unknown in them."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One candidate. Per GPU: of all GPUs. `leans_on`: the priors it depends on."""

    candidate: Candidate
    step_s: Range
    throughput: Range  # generated tokens / s / GPU
    goodput: Range  # of trajectories within the bound
    power_ratio: Range | None
    joules: Range | None  # per trained trajectory
    cost: Range | None  # of 1,000 trained trajectories
    energy_cost: Range | None
    staleness: Range
    late_share: Range  # trained beyond the bound
    worker_busy: Range
    unstable: bool
    leans_on: tuple[str, ...]
    best: bool = False  # on the front of goodput against joules (or cost), by medians
    quicker: float | None = None  # share of draws in which a step is shorter than the colocated one's


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """What moves a candidate's step time most: a constant or a prior, and from where to where."""

    name: str
    words: str
    share: float  # of the squared swings of all
    step_low_s: float  # with it at the 10 % place of its range, all else in the middle
    step_high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Candidates from the best goodput down; on CPU from the shortest step up."""

    calibration: Calibration
    gpus: int
    predictions: tuple[Prediction, ...]
    deciding: tuple[Deciding, ...]  # of the first prediction's step time, largest first
    draws: int
    updates: int
    seed: int
    prices: Prices
    words: tuple[str, ...]


def plan(
    calibration: Calibration,
    asked: Sequence[Candidate],
    *,
    gpus: int,
    draws: int = DRAWS,
    updates: int = UPDATES,
    seed: int = 1,
    prices: Prices | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Simulates every candidate over the same draws of what is not known.

    Raises:
        SpecError: nothing is asked for, or fewer than 2 draws or 10 updates.
    """
    if not asked:
        raise SpecError("plan: no candidate")
    if draws < 2 or updates < 10:
        raise SpecError(f"draws = {draws}, updates = {updates}: allowed are at least 2 and 10")
    prices = prices or Prices()
    places = _drawn(calibration, draws, seed)
    found: dict[str, list[Result]] = {}
    for number, candidate in enumerate(asked):
        found[candidate.name] = [
            predict(calibration, candidate, shares, updates=updates, seed=seed + k) for k, shares in enumerate(places)
        ]
        if progress is not None:
            progress(number + 1, len(asked))
    reference = next((found[one.name] for one in asked if one.placement == COLOCATED), None)
    made = [_prediction(calibration, one, found[one.name], prices, reference) for one in asked]
    if calibration.device == "cpu":  # both pools are one machine: a figure per GPU would count it twice in async
        made = sorted(made, key=lambda one: (one.unstable, one.step_s.value, one.candidate.name))
    else:
        made = sorted(made, key=lambda one: (one.unstable, -one.goodput.value, one.candidate.name))
    made = _front(made)
    deciding = _deciding(calibration, made[0].candidate, updates, seed)
    return Plan(
        calibration=calibration,
        gpus=gpus,
        predictions=tuple(made),
        deciding=deciding,
        draws=draws,
        updates=updates,
        seed=seed,
        prices=prices,
        words=tuple(_words(calibration, made, found)),
    )


def _drawn(calibration: Calibration, draws: int, seed: int) -> list[dict[str, float]]:
    """Places of every range, stratified so that few draws cover each one (Latin hypercube; McKay et al. 1979)."""
    random = np.random.default_rng(seed)
    names = list(centre(calibration))
    columns = [(random.permutation(draws) + random.random(draws)) / draws for _ in names]
    return [dict(zip(names, (float(column[k]) for column in columns), strict=True)) for k in range(draws)]


def _prediction(
    calibration: Calibration,
    candidate: Candidate,
    found: Sequence[Result],
    prices: Prices,
    reference: Sequence[Result] | None,
) -> Prediction:
    tokens = math.fsum(calibration.turn_tokens) / len(calibration.turn_tokens)
    tokens *= sum(calibration.turns) / len(calibration.turns)
    per_step = tokens * calibration.trajectories
    steps = np.array([result.window_s / max(result.updates, 1) for result in found])
    through = per_step / (steps * candidate.gpus)
    late = np.array([_late(result, calibration) for result in found])
    joules = [result.energy_per_trajectory_j for result in found]
    known = np.array([value for value in joules if value is not None])
    all_known = known.size == len(found)
    limit = calibration.watts_limit
    ratio = known * calibration.trajectories / (steps * candidate.gpus * limit) if all_known and limit else None
    hours = steps * candidate.gpus / 3600 / calibration.trajectories * 1000
    quicker = None
    if reference is not None and candidate.placement != COLOCATED:
        other = np.array([result.window_s / max(result.updates, 1) for result in reference])
        quicker = float((steps < other).mean())
    return Prediction(
        candidate=candidate,
        step_s=_range(steps),
        throughput=_range(through),
        goodput=_range(through * (1 - late)),
        power_ratio=None if ratio is None else _range(ratio),
        joules=_range(known) if all_known else None,
        cost=None if prices.gpu_hour is None else _range(hours * prices.gpu_hour),
        energy_cost=_range(known * 1000 / JOULES_PER_KWH * prices.kwh) if prices.kwh and all_known else None,
        staleness=_range(np.array([result.staleness[AT_START].mean or 0.0 for result in found])),
        late_share=_range(late),
        worker_busy=_range(np.array([result.worker_busy or 0.0 for result in found])),
        unstable=any(result.unstable for result in found),
        leans_on=needed(calibration, candidate),
        quicker=quicker,
    )


def _late(result: Result, calibration: Calibration) -> float:
    trained = result.updates * calibration.trajectories
    return result.violations / trained if result.violations and trained else 0.0


def _front(made: Sequence[Prediction]) -> list[Prediction]:
    """Marks the ones that no other beats in both goodput and joules (without joules: staleness), by medians."""

    def burden(one: Prediction) -> float:
        return one.joules.value if one.joules is not None else one.staleness.value

    def beaten(one: Prediction) -> bool:
        return any(
            other.goodput.value >= one.goodput.value
            and burden(other) <= burden(one)
            and (other.goodput.value, -burden(other)) != (one.goodput.value, -burden(one))
            for other in made
            if not other.unstable
        )

    return [_with(one, best=not one.unstable and not beaten(one)) for one in made]


def _with(one: Prediction, *, best: bool) -> Prediction:
    values = {name: getattr(one, name) for name in Prediction.__dataclass_fields__}
    return Prediction(**values | {"best": best})


def _deciding(calibration: Calibration, candidate: Candidate, updates: int, seed: int) -> tuple[Deciding, ...]:
    """One at a time: each constant and prior at 10 and 90 % of its range, with the same random numbers."""
    middle = centre(calibration)
    leans = set(needed(calibration, candidate))
    moved = []
    for name in middle:
        if name not in calibration.constants and name not in leans:
            continue
        constant = calibration.constants.get(name) or _prior(name).constant
        if constant.low == constant.high:
            continue
        ends = [
            predict(calibration, candidate, {**middle, name: place}, updates=updates, seed=seed)
            for place in (LOW, HIGH)
        ]
        low, high = (result.window_s / max(result.updates, 1) for result in ends)
        moved.append((name, low, high))
    total = math.fsum((high - low) ** 2 for _, low, high in moved)
    made = [
        Deciding(
            name=name,
            words=_prior(name).words
            if name not in calibration.constants
            else _words_of(calibration.constants[name], name),
            share=(high - low) ** 2 / total if total > 0 else 0.0,
            step_low_s=low,
            step_high_s=high,
        )
        for name, low, high in moved
    ]
    return tuple(sorted(made, key=lambda one: -one.share))


def _prior(name: str) -> priors.Prior:
    every = (priors.BEYOND, priors.TRAIN, priors.SYNC, priors.SHARED, *priors.POWER.values())
    return next(one for one in every if one.name == name)


def _words_of(constant: Constant, name: str) -> str:
    return f"the {constant.source} {name} ({constant.low:.3g} to {constant.high:.3g} {constant.unit})"


def _words(calibration: Calibration, made: Sequence[Prediction], found: Mapping[str, Sequence[Result]]) -> list[str]:
    """When async does not pay, and why."""
    said = []
    asynchronous = [one for one in made if one.candidate.placement == ASYNC and not one.unstable]
    colocated = next((one for one in made if one.candidate.placement == COLOCATED), None)
    if asynchronous and colocated is not None:
        best = max(asynchronous, key=lambda one: one.goodput.value)
        share = best.quicker or 0.0
        name = best.candidate.name
        if share >= PAYS:
            said.append(f"async pays in {share:.0%} of the draws ({name} against {colocated.candidate.name})")
        elif share <= 1 - PAYS:
            said.append(
                f"async does NOT pay: in {1 - share:.0%} of the draws {colocated.candidate.name} is quicker than {name}"
            )
        else:
            said.append(f"whether async pays is not decided: {name} is quicker in {share:.0%} of the draws")
        results = found[best.candidate.name]
        stopped = np.array([1 - _share(result.train_s, "wait_rollout") for result in results])
        sync = np.array([_share(result.train_s, "weight_sync") for result in results])
        if float(np.median(stopped)) > 0.95:
            said.append(
                "the trainer decides: it hardly ever waits, so more rollout GPUs or a higher bound give nothing"
            )
        elif float(np.median(stopped)) < 0.2:
            said.append(
                "generation decides: overlap with training hides little, what helps is that no straggler is waited for"
            )
        if float(np.median(sync)) > 0.15:
            said.append(
                f"weight syncs take {float(np.median(sync)):.0%} of a step and stop generation: they eat the gain"
            )
    if calibration.device == "cpu":
        said.append("on CPU both pools share the cores: a functional check, and no statement about GPUs")
    if any(one.unstable for one in made):
        said.append("unstable candidates make more than the trainer takes, without end; they are ranked last")
    return said


def _share(seconds: Mapping[str, float], name: str) -> float:
    total = math.fsum(seconds.values())
    return seconds.get(name, 0.0) / total if total else 0.0


def _range(values: npt.NDArray[np.float64]) -> Range:
    low, middle, high = np.quantile(values, [LOW, 0.5, HIGH])
    return Range(value=float(middle), low=float(low), high=float(high))
