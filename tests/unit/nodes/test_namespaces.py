"""Agents over a real network, on hosts with shifted clocks: network and time namespaces, which only root can have."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from harness.nodes.agent import boot_id
from harness.nodes.gather import Gatherer
from harness.nodes.wire import Switchboard
from harness.protocol.events import Metric, read_events
from harness.protocol.recorder import Recorder, make_hello
from results.collect import collect
from results.samples import read_samples

PATIENCE_S = 60.0
SECOND = 1_000_000_000


def missing():
    if os.geteuid() != 0:
        return "root"
    absent = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    if absent:
        return ", ".join(absent)
    tried = ["unshare", "--net", "--time", "--fork", "--monotonic", "1000", "true"]
    return None if subprocess.run(tried, capture_output=True, check=False).returncode == 0 else "time namespaces"


pytestmark = pytest.mark.skipif(missing() is not None, reason=f"hosts of their own need {missing()}")


@contextlib.contextmanager
def host():
    """A network namespace: its name, our address as it knows it, and our end of the link."""
    name, ours, theirs = f"bench-{os.getpid()}", f"bh{os.getpid()}", f"bn{os.getpid()}"
    net = f"10.98.{os.getpid() % 250}"

    def do(*words, check=True):
        subprocess.run(words, check=check, capture_output=True)

    try:
        do("ip", "netns", "add", name)
        do("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        do("ip", "address", "add", f"{net}.1/24", "dev", ours)
        do("ip", "link", "set", ours, "up")
        do("ip", "-n", name, "address", "add", f"{net}.2/24", "dev", theirs)
        do("ip", "-n", name, "link", "set", theirs, "up")
        yield name, f"{net}.1", ours
    finally:
        do("ip", "netns", "delete", name, check=False)
        do("ip", "link", "delete", ours, check=False)


def lopsided(address, port, delay_s):
    """A port that leads to `port`; what comes from there to here is held up, what goes there is not."""
    listener = socket.create_server((address, 0))

    def pump(source, target, wait_s):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(wait_s)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept():
        while True:
            inside, _ = listener.accept()
            onward = socket.create_connection((address, port))
            threading.Thread(target=pump, args=(inside, onward, delay_s), daemon=True).start()
            threading.Thread(target=pump, args=(onward, inside, 0.0), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


@contextlib.contextmanager
def agent(space, address, port, ahead_s, folder):
    environment = {**os.environ, "BENCH_HOST": "far", "BENCH_NODE_TOKEN": "secret", "BENCH_ENGINE_SCRAPE_S": "0"}
    environment["BENCH_NODE_FOLDER"] = str(folder)
    own = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(ahead_s)]
    command = ["ip", "netns", "exec", space, *own, sys.executable, "-P", "-m", "harness.nodes", "agent"]
    command += ["--run-id", "run-1", "--connect", f"{address}:{port}"]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(what):
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def test_the_offset_is_right_within_its_uncertainty_over_a_lopsided_network(tmp_path):
    from harness.specs import resolve

    run_dir, ahead_s, delay_ms = tmp_path / "run", 50_000, 30
    for part in ("events", "samples", "logs", "tables"):
        (run_dir / part).mkdir(parents=True)
    spec = resolve({"framework": "simulated", "placement": "async", "device": "cpu"}).spec
    (run_dir / "spec.json").write_text(spec.to_json())
    (run_dir / "meta.json").write_text('{"run_id": "run-1", "machine": {"host": "here"}}')
    hello = make_hello("run-1", "gatherer")
    recorder = Recorder(run_dir / "events" / "gatherer-here-1.jsonl", hello)
    here = {"host": "here", "boot": boot_id()}
    found = []
    with host() as (space, address, ours):
        board = Switchboard("secret", lambda name, peer: found.append(peer), bind=address)
        board.start()
        gatherer = Gatherer(run_dir, recorder, hz=10, dcgm="off", here=here)
        begin_ns = time.monotonic_ns()
        with agent(space, address, lopsided(address, board.port, delay_ms / 1e3), ahead_s, tmp_path / "node"):
            gatherer.add("n1", wait_for(lambda: found)[0])
            wait_for(lambda: len(offsets(recorder.path)) >= 2)
            wait_for(lambda: read_samples(run_dir / "samples").num_rows >= 3)
            subprocess.run(["ip", "link", "set", ours, "down"], check=True)  # a hiccup
            time.sleep(1.0)
            subprocess.run(["ip", "link", "set", ours, "up"], check=True)
            had = read_samples(run_dir / "samples").num_rows
            wait_for(lambda: read_samples(run_dir / "samples").num_rows >= had + 3)
            gatherer.finish(PATIENCE_S)
        end_ns = time.monotonic_ns()
        board.close()
    recorder.bye()
    for labels in offsets(recorder.path):
        error = labels["offset_ns"] - ahead_s * SECOND
        assert abs(error) <= labels["uncertainty_ns"]
        assert labels["uncertainty_ns"] >= delay_ms * 1_000_000 / 2 * 0.9  # half of what one way took alone
    last = offsets(recorder.path)[-1]
    assert abs(last["offset_ns"] - ahead_s * SECOND) >= delay_ms * 1_000_000 / 4  # lopsided: it is off, and says so
    run = collect(run_dir)
    (far,) = [row for row in run.tables["hosts"].to_pylist() if row["host"] == "far"]
    assert abs(far["offset_ns"] - ahead_s * SECOND) <= far["uncertainty_ns"]
    slack = far["uncertainty_ns"]
    times = [row["mono_ns"] for row in run.tables["samples"].to_pylist() if row["host"] == "far"]
    assert begin_ns - slack <= min(times) <= max(times) <= end_ns + slack
    assert not (tmp_path / "node").exists() or not list((tmp_path / "node").iterdir())


def offsets(path):
    return [event.labels for event in read_events(path) if isinstance(event, Metric) and event.name == "clock.offset"]
