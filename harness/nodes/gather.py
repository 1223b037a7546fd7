"""The side that gathers: a thread per node asks for what is new, writes it into the run's folder, compares clocks.

It asks only when it has written what it got, so a slow disk here slows the asking and fills no memory; a node keeps
what was not asked for yet on its own disk. What a node lost with its last moment is what it had not flushed and what
had not been asked for: the sampler's half second and PERIOD_S.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.nodes.clock import METRIC, Round, measure
from harness.nodes.outbox import GROWING, LIMIT_BYTES, WHOLE, Piece, Taken, may_come
from harness.protocol.events import Scalar
from harness.protocol.recorder import Recorder, RecorderFullError

PERIOD_S = 0.2
CLOCK_PERIOD_S = 2.0
CLOCK_ROUNDS = 8
FSYNC_PERIOD_S = 1.0
RETRY_S = 1.0
BEGIN, END, LOST, RETURNED = "nodes.begin", "nodes.end", "nodes.lost", "nodes.returned"  # names of metrics


class LostError(Exception):
    """The node did not answer; it may answer again, unless `for_good`."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class Peer(Protocol):
    """The way to one node's agent. Every call may raise LostError, and may be made again after it."""

    def hello(self) -> dict[str, Any]:
        """As `Agent.hello`."""

    def clock(self) -> tuple[int, int]:
        """As `Agent.clock`."""

    def start_sampler(self, hz: float, dcgm: str) -> None:
        """As `Agent.start_sampler`."""

    def take(self, have: dict[str, int], limit: int) -> tuple[Taken, str | None]:
        """As `Agent.take`."""

    def stop_sampler(self) -> None:
        """As `Agent.stop_sampler`."""

    def remove(self) -> None:
        """As `Agent.remove`."""


@dataclass(slots=True)
class Node:
    """One node as the gathering side sees it."""

    name: str  # as the starter calls it
    peer: Peer
    host: str = ""
    sampled: bool = False  # by an agent's sampler
    have: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    lost: str | None = None  # why, while it is
    gone: bool = False  # it will not come back
    thread: threading.Thread | None = None


