"""The fast readings of one GPU: power and energy, each at its own cadence, state at some of their ticks."""

import functools
import random
import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import Any

from harness.protocol.events import Scalar
from harness.telemetry.gpu_power import POWER_NAMES, Asked
from harness.telemetry.lanes import NEVER
from harness.telemetry.nvml import Gpu, StateAnswers
from harness.telemetry.refresh import COUNTER, Polls, Refreshes, Turns, learnt, measure, measure_longer
from harness.telemetry.settling import Settling
from harness.telemetry.values import Timed

STATE_PERIOD_S = 0.5  # NVML averages utilisation over 1/6 to 1 s, by product
GOLDEN = (5**0.5 - 1) / 2
CLOCKS_EVERY = 3  # states: clocks are asked for what held them and how often, not for their course
LEARN_S = 6.0  # a counter that was too slow for the measurement is watched so long by the ordinary readings
WORKING_RATIO = 0.5  # of the time a kernel ran: the GPU works
WORKING_POWER = 1.3  # times the power at the first measurement
REFINEMENTS = 3  # measurements while the GPU works
REFINE_AFTER_S = 20.0  # between two of them

Metric = Callable[[str, float | None, str, Mapping[str, Scalar]], None]
Emit = Callable[[str, Timed], None]  # gpu uuid, readings
Describe = Callable[[Gpu, Mapping[str, Any]], None]
Guard = Callable[[Gpu, Callable[[Gpu], object]], bool]  # runs work on a GPU; False when that failed or it is lost
Aside = Callable[[Gpu, Callable[[Gpu], object]], None]  # runs work on a GPU in a thread of its own, one at a time


