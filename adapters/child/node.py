"""The agent of a node as a Ray actor, pinned to it, and the way to it. No port of its own, and no shared disk."""

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.nodes.agent import Agent
from harness.nodes.gather import LostError
from harness.nodes.outbox import Taken
from harness.nodes.places import here

ANSWER_S = 15.0
START_S = 120.0  # Ray starts a Python process for the actor, on a machine that may be busy starting the framework's


class _NodeAgent:
    """Runs on the node. Ray starts it again when it dies; its files are where they were."""

    def __init__(self, run_id: str, root: str) -> None:
        self._agent = Agent(run_id, here(root))

    def hello(self) -> dict[str, Any]:
        return self._agent.hello()

    def clock(self) -> tuple[int, int]:
        return self._agent.clock()

    def start_sampler(self, hz: float, dcgm: str) -> None:
        self._agent.start_sampler(hz, dcgm)

    def take(self, have: dict[str, int], limit: int) -> tuple[Taken, str | None]:
        return self._agent.take(have, limit)

    def stop_sampler(self) -> None:
        self._agent.stop_sampler()

    def remove(self) -> None:
        self._agent.remove()


class RayPeer:
    """The actor on one node of the cluster; it takes no CPU and no GPU from the framework."""

    def __init__(self, node_id: str, run_id: str, root: str) -> None:
        self.node_id = node_id
        pinned = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
        environment = {"env_vars": {"BENCH_RUN_ID": run_id}}
        options = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": pinned, "runtime_env": environment}
        self._actor = ray.remote(_NodeAgent).options(**options).remote(run_id, root)

    def hello(self) -> dict[str, Any]:
        """As `Agent.hello`; the actor has started then."""
        found: dict[str, Any] = self._ask("hello", timeout_s=START_S)
        return found

    def clock(self) -> tuple[int, int]:
        """As `Agent.clock`."""
        received, answered = self._ask("clock")
        return received, answered

    def start_sampler(self, hz: float, dcgm: str) -> None:
        """As `Agent.start_sampler`."""
        self._ask("start_sampler", hz, dcgm)

    def take(self, have: dict[str, int], limit: int) -> tuple[Taken, str | None]:
        """As `Agent.take`."""
        taken, trouble = self._ask("take", have, limit)
        return taken, trouble

    def stop_sampler(self) -> None:
        """As `Agent.stop_sampler`."""
        self._ask("stop_sampler")

    def remove(self) -> None:
        """As `Agent.remove`."""
        self._ask("remove")

    def _ask(self, what: str, *arguments: Any, timeout_s: float = ANSWER_S) -> Any:
        try:
            return ray.get(getattr(self._actor, what).remote(*arguments), timeout=timeout_s)
        except Exception as error:  # Ray's, gRPC's, or the node's own: it did not answer
            gone = not alive(self.node_id)
            raise LostError(f"{type(error).__name__}: {_short(error)}", for_good=gone) from error


def alive(node_id: str) -> bool:
    """Whether Ray still counts the node in. A node that it has declared dead does not come back under its id."""
    try:
        return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())
    except Exception:  # the head does not answer: that says nothing about the node
        return True


def node_ids() -> list[str]:
    """The nodes that Ray counts in, in a fixed order."""
    return sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines)[:300]
