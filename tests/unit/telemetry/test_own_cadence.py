"""Each sensor at its own cadence; a refresh that an idle GPU could not show is measured again while the GPU works."""

import random
import time
from itertools import pairwise

import pytest

from harness.telemetry.cadence import Refresh, refresh_of
from harness.telemetry.refresh import POWER_NAMES, Refreshes, Turns

NS = 1_000_000_000
MS = 1_000_000
INSTANT, AVERAGE, ENERGY = POWER_NAMES


def seen(period_s, changes=10):
    return Refresh(period_s=period_s, resolution_s=0.002, changes=changes, at_most_s=period_s)


FEW = Refresh(period_s=None, resolution_s=0.002, changes=1, reason="changed 1 times in 1.20 s")
TOO_QUICK = Refresh(period_s=None, resolution_s=0.002, changes=500, reason="new at each poll", at_most_s=0.002)
TWO_LEVELS = Refresh(period_s=None, resolution_s=0.002, changes=9, reason="kept to 2 values")


def known(rows, column):
    return [row for row in rows if row[column] is not None]


def test_a_slow_sensor_is_read_once_in_each_of_its_periods_and_at_all_places_of_it():
    turns = Turns({ENERGY: 1.0}, 0, random.Random(1))
    at = [tick for tick in range(0, 200 * NS, 100 * MS) if ENERGY in turns.at(tick)]
    assert [tick // NS for tick in at] == pytest.approx(range(len(at)), abs=1)
    assert 198 <= len(at) <= 200
    assert {tick // (100 * MS) % 10 for tick in at} == set(range(10))
    assert turns.at(300 * NS) == POWER_NAMES
    assert turns.at(300 * NS + 1) == (INSTANT, AVERAGE)


def test_the_quickest_gives_the_ticks_and_the_others_their_own_periods():
    refreshes = Refreshes(10)
    refreshes.take({INSTANT: seen(0.1), AVERAGE: seen(0.104), ENERGY: seen(0.5)}, working=True)
    assert refreshes.period_s == pytest.approx(0.1)
    assert refreshes.own_periods_s(refreshes.period_s) == {ENERGY: 0.5}
    facts = refreshes.facts(0.1)
    assert (facts["energy_sample_period_s"], facts["power_instant_sample_period_s"]) == (0.5, 0.1)
    slow = Refreshes(10)
    slow.take({INSTANT: seen(3.0), AVERAGE: seen(4.0), ENERGY: seen(0.5)}, working=True)
    assert slow.period_s == 0.5
    assert slow.own_periods_s(0.5) == {INSTANT: 1.0, AVERAGE: 1.0}  # each at least once a second


@pytest.mark.parametrize(
    ("before", "now", "better"),
    [
        (seen(1.3), seen(0.1), True),
        (seen(0.1), seen(1.3), False),
        (seen(0.1), FEW, False),
        (FEW, seen(1.3), True),
        (seen(0.1), TWO_LEVELS, False),
        (FEW, TWO_LEVELS, True),
        (TOO_QUICK, seen(0.1), False),
        (seen(0.1), TOO_QUICK, True),
    ],
)
def test_what_is_known_only_gets_better(before, now, better):
    refreshes = Refreshes(10)
    refreshes.take({INSTANT: before}, working=False)
    refreshes.take({INSTANT: now}, working=True)
    facts = refreshes.facts(0.1)
    told = now if better else before
    assert facts["power_instant_refresh_s"] == told.period_s
    assert facts["power_instant_refresh_reason"] == told.reason
    assert facts["refresh_measured_while"] == "working"


@pytest.mark.parametrize("refresh_ms", [20, 100])
def test_no_period_is_told_that_is_shorter_than_the_readings_show(refresh_ms):
    polls = [(at, float(at // (refresh_ms * MS))) for at in range(0, 1200 * MS, 7 * MS)]
    refreshes = Refreshes(10)
    refreshes.take({INSTANT: refresh_of(polls)}, working=True)
    told = refreshes.facts(0.1)
    changes = len({value for _, value in polls}) - 1
    assert told["power_instant_refresh_s"] >= 0.97 * (polls[-1][0] - polls[0][0]) / NS / (changes + 1)


def test_a_counter_slower_than_power_is_read_at_its_own_pace(sampler):
    running = sampler("* gpus 1\n* power_refresh_us 100000\n* energy_refresh_us 250000\n")
    running.wait_until_sampling(0, rows=60)
    assert running.end() == 0
    rows = running.power(0)
    power, energy = known(rows, "power_instant_watts"), known(rows, "energy_joules")
    told = running.gpus()[0]
    assert told["energy_sample_period_s"] == pytest.approx(0.25, rel=0.2)
    assert told["sample_period_s"] == pytest.approx(0.1, rel=0.1)
    seconds = (rows[-1]["mono_ns"] - rows[0]["mono_ns"]) / NS
    assert len(energy) <= seconds / told["energy_sample_period_s"] + 2  # with each power reading: 2.5 times as many
    assert len(energy) >= 0.5 * seconds / told["energy_sample_period_s"]  # this machine may be busy
    assert len(power) > 1.5 * len(energy)
    gaps = [b["mono_ns"] - a["mono_ns"] for a, b in pairwise(energy)]
    assert max(gaps) - min(gaps) > 0.2 * told["energy_sample_period_s"] * NS  # jittered, as all readings


def test_a_refresh_that_idleness_hid_is_found_once_the_gpu_works(sampler, tmp_path):
    """GPU 0 has no counter and idle power that drifts once a second; GPU 1 has one, and power that drifts quicker."""
    idle_s, rng = 11.0, random.Random(7)
    working = "".join(f"50 {rng.randrange(300_000, 700_000)}\n" for _ in range(1000))
    for gpu, drift_ms in enumerate((1000, 290)):
        idle = "".join(f"{drift_ms} {60_000 + n}\n" for n in range(round(idle_s * 1000 / drift_ms)))
        (tmp_path / f"{gpu}.history").write_text(idle + working)
    origin_ns = time.monotonic_ns()
    settings = f"* gpus 2\n* origin_us {origin_ns // 1000}\n0 error.energy 3\n0 error.energy_call 3\n"
    settings += "".join(f"{gpu} history {tmp_path / f'{gpu}.history'}\n" for gpu in (0, 1))
    running = sampler(settings + "* util 0\n")
    running.wait_until_sampling(0, 1)
    time.sleep(max(0.0, idle_s + 0.5 - (time.monotonic_ns() - origin_ns) / 1e9))
    before = running.gpus()
    assert all(gpu["refresh_measured_while"] == "idle" for gpu in before.values())
    assert before[0]["sample_period_s"] == pytest.approx(0.1, rel=0.05)  # its lane's, and not the drift's second
    running.configure(settings + "* util 95\n")
    running.wait_for(lambda: all(gpu["refresh_measured_while"] == "working" for gpu in running.gpus().values()))
    after = running.gpus()
    assert running.end() == 0
    for gpu in (0, 1):
        assert after[gpu]["power_instant_refresh_s"] == pytest.approx(0.1, rel=0.2), gpu
        assert after[gpu]["sample_period_s"] == pytest.approx(0.1, rel=0.2), gpu
