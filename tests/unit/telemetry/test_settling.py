"""Readings taken down many at once are those that are taken down one by one."""

import random
import struct
import threading
from types import SimpleNamespace

import pynvml
import pytest

from harness.telemetry import kept_calls
from harness.telemetry.gpu_power import POWER_NAMES, PowerSensors
from harness.telemetry.settling import Settling

UINT, ULL = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
MS = 1_000_000


def left(watts=300.0, average=310.0, joules=1000.0, code=0, kind=UINT):
    """What a call leaves in the driver's memory: three cells of nvmlFieldValue_t."""
    cells = [(kind, code, round(watts * 1000)), (UINT, 0, round(average * 1000)), (ULL, 0, round(joules * 1000))]
    return b"".join(bytes(24) + struct.pack("=IIQ", *cell) for cell in cells)


class Source:
    """As a Reader: whatever is odd is taken down by itself."""

    def __init__(self, index):
        self.gpu = SimpleNamespace(
            uuid=f"GPU-{index}", handle=None, nothing=lambda *a: None, tell=lambda *a: None, lost_if=lambda code: None
        )
        self.period_s = 0.1
        self.turns = self.late = 0
        self.alone = []
        power = PowerSensors(self.gpu)
        self.asked, self.other = power.asked(), power.asked(POWER_NAMES[:2])

    def take(self, asked, due_ns, begin_ns, end_ns, answer, limit):
        self.alone.append((due_ns, answer))

    def take_state(self, answers):
        self.alone.append(answers)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(kept_calls, "function", lambda name: lambda *arguments: 0)
    rows = []

    def emit_all(uuids, moments, doubts, columns):
        assert {len(uuids)} == {len(one) for one in (moments, doubts, *columns.values())}
        names = tuple(columns)
        for place, uuid in enumerate(uuids):
            rows.append((uuid, moments[place], doubts[place], {name: columns[name][place] for name in names}))

    joules = {}
    return Settling(emit_all, joules), rows, joules


def test_readings_of_all_gpus_are_emitted_with_their_moment_limit_and_delay(made):
    settling, rows, joules = made
    one, other = Source(0), Source(1)
    settling.add((one, one.asked, 100 * MS, 101 * MS, 103 * MS, left(joules=1.0), 700.0))
    settling.add((other, other.asked, 100 * MS, 149 * MS, 153 * MS, left(watts=5.0, joules=2.0), None))
    settling.add((one, one.asked, 200 * MS, 201 * MS, 204 * MS, left(joules=3.5), 650.0))
    settling.settle()
    usual = {"power_instant_watts": 300.0, "power_average_watts": 310.0}
    assert rows == [
        ("GPU-0", 102 * MS, MS, {**usual, "energy_joules": 1.0, "power_limit_watts": 700.0}),
        (
            "GPU-1",
            151 * MS,
            2 * MS,
            {**usual, "power_instant_watts": 5.0, "energy_joules": 2.0, "power_limit_watts": None},
        ),
        ("GPU-0", 202 * MS + MS // 2, 3 * MS // 2, {**usual, "energy_joules": 3.5, "power_limit_watts": 650.0}),
    ]
    assert [(source.turns, source.late) for source in (one, other)] == [(2, 0), (1, 1)]
    assert joules == {"GPU-0": 3.5, "GPU-1": 2.0}
    settling.settle()
    assert len(rows) == 3


def test_sensors_that_are_read_at_other_ticks_are_rows_of_their_own(made):
    settling, rows, joules = made
    one = Source(0)
    settling.add((one, one.asked, 0, 0, 2, left(joules=7.0), None))
    settling.add((one, one.other, 10, 10, 12, left()[: 2 * 40], None))
    settling.settle()
    assert [sorted(values) for *_, values in rows] == [
        sorted([*POWER_NAMES, "power_limit_watts"]),
        sorted([*POWER_NAMES[:2], "power_limit_watts"]),
    ]
    assert joules == {"GPU-0": 7.0}


@pytest.mark.parametrize("odd", [left(watts=0.0), left(code=3), left(kind=0), left(joules=0.5), b"cut"])
def test_what_is_odd_is_taken_down_one_by_one_and_the_other_gpus_at_once(made, odd):
    settling, rows, joules = made
    joules |= {"GPU-1": 1.0}  # half a joule is less: the counter fell
    usual, bad = Source(0), Source(1)
    for source, data in ((usual, left()), (bad, odd), (usual, left())):
        settling.add((source, source.asked, 0, 0, 2, data, None))
    settling.settle()
    assert [uuid for uuid, *_ in rows] == ["GPU-0", "GPU-0"]
    assert bad.alone == [(0, odd)]
    assert (usual.turns, bad.turns, usual.alone) == (2, 0, [])
    assert joules["GPU-1"] == 1.0


def test_states_are_handed_to_whose_they_are(made):
    settling, rows, _ = made
    one = Source(0)
    settling.add_state((one, (1, 2, 50, None)))
    settling.settle()
    assert one.alone == [(1, 2, 50, None)]
    assert not rows


def test_what_is_added_meanwhile_is_taken_down_once_and_in_its_order(made):
    settling, rows, _ = made
    sources = [Source(index) for index in range(3)]
    rng = random.Random(1)

    def read(source):
        for tick in range(500):
            settling.add((source, source.asked, tick, tick, tick, left(joules=tick + rng.random()), None))

    threads = [threading.Thread(target=read, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        settling.settle()
    settling.settle()
    for source in sources:
        assert [at for uuid, at, *_ in rows if uuid == source.gpu.uuid] == list(range(500))
        assert source.turns == 500


def test_a_counter_that_is_read_with_other_sensors_each_time_did_not_fall(made):
    settling, rows, joules = made
    source = Source(0)
    names = POWER_NAMES[1:]  # the counter among both
    fewer = PowerSensors(source.gpu).asked(names)
    for tick in range(1, 7):
        asked, cells = (source.asked, left(joules=tick)) if tick % 2 else (fewer, left(joules=tick)[40:])
        settling.add((source, asked, tick * MS, tick * MS, tick * MS, cells, None))
    settling.settle()
    assert not source.alone
    assert source.turns == 6
    assert joules == {"GPU-0": 6.0}
    assert sorted((at // MS, values["energy_joules"]) for _, at, _, values in rows) == [(n, n) for n in range(1, 7)]
    for tick, counter in ((7, 8.0), (8, 7.0), (9, 9.0)):  # and here it did
        asked, cells = (source.asked, left(joules=counter)) if tick % 2 else (fewer, left(joules=counter)[40:])
        settling.add((source, asked, tick * MS, tick * MS, tick * MS, cells, None))
    settling.settle()
    assert [due // MS for due, _ in source.alone] == [7, 8, 9]
