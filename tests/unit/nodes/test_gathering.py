"""Gathering: files of nodes that hesitate, are cut off, come back or are lost, written into a run's folder."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from harness.nodes import gather
from harness.nodes.agent import Agent, boot_id
from harness.nodes.gather import Gatherer, LostError
from harness.nodes.outbox import Piece, Taken, take
from harness.nodes.wire import Connection, Switchboard, TcpPeer, serve
from harness.protocol.events import Failure, Metric, read_events
from harness.protocol.recorder import Recorder, host_name, make_hello
from harness.telemetry.segment import FLUSH_PERIOD_S

PATIENCE_S = 60.0  # for hangs


def wait_for(what, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


class Peer:
    """A node in this process, whose clock is `ahead_ns` ahead."""

    def __init__(self, root, host="far", boot="boot-far", ahead_ns=0):
        self.root, self.host, self.boot, self.ahead_ns = root, host, boot, ahead_ns
        self.broken = None
        self.sampling = 0
        self.stopped = self.removed = False
        for folder in ("events", "samples", "logs"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def _may_fail(self):
        if self.broken is not None:
            raise self.broken

    def hello(self):
        self._may_fail()
        return {"host": self.host, "boot": self.boot}

    def clock(self):
        self._may_fail()
        now = time.monotonic_ns() + self.ahead_ns
        return now, now

    def start_sampler(self, hz, dcgm):
        self._may_fail()
        self.sampling += 1

    def take(self, have, limit):
        self._may_fail()
        return take(self.root, have, limit), None

    def stop_sampler(self):
        self._may_fail()
        self.stopped = True

    def remove(self):
        self._may_fail()
        self.removed = True


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(gather, "PERIOD_S", 0.02)
    monkeypatch.setattr(gather, "CLOCK_PERIOD_S", 0.1)
    monkeypatch.setattr(gather, "RETRY_S", 0.05)


@pytest.fixture
def run(tmp_path, quick):
    made = Run(tmp_path / "run")
    yield made
    made.recorder.shut()  # its thread syncs to disk once a second, also in other tests


class Run:
    def __init__(self, folder):
        self.dir = folder
        for part in ("events", "samples", "logs"):
            (folder / part).mkdir(parents=True)
        self.recorder = Recorder(folder / "events" / "gatherer-here-1.jsonl", make_hello("run-1", "gatherer"))
        here = {"host": "here", "boot": "boot-here"}
        self.gatherer = Gatherer(folder, self.recorder, hz=10, dcgm="off", here=here)

    def events(self):
        return list(read_events(self.recorder.path))

    def metrics(self, name):
        return [event for event in self.events() if isinstance(event, Metric) and event.name == name]

    def failures(self):
        return [event.message for event in self.events() if isinstance(event, Failure)]

    def text(self, name):
        path = self.dir / name
        return path.read_text() if path.exists() else ""


def test_files_come_as_they_grow_and_the_rest_at_the_end(run, tmp_path):
    peer = Peer(tmp_path / "far")
    path = peer.root / "events" / "far-7.jsonl"
    path.write_text("one\n")
    run.gatherer.add("n1", peer)
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\n")
    with path.open("a") as file:
        file.write("two\n")
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\ntwo\n")
    (peer.root / "samples" / "far-7.arrows").write_bytes(b"last")
    run.gatherer.finish(PATIENCE_S)
    assert run.text("samples/far-7.arrows") == "last"
    assert peer.sampling
    assert peer.stopped
    assert peer.removed
    (end,) = run.metrics(gather.END)
    assert end.labels["complete"] is True
    assert end.labels["bytes"] == 12


def test_a_file_that_is_none_of_a_runs_is_refused_and_the_others_come(run, tmp_path):
    peer = Peer(tmp_path / "node")
    plain = peer.take

    def also_another(have, limit):
        taken, trouble = plain(have, limit)
        other = Piece(path="../meta.json", at=0, mark=3, data=b"bad")
        pieces = taken.pieces if "../meta.json" in have else (other, *taken.pieces)
        return Taken(pieces=pieces, left=taken.left), trouble

    peer.take = also_another
    (peer.root / "events" / "far-1.jsonl").write_bytes(b"one\n")
    run.gatherer.add("n1", peer)
    wait_for(lambda: (run.dir / "events" / "far-1.jsonl").exists())
    run.gatherer.finish(PATIENCE_S)
    assert (run.dir / "events" / "far-1.jsonl").read_bytes() == b"one\n"
    assert not (run.dir.parent / "meta.json").exists()
    assert any("no file of a run" in message for message in run.failures())
    assert peer.removed


def test_a_hiccup_loses_nothing_and_is_told(run, tmp_path):
    peer = Peer(tmp_path / "far")
    path = peer.root / "events" / "far-7.jsonl"
    path.write_text("one\n")
    run.gatherer.add("n1", peer)
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\n")
    peer.broken = LostError("the net is away")
    wait_for(lambda: run.metrics(gather.LOST))
    with path.open("a") as file:
        file.write("two\n")
    peer.broken = None
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\ntwo\n")
    run.gatherer.finish(PATIENCE_S)
    assert run.metrics(gather.RETURNED)
    assert run.failures() == ["node far does not answer: the net is away"]


def test_a_node_lost_for_good_keeps_what_came(run, tmp_path):
    peer = Peer(tmp_path / "far")
    (peer.root / "events" / "far-7.jsonl").write_text("one\n")
    run.gatherer.add("n1", peer)
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\n")
    peer.broken = LostError("dead", for_good=True)
    run.gatherer.nodes[0].thread.join(PATIENCE_S)
    run.gatherer.finish(PATIENCE_S)
    assert run.text("events/far-7.jsonl") == "one\n"
    (end,) = run.metrics(gather.END)
    assert end.labels["complete"] is False
    assert not peer.removed


def test_the_clock_of_a_node_is_compared_all_along(run, tmp_path):
    ahead = 123_456_789_000_000
    run.gatherer.add("n1", Peer(tmp_path / "far", ahead_ns=ahead))
    wait_for(lambda: len(run.metrics("clock.offset")) >= 3)
    run.gatherer.finish(PATIENCE_S)
    for metric in run.metrics("clock.offset"):
        assert abs(metric.labels["offset_ns"] - ahead) <= metric.labels["uncertainty_ns"]


def test_this_machine_gets_no_second_sampler(run, tmp_path):
    peer = Peer(tmp_path / "near", host="here", boot="boot-here")
    (peer.root / "events" / "here-9.jsonl").write_text("one\n")
    run.gatherer.add("n0", peer)
    run.gatherer.add("n0 again", again := Peer(tmp_path / "near2", host="here", boot="boot-here"))
    wait_for(lambda: run.text("events/here-9.jsonl") == "one\n")
    run.gatherer.finish(PATIENCE_S)
    assert peer.sampling == again.sampling == 0
    assert run.failures() == []


def test_two_machines_of_one_name_are_not_mixed(run, tmp_path):
    run.gatherer.add("n1", Peer(tmp_path / "a", host="node", boot="boot-a"))
    wait_for(lambda: run.metrics(gather.BEGIN))
    other = Peer(tmp_path / "b", host="node", boot="boot-b")
    (other.root / "events" / "node-1.jsonl").write_text("other\n")
    run.gatherer.add("n2", other)
    wait_for(run.failures)
    run.gatherer.finish(PATIENCE_S)
    assert "two machines call themselves node: set BENCH_HOST on each" in run.failures()[0]
    assert run.text("events/node-1.jsonl") == ""


def test_a_disk_that_is_away_for_a_while_costs_nothing(run, tmp_path):
    peer = Peer(tmp_path / "far")
    (run.dir / "events" / "far-7.jsonl").mkdir()  # can't be written
    (peer.root / "events" / "far-7.jsonl").write_text("one\n")
    run.gatherer.add("n1", peer)
    wait_for(run.failures)
    (run.dir / "events" / "far-7.jsonl").rmdir()
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\n")
    run.gatherer.finish(PATIENCE_S)
    assert len(run.failures()) == 1


def test_a_new_gatherer_goes_on_where_the_files_stand(run, tmp_path):
    peer = Peer(tmp_path / "far")
    (peer.root / "events" / "far-7.jsonl").write_text("one\ntwo\n")
    (run.dir / "events" / "far-7.jsonl").write_text("one\n")
    run.gatherer.add("n1", peer)
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\ntwo\n")
    run.gatherer.finish(PATIENCE_S)
    (end,) = run.metrics(gather.END)
    assert end.labels["bytes"] == len("two\n")


@pytest.fixture
def switchboard():
    found = []
    board = Switchboard("secret", lambda name, peer: found.append(peer), bind="127.0.0.1")
    board.start()
    board.found = found
    yield board
    board.close()


def agent_thread(agent, port, token="secret", give_up_s=30.0):
    results = []
    thread = threading.Thread(
        target=lambda: results.append(serve(agent, "127.0.0.1", port, token, give_up_s=give_up_s)), daemon=True
    )
    thread.start()
    thread.results = results
    return thread


def test_an_agent_over_tcp(run, tmp_path, switchboard, monkeypatch):
    monkeypatch.setenv("BENCH_HOST", "far")
    agent = Agent("run-1", tmp_path / "far")
    monkeypatch.setattr(agent, "start_sampler", lambda hz, dcgm: None)
    (agent.root / "events" / "far-7.jsonl").write_bytes(b"x" * 3_000_000 + b"\n")
    thread = agent_thread(agent, switchboard.port)
    wait_for(lambda: switchboard.found)
    run.gatherer.add("n1", switchboard.found[0])
    wait_for(lambda: len(run.text("events/far-7.jsonl")) == 3_000_001)
    run.gatherer.finish(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert thread.results == [True]
    assert not agent.root.exists()
    offsets = [metric.labels for metric in run.metrics("clock.offset")]
    assert offsets
    assert all(abs(one["offset_ns"]) <= one["uncertainty_ns"] for one in offsets)  # it is the same clock


def test_an_agent_calls_again_after_a_cut(run, tmp_path, switchboard, monkeypatch):
    monkeypatch.setenv("BENCH_HOST", "far")
    agent = Agent("run-1", tmp_path / "far")
    monkeypatch.setattr(agent, "start_sampler", lambda hz, dcgm: None)
    path = agent.root / "events" / "far-7.jsonl"
    path.write_bytes(b"one\n")
    agent_thread(agent, switchboard.port)
    peer = wait_for(lambda: switchboard.found)[0]
    run.gatherer.add("n1", peer)
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\n")
    peer._connection._socket.shutdown(2)
    path.write_bytes(b"one\ntwo\n")
    wait_for(lambda: run.text("events/far-7.jsonl") == "one\ntwo\n")
    run.gatherer.finish(PATIENCE_S)
    assert len(switchboard.found) == 1


def test_a_stranger_is_not_heard(switchboard, tmp_path):
    thread = agent_thread(Agent("run-1", tmp_path / "far"), switchboard.port, token="guess", give_up_s=1.0)
    thread.join(PATIENCE_S)
    assert thread.results == [False]
    assert switchboard.found == []


def test_an_agent_whose_run_is_over_ends(tmp_path):
    agent = Agent("run-1", tmp_path / "far")
    thread = agent_thread(agent, 9, give_up_s=0.5)
    thread.join(PATIENCE_S)
    assert thread.results == [False]


def test_nonsense_from_the_other_side_is_a_lost_node():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            theirs.sendall(b"what?\n")
            peer = TcpPeer({"host": "x", "boot": "y"})
            peer.take_over(Connection(ours))
            with pytest.raises(LostError, match="not a message"):
                peer.clock()
            with pytest.raises(LostError, match="has not called again"):
                peer.clock()


def test_a_real_sampler_on_a_node(run, tmp_path, switchboard):
    """An agent process with its sampler; both are killed: what was gathered stays, and is at most a second short."""
    environment = {**os.environ, "BENCH_HOST": "far", "BENCH_NODE_TOKEN": "secret"}
    environment["BENCH_NODE_FOLDER"] = str(tmp_path / "node")
    environment["BENCH_ENGINE_SCRAPE_S"] = "0"
    command = [sys.executable, "-P", "-m", "harness.nodes", "agent", "--run-id", "run-1"]
    command += ["--connect", f"127.0.0.1:{switchboard.port}"]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            run.gatherer.add("n1", wait_for(lambda: switchboard.found)[0])
            wait_for(lambda: len(sampled(run.dir)) >= 4)
            killed_ns = time.monotonic_ns()
            os.killpg(process.pid, signal.SIGKILL)
        finally:
            process.kill()
    wait_for(lambda: run.metrics(gather.LOST))
    run.gatherer.finish(1.0)
    times = sampled(run.dir)
    assert killed_ns - max(times) < 1_000_000_000 + stall_ns(times)


def stall_ns(times):
    """By how much this machine's own sampling was later than its longest usual time, at its worst."""
    usual_ns = 1.2 * FLUSH_PERIOD_S * 1e9  # its jitter is a fifth
    return max(0, *(after - before - usual_ns for before, after in pairwise(sorted(times))))


def sampled(run_dir: Path):
    from results.samples import read_samples

    return read_samples(run_dir / "samples")["mono_ns"].to_pylist()


def test_who_an_agent_says_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_HOST", "node-7")
    hello = Agent("run-1", tmp_path).hello()
    assert hello["host"] == host_name() == "node-7"
    assert hello["boot"] == boot_id() != ""


def test_an_agents_sampler_is_not_marked_as_a_process_of_the_run(tmp_path, monkeypatch):
    """Else a supervisor on the same host ends it with the run's processes, before the run's end is sampled."""
    monkeypatch.setenv("BENCH_RUN_ID", "run-1")
    agent = Agent("run-1", tmp_path / "node")
    agent.start_sampler(5.0, "off")
    try:
        assert agent._sampler is not None
        environment = Path(f"/proc/{agent._sampler.pid}/environ")
        told = wait_for(lambda: [word for word in environment.read_bytes().split(b"\0") if word.startswith(b"BENCH_")])
    finally:
        agent.stop_sampler()
    assert f"BENCH_EVENTS={tmp_path}/node/events".encode() in told
    assert not [word for word in told if word.startswith(b"BENCH_RUN_ID=")]
