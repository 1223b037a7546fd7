"""Utilisation by pool, errors, DCGM's notes and the sampler's cost, of histories whose answers are known."""

import json

import numpy as np
import pytest
from recorded_histories import History, ns

from reports.markdown import Footnotes
from reports.sampled import busy_part, cost_line
from results.energy import energy
from results.gpu_sensors import gpu_pools, unwrapped
from results.gpu_traffic import process_memory, traffic
from results.power import Series
from results.samples_beside import samples_beside
from results.untold import untold
from results.utilisation import busy, dcgm_notes, health, held_down, sampler_cost, utilisation
from results.window import Window

LOW, HIGH = 20.0, 120.0
EDGES = (ns(LOW), ns(HIGH))
WINDOW = Window(start_ns=EDGES[0], end_ns=EDGES[1], after_step=1, last_step=2, boundaries_ns=EDGES)


def history(gpus: int = 2) -> History:
    made = History("colocated", {"device": "cuda"})
    made.process("controller", 12, gpu_uuids=[f"GPU-{i}" for i in range(gpus)], pool="both")
    return made


def told(made: History, name: str, value: float | None = None, at: float = 50.0, **labels: object) -> None:
    made.add("probes", name=name, value=value, mono_ns=ns(at), labels_json=json.dumps(labels))


def test_means_are_over_time_and_by_field() -> None:
    made = history()
    for gpu, share in (("GPU-0", 0.9), ("GPU-1", 0.3)):
        for at in np.arange(19, 121, 0.2):
            made.add("samples", gpu=gpu, mono_ns=ns(at), util_ratio=share)
        for at in np.arange(19.5, 121, 1.0):
            made.add("samples", gpu=gpu, mono_ns=ns(at), dcgm_sm_active_ratio=share / 2)
    found = {one.field: one for one in utilisation(made.run(), WINDOW)}
    assert set(found) == {"util_ratio", "dcgm_sm_active_ratio"}  # what no GPU has is not shown
    assert found["util_ratio"].mean == pytest.approx(0.6)
    assert found["dcgm_sm_active_ratio"].mean == pytest.approx(0.3)
    assert found["util_ratio"].half_width == pytest.approx(0)
    assert (found["util_ratio"].gpus, found["util_ratio"].pool) == (2, "both")


def test_an_exporter_that_collects_slowly_has_a_wider_interval() -> None:
    made = history(1)
    rng = np.random.default_rng(1)
    value = 0.5
    for second in range(19, 122):
        value = float(rng.uniform()) if second % 10 == 0 else value
        made.add("samples", gpu="GPU-0", mono_ns=ns(second), dcgm_dram_active_ratio=value)
    (blind,) = utilisation(made.run(), WINDOW)
    told(made, "dcgm.refresh", 10.0, pages=60, how="dcgm-exporter --collect-interval 1000")
    (slow,) = utilisation(made.run(), WINDOW)
    assert blind.half_width is not None
    assert slow.half_width is not None
    assert slow.half_width == pytest.approx(10 * blind.half_width, rel=0.01)
    assert any("10.0 s" in note for note in dcgm_notes(made.run()).notes)


def test_a_gap_or_a_silent_gpu_leaves_no_mean() -> None:
    made = history()
    for at in np.arange(19, 60, 0.2):
        made.add("samples", gpu="GPU-0", mono_ns=ns(at), util_ratio=0.5)
    (half,) = utilisation(made.run(), WINDOW)
    assert (half.mean, half.note) == (None, "1 of 2 GPUs gave nothing")
    for at in np.arange(19, 60, 0.2):
        made.add("samples", gpu="GPU-1", mono_ns=ns(at), util_ratio=0.5)
    (both,) = utilisation(made.run(), WINDOW)
    assert both.mean is None
    assert "cover 42% of the window" in str(both.note)


def test_errors_are_counted_from_the_runs_start() -> None:
    made = history()
    for at, corrected in ((10, 5), (20, 7), (30, 2), (40, 3)):  # it was reset before 30
        made.add("samples", gpu="GPU-0", mono_ns=ns(at), ecc_corrected_errors=corrected, ecc_uncorrected_errors=0)
    told(made, "telemetry.xid", 79.0, at=150.0, gpu="GPU-0")
    told(made, "telemetry.xid", 31.0, at=40.0, gpu="GPU-1")
    told(made, "telemetry.gpu_returned", 1.0, gpu="GPU-0")
    seen = health(made.run())
    assert [(one.gpu, one.number) for one in seen.xids] == [("GPU-1", 31), ("GPU-0", 79)]
    assert (seen.corrected, seen.uncorrected, seen.returned, seen.appeared) == (2 + 2 + 1, 0, 1, 0)
    text = "\n".join(busy_part(made.run(), WINDOW, Footnotes()))
    assert "2 Xid errors** (31 on `GPU-1`" in text
    assert "s into the run, in the steady window, 79 on `GPU-0`" in text
    assert "into the run, outside the steady window)" in text
    assert health(history().run()).corrected is None


