"""What a report claims of a run on several hosts, and what it does not."""

from types import SimpleNamespace

import numpy as np
import pytest

from reports.hosts import hosts_section
from reports.markdown import Footnotes
from results.class_energy import _resolution_s
from results.gpu_energy import edge_doubt
from results.gpu_sensors import HOST_DOUBT_S, descriptions, sensors_of
from results.gpu_series import BUSY_CLOCK, GpuReadings
from results.power import Series
from results.rows import Rows

MS = 1_000_000


def case_of(*rows):
    hosts = Rows("hosts")
    for row in rows:
        hosts.add(*row)
    run = SimpleNamespace(tables={"hosts": hosts.table()}, meta={}, run_dir=None)
    return SimpleNamespace(run=run, caption=lambda n, notes: n)


HERE = ("here", True, 0, 0, None, None, None, 0, None, 10, 0, 9, False, None)
FAR = ("far", False, 3_600 * 10**9, 2 * MS, MS, 1.5, 0.2, 7, True, 20, 0, 9, False, None)
JUMPED = ("jumped", False, 5, 3 * MS, MS, None, None, 2, False, 20, 0, 9, True, "dead")
ALONE = ("alone", False, None, None, None, None, None, 0, None, 20, 0, 9, False, "not compared")


def test_one_host_needs_no_section():
    assert hosts_section(case_of(HERE), Footnotes()) == []


def test_offsets_and_what_is_not_told_apart():
    text = "\n".join(hosts_section(case_of(HERE, FAR), Footnotes()))
    assert "3600.000000 s" in text
    assert "2 ms" in text
    assert "1.5 ± 0.2 ppm" in text
    assert "known against each other to ± 2 ms" in text


def test_two_far_hosts_are_known_by_the_sum_of_both():
    notes = Footnotes()
    text = "\n".join(hosts_section(case_of(HERE, FAR, JUMPED), notes))
    assert "known against each other to ± 5 ms" in text
    assert "lost" in text
    assert any("contradict" in reason for reason in notes.reasons)
    assert "dead" in notes.reasons


def test_a_host_that_was_not_compared_is_named():
    text = "\n".join(hosts_section(case_of(HERE, ALONE), Footnotes()))
    assert "Not on this axis: alone" in text
    assert "unknown" in text


@pytest.mark.parametrize(("host", "doubt_s"), [("far", 0.002), ("here", 0.0)])
def test_a_class_edge_is_as_uncertain_as_the_hosts_clock(host, doubt_s, tmp_path):
    run = case_of(HERE, FAR).run
    run.meta = {"gpus": [{"uuid": "GPU-1", "host": host, "power_instant_refresh_s": 0.001}]}
    run.run_dir = tmp_path
    told = descriptions(run)["GPU-1"]
    assert told.get(HOST_DOUBT_S, 0.0) == doubt_s
    times = np.arange(0, 100) * MS
    watts = Series(times, np.where(times < 50 * MS, 100.0, 500.0))
    none = Series(times[:0], np.empty(0))
    names = ("energy_joules", "power_average_watts", "power_limit_watts", BUSY_CLOCK)
    readings = GpuReadings(first_ns=0, series={**dict.fromkeys(names, none), "power_instant_watts": watts})
    sensors = sensors_of(readings, told)
    assert sensors.host_doubt_s == doubt_s
    gpu = SimpleNamespace(source="counter")
    assert _resolution_s(gpu, sensors) == pytest.approx(max(0.001, 2 * doubt_s))
    edges = np.array([0, 49_500_000, 99 * MS])
    doubt = edge_doubt(watts, 0.001 + doubt_s, edges)
    assert doubt[0] == pytest.approx(400.0 * (0.001 + 0.0005 + doubt_s))  # a refresh, half a gap of readings
