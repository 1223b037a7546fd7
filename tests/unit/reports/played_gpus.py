"""Played runs on GPUs: what each GPU draws follows from the played spans, and is sampled as a sampler would."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from played_folders import write_run
from played_runs import BEGIN, S, play

from harness.protocol.events import Bye, Event, Metric, Span, Step
from harness.protocol.spec import Device, Placement, RunSpec

IDLE_W, ROLLOUT_W, TRAIN_W, LIMIT_W = 100.0, 250.0, 600.0, 700.0


def gpu_list(count: int) -> list[dict[str, Any]]:
    """GPUs as meta.json lists them."""
    return [
        {"index": n, "uuid": f"GPU-{n:04d}", "name": "NVIDIA H100 80GB HBM3", "power_limit_watts": LIMIT_W}
        for n in range(count)
    ]


def play_gpu(spec: RunSpec) -> list[Event]:
    """The events of a run on GPUs: each GPU's pool is told by a `gpu.pool` metric."""
    events = play(spec)
    shared = spec.placement is Placement.COLOCATED
    told: list[Event] = [
        Metric(
            name="gpu.pool",
            mono_ns=BEGIN + S,
            value=1.0,
            labels={
                "uuid": f"GPU-{n:04d}",
                "pool": "both" if shared else ("train" if n < spec.gpus.train else "rollout"),
            },
        )
        for n in range(spec.total_gpus)
    ]
    bye = events[-1]
    assert isinstance(bye, Bye)
    return [events[0], *told, *events[1:-1], replace(bye, events=bye.events + len(told))]


def watts(spec: RunSpec, events: list[Event], pool: str) -> list[tuple[int, int, float]]:
    """What one GPU of a pool draws: (from, until, watts), in order; between them IDLE_W."""
    drawn = []
    for event in events:
        if not isinstance(event, Span) or event.trajectory_id is not None or event.container:
            continue
        if event.phase in ("train", "logprob") and event.pool == pool:
            drawn.append((event.start_ns, event.end_ns, TRAIN_W))
        elif pool == "both" and event.phase == "generation":
            drawn.append((event.start_ns, event.end_ns, ROLLOUT_W))
    if pool == "rollout":
        last = max(event.end_ns for event in events if isinstance(event, Step))
        drawn.append((BEGIN + 20 * S, last, ROLLOUT_W))
    return sorted(drawn)


def write_samples(folder: Path, spec: RunSpec, events: list[Event], *, period_s: float = 0.5) -> None:
    """Samples of every GPU (instant power, energy counter, limit) and of the host, as one sampler leaves them."""
    steps = [event.end_ns for event in events if isinstance(event, Step)]
    times = np.arange(BEGIN - 20 * S, max(steps) + 30 * S, int(period_s * S), dtype=np.int64)
    tables = [_host_rows(times)]
    for n in range(spec.total_gpus if spec.device is Device.CUDA else 0):
        pool = "both" if spec.placement is Placement.COLOCATED else ("train" if n < spec.gpus.train else "rollout")
        power = np.full(times.size, IDLE_W)
        joules = IDLE_W * (times - times[0]) / 1e9
        for start, end, level in watts(spec, events, pool):
            power[(times >= start) & (times < end)] = level
            joules += (level - IDLE_W) * np.clip(times - start, 0, end - start) / 1e9
        tables.append(
            pa.table(
                {
                    "host": ["node-1"] * times.size,
                    "gpu": [f"GPU-{n:04d}"] * times.size,
                    "mono_ns": times,
                    "power_instant_watts": power,
                    "energy_joules": joules,
                    "power_limit_watts": np.full(times.size, LIMIT_W),
                }
            )
        )
    whole = pa.concat_tables(tables, promote_options="default")
    with (
        pa.OSFile(str(folder / "samples" / "node-1.arrows"), "wb") as file,
        pa.ipc.new_stream(file, whole.schema) as out,
    ):
        out.write_table(whole)


def _host_rows(times: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    return pa.table(
        {
            "host": ["node-1"] * times.size,
            "gpu": pa.nulls(times.size, pa.string()),
            "mono_ns": times,
            "cpu_ratio": np.full(times.size, 0.25),
            "host_memory_used_bytes": np.full(times.size, 3 * 2**30, dtype=np.int64),
        }
    )


def write_gpu_run(folder: Path, spec: RunSpec) -> Path:
    """A run on GPUs, with its samples."""
    events = play_gpu(spec)
    write_run(folder, spec, events, gpus=gpu_list(spec.total_gpus))
    write_samples(folder, spec, events)
    return folder
