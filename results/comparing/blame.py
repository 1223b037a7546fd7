"""Blame: a change of the step time, split over what the steps were made of. Effects + remainder = total, exactly.

A step's parts (`measures.PARTS`) are exclusive and fill its wall time: the phases of the train track, and, where the
trainer waits for the rollout side, what the step's last trajectory did (tool, turn, queue, ...). So differences of
means add up, and nothing is spread or estimated: the remainder is the time that no one named.

Sides that have the same seeds are taken seed by seed, as the claims beside the blame take them: means of the seeds'
means add up too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.comparing.measures import EXPOSED, OTHER, PARTS, RunMeasures
from results.comparing.paired import blocks, by_plan, common_plans, same_seeds
from results.comparing.welch import Basis, Contrast, Noise, compare, compare_pairs, compare_steps, holm

STEP_TIME = "step_time_s"
NAMED = tuple(part.name for part in PARTS if part.name != OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one part adds to a step of B against A. Seconds per step; shares of A's step.

    `low`, `high`: the 95 % interval of `seconds`, each effect's own; None without a spread. `p_adjusted`: of no change,
    Holm-corrected over the effects.
    """

    name: str
    a_s: float
    b_s: float
    seconds: float
    share: float
    low: float | None
    high: float | None
    p_adjusted: float | None

    @property
    def shown(self) -> bool:
        """Whether a change is shown at all (5 %, over all effects of this blame)."""
        return self.p_adjusted is not None and self.p_adjusted <= 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The total change of a step, its effects (largest first), and what is left. `within_runs`: one run a side.

    `basis`: what the intervals rest on; None where there are none. `n`: of what, on either side: runs, seeds or steps.
    """

    total: Effect
    effects: tuple[Effect, ...]
    remainder: Effect
    within_runs: bool
    runs: tuple[int, int]
    basis: Basis | None
    n: tuple[int, int]

    @property
    def culprit(self) -> Effect | None:
        """The effect to blame: the largest that is shown; None: none is.

        Where the total is shown too, of those that go its way. Where it is not, its sign is an accident of the noisier
        parts, and says nothing.
        """
        sign = math.copysign(1.0, self.total.seconds)
        guilty = [one for one in self.effects if one.shown and (not self.total.shown or one.seconds * sign > 0)]
        return max(guilty, key=lambda one: abs(one.seconds), default=None)


def blame(
    a: Sequence[RunMeasures], b: Sequence[RunMeasures], *, noise: Mapping[str, Noise] | None = None
) -> Blame | str:
    """The blame of B against A, or why there is none.

    Several runs a side: Welch's interval of the difference of means over runs. Sides with the same seeds: the t of the
    seeds' differences. One run on both sides, placements whose steps train on the same plans: over those steps, paired,
    `within runs only`. `noise`: differences of a baseline; not used where seeds are blocks.
    """
    for run in (*a, *b):
        if run.value(STEP_TIME) is None:
            return f"{run.run_id}: {run.why(STEP_TIME)}"
        if run.value(OTHER) is None:
            return f"{run.run_id}: {run.why(OTHER)}"
    if not a or not b:
        return "a side has no run"
    names = [name for name in _named((*a, *b)) if any(run.value(name) for run in (*a, *b))]
    for run in (*a, *b):
        for name in names:
            if run.value(name) is None:  # not 0: what is not known can't be added up
                return f"{run.run_id}: {name}: {run.why(name)}"
    made, steps = _made(a, b, (STEP_TIME, *names, OTHER), noise)
    adjusted = holm([None if contrast is None else contrast.p for _, _, _, contrast in made[1:]])
    whole = made[0][1]
    told = next((contrast for _, _, _, contrast in made if contrast is not None), None)
    total = _effect(made[0], whole, None)
    effects = [_effect(one, whole, p) for one, p in zip(made[1:-1], adjusted[:-1], strict=True)]
    # By definition what the effects leave, so that they add up to the last bit; it is `other`, to rounding.
    left = _effect(made[-1], whole, adjusted[-1])
    rest = total.seconds - math.fsum(one.seconds for one in effects)
    left = Effect(
        name="remainder",
        a_s=left.a_s,
        b_s=left.b_s,
        seconds=rest,
        share=rest / whole if whole else 0.0,
        low=left.low,
        high=left.high,
        p_adjusted=left.p_adjusted,
    )
    return Blame(
        total=total,
        effects=tuple(sorted(effects, key=lambda one: (-abs(one.seconds), one.name))),
        remainder=left,
        within_runs=steps,
        runs=(len(a), len(b)),
        basis=None if told is None or told.se is None else told.basis,
        n=(len(a), len(b)) if told is None else (told.n_a, told.n_b),
    )


_Made = tuple[str, float, float, Contrast | None]


def _made(
    a: Sequence[RunMeasures], b: Sequence[RunMeasures], names: Sequence[str], noise: Mapping[str, Noise] | None
) -> tuple[list[_Made], bool]:
    """Of each part its mean on both sides and their difference; and whether they are of two runs' paired steps."""
    made: list[_Made] = []
    steps = _paired(a[0], b[0], names) if len(a) == len(b) == 1 and noise is None else None
    blocked = same_seeds([a, b])
    for name in names:
        contrast: Contrast | None
        if steps is not None:
            x, y = list(steps[0][name].values()), list(steps[1][name].values())
            contrast = compare_steps(steps[0][name], steps[1][name], "difference")
        elif blocked:
            x, y = blocks(a, b, name, "difference")
            contrast = compare_pairs(x, y, "difference")
        else:
            x, y = _values(a, name), _values(b, name)
            contrast = compare(x, y, "difference", noise=(noise or {}).get(name))
        made.append((name, math.fsum(x) / len(x), math.fsum(y) / len(y), contrast))
    return made, steps is not None


def _named(runs: Sequence[RunMeasures]) -> tuple[str, ...]:
    """The parts to split over: where a run does not know what it waited for, the waits are whole."""
    if all(run.value(name) is not None for run in runs for name in EXPOSED):
        return NAMED
    return (*(name for name in NAMED if name not in EXPOSED), "phase_generation_s", "phase_wait_rollout_s")


def _values(runs: Sequence[RunMeasures], name: str) -> list[float]:
    return [value for run in runs if (value := run.value(name)) is not None]


def _effect(made: _Made, whole: float, p: float | None) -> Effect:
    name, x, y, contrast = made
    seconds = y - x
    return Effect(
        name=name,
        a_s=x,
        b_s=y,
        seconds=seconds,
        share=seconds / whole if whole else 0.0,
        low=None if contrast is None else contrast.low,
        high=None if contrast is None else contrast.high,
        p_adjusted=p if name != STEP_TIME else None if contrast is None else contrast.p,
    )


Steps = Mapping[str, Mapping[str, float]]


def _paired(a: RunMeasures, b: RunMeasures, names: Sequence[str]) -> tuple[Steps, Steps] | None:
    """Seconds of the steps of two runs by measure and plan, where plans meet; else None."""
    common = common_plans([a, b])
    if len(common) < 2:
        return None

    def held(run: RunMeasures) -> Steps:
        seconds = {name: by_plan(run, name) for name in names}
        return {name: {plan: each.get(plan, 0.0) for plan in common} for name, each in seconds.items()}

    return held(a), held(b)
