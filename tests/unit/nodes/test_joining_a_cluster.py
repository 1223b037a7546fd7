"""Joining a Ray cluster that is there: what `ray.init` is told, what reaches every process, and what is refused."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.base import load_adapter
from adapters.child import cluster
from harness.nodes.places import here, node_root
from harness.protocol.errors import SpecError
from harness.protocol.recorder import Recorder, events_folder, host_name
from harness.protocol.spec import RunSpec
from harness.specs import resolve
from workloads.deep_research.work import run_folder

ADDRESS = "10.0.0.1:6379"


def spec_of(**changes):
    return replace(resolve({"framework": "skyrl", "placement": "async", "device": "cpu"}).spec, **changes)


@pytest.fixture
def environment(monkeypatch):
    for name, value in {
        "BENCH_RUN_ID": "run-1",
        "BENCH_EVENTS": "/runs/run-1/events",
        "BENCH_TMP": "/tmp/scratch",
        "BENCH_HOST": "node0",
        "BENCH_RECORD": "steps",
        "RAY_ADDRESS": "somewhere:1",
        "OMP_NUM_THREADS": "1",
        "SECRET": "s",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BENCH_NODE_FOLDER", "/scratch")


def test_every_process_gets_the_runs_variables_and_no_others(environment):
    spec = spec_of(ray_address=ADDRESS)
    found = cluster.passed(os.environ, ["OMP_NUM_THREADS", "NOT_SET"], spec, Path("/runs/run-1"))
    assert found["BENCH_RUN_ID"] == "run-1"
    assert found["BENCH_RECORD"] == "steps"
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["BENCH_EVENTS"] == "/scratch/bench-run-1/{host}/events"
    assert run_folder(found) == Path("/runs/run-1")
    assert RunSpec.from_json(found["BENCH_SPEC"]) == spec
    assert not {"SECRET", "NOT_SET", "BENCH_HOST", "BENCH_TMP", "RAY_ADDRESS"} & set(found)


def test_what_only_a_new_cluster_can_be_told_is_left_out():
    asked = {"num_cpus": 16, "num_gpus": 2, "include_dashboard": False, "address": "local", "log_to_driver": True}
    asked["runtime_env"] = {"env_vars": {"A": "framework"}, "working_dir": "w"}
    assert cluster.joined(asked, ADDRESS, {"A": "bench", "B": "bench"}) == {
        "address": ADDRESS,
        "log_to_driver": True,
        "runtime_env": {"env_vars": {"A": "framework", "B": "bench"}, "working_dir": "w"},
    }
    assert cluster.joined({"runtime_env": None}, ADDRESS, {})["runtime_env"] == {"env_vars": {}}


class Ray(SimpleNamespace):
    """A ray module of `count` nodes that notes what it was told."""

    def __init__(self, count):
        super().__init__(told=[], init=self.start, nodes=lambda: [{"Alive": True}] * count + [{"Alive": False}])

    def start(self, *arguments, **keywords):
        self.told.append((arguments, keywords))
        return "context"


@pytest.fixture
def gatherers(monkeypatch):
    started = []
    monkeypatch.setattr(cluster, "_start_gatherer", lambda spec, run_dir: started.append(spec) or "process")
    monkeypatch.setattr(cluster, "_end_gatherer", lambda process: started.append(process))
    return started


def test_a_run_without_a_cluster_is_left_alone(environment, monkeypatch, tmp_path, gatherers):
    monkeypatch.setitem(sys.modules, "ray", ray := Ray(1))
    before = ray.init
    with cluster.on_cluster(spec_of(), tmp_path, ()):
        assert ray.init is before
        assert "RAY_ADDRESS" not in os.environ
    assert gatherers == []


def test_the_frameworks_init_joins_and_gathering_begins_and_ends(environment, monkeypatch, tmp_path, gatherers):
    monkeypatch.setitem(sys.modules, "ray", ray := Ray(2))
    before = ray.init
    spec = spec_of(ray_address=ADDRESS, nodes=2)
    with cluster.on_cluster(spec, tmp_path, ("OMP_NUM_THREADS",)):
        assert ray.init(num_gpus=2, runtime_env={"env_vars": {"X": "1"}}) == "context"
        ((_, told),) = ray.told
        assert told["address"] == ADDRESS
        assert "num_gpus" not in told
        assert {"X", "BENCH_RUN_ID", "BENCH_EVENTS", "OMP_NUM_THREADS"} <= set(told["runtime_env"]["env_vars"])
        assert gatherers == [spec]
    assert gatherers == [spec, "process"]
    assert ray.init == before


def test_a_cluster_that_is_too_small_is_refused_by_name(environment, monkeypatch, tmp_path, gatherers):
    monkeypatch.setitem(sys.modules, "ray", ray := Ray(2))
    with (
        cluster.on_cluster(spec_of(ray_address=ADDRESS, nodes=3), tmp_path, ()),
        pytest.raises(RuntimeError, match="nodes = 3: the Ray cluster has 2; start Ray on each node"),
    ):
        ray.init()
    assert gatherers == []


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "auto", ":6379", "head:port", "head:6379/x"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(SpecError, match="ray_address = "):
        spec_of(ray_address=address).check()


@pytest.mark.parametrize("address", ["", "head.cluster:6379", "10.0.0.1:6379", "[fe80::1]:6379"])
def test_an_address_is_taken(address):
    spec_of(ray_address=address).check()


@pytest.mark.parametrize("framework", ["areal", "simulated"])
def test_frameworks_without_ray_say_so(framework):
    spec = replace(resolve({"framework": framework, "placement": "async", "device": "cpu"}).spec, ray_address=ADDRESS)
    assert f"ray_address = {ADDRESS}" in load_adapter(framework).supports(spec)


def test_each_host_records_into_its_own_folder(monkeypatch, tmp_path):
    root = node_root("run-1", str(tmp_path))
    monkeypatch.setenv("BENCH_RUN_ID", "run-1")
    monkeypatch.setenv("BENCH_EVENTS", f"{root}/events")
    for host in ("a", "b"):
        monkeypatch.setenv("BENCH_HOST", host)
        recorder = Recorder.from_environment("rollout")
        recorder.shut()
        assert recorder.path.parent == tmp_path / "bench-run-1" / host / "events" == here(root) / "events"
        assert recorder.path.name.startswith(f"{host}-")
    monkeypatch.delenv("BENCH_HOST")
    assert host_name() == os.uname().nodename


def test_a_folder_of_one_host_only_is_not_made(tmp_path):
    assert not events_folder(str(tmp_path / "missing")).exists()
