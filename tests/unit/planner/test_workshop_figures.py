"""The figures that the workshop published (64 workers, batches of 64, median 20 s, one hour), beside ours.

Its update time is not given; 15 s fits best. Counting rule: an hour begins with idle workers and no data, and an
update counts if it ended within the hour. No constant is moved to meet a published figure.
"""

import dataclasses
import math

import numpy as np
import pytest

from results.planner import compiled, oracles
from results.planner.engine import simulate
from results.planner.model import Fixed, LogNormal, Policy, Pools, Scenario

SYNCHRONOUS = Policy(mode="synchronous")
ASYNC = Policy(in_flight="keep")
HOURS = 300


def workshop(sigma: float, policy: Policy, workers: int = 64, **more) -> Scenario:
    pools = Pools(workers=workers, train=Fixed(15.0))
    return Scenario(durations=LogNormal(20, sigma), policy=policy, pools=pools, **{"batch_size": 64} | more)


def long_run(sigma: float, policy: Policy, workers: int = 64):
    return simulate(workshop(sigma, policy, workers, horizon_updates=10_000, warmup_updates=100))


@pytest.fixture(scope="module")
def hours():
    """Single hours of many seeds, by sigma and policy."""
    backend = "compiled" if compiled.available() else "interpreted"
    return {
        (sigma, policy.mode.value): [
            simulate(workshop(sigma, policy, horizon_s=3600.0, seed=seed), backend=backend) for seed in range(HOURS)
        ]
        for sigma in (1.0, 0.3)
        for policy in (SYNCHRONOUS, ASYNC)
    }


