"""Each tick of a GPU is read or counted as missed, whatever lane it is in: threads taken one step at a time."""

import random

import pytest
from lane_parts import BEGIN_NS, MS, Stepped, Steps, assert_each_tick_is_told

from harness.telemetry import lanes as lanes_module
from harness.telemetry.cadence import Ticks
from harness.telemetry.lanes import CALM_ROUNDS, LONG_ROUNDS

GRID = Ticks(0.1, BEGIN_NS, None)  # periods that begin when the first lane does


@pytest.fixture
def steps(monkeypatch):
    steps = Steps()
    monkeypatch.setattr(lanes_module, "time", steps)
    yield steps
    steps.end()


def start(steps, *members):
    for member in members:
        steps.lanes.add(member)
        steps.settled()
    return steps.lane_of(members[0])


def parted(steps, *members, places):
    """Two lanes, one with the first member and one with the others, their next ticks at these places of one period."""
    first = start(steps, *members)
    first.long = LONG_ROUNDS + 1
    steps.go(first)
    (second,) = [lane for lane in steps.lanes.all if lane is not first]
    for lane, place in zip((first, second), places, strict=True):
        steps.places = [place]
        steps.go(lane)
    return first, second


def calm(*lanes):
    for lane in lanes:
        lane.calm = CALM_ROUNDS


def at(milliseconds):
    return BEGIN_NS + milliseconds * MS


def test_a_lane_is_joined_only_where_its_gpus_miss_no_tick(steps):
    """The second has read this period's tick and waits for the next; the first ends its round after it."""
    members = [Stepped(steps), Stepped(steps)]
    first, second = parted(steps, *members, places=(0.8, 0.2))
    steps.go(second)
    calm(first, second)
    steps.go(first)
    steps.run(8)
    assert len(steps.lanes.all) == 1
    for member in members:
        assert_each_tick_is_told(member, GRID)
        assert member.skipped == 0
        assert len(member.kept) >= 5


def test_a_gpu_that_vanishes_while_its_lane_joins_another_is_ended_once_and_the_others_miss_nothing(steps):
    members = stays, lost, moved = [Stepped(steps) for _ in range(3)]
    first, second = parted(steps, *members, places=(0.8, 0.2))
    calm(first, second)
    lost.alive = False
    steps.go(second)
    assert not second.is_alive()
    assert first.members == (stays, moved)
    steps.run(4)
    assert [member.ended for member in members] == [0, 1, 0]
    assert lost.skipped == 1
    for member in members:
        assert_each_tick_is_told(member, GRID)
    assert stays.skipped == moved.skipped == 0


def test_a_lane_that_is_joined_as_it_loses_its_last_gpu_goes_on_with_what_it_was_given(steps):
    members = moved, lost = [Stepped(steps), Stepped(steps)]
    first, second = parted(steps, *members, places=(0.8, 0.2))
    calm(first, second)
    lost.alive = False
    ended = lost.end

    def end():
        ended()
        steps.go(first)

    lost.end = end
    steps.go(second)
    assert second.members == (moved,)
    steps.run(3)
    assert lost.ended == 1
    assert not first.is_alive()
    assert_each_tick_is_told(moved, GRID)


def test_stop_between_a_join_and_the_next_tick_ends_each_gpu_once(steps):
    members = stays, moved = [Stepped(steps), Stepped(steps)]
    first, second = parted(steps, *members, places=(0.8, 0.2))
    calm(first, second)
    steps.go(second)
    assert first.members == (stays, moved)
    steps.set()
    steps.go(first)
    assert [member.ended for member in members] == [1, 1]
    assert not first.is_alive()
    assert (stays.skipped, moved.skipped) == (1, 0)  # its tick came due; the other had read its own


