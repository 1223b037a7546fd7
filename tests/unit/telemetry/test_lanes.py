"""Who reads which GPU: shared threads, GPUs that hold theirs up, and the alarm that sees it."""

import copy
import random
import threading
import time
from itertools import pairwise

import pytest
from lane_parts import HANG_S, Alarm, Played, assert_each_tick_is_told, more, wait_for

from harness.telemetry import lanes as lanes_module
from harness.telemetry.cadence import Stop
from harness.telemetry.lanes import Lane, Lanes


@pytest.fixture
def made():
    stop, alarm = Stop(), Alarm()
    lanes = Lanes(stop=stop, rng=random.Random(1), alarm=alarm.set)
    alarm.rings = lanes.look
    yield lanes
    stop.set()
    alarm.set(0)
    assert lanes.join(time.monotonic() + HANG_S)


def test_gpus_that_answer_share_a_thread_and_those_of_another_period_do_not(made):
    members = [Played(), Played(0.0501), Played(0.2)]
    for member in members:
        made.add(member)
    more(members, 3)
    assert members[0].threads == members[1].threads
    assert members[1].period_s == members[0].period_s == 0.05
    assert not members[0].threads & members[2].threads
    made.stop.set()
    assert made.join(time.monotonic() + HANG_S)
    assert [member.ended for member in members] == [1, 1, 1]


def test_a_gpu_that_holds_its_thread_up_is_left_behind_and_what_the_others_missed_is_counted(made):
    first, sick, last = members = [Played(), Played(), Played()]
    for member in members:
        made.add(member)
    more(members, 3)
    sick.free.clear()
    more([first, last], 20)  # by another thread, while the sick one still holds the first
    assert len(first.threads) == len(last.threads) == 2
    assert last.skipped >= 1  # it came after the sick one in the round that was held up
    read = len(sick.read_ns)
    sick.free.set()
    more([sick], 3)
    assert len(sick.threads) == 1
    assert all(member.most_inside == 1 for member in members)  # never two threads in one GPU
    assert read < len(sick.read_ns)


def ticks_of(lanes, member):
    with lanes.lock:
        (lane,) = [lane for lane in lanes.all if member in lane.members]
        return copy.copy(lane.ticks)


def test_every_tick_is_either_read_or_counted_as_missed(made):
    sick, other = members = [Played(), Played()]
    for member in members:
        made.add(member)
    ticks = [ticks_of(made, member) for member in members]
    more(members, 3)
    sick.free.clear()
    more([other], 10)
    sick.free.set()
    more(members, 10)
    made.stop.set()
    assert made.join(time.monotonic() + HANG_S)
    for member, its in zip(members, ticks, strict=True):
        assert_each_tick_is_told(member, its)
        assert member.kept == sorted(set(member.kept))  # each tick once, by one thread or the other
        assert len(member.kept) == len(member.read_ns)


def test_once_all_lanes_have_ended_no_alarm_is_left():
    """It would come as a signal, to a process whose handlers may be gone by then."""
    stop, alarm = Stop(), Alarm()
    lanes = Lanes(stop=stop, rng=random.Random(1), alarm=alarm.set)
    members = [Played(), Played(0.2)]
    for member in members:
        lanes.add(member)
    more(members, 2)
    assert max(alarm.was_set) > 0
    stop.set()
    assert lanes.join(time.monotonic() + HANG_S)
    assert alarm.was_set[-1] == 0


class Moved(Played):
    """While it is asked, another thread looks for lanes that are held up, and finds this one so."""

    def __init__(self, lanes):
        super().__init__()
        self.lanes = lanes
        self.looked = 0

    def answer(self, due_ns):
        (lane,) = [lane for lane in self.lanes.all if self in lane.members]
        if len(self.read_ns) == 3:
            lane.held_up_ns = 0
            self.lanes.look()
            self.looked += 1
        return super().answer(due_ns)


def test_what_a_lane_had_when_it_was_taken_over_is_taken_down_once(made):
    before, moved, after = members = [Played(), Moved(made), Played()]
    for member in members:
        made.add(member)
    more(members, 8)
    assert moved.looked == 1
    assert after.skipped >= 1
    made.stop.set()
    assert made.join(time.monotonic() + HANG_S)
    for member in members:
        assert len(member.kept) == len(set(member.kept)) == len(member.read_ns)
        assert member.most_inside == 1
    assert len(before.threads) == len(after.threads) == 2
    assert len(moved.threads) == 1


def test_a_call_that_raises_is_an_answer_and_the_others_are_asked(made):
    class Raising(Played):
        def answer(self, due_ns):
            super().answer(due_ns)
            raise ValueError("no one foresaw it")

    bad, good = Raising(), Played()
    made.add(bad)
    made.add(good)
    more([bad, good], 3)
    made.stop.set()
    assert made.join(time.monotonic() + HANG_S)
    assert {type(answer) for answer in bad.kept} == {ValueError}
    assert len(good.kept) == len(good.read_ns)


def test_a_lane_whose_rounds_take_too_long_is_parted(made):
    members = [Played(0.1, takes_s=0.03) for _ in range(4)]  # 120 ms of readings for every 100 ms
    for member in members:
        made.add(member)
    wait_for(lambda: len(set.union(*(member.threads for member in members))) >= 3)
    more(members, 5)
    assert all(member.most_inside == 1 for member in members)


