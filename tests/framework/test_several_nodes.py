"""Several nodes, with real Ray: all are sampled, on one axis, and a lost node loses its last second at most.

As root each node is a host of its own, with a shifted clock and no shared disk (see ray_cluster.py).
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from ray_cluster import Cluster, namespaces, ray_cluster

from adapters.base import load_adapter
from harness.envs import ensure
from harness.protocol.spec import Device, Placement
from harness.specs import default_spec
from harness.telemetry.segment import FLUSH_PERIOD_S
from results.collect import collect
from results.samples import read_samples
from results.store import RunTables

pytestmark = [pytest.mark.framework, pytest.mark.timeout(480)]

AHEAD_S = {"node0": 0, "node1": 3_600, "node2": 777}
SECOND = 1_000_000_000
LONGEST_FLUSH_NS = round(1.2 * FLUSH_PERIOD_S * SECOND)  # its jitter is a fifth
BEAT_NS = SECOND // 10  # twice the driver's period
WORK_S = 40.0
PATIENCE_S = 120.0
RUN_ID = "several-nodes-1"


class Played:
    """One run: node1's agent is killed and comes back, then node2's raylet is killed."""

    def __init__(self, cluster: Cluster, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.killed_ns = 0
        self.agent_killed_ns = 0
        self._play(cluster)
        self.run: RunTables = collect(run_dir)
        self.hosts = {row["host"]: row for row in self.run.tables["hosts"].to_pylist()}

    def times(self, host: str) -> list[int]:
        rows = self.run.tables["samples"].select(["host", "mono_ns"]).to_pylist()
        return [row["mono_ns"] for row in rows if row["host"] == host]

    def beats(self, host: str) -> list[dict]:
        rows = self.run.tables["probes"].to_pylist()
        return [row for row in rows if row["name"] == "beat" and row["host"] == host]

    def _play(self, cluster: Cluster) -> None:
        python = ensure(load_adapter("skyrl").environment(Device.CPU, "vllm"))
        spec = replace(
            default_spec("skyrl", Placement.ASYNC, Device.CPU), nodes=3, ray_address=cluster.address, dcgm="off"
        )
        for part in ("events", "samples", "logs", "tables"):
            (self.run_dir / part).mkdir(parents=True)
        (self.run_dir / "spec.json").write_text(spec.to_json())
        (self.run_dir / "meta.json").write_text(json.dumps({"run_id": RUN_ID, "machine": {"host": "node0"}}))
        environment = {**os.environ, "BENCH_HOST": "node0", "BENCH_RUN_ID": RUN_ID, "BENCH_ENGINE_SCRAPE_S": "0"}
        environment["BENCH_EVENTS"] = str(self.run_dir / "events")
        places = ["--run-id", RUN_ID, "--out", str(self.run_dir / "samples")]
        sampler = [sys.executable, "-P", "-m", "harness.telemetry.sampler", *places]
        driver = [str(python), "-P", str(Path(__file__).with_name("several_nodes_driver.py"))]
        driver += [str(self.run_dir / "spec.json"), f"{WORK_S:g}"]
        with (self.run_dir / "logs" / "worker.log").open("wb") as log:
            beside = subprocess.Popen(sampler, stdin=subprocess.PIPE, env=environment)
            worker = subprocess.Popen(driver, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            self._disturb(cluster, worker)
            assert worker.wait(PATIENCE_S) == 0, self._log()
        finally:
            worker.kill()
            beside.communicate(timeout=60)

    def _disturb(self, cluster: Cluster, worker: subprocess.Popen) -> None:
        for host in ("node1", "node2"):
            self._wait(worker, lambda host=host: len(self._gathered(host)) >= 6)
        (agent,) = cluster.nodes[1].find("ray::_NodeAgent") or cluster.nodes[1].find("_NodeAgent")
        self.agent_killed_ns = time.monotonic_ns()
        os.kill(agent.pid, 9)
        before = len(list((self.run_dir / "samples").glob("node1-*.arrows")))
        self._wait(worker, lambda: len(list((self.run_dir / "samples").glob("node1-*.arrows"))) > before)
        self.killed_ns = cluster.kill_raylet(cluster.nodes[2])

    def _gathered(self, host: str) -> list[int]:
        folder = self.run_dir / "samples"
        if not list(folder.glob(f"{host}-*.arrows")):
            return []
        return [row["mono_ns"] for row in read_samples(folder).to_pylist() if row["host"] == host]

    def _wait(self, worker: subprocess.Popen, what) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert worker.poll() is None, f"the run ended too early\n{self._log()}"
            assert time.monotonic() < end, f"it never came\n{self._log()}"
            time.sleep(0.1)

    def _log(self) -> str:
        files = [*(self.run_dir / "logs").glob("*.log")]
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}" for path in files)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    reason = namespaces()
    if reason is not None:
        pytest.skip(f"no hosts of their own to be had here: {reason}")
    python = ensure(load_adapter("skyrl").environment(Device.CPU, "vllm"))
    folder = tmp_path_factory.mktemp("nodes")
    with ray_cluster(python, AHEAD_S, folder) as cluster:
        return Played(cluster, folder / "run")


def stall_ns(times: list[int], usual_ns: int) -> int:
    """By how much this machine was later than usual, at its worst: on a busy one that is not the gathering's fault."""
    return max(0, *(after - before - usual_ns for before, after in pairwise(sorted(times))))


