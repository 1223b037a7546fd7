"""Which thread reads which GPUs. GPUs that answer at once share one: each waking up costs more than the readings.

A lane is a thread with the GPUs that it reads one after the other at each of its jittered ticks. A GPU that holds
its lane up is left to that thread, and a new one takes the others over; a lane whose rounds take too long for their
readings to be near their ticks is parted. On a slow or sick driver that ends with a thread for each GPU; lanes that
have long been quick again are joined.

Each tick of a GPU is read, or told to it as missed, whatever lanes it goes through: from the first one after it came
until its last lane has ended or has given it up. What a lane reads is settled when it draws a tick, under the lock; a
GPU that comes later has its first tick there with the next. So whoever brings it accounts for those before.
"""

import copy
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from harness.telemetry.cadence import Ticks

SAME_PERIOD = 0.05  # GPUs whose periods differ by less share a lane, at the period of the one that was first
HELD_UP_S = (0.05, 0.25)  # bounds of what counts as held up: half a period, within these
LONG_ROUNDS = 5  # that are too long, until a lane is parted; a short one takes one back
ROUND_SHARE = 0.35  # of the period: more is too long
CALM_SHARE = 1 / 16  # of the period: rounds of two such lanes would not be too long in one
CALM_ROUNDS = 600  # on end, until lanes are joined

NEVER = 1 << 62  # monotonic ns

Alarm = Callable[[float], None]  # seconds until `Lanes.look` is to be called; 0: it need not be


class Member(Protocol):
    """The fast readings of one GPU."""

    period_s: float
    until_ns: int  # monotonic; later ticks are not its own, as another reads this GPU. NEVER: none does

    def read_at(self, period_s: float) -> None:
        """It will be read at this period, which is nearly its own."""

    def ask(self, due_ns: int) -> Callable[[], object]:
        """What has the driver give power for the tick at `due_ns`, and does no more: its answer is for `keep`."""

    def keep(self, begin_ns: int, end_ns: int, answer: object) -> bool:
        """Takes down what the last `ask` gave, called between these; False when this GPU is not to be read any more.

        `answer` is an Exception where the call raised it. That the tick is missed, if nothing came of it, is seen to.
        """

    def due(self, now_ns: int) -> bool:
        """Whether it is time for `state`."""

    def state(self) -> bool:
        """Reads what is read more seldom; False as for `keep`. `period_s` may be another after it."""

    def missed(self, ticks: int) -> None:
        """Ticks that passed without a reading."""

    def end(self) -> None:
        """Nothing more will be read by this lane."""