def test_gpus_that_join_a_lane_that_is_held_up_just_then_go_on_with_the_others(steps):
    members = moved, sick, after = [Stepped(steps) for _ in range(3)]
    first, second = parted(steps, *members, places=(0.5, 0.2))
    calm(first, second)
    sick.hold()
    steps.go(second)
    steps.go(first)
    assert second.members == (sick, after, moved)
    steps.now_ns += 200 * MS
    steps.lanes.look()
    steps.settled()
    assert second.members == (sick,)
    steps.run(4)
    steps.go(second)
    steps.run(4)
    for member in members:
        assert_each_tick_is_told(member, GRID)
    assert after.skipped == moved.skipped + 1


@pytest.mark.parametrize(("moves_at_ms", "missed"), [(50, 0), (150, 1)])
def test_a_gpu_of_a_new_period_misses_the_tick_its_new_lane_has_already_prepared(steps, moves_at_ms, missed):
    moved, other = Stepped(steps), Stepped(steps, 0.2)
    first = start(steps, moved)
    second = start(steps, other)
    if moves_at_ms > 50:
        steps.go(first)
        steps.go(second)  # its tick at 100 ms; the next is at 300 ms

    def change():
        moved.period_s = 0.2

    moved.at_state = change
    steps.go(first)
    assert steps.now_ns == at(moves_at_ms)
    assert second.members == (other, moved)
    steps.run(3)
    assert moved.skipped == missed
    moved.told = moved.told[-3 - missed :]  # its last reading in periods of 100 ms, and what came after
    assert_each_tick_is_told(moved, Ticks(0.2, BEGIN_NS, None))


def test_a_state_that_takes_long_and_brings_a_new_period_has_its_ticks_counted(steps):
    moved = Stepped(steps)
    first = start(steps, moved)

    def change():
        steps.now_ns = at(1050)
        moved.period_s = 0.2

    moved.at_state = change
    steps.go(first)
    assert not first.is_alive()
    steps.run(2)
    # In periods of 200 ms from 100 ms on: those from 100 to 900 ms passed.
    assert [told for what, told in moved.told if what == "missed"] == [4]
    assert [told for what, told in moved.told if what == "read"][:2] == [at(50), at(1075)]


def test_a_gpu_that_moves_to_a_lane_that_has_ended_is_ended_too(steps):
    moved, other = Stepped(steps), Stepped(steps, 0.2)
    first, second = start(steps, moved), start(steps, other)

    def change():
        steps.set()
        steps.go(second, steps.now_ns)
        assert not second.is_alive()
        moved.period_s = 0.2

    moved.at_state = change
    steps.go(first)
    assert not first.is_alive()
    assert (moved.ended, other.ended) == (1, 1)
    assert steps.lanes.join(steps.monotonic() + 1)


def test_a_gpu_that_is_ready_when_all_lanes_have_ended_is_ended_too(steps):
    member, late = Stepped(steps), Stepped(steps)
    start(steps, member)
    steps.end()
    steps.lanes.add(late)
    steps.settled()
    assert (member.ended, late.ended) == (1, 1)


@pytest.mark.parametrize(("stops_at_ms", "missed"), [(20, 0), (50, 1), (320, 3)])
def test_at_the_stop_ticks_that_came_due_are_counted_and_no_other(steps, stops_at_ms, missed):
    member = Stepped(steps)
    lane = start(steps, member)
    steps.set()
    steps.go(lane, at(stops_at_ms))
    assert (member.skipped, member.ended, member.kept) == (missed, 1, [])


def test_of_a_gpu_that_is_lost_in_a_call_that_took_long_all_ticks_are_counted_until_then(steps):
    lost, other = Stepped(steps), Stepped(steps)
    lane = start(steps, lost, other)
    steps.go(lane)

    def lose():
        lost.alive = False
        steps.now_ns = at(1150)

    lost.during = lose
    steps.go(lane)
    steps.run(2)
    assert (lost.ended, lost.skipped) == (1, 10)
    assert_each_tick_is_told(other, GRID)


def test_of_a_gpu_that_is_lost_at_its_state_all_ticks_are_counted_until_then(steps):
    lost = Stepped(steps)
    lane = start(steps, lost)

    def lose():
        lost.alive = False
        steps.now_ns = at(1050)

    lost.at_state = lose
    steps.go(lane)
    assert (lost.ended, lost.skipped) == (1, 9)


