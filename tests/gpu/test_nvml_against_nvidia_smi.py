"""The sampler on a real GPU against what nvidia-smi says, and under load. Needs an NVIDIA GPU; skipped, and said so,
without one.

The load needs a Python with torch for CUDA: this one, or the one that BENCH_GPU_TEST_PYTHON names. It takes about two
minutes, and leaves what was measured in tests/gpu/recorded/.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu_measures import LOAD, PHASES, agreement, call_costs, mean_watts, phases, record

from harness.protocol.events import Metric, read_events
from harness.telemetry.library import Nvml
from results.samples import read_gpus, read_samples

QUERY = (
    "uuid,name,index,enforced.power.limit,power.default_limit,power.min_limit,power.max_limit,memory.total,memory.used,"
    "temperature.gpu,clocks.max.sm,driver_version,mig.mode.current"
)
WAIT_S = 60.0  # only a hang takes this long


def _why_not() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi: this machine has no NVIDIA driver"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return None if listed.returncode == 0 and "GPU" in listed.stdout else f"nvidia-smi lists no GPU: {listed.stdout}"


WHY_NOT = _why_not()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]


def smi() -> dict[str, dict[str, str]]:
    """What nvidia-smi says of each GPU, by UUID."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    rows = [dict(zip(QUERY.split(","), (cell.strip() for cell in line.split(",")), strict=True)) for line in lines]
    return {row["uuid"]: row for row in rows}


def smi_power() -> dict[str, float]:
    """nvidia-smi's power.draw in watts (an average on newer GPUs), by UUID; GPUs without a reading are left out."""
    command = ["nvidia-smi", "--query-gpu=uuid,power.draw", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    pairs = [[cell.strip() for cell in line.split(",")] for line in lines]
    return {uuid: float(watts) for uuid, watts in pairs if not watts.startswith("[")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """A sampler that ran for some seconds, and nvidia-smi's word before, during and after."""
    folder = tmp_path_factory.mktemp("run")
    out = folder / "samples"
    command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "gpu-test", "--out", str(out)]
    before = smi()
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + WAIT_S
        while sum(1 for gpu in read_gpus(out) if "sample_period_s" in gpu) < len(before):
            assert time.monotonic() < end, "the sampler did not describe all GPUs"
            assert process.poll() is None
            time.sleep(0.1)
        draws = []
        for _ in range(8):
            draws.append(smi_power())
            time.sleep(0.5)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT_S)
    assert code == 0
    return out, before, draws, folder / "events"


def number(cell: str) -> float | None:
    return None if cell.startswith("[") or cell == "N/A" else float(cell)


def test_the_same_gpus_with_the_same_facts(run):
    out, before, _, _ = run
    gpus = {gpu["uuid"]: gpu for gpu in read_gpus(out)}
    assert gpus.keys() == before.keys()
    for uuid, said in before.items():
        gpu = gpus[uuid]
        assert gpu["name"] == said["name"]
        assert gpu["index"] == int(said["index"])
        assert gpu["driver"] == said["driver_version"]
        assert gpu["mig_mode"] == {"Enabled": True, "Disabled": False}.get(said["mig.mode.current"])
        for ours, theirs in (
            ("power_limit_watts", "enforced.power.limit"),
            ("power_limit_default_watts", "power.default_limit"),
            ("power_limit_min_watts", "power.min_limit"),
            ("power_limit_max_watts", "power.max_limit"),
        ):
            assert gpu[ours] == pytest.approx(number(said[theirs]), abs=0.01), ours
        assert gpu["memory_total_bytes"] / 2**20 == pytest.approx(float(said["memory.total"]), abs=1)
        assert gpu["sm_clock_max_hz"] / 1e6 == number(said["clocks.max.sm"])


def test_readings_agree(run):
    out, before, draws, _ = run
    table = read_samples(out).to_pylist()
    for uuid, said in before.items():
        rows = [row for row in table if row["gpu"] == uuid]
        used = [row["memory_used_bytes"] / 2**20 for row in rows if row["memory_used_bytes"] is not None]
        if (memory := number(said["memory.used"])) is not None:
            assert min(abs(mib - memory) for mib in used) <= max(64, 0.02 * memory)
        celsius = [row["temperature_celsius"] for row in rows if row["temperature_celsius"] is not None]
        if (temperature := number(said["temperature.gpu"])) is not None:
            assert min(abs(value - temperature) for value in celsius) <= 3
        averages = [row["power_average_watts"] for row in rows if row["power_average_watts"] is not None]
        theirs = [draw[uuid] for draw in draws if uuid in draw]
        if theirs and averages:
            assert min(theirs) >= 0.85 * min(averages) - 2
            assert max(theirs) <= 1.15 * max(averages) + 2