def band(values) -> tuple[float, float]:
    low, high = np.quantile(np.array(list(values), dtype=float), [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize(
    ("sigma", "longest_s", "sync_per_hour", "busy", "async_per_hour", "gain"),
    [(1.0, 233.2, 14.5, 0.133, 109.2, 7.5), (0.3, 40.8, 64.5, 0.375, 172.1, 2.67)],
)
def test_the_long_run_is_what_theory_says(sigma, longest_s, sync_per_hour, busy, async_per_hour, gain):
    law = LogNormal(20, sigma)
    assert oracles.expected_max(law, 64) == pytest.approx(longest_s, abs=0.05)
    synchronous, free = long_run(sigma, SYNCHRONOUS), long_run(sigma, ASYNC)

    steps = np.diff(synchronous.ended_s[99:])
    error = steps.std(ddof=1) / math.sqrt(len(steps))
    assert abs(steps.mean() - oracles.synchronous_step_s(law, 64, 15)) <= 4 * error
    blocks = np.diff(free.taken_s[100:])[: 50 * 190].reshape(50, -1).mean(axis=1)
    error = blocks.std(ddof=1) / math.sqrt(len(blocks))
    assert abs(blocks.mean() - 1 / oracles.asynchronous_rate(law, 64, 64, 15)) <= 4 * error
    assert synchronous.worker_busy == pytest.approx(oracles.synchronous_busy(law, 64, 15), rel=0.02)
    assert oracles.synchronous_busy(law, 64, 15) == pytest.approx(busy, abs=0.0005)
    assert 3600 * oracles.asynchronous_rate(law, 64, 64, 15) == pytest.approx(async_per_hour, abs=0.05)
    assert free.worker_busy == pytest.approx(1.0)
    assert not free.unstable
    assert 3600 / oracles.synchronous_step_s(law, 64, 15) == pytest.approx(sync_per_hour, abs=0.05)
    assert free.updates_per_hour / synchronous.updates_per_hour == pytest.approx(gain, rel=0.02)


def test_the_published_figures_are_single_hours(hours):
    wide_sync, wide_free = hours[1.0, "synchronous"], hours[1.0, "async"]
    narrow_sync, narrow_free = hours[0.3, "synchronous"], hours[0.3, "async"]

    low, high = band(hour.updates for hour in wide_sync)
    assert low <= 16 <= high
    assert (low, high) == (pytest.approx(10, abs=1), pytest.approx(18, abs=1))  # 16 is a lucky hour: the mean is 14.2
    low, high = band(hour.updates for hour in wide_free)
    assert low <= 109 <= high
    low, high = band(hour.worker_busy for hour in wide_sync)
    assert low <= 0.14 <= high
    low, high = band(free.updates / sync.updates for free, sync in zip(wide_free, wide_sync, strict=True))
    assert low <= 6.8 <= high
    low, high = band(free.updates / sync.updates for free, sync in zip(narrow_free, narrow_sync, strict=True))
    assert low <= 2.65  # printed with one digit: 2.55 to 2.65
    assert high >= 2.55


def test_three_ways_to_count_staleness_and_the_one_that_the_workshop_means():
    found = {name: counts.mean for name, counts in long_run(1.0, ASYNC).staleness.items()}

    assert found["at_finish"] == pytest.approx(1.0, rel=0.01)  # Little: W / B
    assert found["at_take_moved"] == pytest.approx(1.0, rel=0.01)
    assert found["at_start"] == pytest.approx(1.46, rel=0.01)
    assert found["after_update"] == pytest.approx(2.46, rel=0.01)
    # 1.01 was published: the first two are 1 % from it, the headline of this project 45 %.
    near = [name for name, value in found.items() if abs(value - 1.01) < 0.02]
    assert near == ["at_finish", "at_take_moved"]


def test_an_hour_from_an_empty_start_is_a_little_fresher(hours):
    low, high = band(hour.staleness["at_finish"].mean for hour in hours[1.0, "async"])

    assert 0.96 < low < high < 1.0  # the first trajectories have seen no update yet


@pytest.mark.parametrize("workers", [32, 64, 128])
def test_staleness_at_finish_is_workers_over_batch(workers):
    found = long_run(1.0, ASYNC, workers)

    assert found.staleness["at_finish"].mean == pytest.approx(workers / 64, rel=0.01)
    assert not found.unstable


def test_a_queue_that_grows_without_end_is_flagged():
    overrun = simulate(workshop(1.0, ASYNC, workers=256, horizon_updates=500))

    assert overrun.unstable  # 256 workers make a batch in 8.2 s, and an update takes 15 s
    assert overrun.queue[-1] > 100 * 64
    bounded = simulate(workshop(1.0, dataclasses.replace(ASYNC, max_staleness=4), workers=256, horizon_updates=500))
    assert not bounded.unstable
    assert bounded.queue.max() <= 5 * 64
    thrown = dataclasses.replace(ASYNC, max_staleness=4, bound="discard")
    assert not simulate(workshop(1.0, thrown, workers=256, horizon_updates=500)).unstable


def test_the_admission_rule_lets_a_straggler_pass_its_bound():
    admitted = simulate(workshop(1.0, dataclasses.replace(ASYNC, max_staleness=1), horizon_updates=2_000))
    thrown = simulate(
        workshop(1.0, dataclasses.replace(ASYNC, max_staleness=1, bound="discard"), horizon_updates=2_000)
    )

    assert admitted.violations > 0.1 * admitted.ledger.trained
    beyond = sum(share for age, share in admitted.staleness["at_start"].shares.items() if age > 1)
    assert beyond == pytest.approx(admitted.violations / admitted.ledger.trained)
    assert max(admitted.staleness["at_start"].shares) > 5
    assert admitted.ledger.discarded == 0
    assert thrown.violations == 0
    assert thrown.ledger.discarded > 0
    assert max(thrown.staleness["at_start"].shares) == 1


def test_partial_rollouts_and_waits_cost_what_they_should():
    def rate(in_flight: str) -> float:
        policy = dataclasses.replace(ASYNC, in_flight=in_flight)
        scenario = workshop(1.0, policy, horizon_updates=2_000, warmup_updates=50)
        scenario = dataclasses.replace(scenario, pools=Pools(workers=64, train=Fixed(15.0), transfer=Fixed(3.0)))
        found = simulate(scenario)
        assert found.updates_per_hour is not None
        return found.updates_per_hour

    keep, partial, wait = rate("keep"), rate("partial"), rate("wait")

    assert keep == pytest.approx(109.2, rel=0.01)  # hidden behind generation
    assert partial == pytest.approx(3600 / (3600 / 109.2 + 3.0), rel=0.01)  # exposed: each sync stops all of it
    assert wait < 0.3 * partial  # each sync waits for the slowest trajectory in flight
