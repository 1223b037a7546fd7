"""A sweep of simulations on a real Ray, of a framework's own environment: the rows are those of this process."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from adapters.base import load_adapter
from harness.envs import ensure
from harness.protocol.spec import Device
from results.planner.sweep import cells, run

pytestmark = [pytest.mark.framework, pytest.mark.timeout(600)]

BASE = {
    "durations": {"law": "log_normal", "median_s": 20, "sigma": 1},
    "pools": {"train": 15.0},
    "policy": {"in_flight": "keep"},
    "horizon_s": 1800.0,
}
AXES = {"workers": [16, 64, 200], "mode": ["synchronous", "async"]}
SEEDS = 3

# Run by the Python of that environment.
DRIVER = """
import json, sys
base, axes, seeds = json.load(sys.stdin)
from results.planner.sweep import cells, run
rows = run(cells(base, axes, seeds), ray_address="local")
import ray
assert not ray.is_initialized()
print("ROWS " + json.dumps([rows, ray.__version__]))
"""


def test_rays_rows_are_those_of_this_process(request: pytest.FixtureRequest) -> None:
    python = ensure(load_adapter("skyrl").environment(Device.CPU, "vllm"))
    temp = Path(tempfile.mkdtemp(prefix="br-", dir="/tmp"))  # short: Ray's sockets lie in it
    request.addfinalizer(lambda: shutil.rmtree(temp, ignore_errors=True))
    environment = {**os.environ, "RAY_TMPDIR": str(temp), "RAY_USAGE_STATS_ENABLED": "0"}

    done = subprocess.run(
        [str(python), "-P", "-c", DRIVER],
        input=json.dumps([BASE, AXES, SEEDS]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    rows, version = json.loads(line.removeprefix("ROWS "))
    assert version
    here = json.loads(json.dumps(run(cells(BASE, AXES, SEEDS), jobs=1)))
    assert len(here) == 18
    assert [row["digest"] for row in rows] == [row["digest"] for row in here]
    assert rows == here