def test_what_is_null_has_a_reason(run):
    out, before, _, events = run
    told = {
        (event.labels["gpu"], event.labels["field"])
        for path in Path(events).glob("*.jsonl")
        for event in read_events(path)
        if isinstance(event, Metric) and event.name == "telemetry.unsupported"
    }
    columns = ("power_instant_watts", "power_average_watts", "energy_joules", "util_ratio", "memory_used_bytes")
    columns += ("sm_clock_hz", "memory_clock_hz", "temperature_celsius", "throttle_reasons", "pcie_tx_bytes_per_s")
    table = read_samples(out).to_pylist()
    for uuid in before:
        for column in columns:
            if all(row[column] is None for row in table if row["gpu"] == uuid):
                assert (uuid, column) in told, column


def torch_python() -> str:
    """A Python that can run the load; the test says so where there is none."""
    python = os.environ.get("BENCH_GPU_TEST_PYTHON") or sys.executable
    asked = [python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no torch for CUDA: BENCH_GPU_TEST_PYTHON names one that has")
    return python


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory):
    """A sampler beside a minute of bursts, then steady products of random data and of zeros, on the first GPU."""
    python = torch_python()
    folder = tmp_path_factory.mktemp("loaded")
    out = folder / "samples"
    command = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "gpu-load", "--out", str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + WAIT_S
        while not any("sample_period_s" in gpu for gpu in read_gpus(out)):
            assert time.monotonic() < end, "the sampler did not describe a GPU"
            time.sleep(0.1)
        uuid = str(min(smi().values(), key=lambda said: int(said["index"]))["uuid"])
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
        load = [python, "-c", LOAD, "cuda", "8192", *PHASES]
        done = subprocess.run(load, env=environment, capture_output=True, text=True, timeout=600, check=True)
        time.sleep(2)  # the window's end has a reading after it
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
    (described,) = (gpu for gpu in read_gpus(out) if gpu["uuid"] == uuid)
    return read_samples(out), described, phases(done.stdout.splitlines())


def test_the_counter_agrees_with_the_integral_over_a_minute_of_bursts(loaded):
    table, described, told = loaded
    found = agreement(table, described, told["bursts"]["begin_ns"], told["bursts"]["end_ns"])
    if found.counter_joules is None and "no_counter" in found.reasons:
        pytest.skip(f"{described['name']} has no energy counter")
    assert found.seconds > 59
    assert found.k == pytest.approx(1, abs=0.02), found


def test_the_refresh_is_measured_while_the_gpu_works(loaded):
    _, described, _ = loaded
    assert described["refresh_measured_while"] == "working"
    for sensor in ("energy", "power_instant"):
        refresh_s, why = described[f"{sensor}_refresh_s"], described[f"{sensor}_refresh_reason"]
        assert refresh_s is not None or why, sensor
        assert refresh_s is None or 0.004 <= refresh_s <= 2.0


def test_random_data_take_more_power_than_zeros_and_what_was_measured_is_kept(loaded):
    table, described, told = loaded
    watts = {
        name: mean_watts(table, described["uuid"], told[name]["begin_ns"] + 3_000_000_000, told[name]["end_ns"])
        for name in ("random", "zeros")
    }
    nvml = Nvml()
    try:
        gpus, _ = nvml.gpus(lambda uuid, field, reason: None)
        (gpu,) = (one for one in gpus if one.uuid == described["uuid"])
        gpu.power.prepare()
        costs = call_costs(gpu)
    finally:
        nvml.close()
    found = agreement(table, described, told["bursts"]["begin_ns"], told["bursts"]["end_ns"])
    path = record(Path(__file__).with_name("recorded"), described, found, costs, watts)
    print(f"recorded: {path}\n{path.read_text()}")
    assert watts["random"] is not None
    assert watts["zeros"] is not None
    assert watts["random"] > watts["zeros"]
    assert costs["power"].median_s < 0.05
