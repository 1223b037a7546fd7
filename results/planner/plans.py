"""Which placement, split and staleness bound: each simulated over what is not known, ranked, and what decides named."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from harness.protocol.errors import SpecError
from results.cost import JOULES_PER_KWH, Prices
from results.planner import priors
from results.planner.calibration.constants import Calibration
from results.planner.candidates import ASYNC, COLOCATED, Candidate, centre, needed, predict
from results.planner.result import AT_START, Result

LOW, HIGH = 0.1, 0.9  # the 80 % interval
DRAWS = 48
UPDATES = 40
REPEATS = 12  # runs with other seeds and all constants in the middle: how runs of as many updates vary
TIE = 0.01  # shares by which two candidates must differ before one is said to have more of something
LEAST_STALENESS = 0.01  # versions: the same of staleness
PAYS = 0.9  # of the draws in which async must be quicker to be said to pay
BOTH_AT_ONCE = "an async run on CPU, in which both sides slowed each other, doesn't tell what either takes alone"
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
    noise: Mapping[str, float] = field(default_factory=dict)  # standard deviation between runs of the plan's updates
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
    if both_at_once(calibration) and any(one.placement != ASYNC for one in asked):
        raise SpecError(f"{calibration.name}: {BOTH_AT_ONCE}; calibrate from a colocated or disaggregated run")
    prices = prices or Prices()
    places = _drawn(calibration, draws, seed)
    middle = centre(calibration)
    every = [*enumerate(places), *((draws + k, middle) for k in range(REPEATS))]
    found: dict[str, list[Result]] = {}
    again: dict[str, list[Result]] = {}  # with everything in the middle: only the seeds differ
    for number, candidate in enumerate(asked):
        results = []
        for k, shares in every:
            results.append(predict(calibration, candidate, shares, updates=updates, seed=seed + k))
            if progress is not None:
                progress(number * len(every) + len(results), len(asked) * len(every))
        found[candidate.name], again[candidate.name] = results[:draws], results[draws:]
    reference = next((found[one.name] for one in asked if one.placement == COLOCATED), None)
    made = [
        replace(
            _prediction(calibration, one, found[one.name], prices, reference),
            noise={name: float(np.std(of, ddof=1)) for name, of in _figures(calibration, one, again[one.name]).items()},
        )
        for one in asked
    ]
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


def both_at_once(calibration: Calibration) -> bool:
    """Whether its constants hold what two sides on the same cores did to each other."""
    return calibration.device == "cpu" and calibration.placement == ASYNC


def _drawn(calibration: Calibration, draws: int, seed: int) -> list[dict[str, float]]:
    """Places of every range, stratified so that few draws cover each one (Latin hypercube; McKay et al. 1979)."""
    random = np.random.default_rng(seed)
    names = list(centre(calibration))
    columns = [(random.permutation(draws) + random.random(draws)) / draws for _ in names]
    return [dict(zip(names, (float(column[k]) for column in columns), strict=True)) for k in range(draws)]


def _figures(
    calibration: Calibration, candidate: Candidate, found: Sequence[Result]
) -> dict[str, npt.NDArray[np.float64]]:
    """Figures by name of Prediction, one for each result; those of power only where they are known."""
    tokens = math.fsum(calibration.turn_tokens) / len(calibration.turn_tokens)
    tokens *= sum(calibration.turns) / len(calibration.turns)
    steps = np.array([result.window_s / max(result.updates, 1) for result in found])
    through = tokens * calibration.trajectories / (steps * candidate.gpus)
    late = np.array([_late(result, calibration) for result in found])
    made = {
        "step_s": steps,
        "throughput": through,
        "goodput": through * (1 - late),
        "staleness": np.array([result.staleness[AT_START].mean or 0.0 for result in found]),
        "late_share": late,
    }
    known = np.array([value for result in found if (value := result.energy_per_trajectory_j) is not None])
    if known.size == len(found):
        made["joules"] = known
        if calibration.watts_limit:
            made["power_ratio"] = known * calibration.trajectories / (steps * candidate.gpus * calibration.watts_limit)
    return made


def _prediction(
    calibration: Calibration,
    candidate: Candidate,
    found: Sequence[Result],
    prices: Prices,
    reference: Sequence[Result] | None,
) -> Prediction:
    figures = _figures(calibration, candidate, found)
    steps, known, ratio = figures["step_s"], figures.get("joules"), figures.get("power_ratio")
    hours = steps * candidate.gpus / 3600 / calibration.trajectories * 1000
    quicker = None
    if reference is not None and candidate.placement != COLOCATED:
        other = np.array([result.window_s / max(result.updates, 1) for result in reference])
        quicker = float((steps < other).mean())
    return Prediction(
        candidate=candidate,
        step_s=_range(steps),
        throughput=_range(figures["throughput"]),
        goodput=_range(figures["goodput"]),
        power_ratio=None if ratio is None else _range(ratio),
        joules=None if known is None else _range(known),
        cost=None if prices.gpu_hour is None else _range(hours * prices.gpu_hour),
        energy_cost=_range(known * 1000 / JOULES_PER_KWH * prices.kwh) if prices.kwh and known is not None else None,
        staleness=_range(figures["staleness"]),
        late_share=_range(figures["late_share"]),
        worker_busy=_range(np.array([result.worker_busy or 0.0 for result in found])),
        unstable=any(result.unstable for result in found),
        leans_on=needed(calibration, candidate),
        quicker=quicker,
    )


def _late(result: Result, calibration: Calibration) -> float:
    trained = result.updates * calibration.trajectories
    return result.violations / trained if result.violations and trained else 0.0


def burden_of(one: Prediction) -> float:
    """What a candidate's goodput is bought with: joules a trajectory; without watts mean staleness."""
    return one.joules.value if one.joules is not None else one.staleness.value


