"""`bench run --ray-address`: a real framework on a Ray cluster that is there, of which every node is sampled."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ray_cluster import namespaces, ray_cluster

from adapters.base import load_adapter
from harness.envs import ensure
from harness.protocol.spec import Device
from harness.run_folder import list_runs
from results.adherence import check_adherence
from results.store import load_run

pytestmark = [pytest.mark.framework, pytest.mark.timeout(600)]

AHEAD_S = {"node0": 0, "node1": 100_000}
LONGEST_S = 400.0


@pytest.mark.parametrize("framework", ["skyrl", "verl"])
def test_a_run_on_a_cluster_that_is_there(framework: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    reason = namespaces()
    if reason is not None:
        pytest.skip(f"no hosts of their own to be had here: {reason}")
    adapter = load_adapter(framework)
    engine = "vllm"
    python = ensure(adapter.environment(Device.CPU, engine))
    # verl's agent loops, on any node, read a file of the run's folder: a disk that the nodes see. SkyRL needs none.
    runs = Path(tempfile.mkdtemp(dir="/var/tmp")) if framework == "verl" else tmp_path / "runs"
    request.addfinalizer(lambda: shutil.rmtree(runs, ignore_errors=True))
    with ray_cluster(python, AHEAD_S, tmp_path, gpus={"node0": 2}) as cluster:
        command = [
            str(Path(sys.executable).with_name("bench")),
            "run",
            "--framework",
            framework,
            "--placement",
            "async",
            "--device",
            "cpu",
            "--steps",
            "6",
        ]
        command += ["--ray-address", cluster.address, "--runs-dir", str(runs)]
        environment = {**os.environ, "BENCH_HOST": "node0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S)
        (run_dir,) = list_runs(runs)
        if done.returncode != 0:
            print(done.stderr)
            for path in sorted((run_dir / "logs").glob("*.log")):
                print(path.name, path.read_text(errors="replace")[-6000:], sep="\n")
        assert done.returncode == 0
        assert all(node.process.poll() is None for node in cluster.nodes)  # the cluster is not the run's to end
    meta = json.loads((run_dir / "meta.json").read_text())
    assert (meta["status"], meta["exit_code"]) == ("finished", 0)
    tables = load_run(run_dir).tables
    hosts = {row["host"]: row for row in tables["hosts"].to_pylist()}
    assert set(hosts) == {"node0", "node1"}
    far = hosts["node1"]
    assert abs(far["offset_ns"] - AHEAD_S["node1"] * 10**9) <= far["uncertainty_ns"]
    assert far["samples"] > 10
    assert far["lost"] is False
    steps = tables["steps"].to_pylist()
    assert len(steps) == 6
    assert far["first_ns"] < min(step["start_ns"] for step in steps)  # on the controller's axis
    assert far["last_ns"] > max(step["end_ns"] for step in steps)
    roles = {row["role"] for row in tables["processes"].to_pylist()}
    assert {"controller", "gatherer", "sampler"} <= roles
    assert roles & {"train", "rollout"}  # the framework's own processes, in environments that Ray gave them
    found = check_adherence(load_run(run_dir))
    assert found.content_ratio == 1.0
    assert tables["failures"].to_pylist() == []
