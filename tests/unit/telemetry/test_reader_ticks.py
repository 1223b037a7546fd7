"""A reader counts each of its ticks once: as a reading, or as missed."""

import random
import threading
from types import SimpleNamespace

import pytest

from harness.telemetry.reader import Reader
from harness.telemetry.settling import Settling
from harness.telemetry.values import Timed

SECOND_NS = 1_000_000_000


class Asked:
    """Power is read at once where it is `usual`, else one by one: what it gives is odd."""

    names = ("power_instant_watts",)

    def __init__(self):
        self.usual = True

    def call(self):
        return 0

    def taken(self):
        return b"300"

    def columns(self, left):
        return {"power_instant_watts": [300.0] * len(left)} if self.usual else None


class Power:
    def __init__(self):
        self.all = Asked()
        self.raises = None

    def reading(self, asked, begin_ns, end_ns, answer, limit):
        if self.raises is not None:
            raise self.raises
        return Timed(begin_ns, end_ns, {"power_instant_watts": 300.0, "power_limit_watts": limit})


class Made:
    """A reader that is past its start, and what it told."""

    def __init__(self):
        self.rows, self.told, self.failed, self.lost = [], [], [], set()
        self.power = Power()
        gpu = SimpleNamespace(uuid="GPU-0", index=0, power=self.power, power_limit_watts=700.0)
        self.settling = Settling(lambda uuids, *others: self.rows.extend(uuids), {})
        self.reader = Reader(
            gpu,
            hz=10,
            stop=threading.Event(),
            rng=random.Random(1),
            emit=lambda uuid, reading: self.rows.append(uuid),
            settling=self.settling,
            metric=lambda name, value, unit, labels: self.told.append((name, value, labels)),
            describe=lambda gpu, facts: None,
            guarded=self.guarded,
            lost=self.lost,
            aside=lambda gpu, work: None,
            begun=lambda gpu: None,
            joules={},
        )
        self.reader._all = self.power.all
        self.now_ns = 0

    def guarded(self, gpu, work):
        try:
            work(gpu)
        except Exception as error:
            self.failed.append(error)
            return False
        return gpu.uuid not in self.lost

    def tick(self, answer=0):
        self.now_ns += SECOND_NS // 10
        self.reader.ask(self.now_ns)
        return self.reader.keep(self.now_ns, self.now_ns + 2, answer)

    def ticks(self):
        self.reader.end()
        ((name, value, labels),) = self.told
        assert name == "telemetry.ticks"
        assert value == len(self.rows)
        return value, labels["skipped"]


def test_readings_that_are_left_to_be_settled_are_ticks_too():
    made = Made()
    assert all(made.tick() for _ in range(5))
    made.reader.missed(2)
    assert made.ticks() == (5, 2)


def test_the_tick_at_which_a_gpu_is_found_lost_is_missed():
    made = Made()
    assert made.tick()
    made.lost.add("GPU-0")
    assert not made.tick()
    assert made.ticks() == (1, 1)


def test_the_tick_whose_call_raised_is_missed():
    made = Made()
    assert made.tick()
    assert not made.tick(ValueError("no one foresaw it"))
    assert made.ticks() == (1, 1)
    assert [type(error) for error in made.failed] == [ValueError]


@pytest.mark.parametrize("left", [1, 3])
def test_readings_that_cannot_be_taken_down_when_they_are_settled_are_missed(left):
    """The first that fails ends this GPU's readings; those that wait behind it come to nothing too."""
    made = Made()
    assert made.tick()
    assert all(made.tick() for _ in range(left))
    made.power.all.usual = False
    made.power.raises = ValueError("no one foresaw it")
    made.settling.settle()
    assert not made.tick()
    assert made.ticks() == (1, left + 1)
    assert len(made.failed) == 1


def test_a_reading_that_comes_after_another_reader_has_the_gpu_is_no_tick_of_either(monkeypatch):
    made = Made()
    assert made.tick()
    monkeypatch.setattr("harness.telemetry.reader.time", SimpleNamespace(monotonic_ns=lambda: made.now_ns + 1))
    made.reader.retire()
    assert not made.tick()
    assert made.ticks() == (1, 0)


def test_a_call_that_was_under_way_as_another_reader_took_the_gpu_is_a_missed_tick(monkeypatch):
    made = Made()
    assert made.tick()
    made.now_ns += SECOND_NS // 10
    made.reader.ask(made.now_ns)
    monkeypatch.setattr("harness.telemetry.reader.time", SimpleNamespace(monotonic_ns=lambda: made.now_ns + 1))
    made.reader.retire()
    assert not made.reader.keep(made.now_ns, made.now_ns + 2, 0)
    assert made.ticks() == (1, 1)


def test_what_a_call_gives_after_the_end_is_no_row():
    made = Made()
    assert made.tick()
    assert made.ticks() == (1, 0)
    assert not made.tick()
    made.settling.settle()
    assert made.rows == ["GPU-0"]
