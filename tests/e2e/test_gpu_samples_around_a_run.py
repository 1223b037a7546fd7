"""`simulated` on GPUs of the stand-in NVML library: what is sampled before the worker's launch and after its end."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

import results.energy
from harness.protocol.events import Bye, Hello, read_events
from harness.run_folder import list_runs, read_status
from results.metrics import compute
from results.store import load_run

SOURCE = Path(__file__).parents[1] / "nvml_stand_in" / "nvml_stand_in.c"
# In a process of its own: the library is found through the environment that a process starts with.
RUN = """
import sys
from pathlib import Path
from adapters.base import load_adapter
from harness.run import run
from harness.specs import resolve
flags = {"framework": "simulated", "placement": "disaggregated", "device": "cuda", "gpus": "1+1", "steps": 8}
flags |= {"preset": "deep-research-smoke", "latency_scale": 0.05, "batch_size": 2}
sys.exit(run(resolve(flags).spec, load_adapter("simulated"), Path(sys.argv[1])).exit_code)
"""
IDLE_S = 1.5
WORKERS = ("controller", "train", "rollout", "engine")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run with BENCH_IDLE_S = IDLE_S, whose worker ends as soon as its last step has."""
    folder = tmp_path_factory.mktemp("gpu-samples")
    library = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    try:
        subprocess.run([*library, "-lpthread"], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.fail("this test compiles a stand-in for NVML: install a C compiler as `cc`")
    (folder / "settings").write_text("* gpus 2\n")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder / "runs")],
        env={
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "LD_LIBRARY_PATH": str(folder),
            "NVML_STAND_IN": str(folder / "settings"),
            "BENCH_IDLE_S": str(IDLE_S),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = list_runs(folder / "runs")
    return found


def power_times(run_dir: Path) -> dict[str, list[int]]:
    """Monotonic ns of each GPU's power rows, sorted."""
    samples = load_run(run_dir).tables["samples"]
    rows = samples.filter(pc.is_valid(samples.column("power_instant_watts"))).select(["gpu", "mono_ns"]).to_pylist()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["gpu"], []).append(row["mono_ns"])
    return {gpu: sorted(times) for gpu, times in found.items()}


def worker_events(run_dir: Path) -> list[Hello | Bye]:
    """First and last words of the framework's processes."""
    found: list[Hello | Bye] = []
    for path in run_dir.glob("events/*.jsonl"):
        events = list(read_events(path))
        if isinstance(events[0], Hello) and events[0].role in WORKERS:
            found += [event for event in events if isinstance(event, Hello | Bye)]
    return found


def test_every_gpu_is_sampled_for_the_whole_idle_time_before_the_launch(run_dir: Path) -> None:
    started_ns = read_status(run_dir).meta["started_mono_ns"]
    times = power_times(run_dir)
    assert len(times) == 2
    for gpu, mine in times.items():
        assert started_ns - mine[0] >= IDLE_S * 1e9, gpu


def test_idle_power_is_known(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.energy, "IDLE_S", IDLE_S)  # as BENCH_IDLE_S shortened it
    energy = compute(load_run(run_dir)).energy
    assert energy is not None
    assert energy.idle_watts is not None
    assert energy.idle_watts > 0


def test_every_gpu_is_sampled_past_the_workers_end(run_dir: Path) -> None:
    ended_ns = max(event.mono_ns for event in worker_events(run_dir) if isinstance(event, Bye))
    for gpu, mine in power_times(run_dir).items():
        assert mine[-1] > ended_ns, gpu


def test_the_energy_of_the_window_is_covered(run_dir: Path) -> None:
    energy = compute(load_run(run_dir)).energy
    assert energy is not None
    assert energy.joules is not None
    assert "partial_coverage" not in energy.reasons
