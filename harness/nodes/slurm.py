"""Agents started by Slurm: one task of a job step on each node of the allocation that the run is in."""

import os
import shlex
import socket
import sys
from collections.abc import Mapping

from harness.nodes.agent import PYTHON_VARIABLE

STARTER_VARIABLE = "BENCH_NODE_AGENTS"  # ray | srun | none: who starts the agents, where it isn't as `starter` says
STARTERS = ("ray", "srun", "none")
ADDRESS_VARIABLE = "BENCH_NODE_ADDRESS"  # where the nodes reach this host, when its own name won't do
TOKEN_VARIABLE = "BENCH_NODE_TOKEN"  # shared by a run's agents and the side that gathers


def starter(nodes: int, ray_address: str, environ: Mapping[str, str] = os.environ) -> str:
    """Who starts the agents: `ray` on a Ray cluster that is there, `srun` inside a Slurm job of several nodes, `none`.

    Raises:
        ValueError: BENCH_NODE_AGENTS is none of them.
    """
    asked = environ.get(STARTER_VARIABLE)
    if asked:
        if asked not in STARTERS:
            raise ValueError(f"{STARTER_VARIABLE} = {asked}: allowed is one of {', '.join(STARTERS)}")
        return asked
    if ray_address:
        return "ray"
    return "srun" if nodes > 1 and environ.get("SLURM_JOB_ID") else "none"


def srun_command(nodes: int, run_id: str, port: int, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The job step that runs an agent on each of `nodes` nodes.

    It shares the nodes with the framework's own step (--overlap), and an agent that ends takes no other with it. The
    token goes by the environment, which srun passes on.
    """
    address = environ.get(ADDRESS_VARIABLE) or environ.get("SLURMD_NODENAME") or socket.gethostname()
    python = environ.get(PYTHON_VARIABLE) or sys.executable
    step = ("srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0")
    agent = ("-P", "-m", "harness.nodes", "agent", "--run-id", run_id, "--connect", f"{address}:{port}")
    return (*step, "--export=ALL", "--job-name=bench-nodes", python, *agent)


def shown(command: tuple[str, ...]) -> str:
    """The command as a shell would take it."""
    return shlex.join(command)
