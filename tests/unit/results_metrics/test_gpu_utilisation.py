"""Utilisation by pool, errors, DCGM's notes and the sampler's cost, of histories whose answers are known."""

import json

import numpy as np
import pytest
from recorded_histories import History, ns

from reports.markdown import Footnotes
from reports.sampled import busy_part, cost_line
from results.energy import energy
from results.gpu_sensors import gpu_pools, unwrapped
from results.power import Series
from results.utilisation import dcgm_notes, health, held_down, sampler_cost, utilisation
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
    for gpu, busy in (("GPU-0", 0.9), ("GPU-1", 0.3)):
        for at in np.arange(19, 121, 0.2):
            made.add("samples", gpu=gpu, mono_ns=ns(at), util_ratio=busy)
        for at in np.arange(19.5, 121, 1.0):
            made.add("samples", gpu=gpu, mono_ns=ns(at), dcgm_sm_active_ratio=busy / 2)
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
    told(made, "telemetry.xid", 79.0, gpu="GPU-0")
    told(made, "telemetry.xid", 31.0, at=40.0, gpu="GPU-1")
    told(made, "telemetry.gpu_returned", 1.0, gpu="GPU-0")
    seen = health(made.run())
    assert seen.xids == (("GPU-1", 31), ("GPU-0", 79))
    assert (seen.corrected, seen.uncorrected, seen.returned, seen.appeared) == (2 + 2 + 1, 0, 1, 0)
    text = "\n".join(busy_part(made.run(), None, Footnotes()))
    assert "2 Xid errors** (31, 79)" in text
    assert health(history().run()).corrected is None


def test_the_samplers_cost_is_its_last_word_and_in_the_report() -> None:
    made = history()
    notes = Footnotes()
    assert "%" not in cost_line(made.run(), notes)
    assert notes.reasons == ["no sampler told its CPU time"]
    told(made, "telemetry.cpu", 0.4, at=40, wall_s=20.0)
    told(made, "telemetry.cpu", 1.0, at=60, wall_s=100.0)
    told(made, "telemetry.ticks", 990.0, gpu="GPU-0", skipped=10)
    told(made, "telemetry.ticks", 1000.0, gpu="GPU-1", skipped=0)
    cost = sampler_cost(made.run())
    assert cost.core_ratio == pytest.approx(0.01)
    assert (cost.ticks, cost.missed) == (1990, 10)
    assert cost.missed_ratio == pytest.approx(0.005)
    line = cost_line(made.run(), Footnotes())
    assert "1.0% of one core" in line
    assert "missed 10 ticks (0.5%)" in line


def test_a_killed_samplers_ticks_are_not_known() -> None:
    made = history()
    told(made, "telemetry.cpu", 0.4, at=40, wall_s=20.0)
    cost = sampler_cost(made.run())
    assert (cost.core_ratio, cost.ticks, cost.missed, cost.missed_ratio) == (pytest.approx(0.02), None, None, None)
    assert "missed" not in cost_line(made.run(), Footnotes())


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