class Lanes:
    """All lanes. `alarm` is set for when a lane should have read: one that is held up is seen, and no one polls."""

    def __init__(self, *, stop: threading.Event, rng: random.Random, alarm: Alarm) -> None:
        self.stop = stop
        self._rng = rng
        self._alarm = alarm
        self.lock = threading.Lock()
        self.all: list[Lane] = []  # changed only under the lock
        self._alarm_ns = NEVER  # when it goes off

    def add(self, member: Member, before: "Lane | None" = None) -> None:
        """Has a GPU read from now on, at about its period, and no more by the lane that read it before.

        Once told to stop no lane takes it: the one that would may have ended. It is ended here.
        """
        with self.lock:
            if before is not None:
                if member not in before.members:
                    return  # it was given up
                before.members = _without(before.members, member)
            stopped = self.stop.is_set()
            if stopped and before is not None:
                member.missed(before.ticks.behind(time.monotonic_ns()))
            period_s = member.period_s if stopped else self._place(member, before)
        if stopped:
            member.end()
        elif period_s != member.period_s:
            member.read_at(period_s)

    def give_up(self) -> None:
        """Ends what lanes read that are held up even now. To be called after `join`; nothing comes of it later."""
        with self.lock:
            left: list[Member] = []
            for lane in self.all:
                if lane.taken and lane.counts:
                    for member in lane.members:
                        member.missed(1)
                if lane.taken:
                    left += self._release(lane, lane.members)
        for member in left:
            member.end()

    def join(self, end_s: float) -> bool:
        """Waits for the lanes until monotonic `end_s`; False when one is held up inside the driver."""
        while True:
            self.look()  # the others of a lane that is held up are ended by a new one
            with self.lock:
                alive = [lane for lane in self.all if lane.is_alive()]
            left = end_s - time.monotonic()
            if not alive or left <= 0:
                return not alive
            alive[0].join(min(left, HELD_UP_S[0]))

    def look(self) -> None:
        """Hands over what is read by lanes that are held up. Called when the alarm goes off, and by other lanes."""
        now = time.monotonic_ns()
        with self.lock:
            for lane in list(self.all):
                since = lane.since()
                if since is None:
                    if lane.until_ns <= now:  # it has not begun yet: this machine is busy
                        lane.until_ns = now + lane.held_up_ns
                elif now - since < lane.held_up_ns:
                    lane.until_ns = since + lane.held_up_ns
                elif lane.until_ns != NEVER:
                    self._take_over(lane)
            self._alarm_ns = 0  # it may have gone off
            self._set_alarm(now)

    def draw(self, lane: "Lane") -> tuple[int, tuple[Member, ...]]:
        """A lane's next tick (monotonic ns), and what it is to read then."""
        with self.lock:
            now = time.monotonic_ns()
            skipped = lane.ticks.skipped
            due = lane.ticks.next(now)
            if lane.ticks.skipped > skipped:
                for member in lane.members:
                    member.missed(lane.ticks.skipped - skipped)
            lane.until_ns = due + lane.held_up_ns
            self._set_alarm(now)
            return due, lane.members

    def done(self, lane: "Lane", took_ns: int) -> None:
        """A lane ends a round, which took so long."""
        with self.lock:
            lane.long = lane.long + 1 if took_ns > ROUND_SHARE * lane.period_s * 1e9 else max(0, lane.long - 1)
            lane.calm = lane.calm + 1 if took_ns < CALM_SHARE * lane.period_s * 1e9 else 0
            if lane.long >= LONG_ROUNDS and len(lane.members) > 1:
                half = len(lane.members) // 2
                theirs, lane.members, lane.long = lane.members[half:], lane.members[:half], 0
                self._start(Lane(self, theirs, copy.copy(lane.ticks), lane.period_s))
            elif lane.calm >= CALM_ROUNDS and not self.stop.is_set():  # else the other may have ended
                lane.held = False
                self._join_another(lane)

    def leave(self, lane: "Lane", member: Member) -> bool:
        """Takes a member out of a lane, which is to end it; False when it was not there any more."""
        with self.lock:
            return bool(self._release(lane, (member,) if member in lane.members else ()))

    def ended(self, lane: "Lane") -> tuple[Member, ...] | None:
        """Takes from a lane what it is to end; None: it goes on, as it was given a member at this moment."""
        with self.lock:
            if lane.members and not self.stop.is_set():
                return None
            if not lane.members and lane in self.all:
                self.all.remove(lane)  # else it stays for `join`: there are members to be ended
            lane.until_ns = NEVER
            self._set_alarm(time.monotonic_ns())
            return self._release(lane, lane.members)

    def _release(self, lane: "Lane", members: tuple[Member, ...]) -> tuple[Member, ...]:
        now = time.monotonic_ns()
        for member in members:
            lane.members = _without(lane.members, member)
            member.missed(lane.ticks.behind(min(now, member.until_ns)))
        return members

    def _place(self, member: Member, before: "Lane | None") -> float:
        """Gives a GPU to a lane; the lane's period. By `before` it has been read up to the last tick of that."""
        now = time.monotonic_ns()
        for lane in self.all:
            if abs(lane.period_s - member.period_s) > SAME_PERIOD * member.period_s or lane.held:
                continue
            read_ns = now - lane.ticks.period_ns if before is None else before.ticks.due_ns
            ahead = lane.ticks.ahead(read_ns)
            if ahead < 0:  # it is late, and will read or skip what is not this one's: the same ticks, in a new lane
                self._start(Lane(self, (member,), lane.ticks.after(read_ns), lane.period_s))
            else:
                if before is not None:
                    member.missed(ahead)
                lane.members = (*lane.members, member)
            return lane.period_s
        begin_ns = now if before is None else before.ticks.end_ns()
        self._start(Lane(self, (member,), Ticks(member.period_s, begin_ns, self._rng), member.period_s))
        return member.period_s

    def _take_over(self, lane: "Lane") -> None:
        given = lane.hand_over()
        if given is None:
            return
        holding = lane.round[lane.place]
        others = _without(lane.members, holding)
        lane.held, lane.until_ns = True, NEVER
        if lane.counts:
            for member in lane.round[lane.place + 1 :]:
                member.missed(1)
        if others:
            lane.members = tuple(member for member in lane.members if member is holding)
            self._start(Lane(self, others, copy.copy(lane.ticks), lane.period_s, given))

    def _join_another(self, lane: "Lane") -> None:
        """Only one that has not drawn a later tick yet: in each period one of the two comes to that."""
        for other in self.all:
            alike = other is not lane and other.period_s == lane.period_s and other.calm >= CALM_ROUNDS
            if alike and not other.held and other.ticks.ahead(lane.ticks.due_ns) == 0:
                other.members, lane.members = (*other.members, *lane.members), ()
                return

    def _start(self, lane: "Lane") -> None:
        self.all.append(lane)
        lane.start()

    def _set_alarm(self, now: int) -> None:
        earliest = NEVER
        if not self.stop.is_set():  # after that it could ring in a process that has no handler for it any more
            for lane in self.all:
                if lane.until_ns < earliest:
                    earliest = lane.until_ns
        if earliest != self._alarm_ns:
            self._alarm_ns = earliest
            self._alarm(max(earliest - now, 1_000_000) / 1e9 if earliest != NEVER else 0.0)


Given = tuple[Member, int, int, object]  # who was asked; between when and when (monotonic ns); the answer


