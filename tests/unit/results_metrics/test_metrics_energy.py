"""Energy of synthetic GPUs whose joules are known."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_histories import History, ns
from sampled_gpus import (
    HIGH,
    LIMIT,
    LOW,
    Power,
    classes_of,
    energy_of,
    flat,
    gpu_history,
    one_gpu,
    sample,
    whole_window,
)

from harness.protocol.spec import Gpus
from results.energy import energy
from results.gpu_series import series_of
from results.power import Series


def test_power_utilisation_is_joules_over_the_limit_of_all_gpus() -> None:
    history = gpu_history()
    sample(history, "GPU-0", flat(100))
    sample(history, "GPU-1", flat(300))
    found = energy_of(history)
    assert found.joules == pytest.approx(400 * 100, rel=1e-6)
    assert found.power_utilisation == pytest.approx(0.5, rel=1e-6)
    assert found.pools == {"both": pytest.approx(0.5, rel=1e-6)}
    assert found.joules_per_trained == pytest.approx(4000, rel=1e-6)
    assert (found.verdict, found.reasons) == ("ok", ())
    assert [each.k for each in found.gpus] == [pytest.approx(1), pytest.approx(1)]


def test_the_counter_is_interpolated_at_the_edges() -> None:
    history = gpu_history()
    for gpu in ("GPU-0", "GPU-1"):
        for at in (19.5, 20.5, 70.0, 119.5, 120.5):
            history.add("samples", gpu=gpu, mono_ns=ns(at), energy_joules=200 * at, power_limit_watts=LIMIT)
    found = energy_of(history)
    assert found.joules == pytest.approx(2 * 200 * 100)
    assert found.gpus[0].source == "counter"


def test_a_counter_that_was_reset_gives_way_to_instant_power() -> None:
    history = gpu_history()
    sample(history, "GPU-0", flat(200))
    sample(history, "GPU-1", flat(200))
    for row in history.rows["samples"]:
        if row["gpu"] == "GPU-1" and row["mono_ns"] > ns(60):
            row["energy_joules"] -= 9000
    found = energy_of(history)
    gpu = found.gpus[1]
    assert (gpu.source, gpu.verdict, gpu.reasons) == ("instant", "warn", ("counter_reset",))
    assert gpu.joules == pytest.approx(200 * 100)
    assert found.power_utilisation == pytest.approx(0.5)
    assert (found.verdict, found.reasons) == ("warn", ("counter_reset",))
    assert {each.note for each in found.classes} == {"no valid check of counter against integral"}


def test_average_power_only_is_shifted_by_half_its_window() -> None:
    history = gpu_history()
    step: Power = lambda at: 100.0 if at < 119.5 else 3000.0  # noqa: E731 - unshifted, the burst would be missed
    sample(history, "GPU-0", step, sensors=("power_average_watts",))
    sample(history, "GPU-1", flat(100))
    gpu = energy_of(history).gpus[0]
    assert (gpu.source, gpu.verdict) == ("average", "warn")
    assert gpu.reasons == ("no_counter", "average_only")
    assert gpu.joules == pytest.approx(100 * 99.5 + 3000 * 0.5, rel=0.03)


def test_a_gap_too_long_leaves_instant_power_without_a_figure() -> None:
    times = np.concatenate((np.arange(0.03, 50, 0.1), np.arange(55, 140, 0.1)))
    gpu = one_gpu(gpu_history(), sensors=("power_instant_watts",), times=times)
    assert (gpu.joules, gpu.verdict) == (None, "bad")
    assert "gap_too_long" in gpu.reasons


def test_a_gap_inside_does_not_hurt_the_counter_and_one_at_an_edge_does() -> None:
    inside = np.concatenate((np.arange(0.03, 50, 0.1), np.arange(55, 140, 0.1)))
    history = gpu_history()
    sample(history, "GPU-0", flat(200))
    for at in inside:
        history.add("samples", gpu="GPU-1", mono_ns=ns(at), energy_joules=200 * at, power_limit_watts=LIMIT)
    assert energy_of(history).gpus[1].joules == pytest.approx(200 * 100)
    edge = gpu_history()
    sample(edge, "GPU-0", flat(200))
    for at in np.concatenate((np.arange(0.03, 18, 0.1), np.arange(23, 140, 0.1))):
        edge.add("samples", gpu="GPU-1", mono_ns=ns(at), energy_joules=200 * at, power_limit_watts=LIMIT)
    gpu = energy_of(edge).gpus[1]
    assert gpu.joules is None
    assert "gap_too_long" in gpu.reasons


def test_one_gpu_missing_means_no_figure_of_the_run_but_of_the_other_pool() -> None:
    history = History("disaggregated", {"device": "cuda"})
    for pool, first in (("train", 0), ("rollout", 2)):
        history.process("controller", 12, gpu_uuids=[f"GPU-{first}", f"GPU-{first + 1}"], pool=pool)
    for i in range(3):
        sample(history, f"GPU-{i}", flat(100))
    found = energy_of(history)
    assert (found.joules, found.power_utilisation, found.joules_per_trained) == (None, None, None)
    assert found.note is not None
    assert found.pools == {"train": pytest.approx(0.25, rel=1e-6)}
    assert found.verdict == "bad"


def test_a_gpu_that_fell_silent_is_lost() -> None:
    gpu = one_gpu(gpu_history(), times=np.arange(0.03, 90, 0.1))
    assert (gpu.joules, gpu.verdict) == (None, "bad")
    assert "gpu_lost" in gpu.reasons


@pytest.mark.parametrize("told", ["the host goes on", "the sampler says so"])
def test_gpus_that_all_fell_silent_are_lost(told: str) -> None:
    history = gpu_history()
    for gpu in ("GPU-0", "GPU-1"):
        sample(history, gpu, flat(100), times=np.arange(0.03, 90, 0.1))
        if told == "the sampler says so":
            message = f"GPU 0 ({gpu}): GPU is lost"
            history.add("failures", boundary="telemetry", type="GpuLostError", message=message, mono_ns=ns(90))
    if told == "the host goes on":
        assert [each.reasons for each in energy_of(history).gpus] == [("partial_coverage",)] * 2  # or the sampler ended
        for at in range(140):
            history.add("samples", mono_ns=ns(at), cpu_ratio=0.5)
    found = energy_of(history)
    assert [(each.joules, each.verdict) for each in found.gpus] == [(None, "bad")] * 2
    assert all("gpu_lost" in each.reasons for each in found.gpus)


def test_a_gpu_that_was_gone_for_a_while_is_told_whatever_its_counter_says() -> None:
    history = gpu_history()
    times = np.concatenate((np.arange(0.03, 50, 0.1), np.arange(52, 140, 0.1)))
    for gpu in ("GPU-0", "GPU-1"):
        sample(history, gpu, flat(100), times=times if gpu == "GPU-1" else None, sensors=("energy_joules",))
    history.add("failures", type="GpuLostError", message="GPU 1 (GPU-1): GPU is lost", mono_ns=ns(50))
    labels = json.dumps({"gpu": "GPU-1"})
    history.add("probes", name="telemetry.gpu_returned", value=1.0, mono_ns=ns(52), labels_json=labels)
    assert [each.reasons for each in energy_of(history).gpus] == [(), ("gpu_lost",)]
    before = gpu_history()
    for gpu in ("GPU-0", "GPU-1"):
        sample(before, gpu, flat(100), sensors=("energy_joules",))
    before.add("failures", type="GpuLostError", message="GPU 1 (GPU-1): GPU is lost", mono_ns=ns(2))
    before.add("probes", name="telemetry.gpu_returned", value=1.0, mono_ns=ns(5), labels_json=labels)
    assert [each.verdict for each in energy_of(before).gpus] == ["ok", "ok"]  # back before the window


@pytest.mark.parametrize(("scale", "verdict"), [(1.02, "ok"), (1.04, "warn"), (1.08, "bad"), (0.9, "bad")])
def test_k_checks_the_counter_against_the_integral(scale: float, verdict: str) -> None:
    gpu = one_gpu(gpu_history(), scale=scale)
    assert gpu.k == pytest.approx(scale, rel=1e-3)
    assert gpu.verdict == verdict
    assert ("k_off" in gpu.reasons) == (verdict != "ok")


def test_a_part_time_sensor_is_told_where_power_is_all_there_is() -> None:
    history = gpu_history()
    history.meta["gpus"][1]["name"] = "NVIDIA H100 80GB HBM3"
    gpu = one_gpu(history, sensors=("power_instant_watts",))
    assert "part_time_sensor" in gpu.reasons


def test_when_a_limit_changed_is_known_no_better_than_its_readings() -> None:
    history = gpu_history(gpus=1)
    history.changes |= {"gpus": Gpus(train=1, rollout=1), "rollout_tp": 1}
    sample(history, "GPU-0", flat(100))
    for row in history.rows["samples"]:
        row["power_limit_watts"] = None
    for at, watts in ((0, 400.0), (60, 400.0), (70, 200.0), (200, 200.0)):  # it changed at some time of these 10 s
        history.add("samples", gpu="GPU-0", mono_ns=ns(at), power_limit_watts=watts)
    found = energy_of(history)
    assert found.joules == pytest.approx(10_000)
    assert found.uncertainty_joules is not None
    for changed in (60, 65, 70):
        limit = 400 * (changed - 20) + 200 * (120 - changed)
        assert found.power_utilisation is not None
        assert found.uncertainty_ratio is not None
        assert abs(found.power_utilisation - 10_000 / limit) <= found.uncertainty_ratio * 1.05  # to first order
    assert found.uncertainty_ratio > 0.02


def test_the_limit_is_integrated_as_it_was_set() -> None:
    history = gpu_history()
    sample(history, "GPU-0", flat(100))
    sample(history, "GPU-1", flat(100))
    for row in history.rows["samples"]:
        row["power_limit_watts"] = 400.0 if row["mono_ns"] < ns(70) else 200.0
    assert energy_of(history).power_utilisation == pytest.approx(100 / 300, rel=2e-3)


def test_the_steps_of_a_window_do_not_each_go_through_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run has a thousand steps and a million readings of the limit of each GPU."""
    history = gpu_history()
    steps = np.linspace(LOW, HIGH, 51)
    for at in np.arange(0.03, 140, 0.1):
        limit = 400.0 if at < 60.0 else 200.0
        row = {"energy_joules": 100 * at, "power_instant_watts": 100.0, "power_limit_watts": limit}
        for gpu in ("GPU-0", "GPU-1"):
            history.add("samples", gpu=gpu, mono_ns=ns(at), **row)
    read: list[int] = []

    def counted(whole: Callable[..., Any]) -> Callable[..., Any]:
        def counting(series: Series, *args: Any) -> Any:
            read.append(series.times.size)
            return whole(series, *args)

        return counting

    for name in ("held", "held_until"):
        monkeypatch.setattr(Series, name, counted(getattr(Series, name)))
    window = replace(whole_window(), boundaries_ns=tuple(ns(at) for at in steps))
    found = energy(history.run(), window, {}, 1).per_step
    assert found is not None
    assert found.n == 50
    assert found.value == pytest.approx(100 * 100 / (40 * 400 + 60 * 200), rel=1e-3)
    assert sum(read) <= 2 * 5 * 1_400


