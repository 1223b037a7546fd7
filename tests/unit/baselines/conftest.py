"""Runs as their measures, made by hand."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from results.comparing.measures import MEASURES, RunMeasures, StepSeries, Value

Make = Callable[..., RunMeasures]
BEGIN = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)


def measured(name: str, night: int = 0, values: dict[str, float | None] | None = None, **other: Any) -> RunMeasures:
    """A run of night number `night`; measures that are not given are unknown."""
    given = values or {}
    start = BEGIN + timedelta(days=night)
    machine = {"host": "h", "cpu": "c", "cores": "2", "gpus": "", "gpu_count": "0", "driver": None}
    about: dict[str, Any] = {
        "run_id": name,
        "framework": "skyrl",
        "framework_version": "0.2",
        "placement": "async",
        "load": "fixed",
        "device": "cpu",
        "model": "tiny",
        "seed": 1,
        "work_digest": "work",
        "spec_digest": "0123456789abcdef",
        "plans_digest": "plans",
        "work": {},
        "system": {},
        "machine": machine,
        "versions": {"torch": "2.13"},
        "bench_version": "0.1.0",
        "commit": f"c{night:03d}",
        "started_utc": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "status": "finished",
        "problems": (),
        "notes": (),
        "granularity": "pool",
        "evidence": "turns",
        "steps": 8,
        "values": {
            one: Value(given.get(one), "" if given.get(one) is not None else "not measured") for one in MEASURES
        },
        "series": StepSeries(),
    }
    return RunMeasures(**about | other)


@pytest.fixture
def nights() -> Callable[..., list[RunMeasures]]:
    """`count` runs over nights of `each` runs, times `factors`, with that noise (standard deviation of logs)."""

    def make(
        count: int,
        *,
        first: int = 0,
        each: int = 1,
        noise: float = 0.01,
        seed: int = 1,
        factors: dict[str, float] | None = None,
        prefix: str = "run",
        **other: Any,
    ) -> list[RunMeasures]:
        random = np.random.default_rng(seed)
        made = []
        for k in range(count):
            levels = {"step_time_s": 10.0, "phase_train_s": 1.0, "goodput_tokens_per_s_gpu": 500.0}
            values = {
                name: level * (factors or {}).get(name, 1.0) * float(np.exp(random.normal(0, noise)))
                for name, level in levels.items()
            }
            made.append(measured(f"{prefix}-{first + k // each}-{k}", first + k // each, values, **other))
        return made

    return make
