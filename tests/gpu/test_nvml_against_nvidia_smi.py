"""The sampler on a real GPU against what nvidia-smi says. Needs an NVIDIA GPU; skipped, and said so, without one."""

import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from harness.protocol.events import Metric, read_events
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


def test_the_energy_counter_agrees_with_the_integral_of_power(run):
    out, before, _, _ = run
    table = read_samples(out).to_pylist()
    for uuid in before:
        rows = [row for row in table if row["gpu"] == uuid and row["energy_joules"] is not None]
        rows = [row for row in rows if row["power_instant_watts"] is not None]
        if len(rows) < 10:
            continue  # a GPU without a counter; that it says so is the next test's business
        counted = rows[-1]["energy_joules"] - rows[0]["energy_joules"]
        integral = sum(
            (a["power_instant_watts"] + b["power_instant_watts"]) / 2 * (b["mono_ns"] - a["mono_ns"]) / 1e9
            for a, b in pairwise(rows)
        )
        assert counted == pytest.approx(integral, rel=0.15)


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
