"""Scenarios for property tests: all that the model allows, small."""

from hypothesis import strategies as st

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
)

# Continuous laws: two events at one instant have no order that two simulators must share.
SPREAD = st.builds(LogNormal, st.floats(0.5, 40), st.floats(0.1, 2))
LAWS = st.one_of(
    SPREAD,
    st.builds(lambda one, other: Mixture(((0.6, one), (0.4, other))), SPREAD, SPREAD),
)
ANY_LAW = st.one_of(
    LAWS,
    st.builds(Fixed, st.floats(0.5, 20)),
    st.builds(Empirical, st.lists(st.floats(0.5, 50), min_size=1, max_size=5).map(tuple)),
)
DURATIONS = st.one_of(
    LAWS,
    st.builds(Composed, st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), LAWS, LAWS),
)
BATCHED = st.builds(
    Policy,
    mode=st.sampled_from(["synchronous", "one_step_off"]),
    over_sampling=st.sampled_from([0.0, 0.3, 1.0]),
    group_size=st.integers(1, 3),
    order=st.sampled_from(["first_finished", "first_started"]),
)
ASYNC = st.builds(
    Policy,
    max_staleness=st.one_of(st.none(), st.integers(0, 3)),
    order=st.sampled_from(["first_finished", "first_started"]),
    in_flight=st.sampled_from(["partial", "wait", "keep"]),
    group_size=st.integers(1, 3),
)
DISCARDING = st.builds(
    Policy,
    max_staleness=st.integers(0, 3),
    bound=st.just("discard"),
    in_flight=st.sampled_from(["partial", "keep"]),
    group_size=st.integers(1, 2),
)
POLICIES = st.one_of(BATCHED, ASYNC, DISCARDING)
CURVES = st.sampled_from([SlowDown(), SlowDown((1.0, 4.0), (1.0, 2.5)), SlowDown((1.0, 2.0, 8.0), (1.0, 1.1, 3.0))])


@st.composite
def scenarios(draw, policies=POLICIES, durations=DURATIONS, law=LAWS, curves=CURVES):
    """Up to a few hundred trajectories."""
    pools = Pools(
        workers=draw(st.integers(1, 12)),
        engines=draw(st.integers(1, 2)),
        slow_down=draw(curves),
        train=draw(law),
        logprob=draw(st.one_of(st.just(Fixed(0.0)), law)),
        pause=draw(st.one_of(st.just(Fixed(0.0)), law)),
        transfer=draw(law),
    )
    return Scenario(
        durations=draw(durations),
        policy=draw(policies),
        pools=pools,
        batch_size=draw(st.integers(1, 8)),
        horizon_updates=draw(st.integers(1, 12)),
        seed=draw(st.integers(0, 2**64 - 1)),
    )
