"""What must hold of every scenario: nothing is lost, accounts close, and more help never hurts in the long run."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import ANY_LAW, ASYNC, DURATIONS, scenarios

from results.planner.engine import simulate
from results.planner.model import Fixed, LogNormal, Policy, Pools, Scenario

QUIET = settings(deadline=None, max_examples=100, derandomize=True)
ALL = scenarios(durations=st.one_of(DURATIONS, ANY_LAW), law=ANY_LAW)


@QUIET
@given(ALL, st.floats(1, 400))
def test_the_ledger_closes_at_any_moment(scenario, horizon):
    found = simulate(dataclasses.replace(scenario, horizon_updates=None, horizon_s=horizon))

    assert found.ledger.closes, found.ledger
    assert found.ledger.trained == len(found.taken_s) * scenario.trajectories_per_step
    assert 0 <= len(found.taken_s) - len(found.ended_s) <= 1
    assert found.seconds == horizon


@QUIET
@given(ALL, st.floats(1, 400), st.integers(0, 4))
def test_both_accounts_sum_to_the_window(scenario, horizon, warmup):
    found = simulate(dataclasses.replace(scenario, horizon_updates=None, horizon_s=horizon, warmup_updates=warmup))

    begun = 0.0 if warmup == 0 else found.ended_s[warmup - 1] if len(found.ended_s) >= warmup else horizon
    assert found.window_s == pytest.approx(horizon - begun)
    for account in (found.train_s, found.rollout_s):
        assert math.fsum(account.values()) == pytest.approx(found.window_s, abs=1e-6)
        assert all(value >= -1e-9 for value in account.values())


@QUIET
@given(ALL)
def test_what_the_trainer_waits_is_what_lies_between_its_updates(scenario):
    found = simulate(scenario)

    if scenario.policy.mode.value == "one_step_off":
        return  # the sync lies between them, too
    begun = [0.0, *found.ended_s[:-1]]
    waited = math.fsum(taken - ended for taken, ended in zip(found.taken_s, begun, strict=True))
    assert found.train_s["wait_rollout"] == pytest.approx(waited, abs=1e-6 * max(1, found.seconds))


@QUIET
@given(ALL)
def test_staleness_counts_every_trajectory_once(scenario):
    found = simulate(scenario)

    per_step = scenario.trajectories_per_step
    assert found.staleness["at_start"].n == found.staleness["at_take_moved"].n == len(found.taken_s) * per_step
    ledger = found.ledger
    if ledger.cut == 0:
        assert found.staleness["at_finish"].n == ledger.started - ledger.in_flight
    assert (found.staleness["at_start"].mean or 0) + 1 == pytest.approx(found.staleness["after_update"].mean)


@QUIET
@given(scenarios(policies=ASYNC, durations=st.one_of(DURATIONS, ANY_LAW), law=ANY_LAW))
def test_a_bound_no_one_reaches_is_no_bound(scenario):
    free = dataclasses.replace(scenario, policy=dataclasses.replace(scenario.policy, max_staleness=None))
    wide = dataclasses.replace(scenario, policy=dataclasses.replace(scenario.policy, max_staleness=100_000))

    unbounded, bounded = simulate(free), simulate(wide)

    assert list(unbounded.ended_s) == list(bounded.ended_s)
    assert unbounded.ledger == bounded.ledger
    assert bounded.violations == 0


@QUIET
@given(scenarios(policies=ASYNC))
def test_a_bound_of_zero_is_the_synchronous_loop(scenario):
    # The same batches: version v admits exactly the batch that trains version v + 1.
    policy = dataclasses.replace(scenario.policy, max_staleness=0)
    alone = Policy(mode="synchronous", group_size=policy.group_size, order=policy.order)

    bounded = simulate(dataclasses.replace(scenario, policy=policy))
    synchronous = simulate(dataclasses.replace(scenario, policy=alone))

    assert list(bounded.ended_s) == pytest.approx(list(synchronous.ended_s), rel=1e-12)
    assert bounded.staleness["at_start"].total == 0
    assert bounded.violations == 0


@pytest.mark.parametrize("mode", ["synchronous", "one_step_off"])
def test_batches_have_a_fixed_age(mode):
    found = simulate(
        Scenario(
            durations=LogNormal(20, 1),
            policy=Policy(mode=mode),
            pools=Pools(workers=16, train=Fixed(15), transfer=Fixed(2)),
            batch_size=16,
            horizon_updates=50,
            warmup_updates=2,
        )
    )

    age = {"synchronous": 0, "one_step_off": 1}[mode]
    assert found.staleness["at_start"].shares == {age: 1.0}


LONG = settings(deadline=None, max_examples=12, derandomize=True)
LONG_POLICIES = st.sampled_from(
    [
        Policy(mode="synchronous"),
        Policy(mode="one_step_off"),
        Policy(in_flight="keep"),
        Policy(in_flight="keep", max_staleness=1),
        Policy(in_flight="keep", max_staleness=4, order="first_started"),
    ]
)
SEEDS = st.integers(0, 2**64 - 1)


def long_run(sigma: float, workers: int, policy: Policy, seed: int) -> float:
    """Updates per hour of 1,500 steps; scenarios of one seed have the same trajectories, up to their spread."""
    found = simulate(
        Scenario(
            durations=LogNormal(20, sigma),
            policy=policy,
            pools=Pools(workers=workers, train=Fixed(2)),
            batch_size=32,
            horizon_updates=1_500,
            warmup_updates=20,
            seed=seed,
        )
    )
    assert found.updates_per_hour is not None
    return found.updates_per_hour


@LONG
@given(LONG_POLICIES, st.floats(0.1, 1.2), st.floats(0.1, 0.6), st.sampled_from([16, 32, 48]), SEEDS)
def test_more_spread_is_slower_in_the_long_run(policy, sigma, more, workers, seed):
    assert long_run(sigma + more, workers, policy, seed) < long_run(sigma, workers, policy, seed)


@LONG
@given(LONG_POLICIES, st.floats(0.1, 1.5), st.integers(2, 40), st.integers(1, 40), SEEDS)
def test_more_workers_are_no_slower_in_the_long_run(policy, sigma, workers, more, seed):
    assert long_run(sigma, workers + more, policy, seed) >= long_run(sigma, workers, policy, seed)


@LONG
@given(st.floats(0.1, 1.5), SEEDS)
def test_a_wider_bound_is_no_slower_in_the_long_run(sigma, seed):
    rates = [long_run(sigma, 48, Policy(in_flight="keep", max_staleness=bound), seed) for bound in (0, 1, 3)]

    assert rates == sorted(rates)
    assert rates[0] < rates[2]
