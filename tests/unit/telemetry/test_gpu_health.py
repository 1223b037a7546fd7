"""Xid and memory errors, MIG, memory by process, and GPUs that appear or come back: the real sampler process."""

import pytest


def known(rows, column):
    return [row[column] for row in rows if row[column] is not None]


def test_an_xid_error_is_told_with_its_gpu_and_number(sampler, uuid):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 xid 79\n")
    running.wait_for(lambda: running.metrics("telemetry.xid"))
    assert running.end() == 0
    (told,) = running.metrics("telemetry.xid")
    assert (told.value, told.labels["gpu"]) == (79.0, uuid(1))
    assert not [m for m in running.metrics("telemetry.unsupported") if m.labels["field"] == "xid"]


@pytest.mark.parametrize("settings", ["* xid_supported 0\n", "* error.event_set 3\n", "* error.register_events 4\n"])
def test_without_error_events_it_says_why(sampler, settings):
    running = sampler(f"* gpus 1\n{settings}")
    running.wait_until_sampling(0)
    running.wait_for(lambda: [m for m in running.metrics("telemetry.unsupported", 0) if m.labels["field"] == "xid"])
    assert running.end() == 0
    (told,) = [m for m in running.metrics("telemetry.unsupported", 0) if m.labels["field"] == "xid"]
    assert told.labels["reason"] in ("NOT_SUPPORTED", "NO_PERMISSION")
    assert not running.failures()


def test_errors_of_the_others_are_told_after_one_is_lost(sampler, uuid):
    """The driver ends each wait at once, as long as a lost GPU is among those that are listened to."""
    running = sampler("* gpus 3\n")
    running.wait_until_sampling(0, 1, 2)
    running.configure("* gpus 3\n1 lost_after 0\n")
    running.wait_for(running.failures)
    running.wait_until_sampling(0, rows=len(running.power(0)) + 20)  # they are listened to anew by then
    running.configure("* gpus 3\n1 lost_after 0\n2 xid 31\n")
    running.wait_for(lambda: running.metrics("telemetry.xid"))
    assert running.end() == 0
    (told,) = running.metrics("telemetry.xid")
    assert (told.value, told.labels["gpu"]) == (31.0, uuid(2))
    # Where the wait was the first to see it; else its loss alone is on record.
    assert [(told.labels["gpu"], told.labels["reason"]) for told in unheard(running)] in (
        [],
        [(uuid(1), "GPU_IS_LOST")],
    )


def test_an_error_of_a_gpu_that_came_back_is_told_once(sampler, uuid):
    """It was lost to another call, and the wait for errors went on."""
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 error.limit 15\n")
    running.wait_for(running.failures)
    running.configure("* gpus 2\n")
    running.wait_for(lambda: running.metrics("telemetry.gpu_returned"))
    before = len(running.power(1))
    running.wait_until_sampling(1, rows=before + 5)
    running.configure("* gpus 2\n1 xid 31\n0 xid 13\n")
    running.wait_for(lambda: len(running.metrics("telemetry.xid")) >= 2)
    running.wait_until_sampling(0, rows=len(running.power(0)) + 15)  # another would have been told by then
    assert running.end() == 0
    told = sorted((one.labels["gpu"], one.value) for one in running.metrics("telemetry.xid"))
    assert told == [(uuid(0), 13.0), (uuid(1), 31.0)]


def test_that_no_one_says_which_is_lost_is_told_once(sampler):
    running = sampler("* gpus 2\n* error.event_wait 15\n")
    running.wait_until_sampling(0, 1, rows=25)
    running.configure("* gpus 2\n")
    running.wait_until_sampling(0, rows=len(running.power(0)) + 20)
    running.configure("* gpus 2\n1 xid 31\n")
    running.wait_for(lambda: running.metrics("telemetry.xid"))
    assert running.end() == 0
    (told,) = unheard(running)
    assert told.labels["reason"] == "GPU_IS_LOST"
    assert "gpu" not in told.labels


@pytest.mark.parametrize(("code", "reason"), [(3, "NOT_SUPPORTED"), (13, "FUNCTION_NOT_FOUND"), (999, "UNKNOWN")])
def test_that_waiting_for_errors_fails_is_told_of_each_gpu(sampler, uuid, code, reason):
    running = sampler(f"* gpus 2\n* error.event_wait {code}\n")
    running.wait_until_sampling(0, 1)
    running.wait_for(lambda: len(unheard(running)) == 2)
    assert running.end() == 0
    assert sorted((told.labels["gpu"], told.labels["reason"]) for told in unheard(running)) == [
        (uuid(0), reason),
        (uuid(1), reason),
    ]


def unheard(running):
    return [told for told in running.metrics("telemetry.unsupported") if told.labels["field"] == "xid"]


def test_memory_errors_are_sampled_and_null_where_there_is_no_ecc(sampler):
    running = sampler("* gpus 2\n0 ecc_corrected 3\n0 ecc_uncorrected 1\n1 error.ecc 3\n")
    running.wait_for(lambda: known(running.rows(0), "ecc_corrected_errors"))
    assert running.end() == 0
    assert set(known(running.rows(0), "ecc_corrected_errors")) == {3}
    assert set(known(running.rows(0), "ecc_uncorrected_errors")) == {1}
    assert not known(running.rows(1), "ecc_corrected_errors")
    reasons = {m.labels["field"]: m.labels["reason"] for m in running.metrics("telemetry.unsupported", 1)}
    assert reasons["ecc_uncorrected_errors"] == "NOT_SUPPORTED"


