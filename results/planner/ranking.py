"""Which candidate comes first, and which ones no other beats."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from harness.protocol.errors import SpecError
from results.planner.predictions import Prediction, Range

TIE = 0.01  # shares by which two candidates must differ before one is said to have more of something
LEAST_STALENESS = 0.01  # versions: the same of staleness
# What can be ranked by: the figure, and whether more of it is better.
BY: Mapping[str, tuple[Callable[[Prediction], Range | None], bool]] = {
    "goodput": (lambda one: one.goodput, True),
    "throughput": (lambda one: one.throughput, True),
    "power": (lambda one: one.power_ratio, True),
    "energy": (lambda one: one.joules, False),
    "cost": (lambda one: one.cost, False),
    "step": (lambda one: one.step_s, False),
}
_NEEDS = {
    "power": "watts: a calibration with power, or --watts-limit of published phases",
    "energy": "watts: a calibration with power, or --watts-limit of published phases",
    "cost": "--price-per-gpu-hour",
}


def usual(device: str) -> str:
    """What is ranked by unless asked: on CPU both pools are one machine, and a figure per GPU would count it twice."""
    return "step" if device == "cpu" else "goodput"


def ranked(made: Sequence[Prediction], by: str) -> list[Prediction]:
    """From the best median to the worst.

    Raises:
        SpecError: no such figure, or it isn't known of every candidate.
    """
    if by not in BY:
        raise SpecError(f"by = {by}: allowed is one of {', '.join(BY)}")
    figure, more = BY[by]
    keys = []
    for one in made:
        found = figure(one)
        if found is None:
            raise SpecError(f"by = {by}: not known here; it needs {_NEEDS[by]}")
        keys.append((-found.value if more else found.value, one.candidate.name))
    return [made[place] for place in sorted(range(len(made)), key=lambda place: keys[place])]


def worth_of(one: Prediction, device: str) -> float:
    """What the front has most of: goodput per GPU; on CPU, where that says nothing, updates per hour."""
    return 3600 / one.step_s.value if device == "cpu" else one.goodput.value


def burden_of(one: Prediction) -> float:
    """What it is bought with: joules a trajectory; without watts mean staleness."""
    return one.joules.value if one.joules is not None else one.staleness.value


def front(made: Sequence[Prediction], device: str) -> list[Prediction]:
    """Marks the ones that no other beats in both worth and burden, by medians.

    Candidates within TIE are equal in it (staleness: also within LEAST_STALENESS): else noise would decide. What a
    trajectory costs is GPU hours over throughput, so it is no third side.
    """

    def lighter(one: Prediction, than: Prediction) -> bool:
        least = 0.0 if than.joules is not None else LEAST_STALENESS
        return burden_of(one) < burden_of(than) - max(TIE * burden_of(than), least)

    found: list[Prediction] = []
    most = math.inf  # worth of the first of those that are equal to the last one on the front
    for one in sorted(made, key=lambda one: (-worth_of(one, device), burden_of(one), one.candidate.name)):
        if found and not lighter(one, found[-1]):
            continue
        if found and worth_of(one, device) >= (1 - TIE) * most:
            found[-1] = one  # as much, for less
        else:
            found.append(one)
            most = worth_of(one, device)
    names = {one.candidate.name for one in found}
    return [replace(one, best=one.candidate.name in names) for one in made]
