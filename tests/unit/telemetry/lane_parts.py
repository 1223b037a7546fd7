"""GPUs as lanes see them, and lanes whose threads run one at a time, when a test says so, on a clock that it sets."""

import threading
import time

from harness.telemetry.lanes import NEVER, Lane, Lanes

HANG_S = 60.0  # only a hang takes this long
MS = 1_000_000
BEGIN_NS = 10**12


class Alarm:
    """Rings once, so many seconds after it was last set; set to 0, not at all."""

    def __init__(self):
        self.rings = lambda: None
        self.timer = None
        self.was_set = []

    def set(self, seconds):
        self.was_set.append(seconds)
        if self.timer is not None:
            self.timer.cancel()
        self.timer = threading.Timer(seconds, self.rings) if seconds else None
        if self.timer is not None:
            self.timer.start()


class Played:
    """A GPU that answers after `takes_s`; while `free` is cleared it does not answer."""

    until_ns = NEVER

    def __init__(self, period_s=0.05, takes_s=0.0):
        self.period_s = period_s
        self.takes_s = takes_s
        self.free = threading.Event()
        self.free.set()
        self.alive = True
        self.read_ns = []
        self.kept = []
        self.threads = set()
        self.skipped = 0
        self.told = []  # ticks: a moment for each that was read, how many for those that were missed
        self.ended = 0
        self.inside = 0
        self.most_inside = 0

    def read_at(self, period_s):
        self.period_s = period_s

    def ask(self, due_ns):
        return lambda: self.answer(due_ns)

    def answer(self, due_ns):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        time.sleep(self.takes_s)
        self.free.wait(HANG_S)
        self.inside -= 1
        self.threads.add(threading.get_ident())
        self.read_ns.append(time.monotonic_ns())
        return due_ns

    def keep(self, begin_ns, end_ns, answer):
        assert begin_ns <= self.read_ns[-1] <= end_ns  # it is this member's own, and its last
        self.kept.append(answer)
        self.told.append(("read", answer))
        return self.alive

    def due(self, now_ns):
        return False

    def state(self):
        return True

    def missed(self, ticks):
        self.skipped += ticks
        self.told.append(("missed", ticks))

    def end(self):
        self.ended += 1


def assert_each_tick_is_told(member, ticks):
    """Between two readings, as many ticks were missed as there are of them: each in a period of its own."""
    before, missed = None, 0
    for what, told in member.told:
        if what == "missed":
            missed += told
            continue
        period = (told - ticks._start_ns) // ticks.period_ns
        if before is not None:
            assert period - before == 1 + missed, member.told
        before, missed = period, 0


def wait_for(what):
    end = time.monotonic() + HANG_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def more(members, rows):
    before = [len(member.read_ns) for member in members]
    wait_for(lambda: all(len(m.read_ns) >= b + rows for m, b in zip(members, before, strict=True)))


class Steps:
    """The clock, the stop and the randomness of some lanes. Each lane waits until `go` has it go on."""

    def __init__(self):
        self.now_ns = BEGIN_NS
        self.places = []  # where in their periods the next ticks lie; then in the middle
        self._stopped = False
        self._changed = threading.Condition()
        self._parked = {}  # thread -> until when it waits (ns)
        self._going = set()  # threads that were parked and are to go on
        self.holding = set()  # threads that are parked inside a call
        self.lanes = Lanes(stop=self, rng=self, alarm=lambda seconds: None)

    # The clock.

    def monotonic_ns(self):
        return self.now_ns

    def monotonic(self):
        return time.monotonic()

    # Randomness.

    def random(self):
        return self.places.pop(0) if self.places else 0.5

    # The stop.

    def is_set(self):
        return self._stopped

    def set(self):
        self._stopped = True

    def wait(self, seconds):
        """Called by a lane: parks it."""
        self.park(self.now_ns + round(seconds * 1e9))
        return self._stopped

    def park(self, until_ns):
        thread = threading.current_thread()
        with self._changed:
            self._parked[thread] = until_ns
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: thread in self._going, HANG_S)
            self._going.remove(thread)
            del self._parked[thread]

    # For tests.

    def settled(self):
        """Waits until each lane is parked or has ended."""
        end = time.monotonic() + HANG_S
        while self._running():
            assert time.monotonic() < end
            time.sleep(0.0005)

    def _running(self):
        with self._changed:
            parked = self._parked.keys() - self._going
        lanes = [one for one in threading.enumerate() if isinstance(one, Lane) and one._lanes is self.lanes]
        return [one for one in lanes if one not in parked and one is not threading.current_thread()]

    def go(self, lane, at_ns=None):
        """Has a lane go on until it waits again or has ended: at the moment it waits for, or at that one."""
        with self._changed:
            self.now_ns = max(self.now_ns, self._parked[lane] if at_ns is None else at_ns)
            self._going.add(lane)
            self._changed.notify_all()
        self.settled()

    def run(self, rounds):
        """So many rounds, of whatever lane is next."""
        for _ in range(rounds):
            self.go(min(self.waiting(), key=lambda lane: self._parked[lane]))

    def waiting(self):
        """Lanes that can go on, those whose GPU does not answer left out."""
        return [lane for lane in self.lanes.all if lane in self._parked and lane not in self.holding]

    def lane_of(self, member):
        (lane,) = [lane for lane in self.lanes.all if member in lane.members]
        return lane

    def end(self):
        """Tells the lanes to stop, and has all of them go on until they have ended."""
        self.set()
        while self._parked:
            self.go(next(iter(self._parked)), self.now_ns)


class Stepped(Played):
    """A GPU of `Steps`. What is in `during` and `at_state` is done once, at its next call and at its next state."""

    def __init__(self, steps, period_s=0.1):
        super().__init__(period_s)
        self.steps = steps
        self.during = None
        self.at_state = None

    def hold(self):
        """Its next call does not return until its lane is told to go on."""
        self.during = self._hold

    def _hold(self):
        thread = threading.current_thread()
        self.steps.holding.add(thread)
        self.steps.park(self.steps.now_ns)
        self.steps.holding.remove(thread)

    def answer(self, due_ns):
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        during, self.during = self.during, None
        if during is not None:
            during()
        self.inside -= 1
        self.read_ns.append(self.steps.now_ns)
        return due_ns

    def keep(self, begin_ns, end_ns, answer):
        if not self.alive:
            self.missed(1)
            return False
        return super().keep(begin_ns, end_ns, answer)

    def due(self, now_ns):
        return self.at_state is not None

    def state(self):
        at_state, self.at_state = self.at_state, None
        at_state()
        return self.alive