def test_every_node_is_sampled_on_one_axis(played: Played) -> None:
    begin, end = min(played.times("node0")), max(played.times("node0"))
    for host in AHEAD_S:
        times = played.times(host)
        assert len(times) > 10
        assert begin <= min(times) <= max(times) <= end + SECOND, host


def test_the_offsets_are_what_the_clocks_were_shifted_by(played: Played) -> None:
    assert played.hosts["node0"]["reference"] is True
    for host in ("node1", "node2"):
        row = played.hosts[host]
        print(host, row)
        assert abs(row["offset_ns"] - AHEAD_S[host] * SECOND) <= row["uncertainty_ns"]
        assert row["steady"] is True
        assert row["comparisons"] >= 3


def test_each_instant_is_right_within_the_stated_uncertainty(played: Played) -> None:
    """The namespaces share the wall clock, which says independently where an instant was."""
    begin = played.beats("node0")
    assert begin
    for host in ("node1", "node2"):
        uncertainty = played.hosts[host]["uncertainty_ns"]
        shift = AHEAD_S[host] * SECOND
        for beat in played.beats(host):
            labels = json.loads(beat["labels_json"])
            # Recorded after its own reading: the event is at most the time between the two readings later.
            true_ns = labels["mono_ns"] - shift
            assert beat["mono_ns"] >= true_ns - uncertainty
        early = min(beat["mono_ns"] - json.loads(beat["labels_json"])["mono_ns"] + shift for beat in played.beats(host))
        assert early <= uncertainty + 5_000_000


def test_a_killed_raylet_loses_at_most_its_nodes_last_second(played: Played) -> None:
    row = played.hosts["node2"]
    assert row["lost"] is True
    allowed = SECOND + row["uncertainty_ns"]
    times = played.times("node2")
    lost = played.killed_ns - max(times)
    beats = [beat["mono_ns"] for beat in played.beats("node2")]
    print(f"lost: {lost / 1e9:.3f} s of samples, {(played.killed_ns - max(beats)) / 1e9:.3f} s of events")
    # A node without a GPU is sampled with each flush, 0.6 s apart at most, and asked every 0.2 s: a second is enough.
    busy = max(stall_ns(times, LONGEST_FLUSH_NS), stall_ns(played.times("node0"), LONGEST_FLUSH_NS))
    assert lost <= allowed + busy
    assert played.killed_ns - max(beats) <= allowed + max(stall_ns(beats, BEAT_NS), busy)
    failures = played.run.tables["failures"]["message"].to_pylist()
    assert any("node node2" in message for message in failures)


def test_the_other_nodes_go_on(played: Played) -> None:
    for host in ("node0", "node1"):
        assert max(played.times(host)) > played.killed_ns + SECOND
        assert played.hosts[host]["lost"] is False


def test_an_agent_that_was_killed_comes_back_and_loses_no_event(played: Played) -> None:
    beats = [beat["mono_ns"] for beat in played.beats("node1")]
    around = [at for at in beats if abs(at - played.agent_killed_ns) < 3 * SECOND]
    assert min(around) < played.agent_killed_ns < max(around)
    assert stall_ns(around, BEAT_NS) < SECOND + stall_ns([beat["mono_ns"] for beat in played.beats("node0")], BEAT_NS)
    assert len({path.name for path in (played.run_dir / "samples").glob("node1-*.arrows")}) >= 2


def test_files_are_named_by_host(played: Played) -> None:
    names = [path.name for path in (played.run_dir / "events").glob("*.jsonl")]
    for host in AHEAD_S:
        assert any(name.startswith(f"{host}-") for name in names), names