def test_memory_is_told_by_process_and_when_it_ends(sampler):
    settings = "* gpus 1\n0 pids 4194301,4194302\n0 memory_of_pids {}\n"
    running = sampler(settings.format(2**30))
    running.wait_for(lambda: len(running.metrics("telemetry.process_memory", 0)) == 2)
    running.configure(f"* gpus 1\n0 pids 4194302\n0 memory_of_pids {2**30 + 2**20}\n")  # 1 MiB more is no news
    running.wait_for(lambda: len(running.metrics("telemetry.process_memory", 0)) == 3)
    running.configure(f"* gpus 1\n0 pids 4194302\n0 memory_of_pids {2**31}\n")
    running.wait_for(lambda: len(running.metrics("telemetry.process_memory", 0)) == 4)
    assert running.end() == 0
    told = [(m.labels["pid"], m.value) for m in running.metrics("telemetry.process_memory", 0)]
    assert told == [(4194301, 2.0**30), (4194302, 2.0**30), (4194301, 0.0), (4194302, 2.0**31)]


def test_memory_that_the_driver_does_not_say_is_none(sampler):
    running = sampler(f"* gpus 1\n0 pids 4194301\n0 memory_of_pids {2**64 - 1}\n")
    running.wait_for(lambda: running.metrics("telemetry.process_memory", 0))
    assert running.end() == 0
    (told,) = running.metrics("telemetry.process_memory", 0)
    assert told.value is None


def test_mig_instances_are_described(sampler, uuid):
    running = sampler("* gpus 2\n1 mig 1\n1 mig_instances 2\n1 error.util 3\n")
    running.wait_for(lambda: len([gpu for gpu in running.gpus().values() if "mig_instances" in gpu]) == 2)
    assert running.end() == 0
    gpus = running.gpus()
    assert gpus[0]["mig_instances"] == []
    assert [(one["gpu_instance"], one["compute_instance"]) for one in gpus[1]["mig_instances"]] == [(7, 0), (8, 0)]
    assert all(str(one["uuid"]).startswith("MIG-") for one in gpus[1]["mig_instances"])
    assert not known(running.rows(1), "util_ratio")  # not defined for a GPU in instances


def test_a_gpu_that_appears_is_sampled_from_then_on(sampler, uuid):
    running = sampler("* gpus 1\n")
    running.wait_until_sampling(0)
    assert 1 not in running.gpus()
    running.configure("* gpus 2\n")
    running.wait_until_sampling(1)
    running.wait_for(lambda: "name" in running.gpus().get(1, {}))
    assert running.end() == 0
    (told,) = running.metrics("telemetry.gpu_appeared")
    assert told.labels["gpu"] == uuid(1)
    assert not running.failures()


def test_a_gpu_that_was_lost_and_reset_is_sampled_again(sampler, uuid):
    running = sampler("* gpus 2\n1 energy_start_mj 900000000\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 lost_after 0\n")
    running.wait_for(running.failures)
    before = len(running.power(1))
    running.configure("* gpus 2\n1 energy_start_mj 0\n")
    running.wait_until_sampling(1, rows=before + 10)
    assert running.end() == 0
    (told,) = running.metrics("telemetry.gpu_returned")
    assert told.labels["gpu"] == uuid(1)
    assert [failure.type for failure in running.failures()] == ["GpuLostError"]
    assert running.metrics("telemetry.energy_counter_fell", 1)  # a reset GPU counts from 0
    energy = known(running.rows(1), "energy_joules")
    assert max(energy) > 900_000 > min(energy)


def test_a_gpu_whose_sensor_says_it_is_lost_ends_its_rows_and_no_others(sampler, uuid):
    """The call succeeds; it is the field in it that has the code."""
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1)
    running.configure("* gpus 2\n1 error.energy 15\n")
    running.wait_for(running.failures)
    running.wait_until_sampling(0, rows=len(running.power(0)) + 10)
    assert running.end() == 0
    failures = running.failures()
    assert {failure.type for failure in failures} == {"GpuLostError"}
    assert uuid(1) in failures[0].message
    assert len(running.power(1)) < len(running.power(0))


def test_a_sensor_that_fails_for_a_while_is_null_then_and_the_others_are_read(sampler):
    running = sampler("* gpus 1\n* power_average_mw 310000\n")
    running.wait_until_sampling(0)
    running.configure("* gpus 1\n* error.power_average 999\n")
    running.wait_for(lambda: any(row["power_average_watts"] is None for row in running.power(0)))
    running.configure("* gpus 1\n")
    running.wait_for(lambda: running.power(0)[-1]["power_average_watts"] is not None)
    assert running.end() == 0
    rows = running.power(0)
    assert all(row["power_instant_watts"] and row["energy_joules"] for row in rows)
    (told,) = [one for one in running.metrics("telemetry.unsupported") if one.labels["field"] == "power_average_watts"]
    assert told.labels["reason"] == "UNKNOWN"


def test_the_samplers_own_cost_is_told(sampler):
    running = sampler("* gpus 2\n")
    running.wait_until_sampling(0, 1, rows=20)
    running.wait_for(lambda: running.metrics("telemetry.cpu"))  # before its end: it may be killed
    assert running.end() == 0
    told = running.metrics("telemetry.cpu")[-1]
    assert 0 < told.value <= 4 * float(told.labels["wall_s"])
    for gpu in (0, 1):
        (ticks,) = running.metrics("telemetry.ticks", gpu)
        assert ticks.value >= 20
        assert ticks.labels["skipped"] >= 0
