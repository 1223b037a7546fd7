"""`python -m harness.nodes agent`: one node's agent, which calls the gathering side.

`python -m harness.nodes gather`: the gathering side; starts the agents by `srun`; ends when its standard input does.
"""

import argparse
import os
import secrets
import subprocess
import sys
from pathlib import Path

from harness.nodes.agent import Agent, boot_id
from harness.nodes.gather import Gatherer
from harness.nodes.places import FOLDER_VARIABLE, here, node_root
from harness.nodes.slurm import TOKEN_VARIABLE, shown, srun_command
from harness.nodes.wire import Switchboard, TcpPeer, serve
from harness.protocol.recorder import Recorder, host_name, make_hello

FINISH_S = 20.0


def main(arguments: list[str] | None = None) -> int:
    """The commands; see `--help`."""
    parser = argparse.ArgumentParser(prog="python -m harness.nodes", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    agent = verbs.add_parser("agent", help="sample this node and hand over its files")
    agent.add_argument("--run-id", required=True)
    agent.add_argument("--connect", required=True, metavar="HOST:PORT", help="where the gathering side listens")
    gather = verbs.add_parser("gather", help="gather from the nodes of a Slurm job")
    gather.add_argument("--run-id", required=True)
    gather.add_argument("--run-dir", required=True, type=Path)
    gather.add_argument("--nodes", required=True, type=int)
    gather.add_argument("--hz", type=float, default=10.0)
    gather.add_argument("--dcgm", default="off")
    options = parser.parse_args(arguments)
    if options.verb == "agent":
        return run_agent(options.run_id, options.connect)
    return run_gatherer(options)


def run_agent(run_id: str, connect: str) -> int:
    """Answers until the gathering side has everything (0), or is gone (1: this node's folder is left)."""
    address, _, port = connect.rpartition(":")
    agent = Agent(run_id, here(node_root(run_id, os.environ.get(FOLDER_VARIABLE, ""))))
    try:
        return 0 if serve(agent, address, int(port), os.environ.get(TOKEN_VARIABLE, "")) else 1
    finally:
        agent.stop_sampler()


def run_gatherer(options: argparse.Namespace) -> int:
    """Gathers until standard input ends."""
    token = secrets.token_hex(16)
    hello = make_hello(options.run_id, "gatherer")
    recorder = Recorder(options.run_dir / "events" / f"gatherer-{hello.host}-{hello.pid}.jsonl", hello)
    identity = {"host": host_name(), "boot": boot_id()}
    gatherer = Gatherer(options.run_dir, recorder, hz=options.hz, dcgm=options.dcgm, here=identity)

    def found(name: str, peer: TcpPeer) -> None:
        gatherer.add(name, peer)

    switchboard = Switchboard(token, found)
    switchboard.start()
    command = srun_command(options.nodes, options.run_id, switchboard.port)
    print(shown(command), flush=True)
    try:
        step = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, TOKEN_VARIABLE: token})
    except OSError as error:
        recorder.failure("telemetry", OSError(f"the nodes' agents can't be started: {error}"))
        recorder.bye()
        return 1
    sys.stdin.buffer.read()
    gatherer.finish(FINISH_S)
    switchboard.close()
    if len(gatherer.hosts()) < options.nodes:
        what = f"{len(gatherer.hosts())} of {options.nodes} nodes had an agent: {', '.join(gatherer.hosts()) or 'none'}"
        recorder.failure("telemetry", OSError(what))
    try:
        step.wait(5.0)
    except subprocess.TimeoutExpired:
        step.terminate()
        step.wait()
    recorder.bye()
    return 0


if __name__ == "__main__":
    sys.exit(main())
