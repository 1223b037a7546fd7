"""How far the monotonic clock of another host is from this one's, and how far that can be wrong.

A round asks the other host for its time. Whatever the way there and back took, the answer was read between the two
readings here, so each round gives an interval that holds the offset: its middle is NTP's estimate, half its width is
half the round trip and bounds the error even where one way took all of it (D. L. Mills, RFC 5905, section 8). The
rounds of a burst are intersected. Between bursts two clocks may drift apart by at most DRIFT_PPM.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

METRIC = "clock.offset"  # of a `Metric` event: labels host, offset_ns, uncertainty_ns, round_trip_ns, rounds
DRIFT_PPM = 200  # two quartz clocks, each within 100 ppm of true time, NTP's slewing of their rate included
UNKNOWN_NS = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One question and its answer, ns: `sent` and `back` by the clock here, `received` and `answered` by the other."""

    sent_ns: int
    received_ns: int
    answered_ns: int
    back_ns: int

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, there and back."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.received_ns)

    @property
    def low_ns(self) -> int:
        """The offset (other clock minus this one) is at least this: nothing is answered after the answer is back."""
        return self.answered_ns - self.back_ns

    @property
    def high_ns(self) -> int:
        """The offset is at most this: nothing is received before it is sent."""
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Other clock minus this one, ns, at `mono_ns` of this clock; the true value is within `uncertainty_ns` of it."""

    mono_ns: int
    offset_ns: int
    uncertainty_ns: int
    round_trip_ns: int  # of the quickest round
    rounds: int

    @property
    def low_ns(self) -> int:
        """Lower end of the interval."""
        return self.offset_ns - self.uncertainty_ns

    @property
    def high_ns(self) -> int:
        """Upper end of the interval."""
        return self.offset_ns + self.uncertainty_ns


def measure(rounds: Sequence[Round]) -> Offset:
    """The offset that a burst of rounds leaves possible.

    Raises:
        ValueError: no rounds, or one that was back before it was sent.
    """
    if not rounds or any(one.back_ns < one.sent_ns or one.answered_ns < one.received_ns for one in rounds):
        raise ValueError("a clock exchange needs rounds, each sent before it was back")
    quickest = min(rounds, key=lambda one: one.round_trip_ns)
    at_ns = (quickest.sent_ns + quickest.back_ns) // 2
    low, high = _reach(quickest, at_ns)
    for one in rounds:
        lowest, highest = _reach(one, at_ns)
        low, high = max(low, lowest), min(high, highest)
    if low > high:  # the clocks drifted more than they may: the quickest round speaks for itself alone
        low, high = sorted(_reach(quickest, at_ns))
    return Offset(
        mono_ns=at_ns,
        offset_ns=(low + high) // 2,
        uncertainty_ns=(high - low + 1) // 2,
        round_trip_ns=max(0, quickest.round_trip_ns),
        rounds=len(rounds),
    )


def _reach(one: Round, at_ns: int) -> tuple[int, int]:
    """The offsets at `at_ns` that a round leaves possible: the further from it, the more by what clocks may drift."""
    slack = _drift_ns(max(abs(one.sent_ns - at_ns), abs(one.back_ns - at_ns)))
    return one.low_ns - slack, one.high_ns + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knot:
    at_ns: int  # on the other clock
    low_ns: int
    high_ns: int


class Clock:
    """The clock of another host over a run: takes its times to the clock here, with their uncertainty.

    Measurements before and after bound an instant, each widened by the drift that is possible since. `steady` is
    False where they contradict each other under that drift: then the nearest one is taken alone.
    """

    def __init__(self, offsets: Iterable[Offset]) -> None:
        """`offsets` in any order.

        Raises:
            ValueError: none at all.
        """
        ordered = sorted(offsets, key=lambda one: one.mono_ns)
        if not ordered:
            raise ValueError("a clock without a measurement")
        self.offsets = tuple(ordered)
        raw = [_Knot(at_ns=one.mono_ns + one.offset_ns, low_ns=one.low_ns, high_ns=one.high_ns) for one in ordered]
        raw.sort(key=lambda knot: knot.at_ns)
        tightened = _tightened(_tightened(raw, 1), -1)
        self.steady = all(knot.low_ns <= knot.high_ns for knot in tightened)
        self.knots = tuple(tightened if self.steady else raw)
        self._times = [knot.at_ns for knot in self.knots]
        self.line = self._corners()
        self._line_times = [at for at, _ in self.line]

    def offset_at(self, other_ns: int) -> tuple[int, int]:
        """(offset, uncertainty), ns, at an instant of the other clock."""
        place = bisect_left(self._times, other_ns)
        near = self.knots[max(0, place - 1) : place + 1]
        if not self.steady:
            near = (min(near, key=lambda knot: abs(knot.at_ns - other_ns)),)
        low, high = -UNKNOWN_NS, UNKNOWN_NS
        for knot in near:
            slack = _drift_ns(abs(other_ns - knot.at_ns))
            low, high = max(low, knot.low_ns - slack), min(high, knot.high_ns + slack)
        return (low + high) // 2, (high - low + 1) // 2

    def here(self, other_ns: int) -> int:
        """An instant of the other clock, on the clock here: `offset_at` by its corners, to a few nanoseconds."""
        place = bisect_right(self._line_times, other_ns)
        if place == 0:
            return other_ns - self.line[0][1]
        at, offset = self.line[place - 1]
        if place == len(self.line):
            return other_ns - offset
        to, after = self.line[place]
        return other_ns - offset - (after - offset) * (other_ns - at) // (to - at)

    def _corners(self) -> tuple[tuple[int, int], ...]:
        """(instant of the other clock, offset): `offset_at` is straight between them and level beyond them.

        Each bound has a corner where what the knot before leaves possible meets what the knot after does.
        """
        found = {knot.at_ns for knot in self.knots}
        for one, after in pairwise(self.knots):
            middle, half = (one.at_ns + after.at_ns) // 2, (after.at_ns - one.at_ns) // 2
            if not self.steady:
                found |= {middle, middle + 1}
                continue
            for rise in (after.high_ns - one.high_ns, one.low_ns - after.low_ns):
                found.add(middle + max(-half, min(half, rise * 1_000_000 // (2 * DRIFT_PPM))))
        return tuple((at, self.offset_at(at)[0]) for at in sorted(found))

    def uncertainty_between(self, first_ns: int, last_ns: int) -> int:
        """An uncertainty, ns, that no instant between two of the other clock exceeds."""
        worst = max(self.offset_at(first_ns)[1], self.offset_at(last_ns)[1])
        inside = [knot for knot in self.knots if first_ns <= knot.at_ns <= last_ns]
        for one, after in pairwise(inside):  # both bounds at their widest between the two
            width = (one.high_ns - one.low_ns + after.high_ns - after.low_ns) // 2
            worst = max(worst, (width + _drift_ns(after.at_ns - one.at_ns) + 1) // 2)
        return max([worst, *(self.offset_at(knot.at_ns)[1] for knot in inside)])

    @property
    def drift_ppm(self) -> tuple[float, float] | None:
        """(rate of the other clock against this one, its uncertainty), parts per million, first to last measurement.

        None where there is one measurement only.
        """
        first, last = self.offsets[0], self.offsets[-1]
        span_ns = last.mono_ns - first.mono_ns
        if span_ns <= 0:
            return None
        drift = (last.offset_ns - first.offset_ns) / span_ns
        return drift * 1e6, (first.uncertainty_ns + last.uncertainty_ns) / span_ns * 1e6


def _tightened(knots: Sequence[_Knot], step: int) -> list[_Knot]:
    """Each knot narrowed to what the one before it (behind it, for step -1) leaves possible."""
    found: list[_Knot] = []
    for knot in knots[::step]:
        low, high = knot.low_ns, knot.high_ns
        if found:
            slack = _drift_ns(abs(knot.at_ns - found[-1].at_ns))
            low, high = max(low, found[-1].low_ns - slack), min(high, found[-1].high_ns + slack)
        found.append(_Knot(at_ns=knot.at_ns, low_ns=low, high_ns=high))
    return found[::step]


def _drift_ns(apart_ns: int) -> int:
    return -(-apart_ns * DRIFT_PPM // 1_000_000)
