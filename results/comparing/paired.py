"""Pairing by plan, and by seed. In synchronous placements with a fixed plan, step k of every run does the same work.

So figures of steps are taken over the plans that all runs have in common: runs of different length, or whose windows
begin at different steps, then differ by the system alone. Asynchronous runs train on what finishes first: no pairs.

Seeds that both sides have are blocks in any placement: the claim, the columns beside it and the blame take the same.
"""

from collections.abc import Sequence
from dataclasses import replace

from results.comparing.measures import PARTS, Kind, Measure, RunMeasures, Value
from results.comparing.welch import Contrast, compare_pairs, compare_steps, finite, mean_of
from results.stats import mean

STEP_TIME = "step_time_s"
OF_STEPS = (STEP_TIME, *(part.name for part in PARTS), "phase_generation_s", "phase_wait_rollout_s")


def by_plan(run: RunMeasures, name: str) -> dict[str, float]:
    """Seconds of a run's steps by the plans they trained on; empty where a step's are not known, or come twice."""
    plans = [plan for plan in run.series.plans if plan is not None]
    if not run.synchronous or len(plans) < len(run.series.plans) or len(set(plans)) < len(plans):
        return {}
    seconds = run.series.seconds.get(name) or (0.0,) * len(plans)
    return dict(zip(plans, seconds, strict=True))


def common_plans(runs: Sequence[RunMeasures]) -> tuple[str, ...]:
    """The plans that steps of all those runs trained on, in the order of the first run."""
    if not runs:
        return ()
    held = [set(by_plan(run, STEP_TIME)) for run in runs]
    return tuple(plan for plan in by_plan(runs[0], STEP_TIME) if all(plan in each for each in held))


def on_common_plans(runs: Sequence[RunMeasures]) -> tuple[list[RunMeasures], int | None]:
    """Those runs with the figures of their steps over the plans that all of a seed have in common, and how many.

    None, and the runs as they are: asynchronous, or a seed's runs have no plan in common.
    """
    held = {seed: common_plans([run for run in runs if run.seed == seed]) for seed in {run.seed for run in runs}}
    if not held or any(not plans for plans in held.values()):
        return list(runs), None
    return [_over(run, held[run.seed]) for run in runs], min(len(plans) for plans in held.values())


def _over(run: RunMeasures, plans: Sequence[str]) -> RunMeasures:
    if len(plans) == len(run.series.plans):
        return run
    values = dict(run.values)
    for name in OF_STEPS:
        if run.value(name) is None:
            continue
        seconds = by_plan(run, name)
        values[name] = Value(mean([seconds[plan] for plan in plans]).value)
    return replace(run, values=values)


def by_steps(a: RunMeasures, b: RunMeasures, measure: Measure) -> Contrast | None:
    """Two runs by their steps, paired by plan (`within runs only`); None where no steps meet, or it is no step's."""
    if measure.name not in OF_STEPS or a.value(measure.name) is None or b.value(measure.name) is None:
        return None
    return compare_steps(by_plan(a, measure.name), by_plan(b, measure.name), measure.kind)


def same_seeds(sides: Sequence[Sequence[RunMeasures]]) -> bool:
    """Whether every side has the same seeds, and more than one: then seeds are blocks, compared one by one."""
    seeds = [{run.seed for run in side} for side in sides]
    return bool(seeds) and len(seeds[0]) > 1 and all(each == seeds[0] for each in seeds)


def blocks(
    a: Sequence[RunMeasures], b: Sequence[RunMeasures], name: str, kind: Kind
) -> tuple[list[float], list[float]]:
    """The values of two sides seed by seed, each the mean over its runs: how often a seed was run weighs nothing.

    Of the seeds of which both sides know a value, ascending.
    """
    x, y = (_per_seed(side, name, kind) for side in (a, b))
    seeds = sorted(set(x) & set(y))
    return [x[seed] for seed in seeds], [y[seed] for seed in seeds]


def by_seed(
    a: Sequence[RunMeasures], b: Sequence[RunMeasures], measure: Measure
) -> tuple[list[float], list[float], Contrast | None]:
    """Sides with the same seeds, as blocks: their values, and the t of the seeds' differences.

    A difference where a ratio is asked for and a run has 0; no contrast where fewer than two seeds are known.
    """
    known = [value for run in (*a, *b) if (value := run.value(measure.name)) is not None and finite(value)]
    kind: Kind = "difference" if known and min(known) <= 0 else measure.kind
    x, y = blocks(a, b, measure.name, kind)
    return x, y, compare_pairs(x, y, kind)


def _per_seed(side: Sequence[RunMeasures], name: str, kind: Kind) -> dict[int, float]:
    made = {}
    for seed in {run.seed for run in side}:
        value = mean_of([run.value(name) for run in side if run.seed == seed], kind)
        if value is not None:
            made[seed] = value
    return made
