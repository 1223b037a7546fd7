"""The simulator beside theory: within 4 standard errors of every closed form that there is."""

import math
from dataclasses import replace

import numpy as np
import pytest

from results.planner import draws, oracles
from results.planner.engine import simulate
from results.planner.model import (
    Composed,
    Empirical,
    Fixed,
    LogNormal,
    Mixture,
    Policy,
    Pools,
    Scenario,
    SlowDown,
    mean_of,
)

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


@pytest.mark.parametrize(
    "law",
    [
        Mixture(((0.5, Fixed(1.0)), (0.5, LogNormal(20, 0.01)))),  # a jump below all that is spread
        Mixture(((0.3, Fixed(0.0)), (0.2, Empirical((0.5, 2.0))), (0.5, LogNormal(20, 0.01)))),
        Mixture(((0.5, LogNormal(20, 0.01)), (0.5, LogNormal(30, 4.0)))),  # one narrow beside one wide
        LogNormal(20, 7.0),  # its mean is made of values 7 deviations up
    ],
)
def test_a_mean_is_the_longest_of_one_for_laws_of_several_scales(law):
    assert oracles.expected_max(law, 1) == pytest.approx(mean_of(law), rel=1e-9)


def test_the_longest_of_two_of_several_scales():
    law = Mixture(((0.5, Fixed(1.0)), (0.5, LogNormal(20, 0.01))))
    both, one = oracles.expected_max(LogNormal(20, 0.01), 2), mean_of(LogNormal(20, 0.01))

    assert oracles.expected_max(law, 2) == pytest.approx(0.25 * 1 + 0.5 * one + 0.25 * both, rel=1e-9)
    spread = 0.5 * 1 + 0.5 * 400 * math.exp(2 * 0.01**2) - mean_of(law) ** 2
    assert oracles.deviation_of_max(law, 1) == pytest.approx(math.sqrt(spread), rel=1e-9)


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


@pytest.mark.parametrize("update_s", [32, 34, 60, 95, 100, 120, 1800])
def test_an_hour_of_a_slow_trainer_is_unstable_however_few_its_updates(update_s):
    """W = B: a batch is made in E[T] = 33 s, so each longer update leaves more of them behind."""
    scenario = Scenario(
        durations=LogNormal(20, 1), policy=Policy(in_flight="keep"), pools=Pools(train=Fixed(update_s)), horizon_s=3600
    )

    assert oracles.trainer_load(scenario) == pytest.approx(update_s / (20 * math.exp(0.5)))
    assert simulate(scenario).unstable is (update_s > 33)


@pytest.mark.parametrize(
    ("more", "pools", "load", "unstable"),
    [
        ({"max_staleness": 3}, {}, None, False),  # nothing piles up: fewer start
        ({"mode": "synchronous"}, {}, None, False),
        ({"in_flight": "wait"}, {}, None, True),  # each sync waits for 32 more, and takes 16
        ({"in_flight": "keep"}, {}, 2 * (30 + 6) / 20, True),
        ({"in_flight": "partial"}, {}, 2 * 30 / 20, True),  # nothing ends during a sync
        ({"in_flight": "keep"}, {"slow_down": SlowDown((1, 32), (1.0, 4.0))}, 2 * 36 / 80, False),
        ({"in_flight": "keep", "group_size": 4}, {}, 2 * 36 / 20 / 4, False),
    ],
)
def test_the_trainers_load_by_hand_and_what_the_queue_then_does(more, pools, load, unstable):
    scenario = Scenario(
        durations=Fixed(20.0),
        policy=Policy(**more),
        pools=Pools(**({"workers": 32, "train": Fixed(30), "transfer": Fixed(6)} | pools)),
        batch_size=16,
        horizon_updates=400,
    )

    assert oracles.trainer_load(scenario) == (None if load is None else pytest.approx(load))
    found = simulate(scenario)
    assert found.unstable is unstable
    assert bool(found.queue[-1] - found.queue[200] > 1_000) is unstable


def test_tools_beside_a_slowed_pool_have_no_closed_form_and_are_judged_by_the_queue():
    composed = Composed((2, 3), LogNormal(5, 0.5), LogNormal(5, 0.5))
    pools = Pools(workers=64, slow_down=SlowDown((1, 64), (1.0, 2.0)), train=Fixed(300))
    scenario = Scenario(durations=composed, policy=Policy(), pools=pools, batch_size=64, horizon_s=3600)

    assert oracles.trainer_load(scenario) is None
    assert len(simulate(scenario).queue) < 14
    assert simulate(scenario).unstable
    quick = replace(scenario, pools=replace(pools, train=Fixed(3)), horizon_updates=14)
    assert not simulate(quick).unstable


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