class Reader:
    """A member of a lane. What is emitted carries the middle of its call and how far off that may be."""

    def __init__(
        self,
        gpu: Gpu,
        *,
        hz: float,
        stop: threading.Event,
        rng: random.Random,
        emit: Emit,
        settling: Settling,
        metric: Metric,
        describe: Describe,
        guarded: Guard,
        lost: Container[str],
        aside: Aside,
        begun: Callable[[Gpu], None],
        joules: dict[str, float],
    ) -> None:
        """`begun` is called after the first power reading. `lost`: UUIDs of GPUs that are; for them `guarded` is False.

        `joules`: the last reading of each GPU's energy counter.
        """
        self.gpu = gpu
        self.period_s = 1 / hz
        self._stop = stop
        self._rng = rng
        self._emit = emit
        self._settling = settling
        self._metric = metric
        self._describe = describe
        self._guarded = guarded
        self._lost = lost
        self._aside = aside
        self._begun = begun
        self._joules = joules
        self._refreshes = Refreshes(hz)
        self._fields: Turns | None = None  # where all are read at each tick
        self._found: Callable[[], None] | None = None  # to be done by the lane's own thread
        self._learnt: Polls | None = None
        self._learn_until_ns = 0
        self._idle_watts: float | None = None
        self._refined = 0
        self._refine_ns = 0
        self._all: Asked
        self._asked: Asked  # for the tick at `_due_ns`
        self._due_ns = 0
        self.later = False  # readings may be left to be settled
        self._failed = False  # nothing more is read: it is lost, or another reader has this GPU, or it was ended
        self.until_ns = NEVER  # since when another reader has this GPU
        self._state_ns = 0
        self._states = 0
        self.turns = 0
        self.late = 0
        self._skipped = 0
        self._dropped = 0  # ticks whose readings were left to be settled, and then not taken down

    def prepare(self, gpu: Gpu) -> None:
        """Finds out how this GPU gives power, and how often that is new; takes a second or so.

        Raises:
            GpuLostError: the GPU is gone.
        """
        gpu.power.prepare()
        self._all = gpu.power.asked()
        gpu.read_limit()
        working = (gpu.state().values["util_ratio"] or 0.0) >= WORKING_RATIO
        self._refreshes.take(measure(gpu.power, self._stop.wait), working=working)
        self._idle_watts = None if working else _watts(gpu.power.read())
        # Power that does not change on an idle GPU says nothing of its sensor, however long it is watched.
        slow = self._refreshes.slow() if working else self._refreshes.slow() & {COUNTER}
        self._learnt = {name: [] for name in slow} if slow else None
        now = time.monotonic_ns()
        if not slow:
            self.period_s = self._refreshes.period_s
        self._read_each_at_its_own()
        self._learn_until_ns = now + round(LEARN_S * 1e9)
        self._state_ns = state_after(now, gpu.index)
        self._refined = REFINEMENTS if working else 0
        self._tell_refresh(gpu)

    def read_at(self, period_s: float) -> None:
        """It will be read at this period, which is nearly its own."""
        self.period_s = period_s
        self._read_each_at_its_own()
        self._tell_refresh(self.gpu)

    def ask(self, due_ns: int) -> Callable[[], object]:
        """What has the driver give what is due at the tick at `due_ns`, for `keep`."""
        self._due_ns = due_ns
        self._asked = self._all if self._fields is None else self.gpu.power.asked(self._fields.at(due_ns))
        return self._asked.call

    def keep(self, begin_ns: int, end_ns: int, answer: object) -> bool:
        """Takes down what the last `ask` gave, or leaves it to be settled; False when the GPU is lost.

        What comes to nothing is a tick that was missed.
        """
        if self._failed:
            self._nothing_came()
            return False
        try:
            asked, limit = self._asked, self.gpu.power_limit_watts
            if self.gpu.uuid not in self._lost:
                if answer == 0 and self.later:
                    self._settling.add((self, asked, self._due_ns, begin_ns, end_ns, asked.taken(), limit))
                    return not self._failed
                self._settling.settle()
                with self._settling.lock:
                    self._keep(asked, self._due_ns, begin_ns, end_ns, answer, limit)
                self.later = self._learnt is None
                return not self._failed
        except Exception as error:
            self._nothing_came()
            return self._guarded(self.gpu, functools.partial(_raise, error))
        self._nothing_came()
        return self._guarded(self.gpu, lambda gpu: None)

    def _nothing_came(self) -> None:
        if self._due_ns < self.until_ns:
            self._skipped += 1

    def take(self, asked: Asked, due_ns: int, begin_ns: int, end_ns: int, answer: object, limit: float | None) -> None:
        """Takes down what `keep` left, as `settle` has it done."""
        turns = self.turns
        if not self._failed:
            self._try(lambda: self._keep(asked, due_ns, begin_ns, end_ns, answer, limit))
        if self.turns == turns and due_ns < self.until_ns:
            self._dropped += 1

    def take_state(self, answers: StateAnswers) -> None:
        """Takes down what `state` left."""
        if not self._failed:
            self._try(lambda: self._emit(self.gpu.uuid, self.gpu.state_of(answers)))

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self._failed = True
            self._guarded(self.gpu, functools.partial(_raise, error))

    def due(self, now_ns: int) -> bool:
        """Whether it is time for `state`."""
        return now_ns >= self._state_ns

    def state(self) -> bool:
        """Reads state; False when the GPU is lost."""
        if self._failed:
            return False
        try:
            if self.gpu.uuid not in self._lost:
                self._state(self.gpu)
                return not self._failed
        except Exception as error:
            return self._guarded(self.gpu, functools.partial(_raise, error))
        return self._guarded(self.gpu, lambda gpu: None)

    def retire(self) -> None:
        """Leaves the GPU to another reader, even if a call that is under way has still to come back."""
        self._settling.settle()
        self.until_ns = time.monotonic_ns()
        self._failed = True

    def missed(self, ticks: int) -> None:
        """Ticks that passed without a reading."""
        self._skipped += ticks

    def end(self) -> None:
        """Tells how many readings were made, how many of them late, and how many ticks were skipped."""
        self._settling.settle()
        self._failed = True  # a call that is still under way brings nothing more
        skipped = self._skipped + self._dropped
        labels: dict[str, Scalar] = {"gpu": self.gpu.uuid, "skipped": skipped, "late": self.late}
        self._metric("telemetry.ticks", float(self.turns), "ticks", labels)

    def _keep(self, asked: Asked, due_ns: int, begin_ns: int, end_ns: int, answer: object, limit: float | None) -> None:
        if isinstance(answer, Exception):
            raise answer
        gpu = self.gpu
        reading = gpu.power.reading(asked, begin_ns, end_ns, answer, limit)
        values, at = reading.values, reading.mono_ns
        joules = values.get(COUNTER)
        if joules is not None:
            before = self._joules.get(gpu.uuid)
            if before is not None and joules < before:
                labels: dict[str, Scalar] = {"gpu": gpu.uuid, "before_joules": before}
                self._metric("telemetry.energy_counter_fell", float(joules), "J", labels)
            self._joules[gpu.uuid] = float(joules)
        if self._learnt is not None:
            for name, polls in self._learnt.items():
                polls.append((at, values.get(name)))
        self._emit(gpu.uuid, reading)
        if at - due_ns > self.period_s * 5e8:
            self.late += 1
        self.turns += 1
        if self.turns == 1:
            self._begun(gpu)

    def _state(self, gpu: Gpu) -> None:
        answers = gpu.state_answers(clocks=self._states % CLOCKS_EVERY == 0)
        self._states += 1
        now = answers[1]
        self._state_ns = state_after(max(now, self._state_ns), gpu.index)
        refined = self._refined >= REFINEMENTS or now < self._refine_ns
        if refined and self._learnt is None and self._found is None:
            self._settling.add_state((self, answers))
            return
        reading = gpu.state_of(answers)
        self._emit(gpu.uuid, reading)
        if self._learnt is not None and now >= self._learn_until_ns:
            polls, self._learnt = self._learnt, None
            self._refreshes.take(learnt(polls, set(polls)), working=self._refreshes.working)
            self._settle(gpu)
        if not refined and self._works(reading):
            self._refined += 1
            self._refine_ns = now + round(REFINE_AFTER_S * 1e9)
            self._aside(gpu, self._refine)
        if self._found is not None:
            take, self._found = self._found, None
            take()
            self._settle(gpu)

    def _works(self, state: Timed) -> bool:
        if (state.values["util_ratio"] or 0.0) >= WORKING_RATIO:
            return True
        if self._idle_watts is None or state.values["util_ratio"] is not None:
            return False
        return (_watts(self.gpu.power.read()) or 0.0) > WORKING_POWER * self._idle_watts

    def _refine(self, gpu: Gpu) -> None:
        found = measure_longer(gpu.power.twin(), self._stop.wait)
        self._found = lambda: self._refreshes.take(found, working=True)

    def _settle(self, gpu: Gpu) -> None:
        self.period_s = self._refreshes.period_s
        self._read_each_at_its_own()
        self._tell_refresh(gpu)

    def _read_each_at_its_own(self) -> None:
        own = self._refreshes.own_periods_s(self.period_s)
        self._fields = Turns(own, time.monotonic_ns(), self._rng) if own else None

    def _tell_refresh(self, gpu: Gpu) -> None:
        self._describe(gpu, {**self._refreshes.facts(self.period_s), **_source_facts(gpu)})


