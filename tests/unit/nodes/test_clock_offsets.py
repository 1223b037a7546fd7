"""The offset between two hosts' clocks: right within its own uncertainty, whatever the way there and back took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.nodes.clock import DRIFT_PPM, Clock, Offset, Round, measure

MS = 1_000_000
SECOND = 1_000_000_000
DELAYS = st.tuples(st.integers(0, 40 * MS), st.integers(0, 5 * MS), st.integers(0, 40 * MS))
OFFSETS = st.integers(-(10**15), 10**15)


def play(start_ns, offset_ns, drift_ppm, delays):
    """A burst of rounds against a clock whose offset at an instant t of this one is known."""
    rounds, now = [], start_ns
    for there, inside, back in delays:
        sent, received, answered = now, now + there, now + there + inside
        now = answered + back
        rounds.append(
            Round(
                sent_ns=sent,
                received_ns=received + true_offset(received, offset_ns, drift_ppm),
                answered_ns=answered + true_offset(answered, offset_ns, drift_ppm),
                back_ns=now,
            )
        )
        now += MS
    return rounds


def true_offset(at_ns, offset_ns, drift_ppm):
    return offset_ns + at_ns * drift_ppm // 1_000_000


@given(offset=OFFSETS, delays=st.lists(DELAYS, min_size=1, max_size=12))
def test_asymmetric_delays_bound_the_error_by_half_the_round_trip(offset, delays):
    found = measure(play(SECOND, offset, 0, delays))
    assert abs(found.offset_ns - offset) <= found.uncertainty_ns
    there, inside, back = min(delays, key=lambda one: one[0] + one[2])
    assert found.round_trip_ns == there + back
    # Half the round trip, and what clocks may drift within the round.
    assert found.uncertainty_ns <= (there + back) / 2 + (there + inside + back) * DRIFT_PPM / 1e6 + 2


@given(
    offset=OFFSETS,
    drift=st.integers(-DRIFT_PPM, DRIFT_PPM),
    delays=st.lists(DELAYS, min_size=1, max_size=12),
)
def test_a_drifting_clock_is_where_it_is_said_to_be(offset, drift, delays):
    found = measure(play(SECOND, offset, drift, delays))
    assert abs(found.offset_ns - true_offset(found.mono_ns, offset, drift)) <= found.uncertainty_ns + 1


@given(
    offset=OFFSETS,
    drifts=st.lists(st.integers(-DRIFT_PPM, DRIFT_PPM), min_size=2, max_size=8),
    errors=st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 3 * MS)), min_size=2, max_size=8),
    place=st.floats(-0.5, 1.5),
)
def test_between_comparisons_an_instant_is_within_its_uncertainty(offset, drifts, errors, place):
    """The clock runs at another rate, within what clocks may have, between any two comparisons."""
    truth, offsets, at = [offset], [], 0
    for (error, uncertainty), drift in zip(errors, drifts, strict=False):
        found = truth[-1] + round(error * uncertainty)
        offsets.append(one(at, found, uncertainty))
        truth.append(truth[-1] + 2 * SECOND * drift // 1_000_000)
        at += 2 * SECOND
    clock = Clock(offsets)
    assert clock.steady
    instant = round(place * (at - 2 * SECOND))
    index = min(max(instant // (2 * SECOND), 0), len(offsets) - 1)
    rate = drifts[index] if instant >= 0 else drifts[0]
    real = truth[index] + (instant - index * 2 * SECOND) * rate // 1_000_000
    estimate, uncertainty = clock.offset_at(instant + real)
    assert abs(estimate - real) <= uncertainty + 5_000  # the 200 ppm of up to 3 ms that "at" is off by, and rounding
    ends = (min(instant + real, offsets[0].mono_ns), instant + real)
    assert clock.uncertainty_between(min(ends), max(ends)) >= uncertainty
    assert clock.here(instant + real) == pytest.approx(instant, abs=uncertainty + 5_000)


def one(at_ns, offset_ns, uncertainty_ns):
    return Offset(
        mono_ns=at_ns, offset_ns=offset_ns, uncertainty_ns=uncertainty_ns, round_trip_ns=2 * uncertainty_ns, rounds=8
    )


def test_the_best_comparison_bounds_its_neighbours():
    clock = Clock([one(0, 1_000, 900), one(SECOND, 0, 10 * MS), one(2 * SECOND, 2_000, 900)])
    offset, uncertainty = clock.offset_at(SECOND)
    assert uncertainty <= 900 + SECOND * DRIFT_PPM // 1_000_000
    assert abs(offset - 1_500) <= 1_000


def test_comparisons_that_contradict_each_other_are_told():
    jumped = Clock([one(0, 0, 1_000), one(SECOND, 0, 1_000), one(2 * SECOND, 5 * SECOND, 1_000)])
    assert not jumped.steady
    assert jumped.offset_at(0)[0] == 0
    assert jumped.offset_at(2 * SECOND + 5 * SECOND)[0] == 5 * SECOND


def test_drift_is_told_with_its_uncertainty():
    clock = Clock([one(0, 0, 1_000), one(100 * SECOND, 5_000_000, 1_000)])
    rate, uncertainty = clock.drift_ppm
    assert rate == pytest.approx(50)
    assert uncertainty == pytest.approx(0.02)
    assert Clock([one(0, 0, 1)]).drift_ppm is None


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="needs rounds"):
        measure([])
    with pytest.raises(ValueError, match="needs rounds"):
        measure([Round(sent_ns=10, received_ns=0, answered_ns=0, back_ns=5)])
    with pytest.raises(ValueError, match="without a measurement"):
        Clock([])
