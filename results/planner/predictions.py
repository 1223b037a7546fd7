"""One candidate's outcomes, summed up: medians and intervals over the draws of what is not known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from results.cost import JOULES_PER_KWH, PER_TRAJECTORIES
from results.planner.calibration.constants import Calibration
from results.planner.candidates import COLOCATED, Candidate, needed, powered_by
from results.planner.outcomes import Outcome
from results.prices import Prices

LOW, HIGH = 0.1, 0.9  # the 80 % interval
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The median and the 80 % interval over the draws."""

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
    late_share: Range  # trained beyond the bound, of trajectories
    worker_busy: Range
    leans_on: tuple[str, ...]
    best: bool = False  # on the front: see `results.planner.ranking`
    noise: Mapping[str, float] = field(default_factory=dict)  # standard deviation between runs of the plan's updates
    quicker: float | None = None  # share of draws in which a step is shorter than the colocated one's
    waiting: float = 0.0  # of the train side's time, for data: median
    syncing: float = 0.0


def summed_up(
    calibration: Calibration,
    candidate: Candidate,
    found: Sequence[Outcome],
    again: Sequence[Outcome],
    prices: Prices,
    reference: Sequence[Outcome] | None,
) -> Prediction:
    """`found`: over the draws; `again`: with all in the middle; `reference`: the colocated one's, draw by draw."""
    figures = _figures(calibration, candidate, found)
    steps, joules, ratio = figures["step_s"], figures.get("joules"), figures.get("power_ratio")
    hours = steps * candidate.gpus / 3600 / calibration.trajectories * PER_TRAJECTORIES
    energy = None if joules is None or prices.kwh is None else joules * PER_TRAJECTORIES / JOULES_PER_KWH * prices.kwh
    quicker = None
    if reference is not None and candidate.placement != COLOCATED:
        quicker = float((steps < np.array([one.step_s for one in reference])).mean())
    return Prediction(
        candidate=candidate,
        step_s=_range(steps),
        throughput=_range(figures["throughput"]),
        goodput=_range(figures["goodput"]),
        power_ratio=None if ratio is None else _range(ratio),
        joules=None if joules is None else _range(joules),
        cost=None if prices.gpu_hour is None else _range(hours * prices.gpu_hour),
        energy_cost=None if energy is None else _range(energy),
        staleness=_range(figures["staleness"]),
        late_share=_range(figures["late_share"]),
        worker_busy=_range(np.array([one.worker_busy for one in found])),
        leans_on=(*needed(calibration, candidate), *powered_by(calibration)),
        noise={name: float(np.std(of, ddof=1)) for name, of in _figures(calibration, candidate, again).items()},
        quicker=quicker,
        waiting=float(np.median([one.waiting for one in found])),
        syncing=float(np.median([one.syncing for one in found])),
    )


def _figures(calibration: Calibration, candidate: Candidate, found: Sequence[Outcome]) -> dict[str, Floats]:
    """Figures by name of Prediction, one for each outcome; those of power only where they are known."""
    tokens = math.fsum(calibration.turn_tokens) / len(calibration.turn_tokens)
    tokens *= sum(calibration.turns) / len(calibration.turns)
    steps = np.array([one.step_s for one in found])
    through = tokens * calibration.trajectories / (steps * candidate.gpus)
    made: dict[str, Floats] = {
        "step_s": steps,
        "throughput": through,
        "goodput": through * (1 - np.array([one.late_tokens for one in found])),
        "staleness": np.array([one.staleness for one in found]),
        "late_share": np.array([one.late_share for one in found]),
    }
    known = np.array([one.joules for one in found if one.joules is not None])
    if known.size == len(found):
        made["joules"] = known
        if calibration.watts_limit:
            made["power_ratio"] = known * calibration.trajectories / (steps * candidate.gpus * calibration.watts_limit)
    return made


def _range(values: Floats) -> Range:
    low, middle, high = np.quantile(values, [LOW, 0.5, HIGH])
    return Range(value=float(middle), low=float(low), high=float(high))
