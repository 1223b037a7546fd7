"""Which thread reads which GPUs. GPUs that answer at once share one: each waking up costs more than the readings.

A lane is a thread with the GPUs that it reads one after the other at each of its jittered ticks. A GPU that holds
its lane up is left to that thread, and a new one takes the others over; a lane whose rounds take too long for their
readings to be near their ticks is parted. On a slow or sick driver that ends with a thread for each GPU; lanes that
have long been quick again are joined.
"""

import copy
import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from harness.telemetry.cadence import Ticks

SAME_PERIOD = 0.05  # GPUs whose periods differ by less share a lane, at the period of the one that was first
HELD_UP_S = (0.05, 0.25)  # bounds of what counts as held up: half a period, within these
LONG_ROUNDS = 5  # that are too long, until a lane is parted; a short one takes one back
ROUND_SHARE = 0.35  # of the period: more is too long
CALM_SHARE = 1 / 16  # of the period: rounds of two such lanes would not be too long in one
CALM_ROUNDS = 600  # on end, until lanes are joined

Alarm = Callable[[float], None]  # seconds until `Lanes.look` is to be called; 0: it need not be


class Member(Protocol):
    """The fast readings of one GPU."""

    period_s: float

    def read_at(self, period_s: float) -> None:
        """It will be read at this period, which is nearly its own."""

    def power(self, due_ns: int) -> object:
        """Has the driver give power for the tick at `due_ns`, and does no more; for `keep`."""

    def keep(self, given: object) -> bool:
        """Takes down what `power` gave; False when this GPU is not to be read any more."""

    def due(self) -> bool:
        """Whether it is time for `state`."""

    def state(self) -> bool:
        """Reads what is read more seldom; False as for `keep`. `period_s` may be another after it."""

    def missed(self, ticks: int) -> None:
        """Ticks that passed without a reading."""

    def end(self) -> None:
        """Nothing more will be read by this lane."""


class Lanes:
    """All lanes. `alarm` is set while a lane reads, so that one that is held up is seen without anyone polling."""

    def __init__(self, *, stop: threading.Event, rng: random.Random, alarm: Alarm) -> None:
        self.stop = stop
        self._rng = rng
        self._alarm = alarm
        self.lock = threading.Lock()
        self._lanes: list[Lane] = []
        self._alarm_ns = 0  # until when it is set; 0: it is not

    def add(self, member: Member) -> None:
        """Has a GPU read from now on, at about its period."""
        with self.lock:
            for lane in self._lanes:
                if abs(lane.period_s - member.period_s) <= SAME_PERIOD * member.period_s and not lane.held:
                    lane.members = (*lane.members, member)
                    break
            else:
                ticks = Ticks(member.period_s, time.monotonic_ns(), self._rng)
                self._start(Lane(self, (member,), ticks, member.period_s))
                return
        if lane.period_s != member.period_s:
            member.read_at(lane.period_s)

    def join(self, end_s: float) -> bool:
        """Waits for the lanes until monotonic `end_s`; False when one is held up inside the driver."""
        with self.lock:
            lanes = list(self._lanes)
        for lane in lanes:
            lane.join(max(0.0, end_s - time.monotonic()))
        return not any(lane.is_alive() for lane in lanes)

    def look(self) -> None:
        """Hands over what is read by lanes that are held up. Called when the alarm goes off, and by other lanes."""
        now = time.monotonic_ns()
        with self.lock:
            left = []
            for lane in list(self._lanes):
                if lane.reading is None:
                    continue
                if now - lane.reading_ns >= lane.held_up_ns:
                    self._take_over(lane, lane.reading)
                else:
                    left.append(lane.reading_ns + lane.held_up_ns - now)
            self._set(now, min(left) if left else 0)

    def begun(self, lane: "Lane", now: int) -> None:
        """A lane begins a round."""
        with self.lock:
            if now >= self._alarm_ns:
                self._set(now, lane.held_up_ns)
            others = any(other.reading is not None and other is not lane for other in self._lanes)
        if others:
            self.look()

    def done(self, lane: "Lane", took_ns: int) -> None:
        """A lane ends a round, which took so long."""
        with self.lock:
            lane.reading = None
            if self._alarm_ns and not any(other.reading is not None for other in self._lanes):
                self._set(0, 0)
            lane.long = lane.long + 1 if took_ns > ROUND_SHARE * lane.period_s * 1e9 else max(0, lane.long - 1)
            lane.calm = lane.calm + 1 if took_ns < CALM_SHARE * lane.period_s * 1e9 else 0
            if lane.long >= LONG_ROUNDS and len(lane.members) > 1:
                half = len(lane.members) // 2
                theirs, lane.members, lane.long = lane.members[half:], lane.members[:half], 0
                self._start(Lane(self, theirs, copy.copy(lane.ticks), lane.period_s))
            elif lane.calm >= CALM_ROUNDS:
                lane.held = False
                self._join_another(lane)

    def leave(self, lane: "Lane", member: Member) -> None:
        """Takes a member out of a lane."""
        with self.lock:
            lane.members = tuple(one for one in lane.members if one is not member)

    def ended(self, lane: "Lane") -> bool:
        """Forgets a lane that has no member left; False when it was given one at this moment."""
        with self.lock:
            if lane.members and not self.stop.is_set():
                return False
            if lane in self._lanes and not lane.members:
                self._lanes.remove(lane)
            return True

    def _take_over(self, lane: "Lane", holding: Member) -> None:
        others = tuple(member for member in lane.members if member is not holding)
        lane.held = True
        for member in lane.round[lane.place + 1 :]:
            member.missed(1)
        lane.place = len(lane.round)
        if others:
            lane.members = (holding,)
            given, lane.given = lane.given, []
            self._start(Lane(self, others, copy.copy(lane.ticks), lane.period_s, given))

    def _join_another(self, lane: "Lane") -> None:
        for other in self._lanes:
            if other is not lane and other.period_s == lane.period_s and other.calm >= CALM_ROUNDS and not other.held:
                other.members, lane.members = (*other.members, *lane.members), ()
                return

    def _start(self, lane: "Lane") -> None:
        self._lanes.append(lane)
        lane.start()

    def _set(self, now: int, left_ns: int) -> None:
        self._alarm_ns = now + left_ns if left_ns else 0
        self._alarm(left_ns / 1e9)


