"""Runs the simulated worker as a real child and reads what it left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.protocol.events import Bye, Event, Gate, Hello, Metric, Open, Span, Step, Trajectory, read_events
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec

E = TypeVar("E", bound=Event)

LIMIT_S = 90  # a hang, not a measurement


def make_spec(placement: str = "colocated", **changes: Any) -> RunSpec:
    """A small run: 3 steps of 3 prompts x 2 samples, tools at a tenth of the smoke preset's latencies."""
    base = RunSpec(
        framework="simulated",
        placement=Placement(placement),
        workload="deep-research",
        preset="deep-research-smoke",
        load=Load.FIXED,
        tools="mock",
        model="tiny",
        gpus=Gpus(train=1, rollout=1),
        nodes=1,
        steps=3,
        warmup_steps=2,
        batch_size=3,
        group_size=2,
        max_staleness=1 if placement == "async" else 0,
        seed=1,
        device=Device.CPU,
        engine="none",
        rollout_tp=1,
        context_tokens=2_048,
        micro_batch_tokens=2_048,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=10.0,
        latency_scale=0.1,
    )
    spec = replace(base, **changes)
    spec.check()
    return spec


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a child left: its exit code, its events in order, its damaged lines, its output."""

    code: int
    events: list[Event]
    damaged: list[ValueError]
    stdout: str
    stderr: str

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def spans(self) -> list[Span]:
        return self.of(Span)

    @property
    def steps(self) -> list[Step]:
        return self.of(Step)

    @property
    def trajectories(self) -> dict[str, Trajectory]:
        return {closed.trajectory_id: closed for closed in self.of(Trajectory)}

    @property
    def gates(self) -> list[Gate]:
        return self.of(Gate)

    @property
    def started(self) -> set[str]:
        return {event.trajectory_id for event in self.of(Open) if event.trajectory_id}

    @property
    def hung(self) -> list[Open]:
        """What was begun, announced and never closed."""
        ended = {event.open_id for event in self.events if isinstance(event, Span | Trajectory)}
        return [event for event in self.of(Open) if event.id not in ended]

    @property
    def bye(self) -> Bye | None:
        found = self.of(Bye)
        return found[0] if found else None

    @property
    def hello(self) -> Hello:
        assert isinstance(self.events[0], Hello)
        return self.events[0]

    def metrics(self, name: str) -> list[Metric]:
        return [event for event in self.of(Metric) if event.name == name]

    def staleness(self) -> list[int]:
        """trained_at - version_first of each trained trajectory."""
        ages: list[int] = []
        for step in self.steps:
            for name in step.trajectory_ids:
                first = self.trajectories[name].version_first
                assert first is not None
                ages.append(step.policy_version - 1 - first)
        return ages

    def other_s(self, step: Step) -> float:
        """Seconds of a step that no leaf span of the train track names."""
        leaves = sorted(
            (max(s.start_ns, step.start_ns), min(s.end_ns, step.end_ns))
            for s in self.spans
            if s.pool in ("train", "both") and not s.container and s.trajectory_id is None
        )
        named, until = 0, step.start_ns
        for start, end in leaves:
            named += max(end - max(start, until), 0)
            until = max(until, end)
        return (step.end_ns - step.start_ns - named) / 1e9


def start(spec: RunSpec, run_dir: Path) -> "subprocess.Popen[str]":
    """The worker module on a spec, as the harness starts it."""
    (run_dir / "events").mkdir(parents=True)
    (run_dir / "spec.json").write_text(spec.to_json(), encoding="utf-8")
    extra: Mapping[str, str] = {"BENCH_RUN_ID": run_dir.name, "BENCH_EVENTS": str(run_dir / "events")}
    return subprocess.Popen(
        [sys.executable, "-m", "adapters.simulated.worker", str(run_dir / "spec.json")],
        env={**os.environ, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: "subprocess.Popen[str]", run_dir: Path) -> Played:
    """Waits for the child and reads its events."""
    try:
        stdout, stderr = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    files = list((run_dir / "events").glob("*.jsonl"))
    lines = list(read_events(files[0])) if files else []
    return Played(
        code=child.returncode,
        events=[line for line in lines if not isinstance(line, ValueError)],
        damaged=[line for line in lines if isinstance(line, ValueError)],
        stdout=stdout,
        stderr=stderr,
    )


def play(spec: RunSpec, run_dir: Path) -> Played:
    """A whole run."""
    return finish(start(spec, run_dir), run_dir)


def wait_for(run_dir: Path, text: str) -> None:
    """Waits until the child recorded a line that contains `text`."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if any(text in file.read_text(encoding="utf-8") for file in (run_dir / "events").glob("*.jsonl")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} was not recorded within {LIMIT_S} s")


def end_process(pid: int) -> None:
    """Ends a process that a test made, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
