"""The event loop beside a plain simulation of the same model, and both ways of running it beside each other."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_simulation import Plain
from scenarios import ANY_LAW, DURATIONS, scenarios

from results.planner import compiled, state
from results.planner.engine import play, simulate
from results.planner.model import Composed, Fixed, LogNormal, Policy, Pools, Scenario, SlowDown

QUIET = settings(deadline=None, max_examples=150, derandomize=True)


@QUIET
@given(scenarios())
def test_the_loop_finds_what_a_plain_simulation_finds(scenario):
    plain = Plain(scenario).play()
    found = simulate(scenario)

    np.testing.assert_allclose(found.ended_s, plain.ended, rtol=1e-7)
    for name, total in (
        ("at_finish", plain.at_finish),
        ("at_start", plain.at_start),
        ("at_take_moved", plain.at_moved),
    ):
        assert found.staleness[name].total == total, name
    ledger = found.ledger
    assert (ledger.started, ledger.discarded, ledger.cut) == (plain.started, plain.discarded, plain.cut)
    assert ledger.in_flight == len(plain.running)
    assert ledger.queued == sum(map(len, [*plain.queue, *plain.held, *plain.open_groups.values()]))
    assert found.violations == (None if scenario.policy.max_staleness is None else plain.violations)
    assert found.worker_busy == pytest.approx(plain.busy / plain.now / scenario.pools.workers, rel=1e-6)


@QUIET
@given(scenarios(durations=st.one_of(DURATIONS, ANY_LAW), law=ANY_LAW))
def test_compiled_and_interpreted_give_the_same_bits(scenario):
    assert compiled.available(), "the extra sim is part of dev: without numba this test shows nothing"

    fast, slow = simulate(scenario, backend="compiled"), simulate(scenario, backend="interpreted")

    assert fast.digest == slow.digest


SHORT_WAY = scenarios(durations=ANY_LAW, law=ANY_LAW, curves=st.just(SlowDown()))


@QUIET
@given(SHORT_WAY, st.sampled_from([1, 7, 64]))
def test_the_loop_made_for_plain_scenarios_gives_the_same_bits_as_the_one_for_all(scenario, workers):
    policy = dataclasses.replace(scenario.policy, group_size=1, order="first_finished")
    pools = dataclasses.replace(scenario.pools, workers=workers)
    scenario = dataclasses.replace(scenario, policy=policy, pools=pools)
    assert state.plain(scenario)

    found = []
    for way in (True, False):
        own = state.State(scenario, use_lists=False)
        play(own, compiled.advance(way))
        found.append({name: own.arrays.numpy(name, np.float64).tolist() for name in own.arrays.by_name})

    assert str(found[0]) == str(found[1])  # as text: not-yet is nan, which equals nothing


@pytest.mark.parametrize(
    "change",
    [
        {"durations": Composed((1, 2), Fixed(1.0))},
        {"policy": Policy(group_size=2)},
        {"policy": Policy(order="first_started")},
        {"pools": Pools(slow_down=SlowDown((1.0, 4.0), (1.0, 2.5)))},
    ],
)
def test_what_the_short_way_leaves_out_is_not_plain(change):
    scenario = Scenario(durations=Composed((1,), LogNormal(20, 1)), horizon_updates=5)

    assert state.plain(scenario)
    assert not state.plain(dataclasses.replace(scenario, **change))


@pytest.mark.parametrize("durations", [LogNormal(20, 1), Fixed(20)])
def test_how_many_are_drawn_at_a_time_changes_nothing(durations, monkeypatch):
    scenario = Scenario(
        durations=durations,
        policy=Policy(max_staleness=1, group_size=3),
        pools=Pools(workers=17, train=LogNormal(15, 0.5), transfer=Fixed(1.0)),
        batch_size=4,
        horizon_s=20_000,
        warmup_updates=3,
    )
    before = simulate(scenario, backend="interpreted")
    monkeypatch.setattr(state, "SMALL_CHUNK", 16)
    monkeypatch.setattr(state, "FIRST_UPDATES", 1)

    after = simulate(scenario, backend="interpreted")

    assert after.digest == before.digest
    assert after.updates > 100


def test_a_seed_gives_the_same_bits_on_every_machine():
    scenario = Scenario(
        durations=LogNormal(20, 1),
        policy=Policy(max_staleness=2, group_size=2),
        pools=Pools(workers=48, train=LogNormal(15, 0.3), transfer=Fixed(2.0)),
        batch_size=16,
        horizon_updates=200,
        seed=7,
    )

    assert simulate(scenario).digest[:16] == "46d629cf8f53fb81"
    assert simulate(dataclasses.replace(scenario, seed=8)).digest != simulate(scenario).digest


@pytest.mark.parametrize("backend", ["compiled", "interpreted"])
@pytest.mark.parametrize(
    ("durations", "digest"), [(LogNormal(20, 1), "569876976bedb1d0"), (Fixed(20), "f4603aee53d6b8cf")]
)
def test_a_plain_scenario_gives_the_same_bits_on_every_machine_too(durations, digest, backend):
    """With a fixed duration many end at one instant: the heap's order of equal ends is in the bits."""
    scenario = Scenario(
        durations=durations,
        policy=Policy(max_staleness=2),
        pools=Pools(workers=48, train=LogNormal(15, 0.3), transfer=Fixed(2.0)),
        batch_size=16,
        horizon_updates=200,
        seed=7,
    )

    assert simulate(scenario, backend=backend).digest[:16] == digest
