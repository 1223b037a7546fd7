"""Run folders of played runs, as a run leaves them on disk."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from played_runs import BEGIN, S, play

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.events import Event, Hello, Step, encode
from harness.protocol.spec import RunSpec


def write_run(folder: Path, spec: RunSpec, events: list[Event] | None = None, **meta: Any) -> Path:
    """Writes a run folder as a run leaves it: spec.json, meta.json, events/, samples/, logs/, sealed."""
    events = play(spec) if events is None else events
    for name in ("events", "samples", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "spec.json").write_text(spec.to_json(), encoding="utf-8")
    with (folder / "events" / "node-1-4242.jsonl").open("w", encoding="utf-8") as file:
        for event in events:
            fixed = replace(event, run_id=folder.name) if isinstance(event, Hello) else event
            file.write(encode(fixed) + "\n")
    times = [event.end_ns for event in events if isinstance(event, Step)]
    ended = (max(times) if times else BEGIN) + 2 * S
    content: dict[str, Any] = {
        "run_id": folder.name,
        "status": "finished",
        "reason": None,
        "exit_code": 0,
        "started_utc": "2026-11-29T15:00:00Z",
        "ended_utc": "2026-11-29T16:00:00Z",
        "started_mono_ns": BEGIN,
        "ended_mono_ns": ended,
        "wall_s": (ended - BEGIN) / S,
        "harness_pid": 4000,
        "commit": "3a0c5858b2d34c56aa0000000000000000000000",
        "dirty": False,
        "bench_version": "0.1.0",
        "protocol": PROTOCOL_VERSION,
        "framework_version": "0.4.0",
        "machine": {
            "host": "node-1",
            "cpu": "Example CPU @ 2.0 GHz",
            "cores": 2,
            "memory_bytes": 16 * 2**30,
            "kernel": "6.8.0",
            "python": "3.11.9",
        },
        "gpus": [],
        "device": spec.device.value,
        "environment": {
            "name": f"skyrl-{spec.device.value}-vllm",
            "pins_digest": "abc123",
            "python": "3.12.4",
            "status": "",
        },
        "versions": {"skyrl": "0.4.0", "vllm": "0.30.0", "torch": "2.12.0"},
        "note": ["trainer.placement.colocate_all=true", "a plain note"],
    }
    content.update(meta)
    (folder / "meta.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
    if content["status"] != "running":
        (folder / "sealed").touch()
    return folder
