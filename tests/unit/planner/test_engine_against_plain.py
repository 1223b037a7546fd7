"""The event loop beside a plain simulation of the same model, and both ways of running it beside each other."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_simulation import Plain
from scenarios import ANY_LAW, DURATIONS, scenarios

from results.planner import compiled, state
from results.planner.engine import simulate
from results.planner.model import Fixed, LogNormal, Policy, Pools, Scenario

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
