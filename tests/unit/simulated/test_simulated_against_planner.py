"""The played framework beside the planner's engine: given the durations that a run had, the engine finds its pace.

Both play the same rules (batches; admission by capacity, the groups that finish first), one trajectory by trajectory in
an event loop with the real recorder, the other as a discrete-event kernel. What differs is that the engine draws each
trajectory anew from all that were recorded. So they agree within the run's own standard errors.
"""

import math

import numpy as np
import pytest
from simulated_runs import Played, make_spec, play

from harness.protocol.spec import RunSpec
from results.planner.engine import simulate
from results.planner.model import Empirical, Policy, Pools, Scenario
from results.planner.result import Result

STEPS, WARM = 160, 10
BLOCKS = 15
SPECS: dict[str, RunSpec] = {
    name: make_spec(placement, steps=STEPS, batch_size=4, latency_scale=1.0, **more)
    for name, placement, more in (
        ("colocated", "colocated", {}),
        ("disaggregated", "disaggregated", {}),
        ("async", "async", {}),
        ("async, 3", "async", {"max_staleness": 3}),
    )
}


@pytest.fixture(scope="module", params=SPECS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, Played, Result]:
    spec = SPECS[request.param]
    run = play(spec, tmp_path_factory.mktemp("agree") / "run")
    assert run.code == 0
    return spec, run, simulate(scenario_of(spec, run))


def scenario_of(spec: RunSpec, run: Played) -> Scenario:
    """The run's rules, its trajectories' durations and what its updates took, pauses included in both."""
    lasted = [(one.end_ns - one.start_ns) / 1e9 for one in run.trajectories.values() if one.status == "ok"]
    waits = ("wait_for_batch", "wait_for_groups", "generate")
    ready = {span.step: span.end_ns for span in run.spans if span.native_name in waits and span.container is False}
    updates = [(step.end_ns - ready[step.step]) / 1e9 for step in run.steps]
    asynchronous = spec.placement.value == "async"
    policy = (
        Policy(max_staleness=spec.max_staleness, in_flight="keep", group_size=spec.group_size)
        if asynchronous
        else Policy(mode="synchronous", group_size=spec.group_size)
    )
    return Scenario(
        durations=Empirical(tuple(lasted)),
        policy=policy,
        # As many at once as the rule lets start.
        pools=Pools(workers=(spec.max_staleness + 1) * spec.trajectories_per_step, train=Empirical(tuple(updates))),
        batch_size=spec.batch_size,
        horizon_updates=20_000,
        warmup_updates=WARM,
    )


def z_of(values: list[float], truth: float) -> float:
    """Of the mean of a run's steps, by means of blocks: neighbours are not independent."""
    size = len(values) // BLOCKS
    means = np.array(values[len(values) - size * BLOCKS :]).reshape(BLOCKS, size).mean(axis=1)
    spread = float(means.std(ddof=1)) / math.sqrt(BLOCKS)
    return (float(means.mean()) - truth) / spread


def test_steps_take_as_long(both: tuple[RunSpec, Played, Result]) -> None:
    _, run, found = both
    steps = [(step.end_ns - step.start_ns) / 1e9 for step in run.steps[WARM:]]
    assert found.updates_per_hour is not None

    assert abs(z_of(steps, 3600 / found.updates_per_hour)) <= 4
    assert sum(steps) / len(steps) == pytest.approx(3600 / found.updates_per_hour, rel=0.05)


def test_what_is_trained_on_is_as_old(both: tuple[RunSpec, Played, Result]) -> None:
    spec, run, found = both
    ages = run.staleness()[WARM * spec.trajectories_per_step :]
    shares = found.staleness["at_start"].shares

    if spec.placement.value != "async":
        assert (set(ages), set(shares)) == ({0}, {0})
        return
    assert abs(z_of([float(age) for age in ages], found.staleness["at_start"].mean or 0.0)) <= 4
    for age in sorted(set(ages) | {age for age, share in shares.items() if share > 0.005}):
        assert abs(z_of([float(one == age) for one in ages], shares.get(age, 0.0))) <= 4, age
    beyond = sum(age > spec.max_staleness for age in ages) / len(ages)
    assert beyond == pytest.approx((found.violations or 0) / found.staleness["at_start"].n, abs=0.03)


def test_the_trainer_waits_as_long(both: tuple[RunSpec, Played, Result]) -> None:
    _, run, found = both
    steps = [(step.end_ns - step.start_ns) / 1e9 for step in run.steps[WARM:]]
    ready = {s.step: s for s in run.spans if s.native_name in ("wait_for_batch", "wait_for_groups", "generate")}
    waits = [(ready[step.step].end_ns - ready[step.step].start_ns) / 1e9 for step in run.steps[WARM:]]

    assert sum(waits) / sum(steps) == pytest.approx(found.train_s["wait_rollout"] / found.window_s, abs=0.04)
