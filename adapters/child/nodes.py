"""`python -m adapters.child.nodes`: gathers from every node of the Ray cluster that a run's framework is on.

A process of its own and a Ray driver of its own, so that neither the framework's GIL nor its end holds it up. It ends,
with all that the nodes have, when its standard input does.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import ray

from adapters.child.node import RayPeer, node_ids
from harness.nodes.agent import boot_id
from harness.nodes.gather import Gatherer
from harness.protocol.recorder import RUN_ID_VARIABLE, Recorder, host_name, make_hello

RESCAN_S = 5.0
FINISH_S = 20.0
READY = b"gathering\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; see `--help`."""
    parser = argparse.ArgumentParser(prog="python -m adapters.child.nodes", description=__doc__)
    parser.add_argument("--address", required=True, help="of the Ray cluster")
    parser.add_argument("--run-dir", required=True, type=Path)
    parser.add_argument("--root", required=True, help="the nodes' own folder, {host} in the host's place")
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--dcgm", default="off")
    options = parser.parse_args(arguments)
    run_id = os.environ[RUN_ID_VARIABLE]
    over = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the end is told by the pipe
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    threading.Thread(target=_until_end, args=(over,), daemon=True).start()
    hello = make_hello(run_id, "gatherer")
    recorder = Recorder(options.run_dir / "events" / f"gatherer-{hello.host}-{hello.pid}.jsonl", hello)
    try:
        ray.init(address=options.address, namespace=f"bench-{run_id}", log_to_driver=False, logging_level="ERROR")
        identity = {"host": host_name(), "boot": boot_id()}
        gatherer = Gatherer(options.run_dir, recorder, hz=options.hz, dcgm=options.dcgm, here=identity)
        _gather(gatherer, over, run_id, options.root)
    except Exception as error:
        recorder.failure("telemetry", error)
        recorder.shut()
        raise
    recorder.bye()
    with contextlib.suppress(Exception):  # the head may be gone before it
        ray.shutdown()
    return 0


def _gather(gatherer: Gatherer, over: threading.Event, run_id: str, root: str) -> None:
    seen: set[str] = set()
    first = True
    while first or not over.wait(RESCAN_S):
        with contextlib.suppress(Exception):  # a head that does not answer may answer at the next look
            for node_id in node_ids():
                if node_id not in seen:
                    seen.add(node_id)
                    gatherer.add(node_id, RayPeer(node_id, run_id, root))
        if first:
            os.write(1, READY)
        first = False
    gatherer.finish(FINISH_S)


def _until_end(over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    over.set()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a thread that waits for a lost node must not hold up the end
