"""Agents started by Slurm: the command, when it is used, and the whole way with an `srun` that starts them here."""

import os
import stat
import subprocess
import sys
import time

import pytest

from harness.nodes.slurm import srun_command, starter
from harness.protocol.errors import SpecError
from harness.run import run
from harness.slurm_nodes import nodes_gathered, who_starts
from harness.specs import resolve
from results.store import load_run

PATIENCE_S = 60.0
# Starts the command once per node, as srun would, each under a host's name of its own.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
arguments = sys.argv[1:]
with open(os.environ["SEEN"], "w") as file:
    print(*arguments, sep="\\n", file=file)
while arguments[0].startswith("--"):
    name, _, value = arguments.pop(0).partition("=")
    if name == "--ntasks":
        count = int(value)
children = [
    subprocess.Popen(arguments, env={{**os.environ, "BENCH_HOST": f"slurm{{place}}"}}) for place in range(count)
]
sys.exit(max(child.wait() for child in children))
"""


@pytest.fixture
def srun(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "srun"
    path.write_text(SRUN)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "127.0.0.1")
    monkeypatch.setenv("BENCH_HOST", "slurm0")
    monkeypatch.setenv("BENCH_NODE_FOLDER", str(tmp_path / "nodes"))
    monkeypatch.setenv("BENCH_ENGINE_SCRAPE_S", "0")
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_command():
    command = srun_command(4, "run-1", 5_000, {"SLURMD_NODENAME": "n1", "BENCH_NODE_PYTHON": "/opt/python"})
    assert command[0] == "srun"
    assert {"--overlap", "--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--kill-on-bad-exit=0"} <= set(command)
    agent = ["/opt/python", "-P", "-m", "harness.nodes", "agent", "--run-id", "run-1", "--connect", "n1:5000"]
    assert list(command[-len(agent) :]) == agent


@pytest.mark.parametrize(
    ("nodes", "address", "environ", "expected"),
    [
        (1, "", {}, "none"),
        (2, "", {}, "none"),
        (1, "", {"SLURM_JOB_ID": "7"}, "none"),
        (2, "", {"SLURM_JOB_ID": "7"}, "srun"),
        (2, "head:6379", {"SLURM_JOB_ID": "7"}, "ray"),
        (2, "head:6379", {"BENCH_NODE_AGENTS": "srun"}, "srun"),
        (2, "", {"SLURM_JOB_ID": "7", "BENCH_NODE_AGENTS": "none"}, "none"),
    ],
)
def test_who_starts_the_agents(nodes, address, environ, expected):
    assert starter(nodes, address, environ) == expected


def test_an_unknown_starter_is_refused():
    spec = resolve({"framework": "simulated", "placement": "async", "device": "cpu"}).spec
    with pytest.raises(SpecError, match="BENCH_NODE_AGENTS = mpi: allowed is one of ray, srun, none"):
        who_starts(spec, {"BENCH_NODE_AGENTS": "mpi"})


def test_a_run_on_three_nodes_of_a_job(srun):
    from adapters.base import load_adapter

    asked = {"framework": "simulated", "placement": "async", "device": "cpu", "nodes": 3, "steps": 4, "warmup_steps": 1}
    # Real seconds, and enough of them for three agents to start on a machine that does other things.
    spec = resolve({**asked, "latency_scale": 4.0}, overrides=["clock=real"]).spec
    result = run(spec, load_adapter("simulated"), srun / "runs")
    said = (result.run_dir / "logs" / "nodes.log").read_text()
    assert result.status == "finished", (result.reason, said)
    tables = load_run(result.run_dir).tables
    hosts = {row["host"]: row for row in tables["hosts"].to_pylist()}
    assert set(hosts) == {"slurm0", "slurm1", "slurm2"}, said
    for host in ("slurm1", "slurm2"):  # the same clock in truth
        assert abs(hosts[host]["offset_ns"]) <= hosts[host]["uncertainty_ns"]
        assert hosts[host]["samples"] > 0
        assert hosts[host]["lost"] is False
    assert hosts["slurm0"]["reference"] is True
    assert tables["failures"].to_pylist() == []
    names = [path.name for path in (result.run_dir / "samples").glob("*.arrows")]
    assert sorted({name.split("-")[0] for name in names}) == ["slurm0", "slurm1", "slurm2"]
    assert len([name for name in names if name.startswith("slurm0")]) == 1  # this host has one sampler, as ever
    assert not list((srun / "nodes").glob("*"))
    assert "--ntasks=3" in (srun / "seen").read_text()


def test_a_job_step_that_does_not_start_is_a_failure_of_telemetry_only(srun, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    spec = resolve({"framework": "simulated", "placement": "async", "device": "cpu", "nodes": 2}).spec
    run_dir = tmp_path / "run"
    for part in ("events", "samples", "logs"):
        (run_dir / part).mkdir(parents=True)
    with nodes_gathered(spec, run_dir, "run-1"):
        end = time.monotonic() + PATIENCE_S
        while not list((run_dir / "events").glob("gatherer-*")):
            assert time.monotonic() < end
            time.sleep(0.05)
    (path,) = (run_dir / "events").glob("gatherer-*")
    assert "the nodes' agents can't be started" in path.read_text()


def test_without_a_job_nothing_is_started(monkeypatch, tmp_path):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(subprocess, "Popen", None)
    spec = resolve({"framework": "simulated", "placement": "async", "device": "cpu", "nodes": 2}).spec
    with nodes_gathered(spec, tmp_path, "run-1"):
        pass
