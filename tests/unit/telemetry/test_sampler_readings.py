"""What the rows of a real sampler process hold, against the stand-in library, through the real ctypes path."""

import subprocess
import sys
from itertools import pairwise

import pytest

from harness.protocol.events import Bye

NS = 1e9


def known(rows, column):
    return [row[column] for row in rows if row[column] is not None]


def test_eight_gpus_each_with_its_own_readings(sampler, uuid):
    running = sampler("* gpus 8\n2 power_instant_mw 123000\n2 power_ripple_mw 0\n6 util 98\n6 nvlink_kib 7\n")
    running.wait_until_sampling(*range(8))
    # slow readings come once a second
    running.wait_for(lambda: all(known(running.rows(gpu), "nvlink_rx_bytes") for gpu in range(8)))
    assert running.end() == 0
    rows = running.rows()
    assert {row["gpu"] for row in rows} == {None, *map(uuid, range(8))}
    assert set(known(running.rows(2), "power_instant_watts")) == {123.0}
    assert set(known(running.rows(6), "util_ratio")) == {0.98}
    assert set(known(running.rows(0), "util_ratio")) == {0.57}
    assert set(known(running.rows(6), "nvlink_tx_bytes")) == {7 * 1024}
    assert set(known(running.rows(6), "nvlink_rx_bytes")) == {14 * 1024}
    assert set(known(running.rows(1), "pcie_tx_bytes_per_s")) == {5_000_000.0}
    assert set(known(running.rows(1), "sm_clock_hz")) == {1_980_000_000}
    assert set(known(running.rows(1), "memory_clock_hz")) == {2_619_000_000}
    assert set(known(running.rows(1), "temperature_celsius")) == {41.0}
    assert set(known(running.rows(1), "memory_total_bytes")) == {80 * 2**30}
    assert set(known(running.rows(1), "throttle_reasons")) == {0}
    assert set(known(running.rows(1), "power_limit_watts")) == {700.0}
    energy = known(running.rows(1), "energy_joules")
    assert energy == sorted(energy)
    assert energy[0] >= 1000.0  # the counter stood at 1,000,000 mJ
    host = [row for row in rows if row["gpu"] is None]
    assert all(0 <= value <= 1 for value in known(host, "cpu_ratio"))
    assert all(value > 0 for value in known(host, "host_memory_used_bytes"))
    assert not known(host, "power_instant_watts")
    assert all(row["uncertainty_ns"] >= 0 for row in rows)


def test_gpus_are_described(sampler, uuid):
    running = sampler("* gpus 2\n1 limit_mw 500000\n1 mig 1\n")
    running.wait_for(lambda: len(running.gpus()) == 2 and all("sample_period_s" in g for g in running.gpus().values()))
    running.wait_for(lambda: all("name" in gpu for gpu in running.gpus().values()))
    assert running.end() == 0
    second = running.gpus()[1]
    expected = {
        "index": 1,
        "uuid": uuid(1),
        "name": "Stand-in H100",
        "minor_number": 1,
        "pci_bus_id": "00000000:02:00.0",
        "compute_capability": "9.0",
        "mig_mode": True,
        "memory_total_bytes": 80 * 2**30,
        "power_limit_watts": 500.0,
        "power_limit_min_watts": 200.0,
        "power_limit_max_watts": 700.0,
        "power_limit_default_watts": 700.0,
        "driver": "550.54.15-stand-in",
        "power_instant_source": "nvmlDeviceGetFieldValues",
        "power_average_source": "nvmlDeviceGetFieldValues",
        "energy_source": "nvmlDeviceGetFieldValues",
        "unsupported": {},
    }
    assert {key: second[key] for key in expected} == expected


