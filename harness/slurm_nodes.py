"""Other nodes of a Slurm job: sampled by agents that `srun` starts, for frameworks that bring no Ray to do it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.nodes.slurm import starter
from harness.protocol.errors import SpecError
from harness.protocol.recorder import RUN_ID_VARIABLE
from harness.protocol.spec import Device, RunSpec

GRACE_S = 40.0  # for the samplers to end and the rest of their files to come


def who_starts(spec: RunSpec, environ: Mapping[str, str] = os.environ) -> str:
    """Who starts the nodes' agents: ray | srun | none.

    Raises:
        SpecError: the environment asks for something else.
    """
    try:
        return starter(spec.nodes, spec.ray_address, environ)
    except ValueError as error:
        raise SpecError(str(error)) from None


@contextlib.contextmanager
def nodes_gathered(spec: RunSpec, run_dir: Path, run_id: str) -> Iterator[None]:
    """The block in which the job's nodes are sampled; when it is left, all that they have is in the run's folder.

    The gathering process ends with the block or with this process, whichever is first.
    """
    if who_starts(spec) != "srun":
        yield
        return
    dcgm = spec.dcgm if spec.device is Device.CUDA else "off"
    what = ("--run-id", run_id, "--run-dir", str(run_dir), "--nodes", str(spec.nodes))
    how = ("--hz", f"{spec.sample_hz:g}", "--dcgm", dcgm)
    command = (sys.executable, "-P", "-m", "harness.nodes", "gather", *what, *how)
    # Not marked as one of the run's processes: the supervisor would end it before it has the nodes' last files.
    environment = {name: value for name, value in os.environ.items() if name != RUN_ID_VARIABLE}
    with (run_dir / "logs" / "nodes.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        yield
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
