"""Run folders made by hand: a spec, events, and trajectories that follow their plan."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.events import Bye, Event, Hello, Open, Span, Step, Trajectory, encode
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from workloads.deep_research.plan import PRESETS, TrajectoryPlan, draw_plan

MS = 1_000_000
HOST, PID = "node-1", 42
RUN_ID = "run-1"


def make_spec(**changes: Any) -> RunSpec:
    base = RunSpec(
        framework="simulated",
        placement=Placement.ASYNC,
        workload="deep-research",
        preset="deep-research-smoke",
        load=Load.FIXED,
        tools="mock",
        model="tiny",
        gpus=Gpus(train=1, rollout=1),
        nodes=1,
        steps=4,
        warmup_steps=1,
        batch_size=2,
        group_size=2,
        max_staleness=1,
        seed=7,
        device=Device.CPU,
        engine="none",
        rollout_tp=1,
        context_tokens=4096,
        micro_batch_tokens=4096,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=10.0,
    )
    return replace(base, **changes)


def hello(host: str = HOST, pid: int = PID, **changes: Any) -> Hello:
    fields: dict[str, Any] = {"protocol": PROTOCOL_VERSION, "run_id": RUN_ID, "host": host, "pid": pid}
    fields |= {"role": "controller", "wall_ns": 5_000, "mono_ns": 1_000}
    return Hello(**(fields | changes))


def bye(events: int, mono_ns: int = 10**12) -> Bye:
    return Bye(mono_ns=mono_ns, wall_ns=mono_ns + 4_000, events=events, lost_events=0, recorder_ns=77)


def write_file(run_dir: Path, events: Iterable[Event], name: str = f"{HOST}-{PID}.jsonl") -> Path:
    path = run_dir / "events" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(encode(event) + "\n" for event in events), encoding="utf-8")
    return path


def make_run(run_dir: Path, events: Sequence[Event] = (), *, spec: RunSpec | None = None, **meta: Any) -> Path:
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "spec.json").write_text((spec or make_spec()).to_json(), encoding="utf-8")
    (run_dir / "meta.json").write_text(json.dumps({"run_id": RUN_ID, "status": "finished"} | meta), encoding="utf-8")
    (run_dir / "events").mkdir(exist_ok=True)
    if events:
        write_file(run_dir, events)
    return run_dir


def plan_of(spec: RunSpec, prompt: int, sample: int) -> TrajectoryPlan:
    return draw_plan(PRESETS[spec.preset], spec.seed, prompt, sample, latency_scale=spec.latency_scale)


def follow(
    plan: TrajectoryPlan,
    start_ns: int,
    *,
    versions: tuple[int, int] = (0, 0),
    over_ns: int = MS,
    turn_ns: int = 10 * MS,
    turns: int | None = None,
    close: bool = True,
    open_id: int = 1,
    attempt: int = 0,
) -> list[Event]:
    """The events of a trajectory that does as planned, each tool call `over_ns` late; `turns`: only the first ones.

    `versions`: (start of every turn, end of the last turn).
    """
    name = f"p{plan.prompt}-s{plan.sample}-a{attempt}"
    events: list[Event] = [
        Open(id=open_id, start_ns=start_ns, phase=None, native_name="trajectory", pool="rollout", trajectory_id=name)
    ]
    now, context, tool_ns, calls = start_ns, plan.prompt_tokens, 0, 0
    made = plan.turns[:turns]
    for number, turn in enumerate(made):
        end_version = versions[1] if number == len(made) - 1 else versions[0]
        attributes = {
            "engine": "http://engine-0",
            "submitted_ns": now,
            "prompt_tokens": context,
            "generated_tokens": turn.generated_tokens,
            "version_start": versions[0],
            "version_end": end_version,
            "stop_reason": "length",
        }
        events.append(_leaf("generation", "turn", now, now + turn_ns, name, number, attributes))
        now += turn_ns
        context += turn.generated_tokens + turn.observation_tokens
        if turn.latency_s is None:
            continue
        planned = round(turn.latency_s * 1e9)
        attributes = {"tool": turn.tool, "planned_ns": planned, "status": "ok"}
        attributes |= {"observation_tokens": turn.observation_tokens, "observation_bytes": 100}
        events.append(_leaf("tool", "tool", now, now + planned + over_ns, name, number, attributes))
        now += planned + over_ns
        tool_ns += planned + over_ns
        calls += 1
    if close:
        events.append(
            Trajectory(
                trajectory_id=name,
                group_id=f"p{plan.prompt}",
                prompt=plan.prompt,
                sample=plan.sample,
                attempt=attempt,
                status="ok",
                start_ns=start_ns,
                end_ns=now,
                turns=len(made),
                tool_calls=calls,
                tool_ns=tool_ns,
                prompt_tokens=plan.prompt_tokens,
                generated_tokens=sum(turn.generated_tokens for turn in made),
                observation_tokens=sum(turn.observation_tokens for turn in made),
                version_scheduled=versions[0],
                version_first=versions[0],
                version_last=versions[1],
                reward=plan.reward,
                open_id=open_id,
            )
        )
    return events


def end_of(events: Sequence[Event]) -> int:
    return max(event.end_ns for event in events if isinstance(event, Span | Trajectory))


def step(number: int, start_ns: int, end_ns: int, names: Sequence[str], **changes: Any) -> Step:
    return Step(
        step=number, policy_version=number, start_ns=start_ns, end_ns=end_ns, trajectory_ids=tuple(names), **changes
    )


def _leaf(phase: str, native: str, start: int, end: int, name: str, turn: int, attributes: dict[str, Any]) -> Span:
    return Span(
        phase=phase,
        native_name=native,
        start_ns=start,
        end_ns=end,
        pool="rollout",
        trajectory_id=name,
        turn=turn,
        attributes=attributes,
    )
