"""The simulator beside theory: within 4 standard errors of every closed form that there is."""

import math

import numpy as np
import pytest

from results.planner import draws, oracles
from results.planner.engine import simulate
from results.planner.model import Composed, Empirical, Fixed, LogNormal, Mixture, Policy, Pools, Scenario, mean_of

LAWS = {
    "log_normal": LogNormal(20, 1),
    "narrow": LogNormal(20, 0.3),
    "recorded": Empirical((3.0, 8.0, 8.0, 21.0, 60.0)),
    "mixture": Mixture(((0.6, LogNormal(10, 0.6)), (0.3, LogNormal(25, 0.8)), (0.1, Fixed(40.0)))),
}


def z_score(sample: np.ndarray, truth: float) -> float:
    """Of a mean of independent values."""
    return float((sample.mean() - truth) / (sample.std(ddof=1) / math.sqrt(len(sample))))


def blocks(intervals: np.ndarray, count: int = 50) -> np.ndarray:
    """Means of blocks, which are nearly independent where neighbours are not."""
    size = len(intervals) // count
    return intervals[: size * count].reshape(count, size).mean(axis=1)


@pytest.mark.parametrize(
    ("law", "count", "expected"),
    [
        (Empirical((1.0, 2.0, 3.0)), 2, 22 / 9),  # of nine pairs: 1, and three times 2, and five times 3
        (Mixture(((1, Fixed(2.0)), (1, Fixed(4.0)))), 2, 3.5),
        (Fixed(7.0), 64, 7.0),
        (LogNormal(20, 0.0), 64, 20.0),
        (LogNormal(20, 1), 1, 20 * math.exp(0.5)),
        (LogNormal(20, 1), 64, 233.23),  # by simulation of 10**7 batches: 233.2
    ],
)
def test_the_longest_of_several_by_quadrature(law, count, expected):
    assert oracles.expected_max(law, count) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", LAWS)
def test_a_mean_is_the_longest_of_one(name):
    assert oracles.expected_max(LAWS[name], 1) == pytest.approx(mean_of(LAWS[name]), rel=1e-9)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("count", [2, 8])
def test_the_longest_of_draws_has_the_quadratures_mean_and_spread(name, count):
    longest = draws.seconds(LAWS[name], 3, draws.GENERATION, 0, 8_000 * count).reshape(-1, count).max(axis=1)

    assert abs(z_score(longest, oracles.expected_max(LAWS[name], count))) <= 4
    assert longest.std() == pytest.approx(oracles.deviation_of_max(LAWS[name], count), rel=0.1)


@pytest.mark.parametrize("name", LAWS)
def test_a_synchronous_step_is_its_longest_trajectory_and_the_update(name):
    found = simulate(
        Scenario(
            durations=LAWS[name],
            policy=Policy(mode="synchronous"),
            pools=Pools(workers=8, train=Fixed(15)),
            batch_size=8,
            horizon_updates=4_000,
        )
    )

    steps = np.diff(found.ended_s, prepend=0.0)
    assert abs(z_score(steps, oracles.synchronous_step_s(LAWS[name], 8, 15))) <= 4
    busy = oracles.synchronous_busy(LAWS[name], 8, 15)
    assert found.worker_busy == pytest.approx(busy, rel=4 * steps.std() / steps.mean() / math.sqrt(len(steps)) + 0.01)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("workers", [40, 64, 128])
def test_workers_that_never_wait_give_the_renewal_rate_and_littles_staleness(name, workers):
    law = LAWS[name]
    batch = 64
    update_s = 0.5 / oracles.renewal_rate(law, workers, batch)  # the trainer is busy half of the time
    found = simulate(
        Scenario(
            durations=law,
            policy=Policy(in_flight="keep"),
            pools=Pools(workers=workers, train=Fixed(update_s)),
            batch_size=batch,
            horizon_updates=8_000,
            warmup_updates=100,
        )
    )

    intervals = blocks(np.diff(found.taken_s[100:]))
    assert abs(z_score(intervals, 1 / oracles.renewal_rate(law, workers, batch))) <= 4
    assert found.staleness["at_finish"].mean == pytest.approx(oracles.staleness_at_finish(workers, batch), rel=0.01)
    assert found.worker_busy == pytest.approx(1.0)
    assert not found.unstable


def test_a_trainer_that_cannot_keep_up_decides_the_rate():
    law, update_s = LogNormal(20, 1), 40.0
    found = simulate(
        Scenario(
            durations=law,
            policy=Policy(in_flight="keep"),
            pools=Pools(workers=128, train=Fixed(update_s)),
            horizon_updates=400,
            warmup_updates=1,
        )
    )

    rate = oracles.asynchronous_rate(law, 128, 64, update_s)
    assert rate == 1 / update_s
    assert found.updates_per_hour == pytest.approx(3600 * rate, rel=1e-9)


@pytest.mark.parametrize("workers", [1, 7, 31, 64, 200])
def test_fewer_workers_than_trajectories_are_list_scheduling(workers):
    batch, steps, update_s = 64, 20, 15.0
    scenario = Scenario(
        durations=LogNormal(20, 1),
        policy=Policy(mode="synchronous"),
        pools=Pools(workers=workers, train=Fixed(update_s)),
        batch_size=batch,
        horizon_updates=steps,
        seed=11,
    )
    _, seconds = draws.durations(scenario.durations, scenario.seed, 0, batch * steps)
    makespans = [oracles.makespan(list(row), workers) for row in seconds.reshape(steps, batch)]

    found = simulate(scenario)

    assert np.diff(found.ended_s, prepend=0.0) == pytest.approx(np.array(makespans) + update_s, rel=1e-9)


@pytest.mark.parametrize(("durations", "workers", "makespan"), [([3, 3, 4], 2, 7), ([5], 8, 5), ([1, 2, 3], 1, 6)])
def test_makespans_by_hand(durations, workers, makespan):
    assert oracles.makespan(durations, workers) == makespan


def test_turns_and_tools_add_up_to_a_trajectorys_mean():
    law = Composed((2, 3, 4), generation=LogNormal(6, 0.5), tool=LAWS["mixture"])
    found = simulate(
        Scenario(
            durations=law,
            policy=Policy(in_flight="keep"),
            pools=Pools(workers=50, train=Fixed(1)),
            batch_size=10,
            horizon_updates=3_000,
            warmup_updates=50,
        )
    )

    mean = 3 * mean_of(law.generation) + 2 * mean_of(law.tool)
    intervals = blocks(np.diff(found.taken_s[50:]))
    assert abs(z_score(intervals, 10 * mean / 50)) <= 4
    # Little again: of 50 trajectories, those that generate are the generation's share of their time.
    assert found.mean_running == pytest.approx(50 * 3 * mean_of(law.generation) / mean, rel=0.02)
