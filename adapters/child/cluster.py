"""A Ray cluster that is there already: joined instead of started, its processes told what a run tells its own."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from adapters.child.track import require
from harness.nodes.places import FOLDER_VARIABLE, node_root
from harness.nodes.slurm import starter
from harness.protocol.recorder import EVENTS_VARIABLE, HOST_VARIABLE, RUN_DIR_VARIABLE, RUN_ID_VARIABLE
from harness.protocol.spec import SPEC_TEXT_VARIABLE, Device, RunSpec

GATHERER_GRACE_S = 40.0
TAIL_S = 1.2  # of samples after the last step: a counter's refresh
# What a driver may say of a cluster that it starts, and Ray refuses to hear of one that is there.
STARTING_ONLY = (
    "num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "include_dashboard", "dashboard_host",
    "dashboard_port", "_temp_dir", "_plasma_directory", "_redis_max_memory", "_system_config", "_node_ip_address",
)  # fmt: skip
OWN = (HOST_VARIABLE, EVENTS_VARIABLE, "BENCH_TMP", FOLDER_VARIABLE)  # of one host or folder only


def passed(environ: Mapping[str, str], names: Iterable[str], spec: RunSpec, run_dir: Path) -> dict[str, str]:
    """What every process of the run has in its environment, on any node of the cluster.

    The adapter's own variables (`names`) and bench's; the events go to a folder of each node's own disk.
    """
    wanted = {name for name in environ if name.startswith("BENCH_")} | set(names)
    found = {name: environ[name] for name in sorted(wanted) if name in environ and name not in OWN}
    root = node_root(environ[RUN_ID_VARIABLE], environ.get(FOLDER_VARIABLE, ""))
    told = {EVENTS_VARIABLE: f"{root}/events", RUN_DIR_VARIABLE: str(run_dir), SPEC_TEXT_VARIABLE: spec.to_json()}
    return {**found, **told}


def joined(arguments: Mapping[str, Any], address: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `ray.init` for a cluster that is there. The framework's own variables win over `env`."""
    kept = {name: value for name, value in arguments.items() if name not in STARTING_ONLY}
    runtime_env = dict(kept.pop("runtime_env", None) or {})
    runtime_env["env_vars"] = {**env, **(runtime_env.get("env_vars") or {})}
    return {**kept, "address": address, "runtime_env": runtime_env}


@contextlib.contextmanager
def on_cluster(spec: RunSpec, run_dir: Path, names: Iterable[str]) -> Iterator[None]:
    """The block in which the framework starts Ray and works: on the cluster at `spec.ray_address`, if there is one.

    Every node of it is sampled, and its events come to the run's folder, until the block is left.

    Raises:
        RuntimeError: the cluster has fewer nodes than the spec asks for (at the framework's `ray.init`).
    """
    os.environ.pop("RAY_ADDRESS", None)
    if not spec.ray_address and spec.nodes == 1:
        yield
        return
    import ray

    gatherers: list[subprocess.Popen[bytes]] = []
    env = passed(os.environ, names, spec, run_dir)
    real: Callable[..., Any] = require(ray, "init")  # type: ignore[assignment]

    def init(*arguments: Any, **keywords: Any) -> Any:
        if spec.ray_address and not arguments:
            keywords = joined(keywords, spec.ray_address, env)
        context = real(*arguments, **keywords)
        count = sum(bool(node["Alive"]) for node in ray.nodes())
        if count < spec.nodes:
            raise RuntimeError(
                f"nodes = {spec.nodes}: the Ray cluster has {count}; start Ray on each node (`ray start`), and give "
                "the head's address with --ray-address"
            )
        if not gatherers and spec.ray_address and starter(spec.nodes, spec.ray_address) == "ray":
            gatherers.append(_start_gatherer(spec, run_dir))
        return context

    ray.init = init
    try:
        yield
    finally:
        ray.init = real
        if gatherers and spec.device is Device.CUDA:
            time.sleep(TAIL_S)
        for process in gatherers:
            _end_gatherer(process)


def _start_gatherer(spec: RunSpec, run_dir: Path) -> "subprocess.Popen[bytes]":
    root = node_root(os.environ[RUN_ID_VARIABLE], os.environ.get(FOLDER_VARIABLE, ""))
    dcgm = spec.dcgm if spec.device is Device.CUDA else "off"
    places = ("--address", spec.ray_address, "--run-dir", str(run_dir), "--root", root)
    command = (sys.executable, "-P", "-m", "adapters.child.nodes", *places, "--hz", f"{spec.sample_hz:g}")
    with (run_dir / "logs" / "nodes.log").open("ab") as log:
        return subprocess.Popen((*command, "--dcgm", dcgm), stdin=subprocess.PIPE, stdout=log, stderr=log)


def _end_gatherer(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(GATHERER_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