def test_lanes_that_have_long_been_quick_are_joined_again(made, monkeypatch):
    monkeypatch.setattr(lanes_module, "CALM_ROUNDS", 5)
    first, sick = members = [Played(0.2), Played(0.2)]
    for member in members:
        made.add(member)
    more(members, 1)
    sick.free.clear()
    more([first], 3)
    sick.free.set()

    def shared():
        for member in members:
            member.threads.clear()
        more(members, 3)
        return first.threads == sick.threads

    wait_for(shared)


def test_a_lost_gpu_is_read_no_more_and_its_lane_goes_on(made):
    lost, other = members = [Played(), Played()]
    for member in members:
        made.add(member)
    more(members, 2)
    lost.alive = False
    wait_for(lambda: lost.ended)
    read = len(lost.read_ns)
    more([other], 5)
    assert len(lost.read_ns) == read
    assert lost.ended == 1


def test_ticks_of_a_shared_lane_are_jittered(made):
    member = Played(0.02)
    made.add(member)
    more([member], 60)
    gaps = [b - a for a, b in pairwise(member.read_ns)]
    assert max(gaps) - min(gaps) > 0.01 * 1e9


def test_stop_ends_every_wait_and_a_wait_ends_by_itself():
    stop = Stop()
    assert not stop.wait(0.01)
    ended = []
    threads = [threading.Thread(target=lambda: ended.append(stop.wait(HANG_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    stop.set()
    stop.set()
    for thread in threads:
        thread.join(HANG_S)
    assert ended == [True] * 3
    assert stop.wait(0)
    assert stop.wait()


class Late:
    """A lock that a thread, once it is told of, gets late."""

    def __init__(self, lock):
        self.lock = lock
        self.thread = None
        self.waits = threading.Event()
        self.go_on = threading.Event()

    def __enter__(self):
        if threading.get_ident() == self.thread:
            self.thread = None
            self.waits.set()
            assert self.go_on.wait(HANG_S)
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


def test_a_lane_that_was_taken_over_is_not_taken_over_again_for_the_same_round(made):
    """Its call returned, and then it waited so long for a core that it counts as held up once more."""
    first, sick, third, last = members = [Played() for _ in range(4)]
    for member in members:
        made.add(member)
    more(members, 3)
    (lane,) = made.all
    made.lock = late = Late(made.lock)
    sick.free.clear()
    wait_for(lambda: sick.inside)
    wait_for(lambda: len(made.all) == 2)
    more([first, third, last], 2)
    late.thread = lane.ident
    sick.free.set()
    assert late.waits.wait(HANG_S)
    more([first, third, last], 10)
    made.look()
    lane.held_up_ns = 0
    made.look()
    late.go_on.set()
    more(members, 10)
    assert len(made.all) == 2
    assert lane.members == (sick,)
    made.stop.set()
    assert made.join(time.monotonic() + HANG_S)
    for member in members:
        assert member.kept == sorted(set(member.kept))
        assert len(member.kept) == len(member.read_ns)
        assert member.most_inside == 1
        assert member.ended == 1


def test_a_gpu_that_cannot_be_prepared_for_a_tick_ends_its_own_readings_only(made):
    class Unasked(Played):
        def ask(self, due_ns):
            if len(self.kept) == 3:
                raise ValueError("no one foresaw it")
            return super().ask(due_ns)

        def keep(self, begin_ns, end_ns, answer):
            if isinstance(answer, Exception):
                self.kept.append(answer)
                return False
            return super().keep(begin_ns, end_ns, answer)

    bad, good = Unasked(), Played()
    made.add(bad)
    made.add(good)
    more([good], 8)
    wait_for(lambda: bad.ended)
    assert type(bad.kept[-1]) is ValueError


def test_at_the_end_each_gpu_is_ended_once_even_one_that_came_at_that_moment():
    class Giving(Lanes):
        def ended(self, lane):
            if gone.ended and not self.stop.is_set():
                self.add(came)
                self.stop.set()
            return super().ended(lane)

    lanes = Giving(stop=Stop(), rng=random.Random(1), alarm=lambda seconds: None)
    gone, came = Played(), Played()
    lanes.add(gone)
    more([gone], 2)
    gone.alive = False
    assert lanes.join(time.monotonic() + HANG_S)
    assert (gone.ended, came.ended) == (1, 1)


def test_once_told_to_stop_no_lane_gives_its_gpus_to_another():
    """Which may have ended by then."""
    lanes = Lanes(stop=Stop(), rng=random.Random(1), alarm=lambda seconds: None)
    members = [Played(), Played()]
    made = [Lane(lanes, (member,), None, member.period_s) for member in members]
    lanes.all = list(made)
    for lane in made:
        lane.calm = lanes_module.CALM_ROUNDS
    lanes.stop.set()
    lanes.done(made[0], 0)
    assert [lane.members for lane in made] == [(member,) for member in members]


def test_at_the_end_what_a_lane_that_is_held_up_reads_is_ended_all_the_same():
    """No alarm rings any more: whoever would look then waits for the lanes."""
    lanes = Lanes(stop=Stop(), rng=random.Random(1), alarm=lambda seconds: None)
    first, sick, last = members = [Played() for _ in range(3)]
    for member in members:
        lanes.add(member)
    more(members, 2)
    sick.free.clear()
    wait_for(lambda: sick.inside)
    lanes.stop.set()
    assert not lanes.join(time.monotonic() + 1)
    wait_for(lambda: first.ended and last.ended)
    assert len(first.kept) == len(first.read_ns)
    assert not sick.ended
    sick.free.set()
    assert lanes.join(time.monotonic() + HANG_S)
    assert [member.ended for member in members] == [1, 1, 1]
