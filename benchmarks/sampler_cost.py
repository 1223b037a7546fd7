"""What the sampler costs: its share of one core at 10 Hz with 8 stand-in GPUs, beside a bare loop that only reads.

    python benchmarks/sampler_cost.py [--seconds 20] [--gpus 8] [--hz 10] [--repeats 3] [--peers PYTHON] [--record]

All run at the same time, on the same stand-in library (compiled with `cc`), and are measured over the same stretch
after their start: the ratio of two is steadier than either share. The stand-in counts the CPU that is spent inside its
calls; a process's own work is what is left. With --peers, a Python that has nvitop and Zeus, their samplers run beside
at the same rate: nvitop's ResourceMetricCollector (all it shows of each GPU, averages kept) and Zeus's PowerMonitor
(one power reading, each change sent to its parent). What is not installed there is told so.

Three parts: calls that take 0.2 to 5 ms, as drivers' do; calls that answer at once; and the sampler alone, with those
slow calls, while two busy processes hold two cores, for how many of its ticks were made within half a period. Limits,
at these defaults: where calls take their time, a median of at most 1 % of one core of own work; 99 % of the ticks. The
peers run beside the slow calls. A busy machine makes own work dearer: caches are cold after each sleep; the row has the
load, before and after.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil
from tracked import finish, options

from harness.protocol.errors import BenchError, EnvError, WorkerError
from harness.protocol.events import Metric, read_events
from results.samples import read_samples

SOURCE = Path(__file__).parents[1] / "tests" / "nvml_stand_in" / "nvml_stand_in.c"
LIMIT_CORE_RATIO = 0.01
LIMIT_ON_TIME = 0.99
SETTLE_S = 6.0  # start-up, and the sampler's measurement of refresh periods, are not part of the figure
PEERS_SETTLE_S = 20.0  # theirs takes longer
NOT_INSTALLED = "not installed"
LATENCIES_US = {
    "field_values": 2000,
    "util": 200,
    "clock": 500,
    "throttle": 300,
    "memory2": 1000,
    "temperature": 400,
    "limit": 600,
    "processes": 5000,
    "power": 1500,
}
BUSY = "while True: pass"
NVITOP = """
import sys, time
from nvitop import Device, ResourceMetricCollector
collector = ResourceMetricCollector(devices=Device.all()[:int(sys.argv[1])], interval=1 / float(sys.argv[2]))
collector.start(tag="cost")
while True:
    time.sleep(10)
"""
ZEUS = """
import sys, time
from zeus.monitor import PowerMonitor
if __name__ == "__main__":
    monitor = PowerMonitor(update_period=1 / float(sys.argv[2]), power_domains=["device_instant"])
    while True:
        time.sleep(10)
"""
PEERS = {"nvitop": NVITOP, "zeus": ZEUS}

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
    """CPU seconds of a process's threads and its children's, to the nanosecond (its CPU times count 10 ms ticks)."""
    spent = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        try:
            tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
            spent += sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        except OSError:
            continue  # it has just ended
    return spent


class Counted:
    """A process, and what it spent inside the library."""

    def __init__(self, argv: list[str], environment: dict[str, str], folder: Path, name: str) -> None:
        self.inside = folder / f"{name}.cpu"
        self.inside.unlink(missing_ok=True)
        self.errors = (folder / f"{name}.err").open("w+b")
        environment = {**environment, "NVML_STAND_IN_CPU": str(self.inside)}
        self.process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stderr=self.errors)

    def spent(self) -> tuple[float, float]:
        """CPU seconds so far: all, and inside the library."""
        inside = self.inside.read_bytes()[:8] if self.inside.is_file() else b""
        return cpu_s(self.process.pid), int.from_bytes(inside, "little") / 1e9

    def said(self) -> str:
        """The last line of its errors."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> None:
        """Ends it and its children."""
        children = []
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.errors.close()


def configured(folder: Path, gpus: int, latencies: bool) -> dict[str, str]:
    """Writes the stand-in's settings; the environment that has a process use it."""
    settings = folder / "settings"
    slow = "".join(f"* latency_us.{call} {us}\n" for call, us in LATENCIES_US.items()) if latencies else ""
    settings.write_text(f"* gpus {gpus}\n{slow}")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STAND_IN": str(settings)}


def measure(
    folder: Path, *, gpus: int, hz: float, seconds: float, latencies: bool = False, peers: Path | None = None
) -> dict[str, float | str]:
    """One repeat: shares of one core (all, and own work), memory, and the rate of power rows that was reached."""
    environment = configured(folder, gpus, latencies)
    out = Path(tempfile.mkdtemp(dir=folder)) / "samples"
    sampler = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "cost", "--out", str(out)]
    running = {
        "sampler": Counted([*sampler, "--hz", str(hz)], environment, folder, "sampler"),
        "bare_loop": Counted([sys.executable, "-c", BARE_LOOP, str(gpus), str(hz)], environment, folder, "bare_loop"),
    }
    found: dict[str, float | str] = {}
    for name in PEERS if peers else ():
        there = subprocess.run([str(peers), "-c", f"import {name}"], capture_output=True, check=False).returncode == 0
        if not there:
            found[f"{name}_own_core_ratio"] = NOT_INSTALLED
            continue
        script = folder / f"{name}_peer.py"
        script.write_text(PEERS[name])
        running[name] = Counted([str(peers), str(script), str(gpus), str(hz)], environment, folder, name)
    try:
        time.sleep(PEERS_SETTLE_S if peers else SETTLE_S)
        before, begin = (
            {name: one.spent() for name, one in running.items() if one.process.poll() is None},
            time.monotonic(),
        )
        time.sleep(seconds)
        ended = {name: one.said() for name, one in running.items() if one.process.poll() is not None}
        if ours := ended.keys() & {"sampler", "bare_loop"}:
            raise WorkerError(f"ended during the measurement, nothing to report: {ours}: {ended}")
        after, end = {name: running[name].spent() for name in before if name not in ended}, time.monotonic()
        memory = psutil.Process(running["sampler"].process.pid).memory_info().rss
    finally:
        for one in running.values():
            one.end()
    for name, (total, inside) in after.items():
        own_s = total - inside - before[name][0] + before[name][1]
        found[f"{name}_core_ratio"] = (total - before[name][0]) / (end - begin)
        found[f"{name}_own_core_ratio"] = own_s / (end - begin)
        found[f"{name}_own_cpu_s"] = own_s
    found |= {f"{name}_own_core_ratio": f"did not run: {why}" for name, why in ended.items()}
    table = read_samples(out)
    at = table.filter(table["energy_joules"].is_valid())["mono_ns"].to_pylist()
    found["power_rows_per_s_and_gpu"] = sum(begin * 1e9 <= t <= end * 1e9 for t in at) / (end - begin) / gpus
    found["memory_bytes"] = memory
    return found