def test_the_samplers_cost_is_its_last_word_and_in_the_report() -> None:
    made = history()
    notes = Footnotes()
    assert "%" not in cost_line(made.run(), notes)
    assert notes.reasons == ["no sampler told its CPU time"]
    told(made, "telemetry.cpu", 0.4, at=40, wall_s=20.0)
    told(made, "telemetry.cpu", 1.0, at=60, wall_s=100.0)
    told(made, "telemetry.ticks", 990.0, gpu="GPU-0", skipped=10, late=5)
    told(made, "telemetry.ticks", 1000.0, gpu="GPU-1", skipped=0, late=4)
    told(made, "telemetry.rows", 5000.0, lost=0)
    cost = sampler_cost(made.run())
    assert cost.core_ratio == pytest.approx(0.01)
    assert (cost.ticks, cost.missed) == (1990, 10)
    assert cost.missed_ratio == pytest.approx(0.005)
    line = cost_line(made.run(), Footnotes())
    assert "1.0% of one core" in line
    assert "missed 10 ticks (0.5%)" in line
    assert "9 of them late by more than half a period" in line
    assert "99.1% of the ticks were on time" in line
    assert "without telling" not in line


def test_a_killed_samplers_ticks_are_not_known() -> None:
    made = history()
    told(made, "telemetry.cpu", 0.4, at=40, wall_s=20.0)
    cost = sampler_cost(made.run())
    assert (cost.core_ratio, cost.ticks, cost.missed, cost.missed_ratio) == (pytest.approx(0.02), None, None, None)
    assert "1 sampler ended without telling" in cost_line(made.run(), Footnotes())


def test_what_is_off_in_dcgm_is_in_the_report() -> None:
    made = history()
    told(made, "dcgm.source", 1.0, source="http://localhost:9400/metrics")
    told(made, "dcgm.missing", None, field="dcgm_sm_active_ratio", line="X, gauge, Y.", how="off")
    told(made, "dcgm.gap", 3.5)
    text = "\n".join(busy_part(made.run(), WINDOW, Footnotes()))
    assert "localhost:9400" in text
    assert "does not give sm active ratio" in text
    assert "`X, gauge, Y.`" in text
    assert "silent 1 times, 3.5 s" in text


def test_a_source_of_dcgm_that_never_answered_is_told_as_none_with_the_reason() -> None:
    made = history()
    told(made, "dcgm.source", None, source="http://typo", reason="http://typo gave no page: no such host")
    assert dcgm_notes(made.run()).notes == ("no DCGM from http://typo: http://typo gave no page: no such host",)
    told(made, "dcgm.source", 1.0, at=60, source="http://typo")  # it came later
    assert dcgm_notes(made.run()).notes == ("DCGM from http://typo",)


def test_silence_of_dcgm_what_it_left_out_and_what_came_later_are_told() -> None:
    made = history()
    told(made, "dcgm.source", 1.0, source="http://n:9400")
    told(made, "dcgm.unreachable", at=30, field="gap", reason="answered 503", begin_ns=ns(30))
    told(made, "dcgm.gap", 3.5, at=33.5, begin_ns=ns(30))
    told(made, "dcgm.unreachable", at=90, field="gap", reason="timed out", begin_ns=ns(90))
    told(made, "dcgm.left_out", field="rows", reason="of MIG instances: no share of the whole GPU")
    told(made, "dcgm.missing", at=21, field="dcgm_sm_active_ratio", line="X, gauge, Y.")
    told(made, "dcgm.missing", 0.0, at=22, field="dcgm_sm_active_ratio", line="X, gauge, Y.")
    told(made, "dcgm.missing", at=22, field="dcgm_dram_active_ratio", line="Z, gauge, Y.")
    found = dcgm_notes(made.run())
    text = "\n".join(found.notes)
    assert "silent 1 times, 3.5 s in all (answered 503; timed out)" in text
    assert "not on record that it came back" in text  # the sampler was killed in a gap
    assert "not taken from DCGM: rows: of MIG instances" in text
    assert "dcgm_sm_active_ratio was given by DCGM only part of the time" in text
    assert found.missing == {"dcgm_dram_active_ratio": "Z, gauge, Y."}


