"""Which placement, split and staleness bound: each simulated over what is not known, ranked, and what decides named."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.protocol.errors import SpecError
from results.planner import priors
from results.planner.calibration.constants import Calibration
from results.planner.candidates import ASYNC, COLOCATED, Candidate, centre, needed, powered_by
from results.planner.checks import whole
from results.planner.outcomes import Outcome, Task, outcome, outcomes
from results.planner.predictions import HIGH, LOW, Prediction, summed_up
from results.planner.ranking import front, ranked, usual
from results.prices import Prices
from results.spread import Progress

DRAWS = 48
UPDATES = 40
MOST = 100_000  # draws, and updates in each: more tell nothing more, and end by filling the memory
REPEATS = 12  # runs with other seeds and all constants in the middle: how runs of as many updates vary
PAYS = 0.9  # of the draws in which async must be quicker to be said to pay
BOTH_AT_ONCE = "an async run on CPU, in which both sides slowed each other, doesn't tell what either takes alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """What moves a figure of a candidate most: a constant or a prior, and from where to where."""

    name: str
    words: str
    share: float  # of the squared swings of all
    low: float  # the figure with it at the 10 % place of its range, all else in the middle
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Candidates from the best down, as asked with `by`."""

    calibration: Calibration
    gpus: int
    by: str
    predictions: tuple[Prediction, ...]
    deciding: tuple[Deciding, ...]  # of the first prediction's step time, largest first
    deciding_joules: tuple[Deciding, ...]  # of its joules a trajectory; empty where they are unknown
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
    by: str | None = None,
    draws: int = DRAWS,
    updates: int = UPDATES,
    seed: int = 1,
    prices: Prices | None = None,
    left_out: Sequence[str] = (),
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> Plan:
    """Simulates every candidate over the same draws of what is not known.

    Args:
        calibration: what is known.
        asked: the candidates.
        gpus: to place.
        by: what to rank by, of `ranking.BY`; None: goodput, on CPU the step.
        draws, updates, seed: of the simulations.
        prices: for cost.
        left_out: words on what was not asked for, and why.
        jobs: processes, see `outcomes`.
        progress: is told how many simulations are done.

    Raises:
        SpecError: nothing is asked for, fewer than 2 draws or 10 updates, more than MOST, another placement than async
            from an async run on CPU, or `by` is unknown here.
    """
    if not asked:
        raise SpecError("; ".join(["plan: no candidate", *left_out]))
    whole("draws", draws, 2, MOST)
    whole("updates", updates, 10, MOST)
    if both_at_once(calibration) and any(one.placement != ASYNC for one in asked):
        raise SpecError(f"{calibration.name}: {BOTH_AT_ONCE}; calibrate from a colocated or disaggregated run")
    prices, by = prices or Prices(), by or usual(calibration.device)
    middle = centre(calibration)
    places = [*_drawn(calibration, draws, seed), *([middle] * REPEATS)]
    tasks = [Task(candidate=one, shares=place, seed=seed + k) for one in asked for k, place in enumerate(places)]
    every = outcomes(calibration, tasks, updates, jobs=jobs, progress=progress)
    rows = {one.name: every[k * len(places) : (k + 1) * len(places)] for k, one in enumerate(asked)}
    reference = next((rows[one.name][:draws] for one in asked if one.placement == COLOCATED), None)
    made = [
        summed_up(calibration, one, rows[one.name][:draws], rows[one.name][draws:], prices, reference) for one in asked
    ]
    made = front(ranked(made, by), calibration.device)
    steps, joules = _deciding(calibration, made[0].candidate, updates, seed)
    return Plan(
        calibration=calibration,
        gpus=gpus,
        by=by,
        predictions=tuple(made),
        deciding=steps,
        deciding_joules=joules,
        draws=draws,
        updates=updates,
        seed=seed,
        prices=prices,
        words=(*_words(calibration, made, gpus), *left_out),
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


def _deciding(
    calibration: Calibration, candidate: Candidate, updates: int, seed: int
) -> tuple[tuple[Deciding, ...], tuple[Deciding, ...]]:
    """One at a time: each constant and prior at 10 and 90 % of its range, with the same random numbers.

    Of the step, and of the joules a trajectory.
    """
    middle, known = centre(calibration), priors.priors_of(calibration)
    leans = {*needed(calibration, candidate), *powered_by(calibration)}
    moved: dict[str, tuple[Outcome, Outcome]] = {}
    for name in middle:
        if name not in calibration.constants and name not in leans:
            continue
        constant = calibration.constants.get(name) or known[name].constant
        if constant.low < constant.high:
            low, high = (
                outcome(calibration, Task(candidate=candidate, shares={**middle, name: place}, seed=seed), updates)
                for place in (LOW, HIGH)
            )
            moved[name] = (low, high)
    steps = {name: (low.step_s, high.step_s) for name, (low, high) in moved.items()}
    joules = {
        name: (low.joules, high.joules)
        for name, (low, high) in moved.items()
        if low.joules is not None and high.joules is not None
    }
    return _shared(calibration, steps), _shared(calibration, joules)


def _shared(calibration: Calibration, moved: dict[str, tuple[float, float]]) -> tuple[Deciding, ...]:
    total = math.fsum((high - low) ** 2 for low, high in moved.values())
    known = priors.priors_of(calibration)
    made = [
        Deciding(
            name=name,
            words=known[name].words if name not in calibration.constants else _words_of(calibration, name),
            share=(high - low) ** 2 / total if total > 0 else 0.0,
            low=low,
            high=high,
        )
        for name, (low, high) in moved.items()
    ]
    return tuple(sorted(made, key=lambda one: -one.share))


def _words_of(calibration: Calibration, name: str) -> str:
    constant = calibration.constants[name]
    source = calibration.source_of(constant)
    return f"the {source} {name} ({constant.low:.3g} to {constant.high:.3g} {constant.unit})"


def _words(calibration: Calibration, made: Sequence[Prediction], gpus: int) -> list[str]:
    """When async does not pay, and why."""
    said = []
    asynchronous = [one for one in made if one.candidate.placement == ASYNC]
    colocated = next((one for one in made if one.candidate.placement == COLOCATED), None)
    best = _quickest(asynchronous, calibration.device) if asynchronous else None
    if best is not None and colocated is not None:
        share, name = best.quicker or 0.0, best.candidate.name
        if share >= PAYS:
            said.append(f"async pays in {share:.0%} of the draws ({name} against {colocated.candidate.name})")
        elif share <= 1 - PAYS:
            said.append(
                f"async does NOT pay: in {1 - share:.0%} of the draws {colocated.candidate.name} is quicker than {name}"
            )
        else:
            said.append(f"whether async pays is not decided: {name} is quicker in {share:.0%} of the draws")
    elif best is not None and not both_at_once(calibration):
        said.append(f"whether async pays can't be said: {_no_colocated(calibration, gpus)}")
    if best is not None and best.waiting < 0.05:
        more = "processes" if calibration.device == "cpu" else "GPUs"
        said.append(f"the trainer decides: it hardly ever waits, so more rollout {more} or a higher bound give nothing")
    elif best is not None and best.waiting > 0.8:
        said.append(
            "generation decides: overlap with training hides little, what helps is that no straggler is waited for"
        )
    if best is not None and best.syncing > 0.15:
        said.append(f"weight syncs take {best.syncing:.0%} of a step and stop generation: they eat the gain")
    if both_at_once(calibration):
        said.append(f"{BOTH_AT_ONCE}: no other placement is predicted from it")
    if calibration.device == "cpu":
        said.append("on CPU both pools share the cores: a functional check, and no statement about GPUs")
    return said


def _quickest(made: Sequence[Prediction], device: str) -> Prediction:
    """The async candidate that the colocated one is held against: by goodput; on CPU by its step."""
    return ranked(made, usual(device))[0]


def _no_colocated(calibration: Calibration, gpus: int) -> str:
    per = calibration.gpus_per_engine
    if gpus % per:
        return f"colocated does not fit, as {gpus} GPUs are no whole number of engines of {per}"
    return "there is no colocated candidate to hold it against"