def on_time(folder: Path, *, gpus: int, hz: float, seconds: float, busy: int) -> dict[str, float]:
    """How many ticks were made within half a period of their slot, while so many processes do nothing but compute."""
    environment = configured(folder, gpus, latencies=True)
    out = Path(tempfile.mkdtemp(dir=folder)) / "run" / "samples"
    sampler = [sys.executable, "-m", "harness.telemetry.sampler", "--run-id", "busy", "--out", str(out)]
    holding = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        one = Counted([*sampler, "--hz", str(hz)], environment, folder, "sampler")
        try:
            time.sleep(SETTLE_S + seconds)
        finally:
            one.end()
    finally:
        for process in holding:
            process.kill()
            process.wait()
    events = [event for path in (out.parent / "events").glob("*.jsonl") for event in read_events(path)]
    told = [event for event in events if isinstance(event, Metric) and event.name == "telemetry.ticks"]
    if len(told) != gpus:
        raise WorkerError(f"ticks of {len(told)} GPUs were told, not of {gpus}")
    made = sum(int(event.value or 0) for event in told)
    skipped, late = (sum(int(str(event.labels[name])) for event in told) for name in ("skipped", "late"))
    return {"ticks": made + skipped, "skipped": skipped, "late": late, "on_time": (made - late) / (made + skipped)}


def main() -> int:
    """The command; see the module's docstring."""
    parser = options(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured stretch of each repeat")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="a Python that has nvitop and zeus installed")
    parser.add_argument("--busy", type=int, default=2, help="processes that hold cores while ticks are counted")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = {"gpus": given.gpus, "hz": given.hz, "seconds": given.seconds}
        try:
            compile_stand_in(folder)
            loads = [os.getloadavg()[0]]
            slow = [measure(folder, **asked, latencies=True, peers=given.peers) for _ in range(given.repeats)]
            repeats = [measure(folder, **asked) for _ in range(given.repeats)]
            loads.append(os.getloadavg()[0])
            ticks = on_time(folder, **asked, busy=given.busy)
        except BenchError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    own = _figures(slow, "sampler_own_core_ratio")
    against = {
        name: _ratio(slow, "sampler_own_core_ratio", f"{name}_own_core_ratio")
        for name in ("bare_loop", "nvitop", "zeus")
    }
    return finish(
        "sampler_cost",
        {
            "gpus": given.gpus,
            "hz": given.hz,
            "seconds": given.seconds,
            "sampler_own_core_ratio": own,
            "sampler_core_ratio": _figures(slow, "sampler_core_ratio"),
            "sampler_own_cpu_s": _figures(slow, "sampler_own_cpu_s"),
            "own_against": against,
            "calls_that_answer_at_once": {
                name: _figures(repeats, f"{name}_core_ratio")
                for name in ("sampler", "sampler_own", "bare_loop", "bare_loop_own")
            },
            "two_busy_processes": ticks,
            "load": {"before": round(loads[0], 2), "after": round(loads[1], 2)},
            "limits": {"sampler_own_core_ratio": LIMIT_CORE_RATIO, "on_time": LIMIT_ON_TIME},
            "rounds": len(repeats),
            "repeats": [_rounded(repeat) for repeat in slow],
        },
        ok=own["median"] <= LIMIT_CORE_RATIO and ticks["on_time"] >= LIMIT_ON_TIME,
        description=__doc__ or "",
        sources=("harness/telemetry", "harness/protocol", "tests/nvml_stand_in", "benchmarks/sampler_cost.py"),
        record=given.record,
    )


def _figures(repeats: list[dict[str, float | str]], name: str) -> dict[str, float]:
    values = [float(repeat[name]) for repeat in repeats]
    return {"median": round(median(values), 5), "min": round(min(values), 5), "max": round(max(values), 5)}


def _ratio(repeats: list[dict[str, float | str]], name: str, beside: str) -> object:
    """The median of the ratios of one to the other; why there is none, where there is none."""
    if any(beside not in repeat for repeat in repeats):
        return "not asked for: --peers PYTHON"
    odd = [str(value) for repeat in repeats if isinstance(value := repeat[beside], str)]
    if odd:
        return odd[0]
    return round(median(float(repeat[name]) / float(repeat[beside]) for repeat in repeats), 3)


def _rounded(figures: dict[str, float | str]) -> dict[str, float | str]:
    return {name: value if isinstance(value, str) else round(value, 4) for name, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main())