def _front(made: Sequence[Prediction]) -> list[Prediction]:
    """Marks the ones that no other beats in both goodput and its burden, by medians.

    Candidates within TIE are equal in it (staleness: also within LEAST_STALENESS): else noise would decide.
    """

    def lighter(one: Prediction, than: Prediction) -> bool:
        least = 0.0 if than.joules is not None else LEAST_STALENESS
        return burden_of(one) < burden_of(than) - max(TIE * burden_of(than), least)

    front: list[Prediction] = []
    most = math.inf  # goodput of the first of those that are equal to the last one on the front
    stable = [one for one in made if not one.unstable]
    for one in sorted(stable, key=lambda one: (-one.goodput.value, burden_of(one), one.candidate.name)):
        if front and not lighter(one, front[-1]):
            continue
        if front and one.goodput.value >= (1 - TIE) * most:
            front[-1] = one  # as much goodput, for less
        else:
            front.append(one)
            most = one.goodput.value
    names = {one.candidate.name for one in front}
    return [replace(one, best=one.candidate.name in names) for one in made]


def _deciding(calibration: Calibration, candidate: Candidate, updates: int, seed: int) -> tuple[Deciding, ...]:
    """One at a time: each constant and prior at 10 and 90 % of its range, with the same random numbers."""
    middle = centre(calibration)
    leans, known = set(needed(calibration, candidate)), priors.priors_of(calibration)
    moved = []
    for name in middle:
        if name not in calibration.constants and name not in leans:
            continue
        constant = calibration.constants.get(name) or known[name].constant
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
            words=known[name].words if name not in calibration.constants else _words_of(calibration, name),
            share=(high - low) ** 2 / total if total > 0 else 0.0,
            step_low_s=low,
            step_high_s=high,
        )
        for name, low, high in moved
    ]
    return tuple(sorted(made, key=lambda one: -one.share))


def _words_of(calibration: Calibration, name: str) -> str:
    constant = calibration.constants[name]
    source = calibration.source_of(constant)
    return f"the {source} {name} ({constant.low:.3g} to {constant.high:.3g} {constant.unit})"


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
            more = "processes" if calibration.device == "cpu" else "GPUs"
            said.append(
                f"the trainer decides: it hardly ever waits, so more rollout {more} or a higher bound give nothing"
            )
        elif float(np.median(stopped)) < 0.2:
            said.append(
                "generation decides: overlap with training hides little, what helps is that no straggler is waited for"
            )
        if float(np.median(sync)) > 0.15:
            said.append(
                f"weight syncs take {float(np.median(sync)):.0%} of a step and stop generation: they eat the gain"
            )
    if both_at_once(calibration):
        said.append(f"{BOTH_AT_ONCE}: no other placement is predicted from it")
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