@pytest.mark.parametrize(
    ("gpu", "at", "expected"),
    [("GPU-0", 50.0, [True, False]), ("GPU-0", 150.0, [False, False]), (None, 50.0, [True, True])],
)
def test_an_xid_error_in_the_window_is_a_reason_of_the_verdict(
    gpu: str | None, at: float, expected: list[bool]
) -> None:
    made = history()
    for name in ("GPU-0", "GPU-1"):
        for second in np.arange(10, 130, 0.5):
            made.add("samples", gpu=name, mono_ns=ns(second), energy_joules=100 * second, power_limit_watts=400.0)
    told(made, "telemetry.xid", 31.0, at=at, **({} if gpu is None else {"gpu": gpu}))
    found = energy(made.run(), WINDOW, {}, 1)
    assert [("xid_error" in one.reasons) for one in found.gpus] == expected
    assert ("xid_error" in found.reasons) == any(expected)
    assert found.gpus[0].verdict == ("warn" if expected[0] else "ok")


def test_why_a_field_is_not_known_is_printed_with_how_many_gpus() -> None:
    made = history()
    for at in np.arange(19, 121, 1.0):
        made.add("samples", gpu="GPU-0", mono_ns=ns(at), util_ratio=0.5)
    for gpu in ("GPU-0", "GPU-1"):
        told(made, "telemetry.unsupported", gpu=gpu, field="energy_joules", reason="NO_PERMISSION")
    told(made, "telemetry.unsupported", gpu="GPU-0", field="util_ratio", reason="UNKNOWN")
    told(made, "telemetry.unsupported", gpu="GPU-of-others", field="util_ratio", reason="NOT_SUPPORTED")
    told(made, "telemetry.unsupported", field="xid", reason="GPU_IS_LOST")
    rows = [(one.field, one.reason, one.gpus, one.never) for one in untold(made.run())]
    assert rows == [
        ("energy_joules", "NO_PERMISSION", 2, True),
        ("util_ratio", "UNKNOWN", 1, False),
        ("xid", "GPU_IS_LOST", None, True),
    ]
    text = "\n".join(busy_part(made.run(), None, Footnotes()))
    assert "| `energy_joules` | NO\\_PERMISSION | 2 |" in text
    assert "UNKNOWN (at times)" in text
    assert "Not known" not in "\n".join(busy_part(history().run(), None, Footnotes()))


def test_memory_links_and_power_of_dcgm_are_in_one_table() -> None:
    made = history()
    for at in np.arange(10, 130, 1.0):
        held = 2**30 * (60 if 50 <= at < 60 else 40)
        made.add("samples", gpu="GPU-0", mono_ns=ns(at), memory_used_bytes=held)
        moved = 5e9 * at if at < 70 else 5e9 * (at - 70)  # the counter begins anew at 70 s
        made.add("samples", gpu="GPU-0", mono_ns=ns(at + 0.5), nvlink_tx_bytes=int(moved))
        made.add("samples", gpu="GPU-1", mono_ns=ns(at), dcgm_power_instant_watts=400.0 + 100 * (at == 40))
    found = {(one.gpu, one.column): one for one in traffic(made.run(), WINDOW)}
    assert set(found) == {
        ("GPU-0", "memory_used_bytes"),
        ("GPU-0", "nvlink_tx_bytes"),
        ("GPU-1", "dcgm_power_instant_watts"),
    }
    memory, sent, power = (found[key] for key in sorted(found))
    assert (memory.mean / 2**30, memory.most / 2**30, memory.n) == (pytest.approx(42), 60, 100)
    assert (sent.mean, sent.most) == (pytest.approx(5e9), pytest.approx(5e9))
    assert (power.mean, power.most) == (pytest.approx(401), 500)
    text = "\n".join(busy_part(made.run(), WINDOW, Footnotes()))
    assert "| `GPU-0` | 42 GiB / 60 GiB (100) | not read |" in text
    assert "5 GB/s / 5 GB/s" in text


def test_memory_of_a_process_holds_until_it_is_told_anew() -> None:
    made = history()
    (pid,) = {row["pid"] for row in made.rows["processes"]}
    told(made, "telemetry.process_memory", 2.0**33, at=10, gpu="GPU-0", pid=pid)
    told(made, "telemetry.process_memory", 2.0**34, at=70, gpu="GPU-0", pid=pid)
    told(made, "telemetry.process_memory", 2.0**30, at=10, gpu="GPU-0", pid=77)
    told(made, "telemetry.process_memory", 0.0, at=15, gpu="GPU-0", pid=77)  # ended before the window
    told(made, "telemetry.process_memory", None, at=30, gpu="GPU-1", pid=pid)
    told(made, "telemetry.process_memory", 5e9, at=130, gpu="GPU-1", pid=99)  # after the window
    first, second = process_memory(made.run(), WINDOW)
    assert (first.gpu, first.pid, first.role) == ("GPU-0", pid, "controller")
    assert (first.mean, first.most) == (pytest.approx(1.5 * 2**33), 2**34)
    assert (second.gpu, second.mean, second.most) == ("GPU-1", None, None)
    text = "\n".join(busy_part(made.run(), WINDOW, Footnotes()))
    assert "12 GiB | 16 GiB" in text
    assert "the driver does not say" in text


