"""What the tests on a real GPU measure with, here against the stand-in library, where the answers are known."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GPU_TESTS = Path(__file__).parents[2] / "gpu"
COSTS = """
import json, sys
from dataclasses import asdict
sys.path.insert(0, sys.argv[1])
from gpu_measures import call_costs
from harness.telemetry.library import Nvml
gpus, _ = Nvml().gpus(lambda *told: None)
gpus[0].power.prepare()
print(json.dumps({name: asdict(cost) for name, cost in call_costs(gpus[0], 5).items()}))
"""
TORCH = """
import sys, time
class Tensor: pass
float32 = bfloat16 = None
def zeros(*shape, dtype, device): return Tensor()
randn = zeros
def matmul(a, b): time.sleep(0.001)
def manual_seed(seed): pass
"""


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(GPU_TESTS))
    import gpu_measures

    return gpu_measures


@pytest.mark.parametrize(("more", "k"), [("", 1.0), ("* energy_rate_mw 330000\n", 1.1)])
def test_counter_and_integral_are_compared(sampler: Callable[..., Any], measures: Any, more: str, k: float) -> None:
    running = sampler(f"* gpus 1\n* power_ripple_mw 0\n{more}")
    running.wait_until_sampling(0, rows=80)
    assert running.end() == 0
    at = [int(row["mono_ns"]) for row in running.power(0)]
    found = measures.agreement(running.table(), running.gpus()[0], at[5], at[-5])
    assert found.k == pytest.approx(k, rel=0.02)
    assert found.integral_joules == pytest.approx(300 * found.seconds, rel=0.001)
    assert found.reasons == ()
    watts = measures.mean_watts(running.table(), running.gpus()[0]["uuid"], at[5], at[-5])
    assert watts == pytest.approx(300)


def test_without_a_counter_the_reason_is_there(sampler: Callable[..., Any], measures: Any) -> None:
    running = sampler("* gpus 1\n* error.energy 4\n* error.energy_call 4\n")
    running.wait_until_sampling(0, rows=20)
    assert running.end() == 0
    at = [int(row["mono_ns"]) for row in running.power(0)]
    found = measures.agreement(running.table(), running.gpus()[0], at[2], at[-2])
    assert (found.counter_joules, found.k, found.reasons) == (None, None, ("no_counter",))


def test_calls_cost_what_they_take(tmp_path: Path, stand_in: Path) -> None:
    slow = "* latency_us.field_values 3000\n* latency_us.processes 7000\n* error.temperature 3\n"
    (tmp_path / "settings").write_text(f"* gpus 1\n{slow}")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(stand_in), "NVML_STAND_IN": str(tmp_path / "settings")}
    command = [sys.executable, "-c", COSTS, str(GPU_TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    costs = json.loads(done.stdout)
    assert costs["power"]["median_s"] >= 0.003
    assert costs["processes"]["median_s"] >= 0.007
    assert costs["pcie"]["median_s"] >= 0.04  # two calls of 20 ms
    assert costs["power"]["calls"] == 5
    assert "temperature_celsius: NOT_SUPPORTED" in costs["limit"]["refused"]


def test_the_load_tells_its_phases(tmp_path: Path, measures: Any) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    command = [sys.executable, "-c", measures.LOAD, "cpu", "8", "bursts:random:0.05:0.02:0.3", "zeros:zeros:0.1:0:0.1"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told = measures.phases(done.stdout.splitlines())
    assert set(told) == {"bursts", "zeros"}
    assert told["bursts"]["end_ns"] - told["bursts"]["begin_ns"] >= 300_000_000
    assert told["zeros"]["begin_ns"] >= told["bursts"]["end_ns"]
    assert told["bursts"]["products"] > 0


def test_what_is_recorded_names_no_machine(tmp_path: Path, measures: Any) -> None:
    described = {"uuid": "GPU-1", "host": "h", "name": "NVIDIA H100 80GB", "driver": "550", "energy_refresh_s": 0.1}
    found = measures.Agreement(counter_joules=99.0, integral_joules=100.0, k=0.99, seconds=60.0, reasons=())
    cost = measures.Cost(median_s=0.002, most_s=0.004, calls=50, refused=None)
    path = measures.record(tmp_path / "recorded", described, found, {"power": cost}, {"random": 650.0, "zeros": 400.0})
    assert path.name == "nvidia-h100-80gb.json"
    text = path.read_text()
    kept = json.loads(text)
    assert "GPU-1" not in text
    assert "host" not in kept["gpu"]
    assert kept["gpu"]["energy_refresh_s"] == 0.1
    assert kept["counter_and_integral"]["k"] == 0.99
    assert kept["call_seconds"]["power"]["median_s"] == 0.002
    assert kept["mean_watts_by_data"]["zeros"] == 400.0