def test_ticks_of_a_gpu_that_another_has_taken_over_meanwhile_are_the_others(steps):
    lost = Stepped(steps)
    lane = start(steps, lost)

    def lose():
        lost.alive = False
        lost.until_ns = at(420)
        steps.now_ns = at(1050)

    lost.during = lose
    steps.go(lane)
    assert (lost.ended, lost.skipped) == (1, 4)  # 50 ms, and the periods from 100 to 400 ms


def test_what_is_still_held_up_at_the_end_is_ended_with_its_ticks_counted_and_only_once(steps):
    members = sick, _ = [Stepped(steps), Stepped(steps)]
    lane = start(steps, *members)
    steps.go(lane)
    sick.hold()
    steps.go(lane)
    steps.now_ns = at(1150)
    steps.lanes.look()
    steps.settled()
    steps.set()
    for one in steps.waiting():
        steps.go(one, steps.now_ns)
    assert not steps.lanes.join(steps.monotonic() + 0.1)
    assert [member.ended for member in members] == [0, 1]
    steps.lanes.give_up()
    assert [member.ended for member in members] == [1, 1]
    assert sick.skipped == 10
    steps.go(lane)
    assert not lane.is_alive()
    assert [member.ended for member in members] == [1, 1]
    steps.lanes.give_up()
    assert [member.ended for member in members] == [1, 1]


def test_a_gpu_is_not_charged_with_ticks_of_a_late_lane_from_before_it_came(steps):
    member, came = Stepped(steps), Stepped(steps)
    lane = start(steps, member)
    steps.now_ns = at(1050)
    start(steps, came)
    steps.go(lane)
    assert member.skipped == 9
    steps.run(6)
    assert came.skipped == 0
    assert came.kept[0] < at(1100)
    calm(*steps.lanes.all)
    steps.run(4)
    assert lane.members == () or steps.lanes.all == [lane]  # they have the same periods, and are joined
    assert len(steps.lanes.all) == 1
    for one in (member, came):
        assert_each_tick_is_told(one, GRID)


def test_what_was_given_up_in_its_state_is_not_ended_again_by_its_new_period(steps):
    member = Stepped(steps)
    lane = start(steps, member)

    def change():
        steps.set()
        steps.now_ns = at(1050)
        steps.lanes.look()
        steps.lanes.give_up()
        member.period_s = 0.2

    member.at_state = change
    steps.go(lane)
    assert not lane.is_alive()
    assert (member.ended, member.skipped) == (1, 9)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_tick_is_told_once_and_each_gpu_ended_once(steps, seed):
    chance = random.Random(seed)
    steps.random = lambda: steps.now_ns // MS * 0.6180339887 % 1  # whichever of two lanes asks first
    members = [Stepped(steps) for _ in range(4)]
    start(steps, *members)
    for _ in range(250):
        what = chance.random()
        if what < 0.6 and steps.waiting():
            steps.run(1)
        elif what < 0.7 and (waiting := steps.waiting()):
            steps.go(chance.choice(waiting))
        elif what < 0.75:
            chance.choice(members).hold()
        elif what < 0.8:
            steps.now_ns += chance.randrange(300) * MS
        elif what < 0.9 and steps.holding:
            steps.go(min(steps.holding, key=steps.lanes.all.index))
        elif what < 0.95:
            calm(*steps.lanes.all)
        elif what < 0.97:
            chance.choice(steps.lanes.all).long = LONG_ROUNDS + 1
        elif what < 0.975:
            chance.choice(members).alive = False
        elif any(not lane.held for lane in steps.lanes.all) and len(members) < 8:
            members.append(Stepped(steps))
            start(steps, members[-1])
        else:
            steps.lanes.look()
            steps.settled()
    steps.end()
    for member in members:
        assert_each_tick_is_told(member, GRID)
        assert member.ended == 1
        assert member.most_inside <= 1