def test_a_mig_instance_counts_as_its_gpu_and_its_power_is_labelled() -> None:
    made = History("colocated", {"device": "cuda"})
    instance = {"uuid": "MIG-1", "gpu_instance": 7, "compute_instance": 0}
    made.meta = {"gpus": [{"uuid": f"GPU-{i}", "mig_instances": [instance] if i == 0 else []} for i in range(2)]}
    made.process("controller", 12, gpu_uuids=["MIG-1", "GPU-1"], pool="both")
    for gpu in ("GPU-0", "GPU-1"):
        for at in np.arange(10, 130, 0.5):
            made.add("samples", gpu=gpu, mono_ns=ns(at), energy_joules=100 * at, power_limit_watts=400.0)
    assert gpu_pools(made.run()) == {"GPU-0": "both", "GPU-1": "both"}
    found = energy(made.run(), WINDOW, {}, 1)
    assert [("mig_whole_gpu" in one.reasons) for one in found.gpus] == [True, False]
    assert found.joules == pytest.approx(2 * 100 * 100)


@pytest.mark.parametrize(
    ("after", "wraps"),
    [
        (4_294_960.0 + 12.0 - 2**32 / 1000, 1),  # 12 J later, past the end of 32 bits of millijoules
        (0.0, 1),  # 7.3 J later
        (5_000.0, 0),  # a wrap would be 5 kJ in half a second
        (4_000_000.0, 0),  # fell, and was not near the end
    ],
)
def test_a_counter_that_fell_was_wrapped_or_reset(after: float, wraps: int) -> None:
    times = np.array([ns(10), ns(10.5), ns(11)])
    series, found = unwrapped(Series(times, np.array([4_294_950.0, 4_294_960.0, after])), most_watts=1000.0)
    assert found == wraps
    assert bool((np.diff(series.values) >= 0).all()) == bool(wraps)


def test_gpus_of_no_known_pool_are_told_together() -> None:
    made = History("colocated", {"device": "cuda"})
    made.meta = {"gpus": [{"uuid": f"GPU-{i}"} for i in range(2)]}
    for gpu in ("GPU-0", "GPU-1", "GPU-of-others"):
        for at in np.arange(19, 121, 0.2):
            made.add("samples", gpu=gpu, mono_ns=ns(at), util_ratio=0.9 if gpu == "GPU-of-others" else 0.5)
    (found,) = utilisation(made.run(), WINDOW)
    assert (found.pool, found.gpus, found.mean) == ("all", 2, pytest.approx(0.5))


def test_what_held_the_clocks_down_is_told_as_a_share_of_the_window() -> None:
    made = history(1)
    for at in np.arange(10, 130, 1.0):
        bits = 0x4 if 20 <= at < 45 else 0x40 | 0x1 if 45 <= at < 55 else 0x2
        made.add("samples", gpu="GPU-0", mono_ns=ns(at), throttle_reasons=bits if at < 120 else 0x8)
        made.add("samples", gpu="GPU-of-others", mono_ns=ns(at), throttle_reasons=0x80)
    assert held_down(made.run(), WINDOW) == {"the power limit": pytest.approx(0.25), "heat": pytest.approx(0.10)}
    assert "the power limit 25.0% of the time; heat 10.0%" in "\n".join(busy_part(made.run(), WINDOW, Footnotes()))
    assert held_down(history().run(), WINDOW) == {}


def test_how_busy_the_gpus_were_comes_with_their_power_and_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = history(2)
    for number, at in enumerate(np.arange(10, 130, 0.5)):
        busy_ratio = 0.2 + 0.5 * (number % 3 == 0)
        for gpu in ("GPU-0", "GPU-1", "GPU-of-others"):
            told_too = {"power_instant_watts": 300.0, "power_limit_watts": 700.0} if number % 2 else {}
            made.add("samples", gpu=gpu, mono_ns=ns(at), util_ratio=busy_ratio, throttle_reasons=0x4, **told_too)
    run = made.run()
    with samples_beside(run) as samples:
        readings = samples().readings.gpus
    beside = busy(run, WINDOW, {gpu: each.series for gpu, each in readings.items()})
    assert beside == busy(run, WINDOW)
    assert beside.held_down == {"the power limit": 1.0}
    alone = busy_part(run, WINDOW, Footnotes())
    monkeypatch.setattr("results.utilisation.busy_readings", None)
    assert busy_part(run, WINDOW, Footnotes(), beside) == alone