def state_after(now_ns: int, index: int) -> int:
    """When the next state of a GPU is due (monotonic ns): once in each period of the clock.

    Half of the GPUs have it at the same time, the others half a period later: neither does a round take long, nor do
    many have states. In the period that moves on by the golden ratio from one to the next, which comes near all phases
    soon, as evenly as can be: a load that repeats in such a period is seen at all of its own.
    """
    period_ns = round(STATE_PERIOD_S * 1e9)
    shift_ns = index % 2 * period_ns // 2
    place = (now_ns - shift_ns) // period_ns
    due_ns = 0
    while due_ns <= now_ns:
        due_ns = place * period_ns + shift_ns + int(place * GOLDEN % 1 * period_ns)
        place += 1
    return due_ns


def _raise(error: Exception, _gpu: Gpu) -> None:
    raise error


def _watts(reading: Timed) -> float | None:
    known = [reading.values.get(name) for name in POWER_NAMES if name != COUNTER]
    return next((value for value in known if value is not None), None)


def _source_facts(gpu: Gpu) -> dict[str, Any]:
    sources = gpu.power.sources
    return {
        "power_instant_source": sources.get("power_instant_watts"),
        "power_average_source": sources.get("power_average_watts"),
        # nvml.h: the average is over one second
        "power_average_window_s": 1.0 if "power_average_watts" in sources else None,
        "energy_source": sources.get("energy_joules"),
        "power_scope": "gpu",
    }
