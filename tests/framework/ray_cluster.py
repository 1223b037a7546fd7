"""A Ray cluster of several nodes on one machine. As root each node but the head is a host of its own: a network
namespace, a monotonic clock that is shifted by a known time, and a /tmp that nobody shares."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.supervisor.processes import Process, all_processes, descendants, send, sweep

HEAD_PORT = 26_379
SUBNET = "10.97.61"
BRIDGE = "benchbr0"
START_S = 120.0
ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_worker_prestart": "0", "RAY_worker_register_timeout_seconds": "300"}


@dataclass
class RayNode:
    """One node; `ahead_s` is how far its monotonic clock is ahead of the head's."""

    host: str
    ahead_s: int
    process: subprocess.Popen
    log: Path

    def find(self, words: str) -> list[Process]:
        """Its live processes whose command line holds `words`."""
        found = descendants([self.process.pid], all_processes())
        return [process for process in found.values() if words in _command(process.pid)]


@dataclass
class Cluster:
    """A running cluster."""

    address: str
    nodes: list[RayNode]

    def kill_raylet(self, node: RayNode) -> int:
        """Kills a node's raylet; returns this clock's time, ns, before it."""
        (raylet,) = node.find("raylet/raylet")
        now = time.monotonic_ns()
        assert send(raylet, signal.SIGKILL)
        return now


def namespaces() -> str | None:
    """Why hosts of their own can't be had here; None when they can."""
    if os.geteuid() != 0:
        return "network and time namespaces need root"
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    tried = ["unshare", "--net", "--mount", "--time", "--fork", "--monotonic", "1000", "true"]
    return None if subprocess.run(tried, capture_output=True, check=False).returncode == 0 else "no time namespaces"


@contextlib.contextmanager
def ray_cluster(
    python: Path, ahead_s: Mapping[str, int], logs: Path, *, gpus: Mapping[str, int] | None = None
) -> Iterator[Cluster]:
    """The head is this host under the name of the first; nothing of it is left after the block.

    `gpus`: how many each node says it has; Ray only counts them.
    """
    hosts = list(ahead_s)
    temp = Path(tempfile.mkdtemp(prefix="bn-", dir="/tmp"))
    nodes: list[RayNode] = []
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, temp, ignore_errors=True)
        stack.enter_context(_network(hosts[1:]))
        stack.callback(_end, nodes)
        for place, host in enumerate(hosts):
            nodes.append(_start(python, host, place, ahead_s[host], temp, logs, (gpus or {}).get(host, 0)))
            if place == 0:
                _wait_for(nodes[0], "Ray runtime started")
        for node in nodes[1:]:
            _wait_for(node, "Ray runtime started")
        yield Cluster(address=f"{SUBNET}.1:{HEAD_PORT}", nodes=nodes)


def _start(python: Path, host: str, place: int, ahead_s: int, temp: Path, logs: Path, gpus: int) -> RayNode:
    ray = [str(python), "-P", "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ray += [
        f"--node-ip-address={SUBNET}.{place + 1}",
        "--num-cpus=16",
        f"--num-gpus={gpus}",
        "--object-store-memory=80000000",
    ]
    if place == 0:
        command = [*ray, "--head", f"--port={HEAD_PORT}", f"--temp-dir={temp}", "--include-dashboard=false"]
    else:
        inside = [*ray, f"--address={SUBNET}.1:{HEAD_PORT}"]
        aside = temp / f"tmp-of-{host}"
        aside.mkdir()
        own = [
            "unshare",
            "--mount",
            "--time",
            "--fork",
            "--monotonic",
            str(ahead_s),
            "sh",
            "-c",
            _own_tmp(aside, python),
        ]
        own += ["sh", *inside]
        command = ["ip", "netns", "exec", f"bench-{host}", *own]
    log = logs / f"{host}.log"
    with log.open("wb") as output:
        environment = {**os.environ, **ENV, "BENCH_HOST": host}
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    return RayNode(host=host, ahead_s=ahead_s, process=process, log=log)


def _own_tmp(aside: Path, python: Path) -> str:
    """A script that gives its process a /tmp of its own, with the programs in it that lie below the shared one."""
    programs = {python.parents[min(3, len(python.parents) - 1)], Path(__file__).parents[2], Path(sys.prefix)}
    lines = ["set -e", f"mount -t tmpfs tmpfs {aside}"]
    for kept in sorted(str(path) for path in programs):
        if kept.startswith("/tmp/"):
            inside = shlex.quote(f"{aside}/{kept.removeprefix('/tmp/')}")
            lines += [f"mkdir -p {inside}", f"mount --bind {shlex.quote(kept)} {inside}"]
    return "\n".join([*lines, f"mount --rbind {aside} /tmp", 'exec "$@"'])


def _wait_for(node: RayNode, words: str) -> None:
    end = time.monotonic() + START_S
    while words not in (text := node.log.read_text(errors="replace")):
        assert node.process.poll() is None, f"ray start of {node.host} ended:\n{text}"
        assert time.monotonic() < end, f"ray start of {node.host} did not come up:\n{text}"
        time.sleep(0.2)


@contextlib.contextmanager
def _network(hosts: list[str]) -> Iterator[None]:
    def ip(*words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True)

    def away() -> None:
        for host in hosts:
            ip("netns", "delete", f"bench-{host}", check=False)
        ip("link", "delete", BRIDGE, check=False)

    away()
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for place, host in enumerate(hosts, start=2):
            space = f"bench-{host}"
            ip("netns", "add", space)
            ip("link", "add", f"bv{place}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"bv{place}", "master", BRIDGE, "up")
            ip("-n", space, "address", "add", f"{SUBNET}.{place}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "route", "add", "default", "via", f"{SUBNET}.1")
        yield
    finally:
        away()


def _end(nodes: list[RayNode]) -> None:
    """Ends the nodes and all that descends from them, the head last."""
    for node in reversed(nodes):
        known: dict[int, Process] = {}

        def find(node: RayNode = node, known: dict[int, Process] = known) -> dict[int, Process]:
            node.process.poll()
            table = all_processes()
            known |= descendants([node.process.pid], table)
            if node.process.pid in table:
                known[node.process.pid] = table[node.process.pid]
            same = {pid: table[pid] for pid, one in known.items() if pid in table and table[pid].key == one.key}
            return {pid: process for pid, process in same.items() if process.live}

        sweep(find, grace_s=5.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.process.wait(10)


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
