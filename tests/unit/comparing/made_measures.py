"""Runs as measures, made without running anything: the step's parts are given, all else follows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from results.comparing.measures import MEASURES, PARTS, RunMeasures, StepSeries, Value


def made_run(
    name: str,
    parts: Mapping[str, Sequence[float]],
    *,
    plans: Sequence[str | None] | None = None,
    values: Mapping[str, float] | None = None,
    **changes: Any,
) -> RunMeasures:
    """A run whose steps took `parts` (seconds of each step, by part)."""
    count = len(next(iter(parts.values())))
    walls = [sum(seconds[step] for seconds in parts.values()) for step in range(count)]
    series = {part: tuple(seconds) for part, seconds in parts.items()}
    series["step_time_s"] = tuple(walls)
    held = {name: Value(None, "not made") for name in MEASURES}
    for part in PARTS:
        held[part.name] = Value(sum(series.get(part.name, (0.0,))) / count)
    held["step_time_s"] = Value(sum(walls) / count)
    held["throughput_tokens_per_s_gpu"] = Value(1000 * count / sum(walls))
    held |= {measure: Value(value) for measure, value in (values or {}).items()}
    run = RunMeasures(
        run_id=name,
        framework="simulated",
        framework_version=None,
        placement="colocated",
        load="fixed",
        device="cpu",
        model="tiny",
        seed=1,
        work_digest="work1",
        spec_digest="spec1",
        plans_digest=None,
        work={"seed": "1", "preset": "deep-research-smoke", "model": "tiny"},
        system={"framework": "simulated", "placement": "colocated", "steps": str(count)},
        machine={"host": "node-1", "cpu": "Example CPU", "cores": "2", "gpus": None, "gpu_count": "2", "driver": None},
        versions={"python": "3.11"},
        bench_version="0.1.0",
        commit="abc",
        started_utc="2026-11-29T10:00:00Z",
        status="finished",
        problems=(),
        notes=(),
        granularity="engine",
        evidence="client",
        steps=count,
        values=held,
        series=StepSeries(
            steps=tuple(range(1, count + 1)),
            plans=tuple(plans) if plans is not None else tuple(f"plan{step}" for step in range(count)),
            seconds=series,
        ),
    )
    return replace(run, **changes)


def steady(name: str, train: float, tool: float = 1.0, count: int = 6, **more: Any) -> RunMeasures:
    """A run whose steps are all equal: so much training, so much waiting for a tool, and 10 ms that no one named."""
    parts = {"phase_train_s": [train] * count, "exposed_tool_s": [tool] * count, "phase_other_s": [0.01] * count}
    return made_run(name, parts, **more)
