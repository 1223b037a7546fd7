"""A worker of AReaL's scheduler: AReaL's own RPC server, started after our taps are in place.

Named in `scheduling_spec[0].cmd`, and given to the workers that are forked from others (colocated).
"""

import atexit
import sys
from functools import lru_cache
from typing import Any

from adapters.areal.worker.shared import spec_of_environment
from adapters.child.track import require
from harness.protocol.recorder import Recorder
from harness.protocol.spec import Device


@lru_cache(maxsize=1)
def process_recorder(role: str) -> Recorder:
    """This worker's recorder, made when first asked for; it says Bye when the scheduler ends the process."""
    recorder = Recorder.from_environment(role)
    atexit.register(recorder.bye)
    return recorder


def tap_command() -> None:
    """AReaL starts its servers with whatever `python3` is first on PATH; they need this environment's.

    Raises:
        TapError: the function that builds the command is gone.
    """
    from areal.api import cli_args

    module: Any = cli_args
    real: Any = require(module, "get_py_cmd")

    def get_py_cmd(name: str, args: dict[str, Any]) -> list[str]:
        return [sys.executable, *real(name, args)[1:]]

    module.get_py_cmd = get_py_cmd


def unscale_staleness() -> None:
    """The controller alone decides what is admitted.

    Each rollout worker has a staleness manager of its own, whose limits AReaL divides by the number of rollout workers
    although the controller has dealt the groups already: with several of them and max_head_offpolicyness = 0, one
    rejected group leaves a worker that never takes another (areal issue 1396).

    Raises:
        TapError: the executor is gone.
    """
    from areal.infra import workflow_executor

    owner: Any = require(workflow_executor, "WorkflowExecutor")
    real: Any = require(owner, "initialize")

    def initialize(self: Any, logger: Any = None, train_data_parallel_size: int | None = None) -> Any:
        return real(self, logger=logger, train_data_parallel_size=1)

    owner.initialize = initialize


def main() -> None:
    """Runs the server until the scheduler ends it."""
    spec = spec_of_environment()
    tap_command()
    if not spec.as_shipped:
        unscale_staleness()
    if spec.device is Device.CPU:
        from adapters.areal.cpu.shims import install_in_worker

        install_in_worker()
    from adapters.areal.worker.actor import tap_actor

    tap_actor()
    from areal.infra.rpc.rpc_server import main as serve

    serve()


if __name__ == "__main__":
    # Under its own name: AReaL imports the workflow's module by name, and both must see one recorder.
    from adapters.areal.worker.rpc import main as run

    run()