def test_what_a_gpu_cannot_tell_is_null_with_a_reason_and_never_zero(sampler):
    running = sampler(
        "* gpus 4\n"
        "1 error.power_instant 3\n1 error.energy 3\n1 error.energy_call 3\n1 error.util 3\n1 error.temperature 4\n"
        "1 error.memory 3\n1 error.memory2 3\n1 error.clock 3\n1 error.throttle 3\n1 error.pcie_throughput 3\n"
        "1 error.nvlink 3\n"
        "2 power_instant_mw 4294967295\n2 power_ripple_mw 0\n2 celsius 4294967295\n2 throttle 9223372036854775794\n"
        "3 power_instant_mw 0\n3 power_ripple_mw 0\n3 error.util 10\n"
    )
    running.wait_until_sampling(0, 1, 2, 3)
    running.wait_for(lambda: known(running.rows(3), "pcie_rx_bytes_per_s"))
    assert running.end() == 0
    blind = ("power_instant_watts", "energy_joules", "util_ratio", "temperature_celsius", "memory_used_bytes")
    blind += ("memory_total_bytes", "sm_clock_hz", "memory_clock_hz", "throttle_reasons")
    blind += ("pcie_tx_bytes_per_s", "nvlink_tx_bytes")
    for column in blind:
        assert known(running.rows(0), column), column
        assert not known(running.rows(1), column), column
    assert known(running.rows(1), "power_average_watts")  # what it can tell, it tells
    for column in ("power_instant_watts", "temperature_celsius", "throttle_reasons"):
        assert not known(running.rows(2), column), column
    assert not known(running.rows(3), "power_instant_watts")
    assert not known(running.rows(3), "util_ratio")

    told = [(m.labels["field"], m.labels["reason"]) for m in running.metrics("telemetry.unsupported", 1)]
    assert len(told) == len(set(told))  # once each
    reasons = dict(told)
    assert reasons["power_instant_watts"] == "NOT_SUPPORTED"
    assert reasons["temperature_celsius"] == "NO_PERMISSION"
    assert reasons["energy_joules"] == "NOT_SUPPORTED"
    assert "nvlink_tx_bytes" in reasons
    blank = {m.labels["field"]: m.labels["reason"] for m in running.metrics("telemetry.unsupported", 2)}
    assert blank["throttle_reasons"] == blank["power_instant_watts"] == "blank value"
    third = {m.labels["field"]: m.labels["reason"] for m in running.metrics("telemetry.unsupported", 3)}
    assert third["util_ratio"] == "TIMEOUT"
    assert "0 W" in third["power_instant_watts"]
    assert not running.metrics("telemetry.unsupported", 0)
    assert running.gpus()[1]["unsupported"]["power_instant_watts"] == "NOT_SUPPORTED"
    assert "util_ratio" not in running.gpus()[3]["unsupported"]  # a timeout may pass: it is asked again


def test_slow_pcie_calls_do_not_hold_up_the_power_readings(sampler):
    running = sampler("* gpus 8\n* latency_us.pcie_throughput 150000\n")  # a round of PCIe takes 2.4 s
    running.wait_until_sampling(*range(8), rows=30)
    assert running.end() == 0
    for gpu in range(8):
        (power,) = running.metrics("telemetry.ticks", gpu)
        assert power.labels["skipped"] < power.value / 2  # in the same thread 9 of 10 would be
        pcie = [row for row in running.rows(gpu) if row["pcie_rx_bytes_per_s"] is not None]
        assert all(row["uncertainty_ns"] >= 0.15 * NS for row in pcie)  # two calls of 150 ms, half of their length
    assert known(running.rows(), "pcie_rx_bytes_per_s")


def test_pcie_is_read_once_a_second_at_most(sampler):
    running = sampler("* gpus 1\n", hz=50)
    running.wait_for(lambda: len(known(running.rows(0), "pcie_rx_bytes_per_s")) >= 3)
    assert running.end() == 0
    rows = running.rows(0)
    seconds = (rows[-1]["mono_ns"] - rows[0]["mono_ns"]) / NS
    assert len(known(rows, "pcie_rx_bytes_per_s")) <= seconds + 2


def test_the_refresh_of_the_counters_is_measured_and_not_oversampled(sampler):
    running = sampler(
        "* gpus 4\n"
        "0 power_refresh_us 50000\n0 energy_refresh_us 30000\n"
        "1 power_refresh_us 240000\n1 energy_refresh_us 240000\n"
        "2 power_ripple_mw 0\n2 energy_refresh_us 100000\n"
        "3 power_refresh_us 100\n3 energy_refresh_us 100\n"
    )
    running.wait_until_sampling(0, 1, 2, 3)
    assert running.end() == 0
    quick, slow, steady, live = (running.gpus()[index] for index in range(4))
    assert quick["power_instant_refresh_s"] == pytest.approx(0.05, rel=0.2)
    assert quick["energy_refresh_s"] == pytest.approx(0.03, rel=0.2)
    assert quick["sample_period_s"] == pytest.approx(0.1)  # as asked: the counters are quicker
    assert slow["energy_refresh_s"] == pytest.approx(0.24, rel=0.2)
    assert slow["sample_period_s"] == pytest.approx(0.24, rel=0.2)  # 10 Hz would read each value twice
    assert steady["power_instant_refresh_s"] is None
    assert "changed 0 times" in steady["power_instant_refresh_reason"]
    assert steady["energy_refresh_s"] == pytest.approx(0.1, rel=0.2)
    assert live["energy_refresh_s"] is None  # quicker than it can be polled
    assert "new at each poll" in live["energy_refresh_reason"]
    assert live["sample_period_s"] == pytest.approx(0.1)


def test_ticks_are_jittered_and_keep_their_rate(sampler):
    running = sampler("* gpus 1\n", hz=20)
    running.wait_until_sampling(0, rows=40)
    assert running.end() == 0
    at = [row["mono_ns"] for row in running.power(0)]
    period = running.gpus()[0]["sample_period_s"] * NS
    gaps = [b - a for a, b in pairwise(at)]
    assert max(gaps) - min(gaps) > period / 2  # regular ticks would be equally far apart
    places = [(t % period) / period for t in at]
    assert len({int(place * 4) for place in places}) == 4  # each quarter of the period is seen
    assert len(at) <= (at[-1] - at[0]) / period + 2  # never more often than asked