class Gatherer:
    """Gathers from nodes until `finish`. Thread-safe where the threads meet."""

    def __init__(self, run_dir: Path, recorder: Recorder, *, hz: float, dcgm: str, here: dict[str, Any]) -> None:
        """`here`: this host's `hello`; it has a sampler already, started with the run."""
        self.run_dir = run_dir
        self.recorder = recorder
        self.nodes: list[Node] = []
        self._hz, self._dcgm = hz, dcgm
        self._identities: dict[str, str] = {here["host"]: here["boot"]}
        self._taken_up: set[str] = set()
        self._lock = threading.Lock()
        self._finishing = threading.Event()
        self._unsynced: set[Path] = set()
        self._told: set[str] = set()
        threading.Thread(target=self._sync_forever, name="fsync", daemon=True).start()

    def add(self, name: str, peer: Peer) -> None:
        """Takes up a node, in a thread of its own."""
        node = Node(name=name, peer=peer)
        node.thread = threading.Thread(target=self._follow, args=(node,), name=f"node-{name}", daemon=True)
        self.nodes.append(node)
        node.thread.start()

    def finish(self, patience_s: float) -> None:
        """Ends the samplers, takes the rest, and waits for that within limits."""
        self._finishing.set()
        end = time.monotonic() + patience_s
        for node in self.nodes:
            if node.thread is not None:
                node.thread.join(max(0.0, end - time.monotonic()))
        self._sync()

    def hosts(self) -> list[str]:
        """Hosts that an agent answered from, sorted."""
        return sorted({node.host for node in self.nodes if node.host})

    def _follow(self, node: Node) -> None:
        try:
            self._retrying(node, lambda: self._begin(node))
            if not node.host or node.gone:
                return
            while not self._finishing.is_set() and not node.gone:
                self._retrying(node, lambda: self._gather(node))
            if not node.gone:
                self._end(node)
            else:
                self._say(END, node, {"bytes": node.bytes, "complete": False})
        except Exception as error:  # what no one foresaw ends this node's gathering, and is in the record
            self._fail(error)

    def _retrying(self, node: Node, work: Callable[[], bool]) -> None:
        """`work` again and again while it returns True; a node that does not answer is asked again after a while."""
        while not self._finishing.is_set() and not node.gone:
            try:
                if not work():
                    return
                if node.lost is not None:
                    node.lost = None
                    self._say(RETURNED, node, {})
            except LostError as error:
                self._lost(node, error)
                self._finishing.wait(RETRY_S)
            except OSError as error:  # this side's disk: full, or away; what is not written is asked for again
                self._fail(error)
                self._finishing.wait(RETRY_S)

    def _begin(self, node: Node) -> bool:
        """Learns who it is, and starts its sampler. A machine that has one already is only asked for its events."""
        if node.host:
            return False
        hello = node.peer.hello()
        host, boot = str(hello["host"]), str(hello["boot"])
        with self._lock:
            known = self._identities.setdefault(host, boot)
            again = host in self._taken_up
            self._taken_up.add(host)
        if known != boot:
            node.gone = True
            self._fail(
                ValueError(f"two machines call themselves {host}: set BENCH_HOST on each; {node.name} is not gathered")
            )
            return False
        if again:
            node.gone = True  # another of the framework's nodes on the same machine: its files are there already
            return False
        node.host = host
        node.have = self._have(host)
        with self._lock:
            node.sampled = not self._is_here(host)
        if node.sampled:
            node.peer.start_sampler(self._hz, self._dcgm)
        self._say(BEGIN, node, {"boot": boot, "sampled": node.sampled})
        return False

    def _is_here(self, host: str) -> bool:
        return host == next(iter(self._identities))

    def _gather(self, node: Node) -> bool:
        """One clock exchange, and the files until the next is due. True: go on."""
        if node.sampled:
            node.peer.start_sampler(self._hz, self._dcgm)  # nothing new to an agent that runs one; it may be a new one
        self._compare(node)
        due = time.monotonic() + CLOCK_PERIOD_S
        while time.monotonic() < due:
            begin = time.monotonic()
            while self._pull(node) and not self._finishing.is_set() and time.monotonic() < due:
                pass
            if self._finishing.wait(max(0.0, begin + PERIOD_S - time.monotonic())):
                return False
        return True

    def _compare(self, node: Node) -> None:
        rounds = []
        for _ in range(CLOCK_ROUNDS):
            sent = time.monotonic_ns()
            received, answered = node.peer.clock()
            rounds.append(Round(sent_ns=sent, received_ns=received, answered_ns=answered, back_ns=time.monotonic_ns()))
        offset = measure(rounds)
        labels: dict[str, Scalar] = {
            "host": node.host,
            "at_ns": offset.mono_ns,
            "offset_ns": offset.offset_ns,
            "uncertainty_ns": offset.uncertainty_ns,
            "round_trip_ns": offset.round_trip_ns,
            "rounds": offset.rounds,
        }
        self._metric(METRIC, float(offset.uncertainty_ns), "ns", labels)

    def _pull(self, node: Node) -> bool:
        """Takes one answer and writes it; True when there was more than it held."""
        taken, trouble = node.peer.take(node.have, LIMIT_BYTES)
        if trouble is not None:
            self._fail(OSError(f"{node.host}: {trouble}"))
        for piece in taken.pieces:
            if may_come(piece.path):
                self._write(node, piece)
            else:  # its other files are none the worse for it
                node.have[piece.path] = piece.mark
                self._fail(
                    ValueError(f"{node.host} handed over {piece.path!r}, which is no file of a run: not written")
                )
        if node.lost is not None:
            node.lost = None
            self._say(RETURNED, node, {})
        return taken.left > 0

    def _write(self, node: Node, piece: Piece) -> None:
        target = self.run_dir / piece.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if piece.at == WHOLE:
            target = target.with_name(f"{target.stem}-{node.host}{target.suffix}")
            temporary = target.with_name(f".{target.name}")
            temporary.write_bytes(piece.data)
            temporary.replace(target)
        else:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                done = 0
                while done < len(piece.data):
                    done += os.pwrite(descriptor, piece.data[done:], piece.at + done)
            finally:
                os.close(descriptor)
        node.have[piece.path] = piece.mark
        node.bytes += len(piece.data)
        with self._lock:
            self._unsynced.add(target)

    def _have(self, host: str) -> dict[str, int]:
        """What was gathered of a host before: its files' names begin with its own."""
        found = {}
        for folder in GROWING:
            for path in (self.run_dir / folder).glob(f"{host}-*"):
                if may_come(name := f"{folder}/{path.name}") and path.is_file():
                    found[name] = path.stat().st_size
        return found

    def _end(self, node: Node) -> None:
        complete = True
        try:
            node.peer.stop_sampler()
            self._compare(node)
            while self._pull(node):
                pass
            node.peer.remove()
        except (LostError, OSError) as error:
            complete = False
            self._lost(node, error if isinstance(error, LostError) else LostError(str(error)))
        self._say(END, node, {"bytes": node.bytes, "complete": complete})

    def _lost(self, node: Node, error: LostError) -> None:
        node.gone = error.for_good
        if node.lost is None or error.for_good:
            node.lost = str(error)
            self._say(LOST, node, {"reason": node.lost[:400], "for_good": error.for_good})
            what = "is lost" if error.for_good else "does not answer"
            self._fail(LostError(f"node {node.host or node.name} {what}: {node.lost}"[:400]))

    def _say(self, name: str, node: Node, labels: dict[str, Scalar]) -> None:
        self._metric(name, None, "", {"host": node.host or node.name, "node": node.name, **labels})

    def _metric(self, name: str, value: float | None, unit: str, labels: dict[str, Scalar]) -> None:
        with contextlib.suppress(RecorderFullError):  # the harness sees to a full disk
            self.recorder.metric(name, value, unit=unit, labels=labels)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if str(error) in self._told:
                return  # a full disk is told once, not each second
            self._told.add(str(error))
        with contextlib.suppress(RecorderFullError):
            self.recorder.failure("telemetry", error)

    def _sync_forever(self) -> None:
        while not self._finishing.wait(FSYNC_PERIOD_S):
            self._sync()

    def _sync(self) -> None:
        with self._lock:
            paths, self._unsynced = self._unsynced, set()
        for path in paths:
            with contextlib.suppress(OSError):  # an error of the disk shows at the next write
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