@pytest.mark.parametrize(
    ("sensors", "until", "read"),
    [
        (("energy_joules", "power_instant_watts"), 140, False),
        (("power_instant_watts",), 140, False),
        (("energy_joules",), 140, True),
        ((), 140, True),
        (("power_instant_watts",), 100, True),  # its sampler went on: it may have read average power
    ],
)
def test_average_power_is_read_where_nothing_else_serves(
    sensors: tuple[str, ...], until: float, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = gpu_history()
    sample(history, "GPU-0", flat(100), sensors=(*sensors, "power_average_watts"), times=np.arange(0.03, until, 0.1))
    sample(history, "GPU-1", flat(300), sensors=("energy_joules", "power_instant_watts", "power_average_watts"))
    asked: list[list[str]] = []

    def noted(run: Any, gpus: list[str], columns: tuple[str, ...]) -> Any:
        assert columns == ("power_average_watts",)
        asked.append(gpus)
        return series_of(run, gpus, columns)

    monkeypatch.setattr("results.energy.series_of", noted)
    gpu = energy_of(history).gpus[0]
    assert asked == ([["GPU-0"]] if read else [])
    source = {"energy_joules": "counter", "power_instant_watts": "instant"}[sensors[0]] if sensors else "average"
    assert gpu.source == (source if until > HIGH else None)


def test_idle_power_needs_ten_seconds_before_the_first_process() -> None:
    history = gpu_history()
    for i in range(2):
        sample(history, f"GPU-{i}", lambda at: 80.0 if at < 12 else 200.0)
    found = energy_of(history)
    assert found.idle_watts == pytest.approx(160, rel=0.02)
    assert found.idle_ratio == pytest.approx(0.2, rel=0.02)
    history.rows["processes"][0]["mono_ns"] = ns(9)
    assert energy_of(history).idle_ratio is None


def test_pools_may_come_from_the_metric_that_names_them() -> None:
    history = History("disaggregated", {"device": "cuda"})
    for i in range(4):
        labels = json.dumps({"uuid": f"GPU-{i}", "pool": "train" if i < 2 else "rollout"})
        history.add("probes", name="gpu.pool", value=1.0, labels_json=labels)
        sample(history, f"GPU-{i}", flat(100 if i < 2 else 200))
    found = energy_of(history)
    assert found.pools == {"train": pytest.approx(0.25, rel=1e-6), "rollout": pytest.approx(0.5, rel=1e-6)}


def test_without_gpu_samples_nothing_is_told() -> None:
    history = gpu_history()
    history.add("samples", mono_ns=ns(50), cpu_ratio=0.5)
    found = energy_of(history)
    assert found.note == "no GPU"
    assert (found.joules, found.power_utilisation, found.verdict, found.gpus) == (None, None, None, ())


def test_which_gpus_must_be_known() -> None:
    history = gpu_history(gpus=3)
    for i in range(3):
        sample(history, f"GPU-{i}", flat(100))
    found = energy_of(history)
    assert found.power_utilisation is None
    assert "not known" in str(found.note)


def test_refresh_periods_that_were_measured_count(tmp_path: Path) -> None:
    history = gpu_history()
    history.run_dir = tmp_path
    (tmp_path / "samples").mkdir()
    told = [{"uuid": f"GPU-{i}", "power_instant_refresh_s": 60.0} for i in range(2)]
    (tmp_path / "samples" / "gpus.json").write_text(json.dumps({"gpus": told}))
    history.span("train", 20, 120, "both")
    for i in range(2):
        sample(history, f"GPU-{i}", flat(100))
    assert classes_of(energy_of(history))["train"].note == "too short"


def test_the_trapezoid_is_cut_inside_its_cells() -> None:
    rising = Series(np.array([ns(0), ns(10), ns(20)]), np.array([0.0, 200.0, 200.0]))
    cuts = np.array([ns(0), ns(5), ns(10), ns(15)])
    assert rising.integral(cuts).tolist() == pytest.approx([0.0, 250.0, 1000.0, 2000.0])


@pytest.mark.parametrize(
    ("clock", "idle", "stepped"),
    [
        (lambda at: 1.9e9 if at < 70 else 1.4e9, lambda at: False, True),
        (lambda at: 1.9e9 if at < 70 else 1.6e9, lambda at: False, False),  # 16 %
        (lambda at: 1.9e9 if at < 70 else 0.3e9, lambda at: at >= 70, False),  # low because it had nothing to do
        (lambda at: 0.3e9 if 70 <= at < 71 else 1.9e9, lambda at: False, False),  # one odd second
        (lambda at: 1.9e9 if 20 <= at <= 120 else 1.2e9, lambda at: False, False),  # outside the window
    ],
)
def test_a_clock_that_steps_while_the_gpu_works_is_told(clock: Power, idle: Power, stepped: bool) -> None:
    history = gpu_history()
    for i in range(2):
        sample(history, f"GPU-{i}", flat(100))
    for at in np.arange(0.1, 140, 0.5):
        reasons = 1 if idle(at) else 0
        history.add("samples", gpu="GPU-0", mono_ns=ns(at), sm_clock_hz=int(clock(at)), throttle_reasons=reasons)
    found = energy_of(history).gpus
    assert ("clock_step" in found[0].reasons) == stepped
    assert found[0].verdict == "ok"  # a power limit makes it so: the joules are what they are
    assert "clock_step" not in found[1].reasons  # its clock is not known


@pytest.mark.parametrize("nonsense", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("sensor", ["power_instant_watts", "energy_joules", "power_limit_watts"])
def test_a_sensor_that_says_nothing_finite_is_one_that_is_not_there(sensor: str, nonsense: float) -> None:
    """None of its readings is a number: the GPU's other sensors, and the other GPU, keep their figures."""
    history = gpu_history()
    sample(history, "GPU-1", flat(300))
    for at in np.arange(0.03, 140, 0.1):
        row = {"energy_joules": 5000 + at * 100, "power_instant_watts": 100.0, "power_limit_watts": LIMIT}
        history.add("samples", gpu="GPU-0", mono_ns=ns(at), **row | {sensor: nonsense})
    found = energy_of(history)
    known = sensor != "power_limit_watts"
    assert found.joules == pytest.approx(400 * 100, rel=1e-3)
    assert (found.power_utilisation is not None) == known
    assert all("nan" not in str(each.joules) for each in found.gpus)