def test_an_energy_counter_that_falls_is_told_and_its_rows_are_kept_as_read(sampler):
    running = sampler("* gpus 2\n1 energy_start_mj 900000000\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 energy_start_mj 0\n")
    running.wait_for(lambda: running.metrics("telemetry.energy_counter_fell"))
    running.wait_until_sampling(1, rows=len(running.power(1)) + 3)
    assert running.end() == 0
    (fell,) = running.metrics("telemetry.energy_counter_fell", 1)
    assert fell.labels["before_joules"] > 900_000 > fell.value
    energy = known(running.rows(1), "energy_joules")
    assert max(energy) > 900_000 > min(energy)


@pytest.mark.parametrize(
    ("shape", "column"),
    [
        ("* arch 9\n* cc_major 9\n", "power_average_watts"),  # Hopper: one-second average
        ("* arch 7\n* cc_major 8\n* cc_minor 6\n", "power_average_watts"),  # GA102
        ("* arch 7\n* cc_major 8\n* cc_minor 0\n", "power_instant_watts"),  # GA100
        ("* arch 5\n* cc_major 7\n", "power_instant_watts"),  # Volta
    ],
)
def test_the_older_power_call_fills_the_column_it_belongs_to(sampler, old_stand_in, shape, column):
    running = sampler(f"* gpus 1\n{shape}", library=old_stand_in)
    running.wait_until_sampling(0, rows=2)
    assert running.end() == 0
    other = {"power_average_watts", "power_instant_watts"} - {column}
    assert known(running.rows(0), column)
    assert not known(running.rows(0), *other)
    assert known(running.rows(0), "energy_joules")
    gpu = running.gpus()[0]
    assert gpu[column.replace("watts", "source")] == "nvmlDeviceGetPowerUsage"
    assert gpu["energy_source"] == "nvmlDeviceGetTotalEnergyConsumption"
    assert (gpu["power_average_window_s"] == 1.0) == (column == "power_average_watts")


def test_contamination_is_told_at_the_start_and_when_it_changes(sampler):
    running = sampler("* gpus 2\n")
    checks = ("foreign_processes", "power_cap", "locked_clocks", "mig")
    running.wait_for(lambda: all(running.metrics(f"contamination.{check}", 1) for check in checks))
    for check in checks:
        assert [metric.value for metric in running.metrics(f"contamination.{check}", 1)] == [0.0]
    running.wait_for(lambda: running.metrics("contamination.host_load"))  # told beside the GPUs, at its own moment
    assert running.metrics("contamination.host_load")
    ours = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"BENCH_RUN_ID": "run-1"})
    foreign = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"BENCH_RUN_ID": "other"})
    try:
        pids = f"{ours.pid},{foreign.pid},4194304"
        running.configure(f"* gpus 2\n1 pids {pids}\n1 limit_mw 500000\n1 app_mhz 1200\n1 mig 1\n")
        # the limit is read every 10 s, the checks are made every 5 s
        running.wait_for(lambda: all(len(running.metrics(f"contamination.{check}", 1)) > 1 for check in checks))
    finally:
        for process in (ours, foreign):
            process.communicate(b"\n")
    assert running.end() == 0
    processes = running.metrics("contamination.foreign_processes", 1)[1]
    assert processes.value == 1.0
    assert processes.labels["pids"] == str(foreign.pid)
    assert processes.labels["unknown_pids"] == "4194304"  # no such process here: another container's
    cap = running.metrics("contamination.power_cap", 1)[1]
    assert (cap.value, cap.labels["limit_watts"], cap.labels["default_watts"]) == (1.0, 500.0, 700.0)
    assert running.metrics("contamination.locked_clocks", 1)[1].labels["asked_hz"] == 1_200_000_000
    assert running.metrics("contamination.mig", 1)[1].value == 1.0
    for check in checks:
        assert [metric.value for metric in running.metrics(f"contamination.{check}", 0)] == [0.0]


def test_a_reading_that_no_column_holds_costs_its_own_row_only(sampler):
    running = sampler(f"* gpus 2\n1 nvlink_kib {2**53}\n")  # 2^63 bytes
    running.wait_for(running.failures)
    running.wait_until_sampling(0, 1, rows=len(running.power(1)) + 5)
    running.wait_for(lambda: known(running.rows(0), "nvlink_tx_bytes"))
    assert running.end() == 1
    (rows,) = running.metrics("telemetry.rows")
    assert rows.labels["lost"] >= 1
    assert len(running.rows()) == rows.value
    told = {failure.message for failure in running.failures()}
    assert all("nvlink_tx_bytes" in message for message in told)
    assert isinstance(running.events()[-1], Bye)
