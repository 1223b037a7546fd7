"""A run of a million spans and ten million samples: collecting it, and accounts and report from its tables.

    python benchmarks/large_run.py [--folder DIR] [--trajectories 100000] [--samples 10000000] [--repeats 3]
                                   [--nodes 0] [--record]

The run is generated once and kept in DIR: a day of async training on 8 GPUs, its events as the recorder writes them,
its samples as the sampler does, a batch each half second. Beside the report, a plain pandas script (`pandas_script.py`)
takes energy per phase, shares of the phases and latency percentiles from the same tables. Each part is a process of its
own: seconds, CPU seconds, and the most anonymous memory that it and what it starts had together (RssAnon, polled). With
--nodes 72, an hour of samples of so many nodes with 8 GPUs each is collected too. The parts are measured in turns, each
--repeats times: seconds are the median, memory is the most. `missed` names the limits that were not kept: one is enough
for exit code 1. The load of the machine stands beside; on a busy one, compare the CPU seconds.

A virtual machine may hand memory that lay free for some seconds back to its host, and pay for it when it is touched
again: that is the machine's price and not the part's, and it is as large as a part. So a gibibyte and a half is touched
and given back right before each; what that took is in the row (`memory_touched_again_s`).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import large_run_parts as parts
from tracked import finish, options

LIMITS = {
    "collect_s": 10.0,
    "report_s": 5.0,
    "nodes_s": 60.0,
    "collect_memory_bytes": 2**30,
    "report_memory_bytes": 2**30,
    "nodes_memory_bytes": 2**30,
}
POLL_S = 0.02
AFTER_S = 2.0  # of sampling, after the last step
TOUCH = "held = bytearray(b'x') * (3 * 2**29)"
COLLECT = "import sys; from pathlib import Path; from results.collect import collect; collect(Path(sys.argv[1]))"
REPORT = (
    "import sys; from pathlib import Path; from reports.report import write_report;"
    " write_report([Path(sys.argv[1])], Path(sys.argv[2]), beside=True)"
)
IMPORTS = "import reports.run_page, results.collect"
PLANS = (
    "import time; from workloads.deep_research.plan import draw_plan; from workloads.deep_research.presets import"
    " PRESETS; t = time.process_time(); [draw_plan(PRESETS['deep-research'], 1, n, 0) for n in range(2000)];"
    " print((time.process_time() - t) / 2000 * 1e6)"
)


def measured(argv: list[str]) -> dict[str, float]:
    """Seconds, CPU seconds and most anonymous bytes of a process and of all that it starts.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    begin = time.monotonic()
    most = 0
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        while True:
            most = max(most, _anonymous(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            time.sleep(POLL_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv[:4])
    return {
        "s": round(time.monotonic() - begin, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "memory_bytes": most,
        "load": round(os.getloadavg()[0], 1),
    }


def in_turns(parts: Mapping[str, Sequence[str]], repeats: int) -> tuple[dict[str, dict[str, float]], list[float]]:
    """Each part's figures: medians of `repeats` measurements, the most of memory; and what touching memory took.

    Raises:
        subprocess.CalledProcessError: one failed.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in parts}
    touched = []
    for _ in range(repeats):
        for name, argv in parts.items():
            begin = time.monotonic()
            subprocess.run([sys.executable, "-c", TOUCH], check=True)
            touched.append(round(time.monotonic() - begin, 2))
            found[name].append(measured(list(argv)))
    return {name: _of_repeats(each) for name, each in found.items()}, touched


def _of_repeats(each: list[dict[str, float]]) -> dict[str, float]:
    seconds = [one["s"] for one in each]
    return {
        "s": round(median(seconds), 2),
        "s_min": min(seconds),
        "s_max": max(seconds),
        "cpu_s": round(median(one["cpu_s"] for one in each), 2),
        "memory_bytes": max(one["memory_bytes"] for one in each),
        "load": max(one["load"] for one in each),
    }


def _anonymous(pid: int) -> int:
    """Of a process and its children and theirs; one that ends meanwhile counts as nothing."""
    total, left = 0, [pid]
    while left:
        folder = Path(f"/proc/{left.pop()}")
        try:
            lines = (folder / "status").read_text().splitlines()
            total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)
            for thread in (folder / "task").iterdir():
                left += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return total


def missed(reached: dict[str, float]) -> list[str]:
    """The limits that were not kept, of those that were measured."""
    return [name for name, value in reached.items() if value > LIMITS[name]]


def generate(folder: Path, trajectories: int, samples: int) -> dict[str, int]:
    """The run, written unless it is there; how many spans and samples it has."""
    done = folder / "generated.json"
    if done.is_file():
        found: dict[str, int] = json.loads(done.read_text())
        return found
    spec = parts.spec_of(trajectories // parts.PER_STEP)
    seconds = samples / (parts.GPUS * (parts.POWER_HZ + parts.STATE_HZ))
    (folder / "events").mkdir(parents=True, exist_ok=True)
    spans, end_s = parts.write_events(folder, spec, trajectories)
    seconds = max(seconds, end_s + AFTER_S)  # a window that samples do not cover has no energy account
    parts.write_folder(folder, spec, seconds)
    path = folder / "samples" / f"{parts.HOST}-3000-1.arrows"
    counts = {"spans": spans, "samples": parts.write_samples(path, host=parts.HOST, node=0, seconds=seconds)}
    done.write_text(json.dumps(counts))
    return counts


def generate_nodes(folder: Path, nodes: int, seconds: float) -> dict[str, int]:
    """A run of which there are only samples: an hour of each of many nodes."""
    done = folder / "generated.json"
    if done.is_file():
        found: dict[str, int] = json.loads(done.read_text())
        return found
    parts.write_folder(folder, parts.spec_of(10, nodes), seconds)
    rows = 0
    for node in range(nodes):
        host = f"node-{node}"
        rows += parts.write_samples(folder / "samples" / f"{host}-3000-1.arrows", host=host, node=node, seconds=seconds)
    counts = {"samples": rows, "series": nodes * parts.GPUS}
    done.write_text(json.dumps(counts))
    return counts


def main() -> int:
    """The command; see the module's docstring."""
    parser = options(__doc__ or "")
    parser.add_argument("--folder", type=Path, help="where the generated runs are kept; a temporary one if not given")
    parser.add_argument("--trajectories", type=int, default=100_000, help="ten spans each")
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each part")
    parser.add_argument("--nodes", type=int, default=0, help="also an hour of samples of so many nodes with 8 GPUs")
    parser.add_argument("--node-seconds", type=float, default=3600.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = (given.folder or Path(temporary)).resolve()
        run = base / f"whole-{given.trajectories}-{given.samples}"
        counts = generate(run, given.trajectories, given.samples)
        python = [sys.executable, "-P", "-c"]
        script = str(Path(__file__).with_name("pandas_script.py"))
        measured_parts = {
            "imports": [*python, IMPORTS],
            "collect": [*python, COLLECT, str(run)],
            "report": [*python, REPORT, str(run), str(Path(temporary) / "report")],
            "pandas_script": [sys.executable, script, str(run)],
        }
        nodes: dict[str, object] = {}
        if given.nodes:
            wide = base / f"nodes-{given.nodes}-{given.node_seconds:g}"
            nodes = dict(generate_nodes(wide, given.nodes, given.node_seconds))
            measured_parts["collect_nodes"] = [*python, COLLECT, str(wide)]
        figures, touched = in_turns(measured_parts, given.repeats)
        reached = {
            "collect_s": figures["collect"]["s"],
            "report_s": figures["report"]["s"],
            "collect_memory_bytes": figures["collect"]["memory_bytes"],
            "report_memory_bytes": figures["report"]["memory_bytes"],
        }
        if ingest := figures.get("collect_nodes"):
            reached |= {"nodes_s": ingest["s"], "nodes_memory_bytes": ingest["memory_bytes"]}
        plan_us = float(subprocess.run([*python, PLANS], capture_output=True, text=True, check=True).stdout)
    limits = {name: LIMITS[name] for name in reached}
    ratio = figures["report"]["cpu_s"] / figures["pandas_script"]["cpu_s"]
    return finish(
        "large_run",
        {
            **counts,
            "repeats": given.repeats,
            **figures,
            "memory_touched_again_s": {"min": min(touched), "max": max(touched)},
            "report_against_pandas": round(ratio, 3),
            "us_per_plan_of_a_fixed_load": round(plan_us, 1),
            "nodes": nodes,
            "limits": limits,
            "missed": missed(reached),
        },
        ok=not missed(reached),
        description=__doc__ or "",
        sources=("results", "reports", "benchmarks/large_run.py", "benchmarks/large_run_parts.py"),
        record=given.record,
    )


if __name__ == "__main__":
    sys.exit(main())
