"""Run by a framework's Python: joins a Ray cluster as an adapter's worker does, and records on each of its nodes.

Arguments: the run's spec, and seconds to work. Line by line on standard output: `working`, `done`.
"""

import sys
import threading
import time
from pathlib import Path

from adapters.child.cluster import on_cluster
from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec

PERIOD_S = 0.05


class Busy:
    """An actor of a framework: records what it does on its node, by its node's clock."""

    def __init__(self) -> None:
        self.recorder = Recorder.from_environment("rollout")
        threading.Thread(target=self._work, daemon=True).start()

    def here(self) -> str:
        """The folder that its events go to."""
        return str(self.recorder.path.parent)

    def _work(self) -> None:
        while True:
            before = time.time_ns()
            now = time.monotonic_ns()
            after = time.time_ns()
            # The wall clock is one for all: it says, within its two readings, where this instant is.
            self.recorder.metric("beat", unit="ns", labels={"mono_ns": now, "wall_low": before, "wall_high": after})
            self.recorder.span("generation", "work", now, time.monotonic_ns(), pool="rollout")
            time.sleep(PERIOD_S)


def main() -> None:
    """The run."""
    path = Path(sys.argv[1])
    spec = RunSpec.load_file(path)
    recorder = Recorder.from_environment("controller")
    with on_cluster(spec, path.parent, ("BENCH_TEST_PASSED",)):
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.init(log_to_driver=False)
        actors = []
        for node in ray.nodes():
            pinned = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            actors.append(ray.remote(Busy).options(num_cpus=0, scheduling_strategy=pinned).remote())
        for folder in ray.get([actor.here.remote() for actor in actors]):
            print("records in", folder)
        print("working", flush=True)
        end = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < end:
            with recorder.timed("train", "work", pool="train"):
                time.sleep(PERIOD_S)
        ray.shutdown()
    recorder.bye()
    print("done", flush=True)


if __name__ == "__main__":
    # Ray sends the classes of a script by value; the actors need nothing else of it.
    main()
