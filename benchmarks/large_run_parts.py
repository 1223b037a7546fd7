"""A generated run of any size, as `bench` leaves one on disk: events of a day of async training, and its samples."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from harness.protocol import PROTOCOL_VERSION
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from harness.telemetry.segment import END_OF_STREAM, SCHEMA
from workloads.deep_research.plan import draw_plan
from workloads.deep_research.presets import PRESETS

S = 1_000_000_000
ENGINES = 4
TRAIN_GPUS = 4
GPUS = TRAIN_GPUS + ENGINES
PER_STEP = 100  # trajectories
GROUP = 4
STEP_S = 100
LAG = 3  # steps between the end of a trajectory and the begin of the step that trains on it, about
FLUSH_S = 0.5  # as the sampler flushes
POWER_HZ, STATE_HZ = 10.0, 2.5
HOST = "node-0"


def spec_of(steps: int, nodes: int = 1) -> RunSpec:
    """What the generated run was asked to do."""
    return RunSpec(
        framework="simulated",
        placement=Placement.ASYNC,
        workload="deep-research",
        preset="deep-research",
        load=Load.LIVE,  # with a fixed load, the plans are drawn again: the workload's cost, measured beside
        tools="mock",
        model="random:qwen3-14b",
        gpus=Gpus(train=TRAIN_GPUS * nodes, rollout=ENGINES * nodes),
        nodes=nodes,
        steps=steps,
        warmup_steps=LAG + 2,
        batch_size=PER_STEP // GROUP,
        group_size=GROUP,
        max_staleness=LAG + 2,
        seed=1,
        device=Device.CUDA,
        engine="simulated",
        rollout_tp=1,
        context_tokens=32_768,
        micro_batch_tokens=32_768,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=POWER_HZ,
    )


def write_folder(folder: Path, spec: RunSpec, seconds: float) -> None:
    """spec.json, meta.json and the empty folders of a run that took so long."""
    for name in ("events", "samples", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(spec.to_json())
    (folder / "sealed").touch()
    gpus = [{"uuid": gpu_uuid(0, gpu), "name": "NVIDIA H100 80GB HBM3", "host": HOST} for gpu in range(GPUS)]
    meta = {
        "run_id": folder.name,
        "status": "finished",
        "exit_code": 0,
        "wall_s": seconds,
        "machine": {"host": HOST},
        "gpus": gpus,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    described = [
        {
            "host": HOST,
            "uuid": gpu_uuid(0, gpu),
            "index": gpu,
            "name": "NVIDIA H100 80GB HBM3",
            "compute_capability": "9.0",
            "energy_refresh_s": 0.1,
            "power_instant_refresh_s": 0.1,
            "sample_period_s": 0.1,
            "power_average_window_s": 1.0,
            "power_limit_watts": 700.0,
        }
        for gpu in range(GPUS)
    ]
    (folder / "samples" / "gpus.json").write_text(json.dumps({"schema_version": 1, "gpus": described}))


def gpu_uuid(node: int, gpu: int) -> str:
    """As the stand-in for NVML names them."""
    return f"GPU-00000000-0000-4000-{node:04d}-{gpu:012d}"


def write_events(folder: Path, spec: RunSpec, trajectories: int) -> tuple[int, float]:
    """The events of a run with so many trajectories, each as its plan asks.

    Returns:
        How many spans there are, and at which second the last step ends.
    """
    rng = np.random.default_rng(1)
    preset = PRESETS[spec.preset]
    starts = (np.arange(trajectories) * (STEP_S * S // PER_STEP) + rng.integers(0, S, trajectories)).tolist()
    paces = rng.uniform(0.015, 0.025, trajectories).tolist()
    run_id, spans = folder.name, 0
    ends: list[tuple[int, str, int, int]] = []
    path = folder / "events" / f"{HOST}-2000.jsonl"
    with path.open("w", buffering=1 << 20) as file:
        rollout = [gpu_uuid(0, gpu) for gpu in range(TRAIN_GPUS, GPUS)]
        file.write(_hello(run_id, 2000, "rollout", "rollout", rollout))
        pending: list[tuple[int, int, str]] = []  # by end, as a process writes them
        for number, (start, pace) in enumerate(zip(starts, paces, strict=True)):
            plan = draw_plan(preset, spec.seed, number // GROUP, number % GROUP, latency_scale=1.0)
            name, engine = f"p{number // GROUP}-s{number % GROUP}-a0", f"http://engine-{number % ENGINES}"
            now, context, tool_ns, generated, observed = start + S // 20, plan.prompt_tokens, 0, 0, 0
            version = max(0, start // (STEP_S * S) - LAG)
            lines = [
                f'{{"k":"open","id":{number + 1},"start_ns":{start},"native_name":"trajectory","pool":"rollout",'
                f'"trajectory_id":"{name}"}}\n'
            ]
            for turn, planned in enumerate(plan.turns):
                end = now + int(planned.generated_tokens * pace * S)
                lines.append(
                    f'{{"k":"span","phase":"generation","native_name":"turn","start_ns":{now},"end_ns":{end},'
                    f'"pool":"rollout","unit":null,"step":null,"trajectory_id":"{name}","turn":{turn},'
                    f'"container":false,"open_id":null,"attributes":{{"engine":"{engine}",'
                    f'"submitted_ns":{now - 2_000_000},"prompt_tokens":{context},'
                    f'"generated_tokens":{planned.generated_tokens},"version_start":{version},'
                    f'"version_end":{version},"stop_reason":"length","cache_break":false}}}}\n'
                )
                generated, observed = generated + planned.generated_tokens, observed + planned.observation_tokens
                context += planned.generated_tokens + planned.observation_tokens
                spans, now = spans + 1, end + S // 50
                if planned.latency_s is None:
                    break
                wanted = round(planned.latency_s * 1e9)
                end = now + wanted + 1_000_000
                lines.append(
                    f'{{"k":"span","phase":"tool","native_name":"tool","start_ns":{now},"end_ns":{end},'
                    f'"pool":"rollout","unit":null,"step":null,"trajectory_id":"{name}","turn":{turn},'
                    f'"container":false,"open_id":null,"attributes":{{"tool":"{planned.tool}","call":{turn},'
                    f'"argument":"what is known of {number}","planned_ns":{wanted},"status":"ok",'
                    f'"observation_tokens":{planned.observation_tokens},'
                    f'"observation_bytes":{4 * planned.observation_tokens},"http_status":null,"wire_bytes":null,'
                    f'"served_ns":null,"detail":null}}}}\n'
                )
                tool_ns, spans, now = tool_ns + end - now, spans + 1, end + S // 100
            calls = sum(turn.latency_s is not None for turn in plan.turns)
            lines.append(
                f'{{"k":"trajectory","trajectory_id":"{name}","group_id":"p{number // GROUP}",'
                f'"prompt":{number // GROUP},"sample":{number % GROUP},"attempt":0,"status":"ok","start_ns":{start},'
                f'"end_ns":{now},"turns":{len(plan.turns)},"tool_calls":{calls},"tool_ns":{tool_ns},'
                f'"prompt_tokens":{plan.prompt_tokens},"generated_tokens":{generated},'
                f'"observation_tokens":{observed},"version_scheduled":{version},"version_first":{version},'
                f'"version_last":{version},"reward":{plan.reward},"open_id":{number + 1},"loss_tokens":{generated},'
                f'"sequence_tokens":{plan.prompt_tokens + generated + observed}}}\n'
            )
            ends.append((now, name, generated, plan.prompt_tokens + generated + observed))
            pending.append((now, number, "".join(lines)))
            if len(pending) == 4 * PER_STEP:
                pending.sort()
                file.writelines(lines for _, _, lines in pending[:PER_STEP])
                del pending[:PER_STEP]
        file.writelines(lines for _, _, lines in sorted(pending))
        file.write(_bye(max(end for end, *_ in ends), spans + 2 * trajectories))
    of_steps, end_s = _write_steps(folder, run_id, sorted(ends))
    return spans + of_steps, end_s


def _write_steps(folder: Path, run_id: str, ends: list[tuple[int, str, int, int]]) -> tuple[int, float]:
    spans = 0
    with (folder / "events" / f"{HOST}-1000.jsonl").open("w") as file:
        file.write(_hello(run_id, 1000, "controller", "train", [gpu_uuid(0, gpu) for gpu in range(TRAIN_GPUS)]))
        before, written = ends[0][0], 0
        for step, begin in enumerate(range(0, len(ends), PER_STEP), start=1):
            batch = ends[begin : begin + PER_STEP]
            at, lines = before, []
            ready = max(end for end, *_ in batch)
            phases = (
                ("wait_rollout", "wait_for_groups", max(ready - at, 0) + S // 10),
                ("data", "make_batch", S),
                ("logprob", "logprob", 15 * S),
                ("advantage", "advantage", S // 5),
                ("train", "train", 60 * S),
                ("weight_sync", "weight_sync", 4 * S),
                ("overhead", "log_step", S // 10),
            )
            for phase, native, length in phases:
                if phase == "weight_sync":
                    lines += [_sync(engine, at, at + length, step) for engine in range(ENGINES)]
                lines.append(_span(phase, native, at, at + length, step))
                at += length
            spans += len(phases) + ENGINES + 1
            ids = ",".join(f'"{name}"' for _, name, *_ in batch)
            lines.append(
                f'{{"k":"step","step":{step},"policy_version":{step},"start_ns":{before},"end_ns":{at},'
                f'"trajectory_ids":[{ids}],"dropped_ids":[],"loss_tokens":{sum(one[2] for one in batch)},'
                f'"processed_tokens":{sum(one[3] for one in batch)},"reward_mean":0.5,"grad_norm":0.3,'
                f'"recorder_ns":{step * 5_000_000}}}\n'
            )
            lines.append(_span(None, "step", before, at, step, container=True))
            file.writelines(lines)
            written, before = written + len(lines), at
        file.write(_bye(before + S, written))
    return spans, before / S


def _span(phase: str | None, native: str, start: int, end: int, step: int, *, container: bool = False) -> str:
    return (
        f'{{"k":"span","phase":{json.dumps(phase)},"native_name":"{native}","start_ns":{start},"end_ns":{end},'
        f'"pool":"train","unit":null,"step":{step},"trajectory_id":null,"turn":null,'
        f'"container":{json.dumps(container)},"open_id":null}}\n'
    )


def _sync(engine: int, start: int, end: int, step: int) -> str:
    name = f"http://engine-{engine}"
    return (
        f'{{"k":"span","phase":"weight_sync","native_name":"update_weights","start_ns":{start},"end_ns":{end},'
        f'"pool":"rollout","unit":"{name}","step":{step},"trajectory_id":null,"turn":null,"container":false,'
        f'"open_id":null,"attributes":{{"version":{step},"pause_ns":1000000,"transfer_ns":{end - start - 2_000_000},'
        f'"resume_ns":1000000,"engine":"{name}"}}}}\n'
    )


def _hello(run_id: str, pid: int, role: str, pool: str, gpus: list[str]) -> str:
    line = {"k": "hello", "protocol": PROTOCOL_VERSION, "run_id": run_id, "host": HOST, "pid": pid, "role": role}
    return json.dumps({**line, "wall_ns": time.time_ns(), "mono_ns": 0, "gpu_uuids": gpus, "pool": pool}) + "\n"


def _bye(at: int, events: int) -> str:
    line = {"k": "bye", "mono_ns": at, "wall_ns": time.time_ns(), "events": events, "lost_events": 0, "recorder_ns": 0}
    return json.dumps(line) + "\n"


def write_samples(path: Path, *, host: str, node: int, seconds: float) -> int:
    """A segment as a node's sampler leaves it: a batch for each half second of 8 GPUs; returns how many rows."""
    rows = 0
    with path.open("wb") as file:
        file.write(SCHEMA.serialize())
        for table in _sampled(host, node, seconds):
            for batch in table.to_batches(max_chunksize=round(GPUS * (POWER_HZ + STATE_HZ) * FLUSH_S)):
                file.write(batch.serialize())
                rows += batch.num_rows
        file.write(END_OF_STREAM)
    return rows