class Lane(threading.Thread):
    """One thread and the GPUs it reads."""

    def __init__(
        self, lanes: Lanes, members: tuple[Member, ...], ticks: Ticks, period_s: float, given: Sequence[Given] = ()
    ) -> None:
        """`given`: what members gave another lane, which is held up and cannot take it down."""
        super().__init__(name="lane", daemon=True)
        self._lanes = lanes
        self._before = given
        self.members = members  # replaced, never changed, and only under the lock of `lanes`
        self.ticks = ticks
        self.period_s = period_s
        self.held_up_ns = round(min(max(period_s / 2, HELD_UP_S[0]), HELD_UP_S[1]) * 1e9)
        self.held = False  # up, by its one member: no other is given to it
        self.until_ns = NEVER  # when it counts as held up, as far as is known by now
        self.round: tuple[Member, ...] = ()
        self.counts = False  # whether a member that this round does not reach misses a tick
        self.place = 0  # in the round, of the member that holds it up
        self.long = 0
        self.calm = 0
        # A moment, then an answer and a moment for each call that was made: its length tells another thread which call
        # is under way, and since when. None: none is.
        self._answers: list[Any] | None = None
        self.taken = False  # over, by another thread

    def run(self) -> None:
        """Reads until stopped, or until it has no member left."""
        lanes = self._lanes
        self._keep(self._before)
        left: tuple[Member, ...] | None = None
        while left is None:
            due, members = lanes.draw(self)
            # All that can be done before the tick is: after it, each thing must first be fetched into the caches again.
            asks = [_asked(member, due) for member in members]
            if lanes.stop.wait(max(0, due - time.monotonic_ns()) / 1e9):
                if due <= time.monotonic_ns():
                    for member in members:
                        member.missed(1)
                left = lanes.ended(self)
                continue
            self._round(members, asks)
            if not self.members:
                left = lanes.ended(self)
        for member in left:
            member.end()

    def _round(self, members: tuple[Member, ...], asks: Sequence[Callable[[], object]]) -> None:
        for other in self._lanes.all:
            if other is not self and other.since() is not None:
                self._lanes.look()
                break
        # The calls of all of them first: what takes its time comes when it can no longer make a reading late, and when
        # it need not be fetched into the caches again after each call that slept.
        begin = time.monotonic_ns()
        self._keep(self._call(members, asks, counts=True))
        now = time.monotonic_ns()
        due = tuple(member for member in self.members if member.due(now))
        if due:
            self._call(due, [partial(self._state, member) for member in due])
        self._lanes.done(self, time.monotonic_ns() - begin)

    def _call(
        self, members: tuple[Member, ...], asks: Sequence[Callable[[], object]], *, counts: bool = False
    ) -> Sequence[Given]:
        """Makes the calls one after the other, and no more once another thread has taken over."""
        self.round, self.counts = members, counts
        answers: list[Any] = [time.monotonic_ns()]
        self._answers = answers
        for ask in asks:
            if self.taken:
                break
            try:
                answers.append(ask())
            except Exception as error:  # what no one foresaw ends this GPU's readings only, as `keep` sees to
                answers.append(error)
            answers.append(time.monotonic_ns())
        with self._lanes.lock:
            taken, self.taken, self._answers = self.taken, False, None
        given = list(zip(members, answers[::2], answers[2::2], answers[1::2], strict=False))
        if not taken:
            return given
        if counts and len(given) <= self.place:  # taken over just before its call
            members[self.place].missed(1)
        return given[self.place : self.place + 1]

    def since(self) -> int | None:
        """When the call that is under way was begun (monotonic ns); None: none is, or another thread has taken over.

        What was taken over may be through, and wait for its turn: it holds no one up.
        """
        answers = self._answers
        return None if answers is None or self.taken else int(answers[(len(answers) - 1) // 2 * 2])

    def hand_over(self) -> Sequence[Given] | None:
        """Has this lane make no further call, and sets `place`; what those before it gave. None: it is through.

        To be called by another thread, which holds the lock of `lanes`.
        """
        answers = self._answers
        if answers is None:
            return None
        # From here on no call begins: what the length tells now is the last one.
        self.taken = True
        self.place = (len(answers) - 1) // 2
        if self.place >= len(self.round):
            self.taken = False
            return None
        if not self.counts:
            return ()
        before = self.round[: self.place]
        return list(zip(before, answers[::2], answers[2::2], answers[1::2], strict=False))

    def _keep(self, all_given: Sequence[Given]) -> None:
        for member, begin_ns, end_ns, answer in all_given:
            if not member.keep(begin_ns, end_ns, answer) and self._lanes.leave(self, member):
                member.end()

    def _state(self, member: Member) -> None:
        if not member.state():
            if self._lanes.leave(self, member):
                member.end()
        elif abs(member.period_s - self.period_s) > SAME_PERIOD * self.period_s:
            self._lanes.add(member, self)


def _without(members: tuple[Member, ...], member: Member) -> tuple[Member, ...]:
    return tuple(one for one in members if one is not member)


def _asked(member: Member, due_ns: int) -> Callable[[], object]:
    """As the member's `ask`; what no one foresaw in it is its answer, and ends this GPU's readings only."""
    try:
        return member.ask(due_ns)
    except Exception as error:
        return partial(_raise, error)


def _raise(error: Exception) -> None:
    raise error
