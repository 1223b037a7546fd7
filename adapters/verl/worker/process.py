"""What every process of a run has: its spec, and a recorder of its own where it records."""

import os
from functools import cache
from pathlib import Path

from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec

SPEC_VARIABLE = "BENCH_VERL_SPEC"


@cache
def run_spec() -> RunSpec:
    """The spec of this run, in any of its processes.

    Raises:
        KeyError: the process was not started by a run.
    """
    return RunSpec.load_file(Path(os.environ[SPEC_VARIABLE]))


@cache
def rollout_recorder() -> Recorder:
    """The events file of this agent-loop process."""
    return Recorder.from_environment("rollout")
