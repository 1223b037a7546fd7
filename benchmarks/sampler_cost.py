"""What the sampler costs: its share of one core at 10 Hz with 8 stand-in GPUs, beside a bare loop that only reads.

    python benchmarks/sampler_cost.py [--seconds 20] [--gpus 8] [--hz 10] [--repeats 3] [--record]

Both run at the same time, on the same stand-in library (compiled with `cc`), and are measured over the same stretch
after their start: the ratio of the two is steadier than either share. The stand-in answers from memory, so this is
the sampler's own cost, without the driver's. Limit, at these defaults: a median of at most 5 % of one core.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from tracked import finish, options

from harness.protocol.errors import BenchError, EnvError, WorkerError
from results.samples import read_samples

SOURCE = Path(__file__).parents[1] / "tests" / "nvml_stand_in" / "nvml_stand_in.c"
LIMIT_CORE_RATIO = 0.05
SETTLE_S = 4.0  # start-up, and the sampler's measurement of refresh periods, are not part of the figure

# The least that reads the same sensors as often: power and energy at the full rate, state at 5 Hz, nothing kept.
BARE_LOOP = """
import sys, time, pynvml as n
gpus, hz = int(sys.argv[1]), float(sys.argv[2])
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(gpus)]
tick = 0
while True:
    for h in handles:
        n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_POWER_INSTANT, n.NVML_FI_DEV_POWER_AVERAGE, 83])
        if tick % max(1, round(hz / 5)) == 0:
            n.nvmlDeviceGetUtilizationRates(h); n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
            n.nvmlDeviceGetClockInfo(h, 1); n.nvmlDeviceGetClockInfo(h, 2)
            n.nvmlDeviceGetTemperature(h, 0); n.nvmlDeviceGetCurrentClocksThrottleReasons(h)
    tick += 1
    time.sleep(1 / hz)
"""


def compile_stand_in(folder: Path) -> None:
    """Compiles the stand-in library into `folder`.

    Raises:
        EnvError: there is no C compiler, or it refuses.
    """
    command = ["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    try:
        subprocess.run([*command, "-lpthread"], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise EnvError("no C compiler: install one as `cc`; it compiles the stand-in for NVML") from None
    except subprocess.CalledProcessError as error:
        raise EnvError(f"{' '.join(command)}: {error.stderr}") from None


def cpu_s(pid: int) -> float:
    """CPU seconds that the threads of a process have used, to the nanosecond (its CPU times count 10 ms ticks)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(folder: Path, *, gpus: int, hz: float, seconds: float) -> dict[str, float]:
    """One repeat: shares of one core, memory, and the rate of power rows that was really reached."""
    settings = folder / "settings"
    settings.write_text(f"* gpus {gpus}\n")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STAND_IN": str(settings)}
    out = Path(tempfile.mkdtemp(dir=folder)) / "samples"
    sampler = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "cost", "--out", str(out)]
    children = [
        subprocess.Popen([*sampler, "--hz", str(hz)], env=environment, stdin=subprocess.PIPE),
        subprocess.Popen([sys.executable, "-c", BARE_LOOP, str(gpus), str(hz)], env=environment),
    ]
    try:
        time.sleep(SETTLE_S)
        before, begin = [cpu_s(child.pid) for child in children], time.monotonic()
        time.sleep(seconds)
        if ended := [child.args for child in children if child.poll() is not None]:
            raise WorkerError(f"ended during the measurement, nothing to report: {ended[0]}")
        after, end = [cpu_s(child.pid) for child in children], time.monotonic()
        memory = psutil.Process(children[0].pid).memory_info().rss
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait(30)
    table = read_samples(out)
    at = table.filter(table["energy_joules"].is_valid())["mono_ns"].to_pylist()
    rows_per_s = sum(begin * 1e9 <= t <= end * 1e9 for t in at) / (end - begin) / gpus
    sampler_share, bare_share = ((b - a) / (end - begin) for a, b in zip(before, after, strict=True))
    return {
        "sampler_core_ratio": sampler_share,
        "bare_loop_core_ratio": bare_share,
        "memory_bytes": memory,
        "power_rows_per_s_and_gpu": rows_per_s,
    }


def main() -> int:
    """The command; see the module's docstring."""
    parser = options(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured stretch of each repeat")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            compile_stand_in(folder)
            repeats = [
                measure(folder, gpus=given.gpus, hz=given.hz, seconds=given.seconds) for _ in range(given.repeats)
            ]
        except BenchError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    shares = [repeat["sampler_core_ratio"] for repeat in repeats]
    ratios = [repeat["sampler_core_ratio"] / repeat["bare_loop_core_ratio"] for repeat in repeats]
    cost = {"median": median(shares), "min": min(shares), "max": max(shares)}
    return finish(
        "sampler_cost",
        {
            "gpus": given.gpus,
            "hz": given.hz,
            "seconds": given.seconds,
            "sampler_core_ratio": _rounded(cost),
            "against_bare_loop": _rounded({"median": median(ratios), "min": min(ratios), "max": max(ratios)}),
            "limits": {"sampler_core_ratio": LIMIT_CORE_RATIO},
            "rounds": len(repeats),
            "repeats": [_rounded(repeat) for repeat in repeats],
        },
        ok=cost["median"] <= LIMIT_CORE_RATIO,
        description=__doc__ or "",
        sources=("harness/telemetry", "harness/protocol", "tests/nvml_stand_in", "benchmarks/sampler_cost.py"),
        record=given.record,
    )


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main())