def _sampled(host: str, node: int, seconds: float, piece_s: float = 1000.0) -> Iterator[pa.Table]:
    """The rows by pieces: power swings with a 100 s step, the counter is its integral."""
    rng = np.random.default_rng(node + 1)
    uuids = pa.array([gpu_uuid(node, gpu) for gpu in range(GPUS)])
    joules = np.zeros(GPUS)
    for begin in np.arange(0.0, seconds, piece_s):
        length = min(piece_s, seconds - begin)
        kinds = []
        for hz in (POWER_HZ, STATE_HZ):
            ticks = round(length * hz)
            at = begin + (np.arange(ticks)[:, None] + rng.random((ticks, GPUS))) / hz
            kinds.append((np.sort(at, axis=0), np.broadcast_to(np.arange(GPUS), (ticks, GPUS))))
        (power_at, power_gpu), (state_at, state_gpu) = kinds
        watts = 350 + 250 * np.sin(power_at * 2 * np.pi / STEP_S + power_gpu) + rng.normal(0, 5, power_at.shape)
        steps = np.diff(power_at, axis=0, prepend=power_at[:1])
        energy = joules + np.cumsum(watts * steps, axis=0)
        joules = energy[-1] + watts[-1] * 0.05
        count, other = power_at.size, state_at.size
        at = np.concatenate((power_at.ravel(), state_at.ravel()))
        order = np.argsort(at, kind="stable")
        columns = {
            "mono_ns": (at * 1e9).astype(np.int64),
            "uncertainty_ns": np.full(at.size, 400_000, dtype=np.int64),
        }
        known = {
            "power_instant_watts": (watts, True),
            "power_average_watts": (watts, True),
            "energy_joules": (energy, True),
            "power_limit_watts": (np.full(power_at.shape, 700.0), True),
            "util_ratio": (np.clip(rng.normal(0.5, 0.2, state_at.shape), 0, 1), False),
            "sm_clock_hz": (np.full(state_at.shape, 1_980_000_000, dtype=np.int64), False),
            "throttle_reasons": (np.zeros(state_at.shape, dtype=np.int64), False),
        }
        arrays = []
        for field in SCHEMA:
            if field.name == "host":
                arrays.append(pa.repeat(host, at.size))
            elif field.name == "gpu":
                arrays.append(uuids.take(pa.array(np.concatenate((power_gpu.ravel(), state_gpu.ravel()))[order])))
            elif field.name in columns:
                arrays.append(pa.array(columns[field.name][order]))
            elif field.name in known:
                values, of_power = known[field.name]
                whole = np.zeros(at.size, dtype=values.dtype)
                missing = np.ones(at.size, dtype=bool)
                where = slice(0, count) if of_power else slice(count, count + other)
                whole[where], missing[where] = values.ravel(), False
                arrays.append(pa.array(whole[order], field.type, mask=missing[order]))
            else:
                arrays.append(pa.nulls(at.size, field.type))
        yield pa.Table.from_arrays(arrays, schema=SCHEMA)
