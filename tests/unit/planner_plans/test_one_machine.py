"""Async on shared cores: the kernel's model, and what one machine adds to it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.planner.engine import simulate
from results.planner.model import Composed, Empirical, Fixed, LogNormal, Mode, Order, Policy, Pools, Scenario, SlowDown
from results.planner.one_machine import Sharing, simulate_on_one_machine


def scenario(**other):
    about = {
        "durations": Composed((2, 4, 9), Empirical((0.05, 0.1, 0.3)), Empirical((0.1, 0.2, 0.5))),
        "policy": Policy(mode=Mode.ASYNC, max_staleness=1, group_size=2),
        "pools": Pools(
            workers=16,
            slow_down=SlowDown((1.0, 8.0), (1.0, 1.8)),
            logprob=Fixed(0.1),
            train=Fixed(0.3),
            transfer=Fixed(0.15),
        ),
        "batch_size": 4,
        "horizon_updates": 33,
        "warmup_updates": 3,
        "seed": 1,
    }
    return Scenario(**about | other)


def step(made, **sharing):
    found = simulate_on_one_machine(made, Sharing(**sharing))
    return found.window_s / found.updates


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    bound=st.integers(0, 3),
    group=st.sampled_from([1, 2, 4, 8]),
    warm=st.integers(0, 4),
    train=st.floats(0.05, 2.0),
    order=st.sampled_from(list(Order)),
)
def test_without_sharing_it_is_the_kernel_s_model(seed, bound, group, warm, train, order):
    """Draw by draw: the same trajectories, ends of updates, ages and accounts, from two programs."""
    made = scenario(
        # No two things happen at one instant: of those, rounding would say which was first.
        durations=Composed((2, 4, 9), LogNormal(0.1, 0.7), LogNormal(0.2, 0.6)),
        policy=Policy(mode=Mode.ASYNC, max_staleness=bound, group_size=group, order=order),
        pools=replace(scenario().pools, workers=8 * (1 + bound), train=Fixed(train)),
        batch_size=8 // group,
        warmup_updates=warm,
        seed=seed,
    )
    one, other = simulate(made, backend="interpreted"), simulate_on_one_machine(made, Sharing())
    assert other.ended_s.tolist() == pytest.approx(one.ended_s.tolist())
    assert other.window_s == pytest.approx(one.window_s)
    assert (other.updates, other.violations, other.ledger) == (one.updates, one.violations, one.ledger)
    assert other.ledger.closes
    for name, histogram in one.staleness.items():
        assert (other.staleness[name].n, other.staleness[name].mean) == (histogram.n, histogram.mean)
    for mine, its in ((other.train_s, one.train_s), (other.rollout_s, one.rollout_s)):
        assert mine == pytest.approx(its, abs=1e-6)
    assert other.worker_busy == pytest.approx(one.worker_busy)
    assert other.mean_running == pytest.approx(one.mean_running)


def test_each_side_slows_the_other_while_both_compute():
    steps = [step(scenario(), depth=depth) for depth in (0.0, 0.3, 0.6, 1.0)]
    assert steps == sorted(steps)
    assert steps[-1] > 1.05 * steps[0]


def test_a_trainer_beside_generation_without_end_takes_twice_as_long():
    """All generate all the time and hold nothing up: at depth 1 the trainer's seconds double, exactly."""
    endless = scenario(
        durations=Composed((1,), Fixed(1.0)),
        policy=Policy(mode=Mode.ASYNC, max_staleness=100_000),
        pools=Pools(workers=64, train=Fixed(2.0)),
        batch_size=4,
    )
    assert step(endless) == pytest.approx(2.0)
    assert step(endless, depth=1.0) == pytest.approx(4.0)


def test_what_only_waits_is_slowed_by_nothing():
    """One trajectory whose turns take next to no time: the trainer meets tools only."""
    tools = scenario(durations=Composed((5,), Fixed(1e-9), Fixed(1.0)))
    assert step(tools, depth=1.0) == pytest.approx(step(tools), rel=1e-6)


@pytest.mark.parametrize(
    ("held", "sync", "goes_on"), [(1.0, 0.2, 1.0), (0.5, 0.2, 0.5), (0.5, 0.7, 1.0), (0.0, 0.2, 0.2)]
)
def test_a_turn_that_a_sync_meets_goes_on_at_its_next_look(held, sync, goes_on):
    """One worker, batches of one: the sync after the first update meets the second trajectory."""
    made = scenario(
        durations=Composed((1, 1), Fixed(1.5), Fixed(0.0)),
        policy=Policy(mode=Mode.ASYNC, max_staleness=1),
        pools=Pools(workers=1, train=Fixed(0.25), transfer=Fixed(sync)),
        batch_size=1,
        horizon_updates=2,
        warmup_updates=0,
    )
    found = simulate_on_one_machine(made, Sharing(held_s=held))
    # Ends at 1.5, trains to 1.75; the second, begun at 1.5, has 1.25 left and goes on `goes_on` later.
    assert found.taken_s.tolist() == pytest.approx([1.5, 1.75 + goes_on + 1.25])


def test_held_turns_cost_time_and_lose_no_trajectory():
    free, held = (simulate_on_one_machine(scenario(), Sharing(held_s=seconds)) for seconds in (0.0, 1.0))
    assert held.window_s > free.window_s
    assert held.ledger.closes
    assert held.updates == free.updates
