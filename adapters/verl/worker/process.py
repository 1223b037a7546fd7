"""What every process of a run has: its spec, and a recorder of its own where it records."""

import os
from functools import cache
from pathlib import Path

from harness.protocol.recorder import Recorder
from harness.protocol.spec import SPEC_TEXT_VARIABLE, RunSpec

SPEC_VARIABLE = "BENCH_VERL_SPEC"


@cache
def run_spec() -> RunSpec:
    """The spec of this run, in any of its processes.

    Raises:
        KeyError: the process was not started by a run.
    """
    if text := os.environ.get(SPEC_TEXT_VARIABLE):  # on a cluster: this node may not see the run's folder
        return RunSpec.from_json(text)
    return RunSpec.load_file(Path(os.environ[SPEC_VARIABLE]))


@cache
def rollout_recorder() -> Recorder:
    """The events file of this agent-loop process."""
    return Recorder.from_environment("rollout")