class Lane(threading.Thread):
    """One thread and the GPUs it reads."""

    def __init__(
        self,
        lanes: Lanes,
        members: tuple[Member, ...],
        ticks: Ticks,
        period_s: float,
        given: "list[tuple[Member, object]] | None" = None,
    ) -> None:
        """`given`: what members gave another lane, which is held up and cannot take it down."""
        super().__init__(name="lane", daemon=True)
        self.given = given or []  # of this round, not taken down yet; only under the lock of `lanes`
        self._lanes = lanes
        self.members = members  # replaced, never changed, and only under the lock of `lanes`
        self.ticks = ticks
        self.period_s = period_s
        self.held_up_ns = round(min(max(period_s / 2, HELD_UP_S[0]), HELD_UP_S[1]) * 1e9)
        self.held = False  # up, by its one member: no other is given to it
        self.reading: Member | None = None
        self.reading_ns = 0
        self.round: tuple[Member, ...] = ()
        self.place = 0  # in the round, of the member that is read; those after it are still to be
        self.long = 0
        self.calm = 0

    def run(self) -> None:
        """Reads until stopped, or until it has no member left."""
        lanes, ticks = self._lanes, self.ticks
        self._keep()
        while True:
            skipped = ticks.skipped
            due = ticks.next(time.monotonic_ns())
            if ticks.skipped > skipped:
                for member in self.members:
                    member.missed(ticks.skipped - skipped)
            if lanes.stop.wait(max(0, due - time.monotonic_ns()) / 1e9):
                break
            self._round(due)
            if not self.members and lanes.ended(self):
                return
        for member in self.members:
            member.end()

    def _round(self, due: int) -> None:
        begin = time.monotonic_ns()
        members = self.members
        self._lanes.begun(self, begin)
        # The calls of all of them first: what takes its time comes when it can no longer make a reading late, and when
        # it need not be fetched into the caches again after each call that slept.
        given: tuple[Member, object] | None = None
        self.round = members
        for place, member in enumerate(members):
            given = (member, member.power(due)) if self._enter(member, place, given) else None
        self._keep(given)
        for member in members:
            if not member.due() or not self._enter(member, len(members)):
                continue
            if not member.state():
                self._lanes.leave(self, member)
                member.end()
            elif abs(member.period_s - self.period_s) > SAME_PERIOD * self.period_s:
                self._lanes.leave(self, member)
                self._lanes.add(member)
        self._lanes.done(self, time.monotonic_ns() - begin)

    def _keep(self, last: tuple[Member, object] | None = None) -> None:
        with self._lanes.lock:
            all_given, self.given = [*self.given, *filter(None, [last])], []
        for member, given in all_given:
            if not member.keep(given):
                self._lanes.leave(self, member)
                member.end()

    def _enter(self, member: Member, place: int, given: tuple[Member, object] | None = None) -> bool:
        """False when the member was handed over while this thread was held up, or has left.

        `place` in the round: power of those after it is still to be read. `given` is what the member before gave; from
        here on, another thread may take it down.
        """
        with self._lanes.lock:
            if given is not None:
                self.given.append(given)
            if member not in self.members:
                return False
            self.reading, self.reading_ns, self.place = member, time.monotonic_ns(), place
            return True
