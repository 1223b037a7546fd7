"""A spec, an adapter and a sampler for the tests of the run, and ways to look at processes."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adapters.base import Environment, Launch
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec

HERE = Path(__file__).resolve().parent
CHILD = HERE / "stand_in_child.py"
# A sampler that samples nothing: it ends as the real one does, when its standard input ends.
SLEEPER = (sys.executable, "-c", "import sys; sys.stdin.read()", "stand-in-sampler")


class StandIn:
    """An adapter whose worker is `stand_in_child.py`."""

    name = "stand-in"
    framework_version = "1"
    phases: Mapping[str, Phase | None] = {}
    verified_on: Mapping[tuple[str, str], str] = {}

    def __init__(self, *words: str, argv: tuple[str, ...] | None = None, reason: str | None = None) -> None:
        self.words = words
        self.argv = argv
        self.reason = reason

    def environment(self, device: Device, engine: str) -> Environment | None:
        return None

    def supports(self, spec: RunSpec) -> str | None:
        return self.reason

    def launch(self, spec: RunSpec, run_dir: Path) -> Launch:
        return Launch(
            arguments=self.argv or (str(CHILD), str(run_dir / "spec.json"), *self.words),
            files={"config/stand-in.txt": "hello\n"},
            notes=("a stand-in",),
        )


def make_spec(**changes: Any) -> RunSpec:
    """A small complete spec."""
    values: dict[str, Any] = {
        "framework": "stand-in",
        "placement": Placement.COLOCATED,
        "workload": "deep-research",
        "preset": "deep-research-smoke",
        "load": Load.FIXED,
        "tools": "mock",
        "model": "tiny",
        "gpus": Gpus(train=1, rollout=1),
        "nodes": 1,
        "steps": 3,
        "warmup_steps": 1,
        "batch_size": 1,
        "group_size": 1,
        "max_staleness": 0,
        "seed": 1,
        "device": Device.CPU,
        "engine": "none",
        "rollout_tp": 1,
        "context_tokens": 2048,
        "micro_batch_tokens": 2048,
        "offload": Offload.NONE,
        "timeout": None,
        "sample_hz": 10.0,
    }
    return RunSpec(**{**values, **changes})


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What `what` gives as soon as it is true; fails after `seconds`, which only a hang needs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain")


def carrying(mark: str) -> list[int]:
    """Live processes with `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in environment and state not in "ZX":
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process of that pid lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
