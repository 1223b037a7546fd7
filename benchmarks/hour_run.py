"""One hour of an async run on 8 GPUs, as tables: a million spans and ten million readings, made in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from results.schema import TABLES
from results.store import RunTables

S = 1_000_000_000
HOUR = 3_600 * S
BEGIN = 1_000 * S
ENGINES = 4
GPUS = 8
TURNS = 5  # of a trajectory; one tool call between each two
STEP_S = 30
STEPS = HOUR // (STEP_S * S) - 2
SPANS = 1_000_000
HZ = 25.0
HOST = "node-1"
QUERY = "what is known of the harbour that was built in the year"

Ns = npt.NDArray[np.int64]


def spec() -> RunSpec:
    """What the run was asked to do."""
    return RunSpec(
        framework="simulated",
        placement=Placement.ASYNC,
        workload="deep-research",
        preset="deep-research",
        load=Load.FIXED,
        tools="mock",
        model="random:qwen3-14b",
        gpus=Gpus(train=GPUS - ENGINES, rollout=ENGINES),
        nodes=1,
        steps=STEPS,
        warmup_steps=3,
        batch_size=_lives() // (STEPS + 2) // 8,
        group_size=8,
        max_staleness=1,
        seed=1,
        device=Device.CUDA,
        engine="simulated",
        rollout_tp=1,
        context_tokens=32_768,
        micro_batch_tokens=32_768,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=HZ,
    )


def hour_run(folder: Path) -> tuple[RunTables, int, int]:
    """The run, how many spans it has, and how many readings."""
    rng = np.random.default_rng(1)
    made = {name: schema.empty_table() for name, schema in TABLES.items()}
    lives = _lives()
    ids = np.array([f"p{n // 8}-s{n % 8}-a0" for n in range(lives)])
    starts = BEGIN + np.sort(rng.integers(0, HOUR - 60 * S, lives))
    turns, tools, ends = _calls(rng, starts)
    step_of = (ends - BEGIN) // (STEP_S * S) + 2  # trained in the step after the one in which it ended
    kept = step_of <= STEPS
    version = (starts - BEGIN) // (STEP_S * S)
    made["trajectories"] = _table(
        "trajectories",
        lives,
        trajectory_id=ids,
        group_id=np.array([f"p{n // 8}" for n in range(lives)]),
        status=np.full(lives, "ok"),
        start_ns=starts,
        end_ns=ends,
        turns=np.full(lives, TURNS),
        tool_calls=np.full(lives, TURNS - 1),
        tool_ns=(tools[1] - tools[0]).sum(axis=1),
        prompt_tokens=np.full(lives, 500),
        generated_tokens=np.full(lives, TURNS * 60),
        observation_tokens=np.full(lives, (TURNS - 1) * 150),
        version_first=version,
        version_last=(ends - BEGIN) // (STEP_S * S),
        reward=rng.random(lives),
        loss_tokens=np.full(lives, TURNS * 60),
        sequence_tokens=np.full(lives, 500 + TURNS * 60 + (TURNS - 1) * 150),
        step_consumed=pa.array(step_of, mask=~kept),
        version_trained=pa.array(step_of - 1, mask=~kept),
        consumed_ns=pa.array(BEGIN + step_of * STEP_S * S, mask=~kept),
    )
    engine = np.array([f"10.0.0.1:{8000 + n}" for n in range(ENGINES)])[np.arange(lives) % ENGINES]
    made["turns"] = _table(
        "turns",
        lives * TURNS,
        trajectory_id=np.repeat(ids, TURNS),
        turn=np.tile(np.arange(TURNS), lives),
        engine=np.repeat(engine, TURNS),
        pool=np.full(lives * TURNS, "rollout"),
        submitted_ns=turns[0].ravel(),
        start_ns=turns[0].ravel(),
        end_ns=turns[1].ravel(),
        prompt_tokens=np.full(lives * TURNS, 900),
        generated_tokens=np.full(lives * TURNS, 60),
        version_start=np.repeat(version, TURNS),
        version_end=np.repeat(version, TURNS),
    )
    calls = lives * (TURNS - 1)
    made["tool_calls"] = _table(
        "tool_calls",
        calls,
        trajectory_id=np.repeat(ids, TURNS - 1),
        turn=np.tile(np.arange(TURNS - 1), lives),
        tool=np.where(np.arange(calls) % 3 > 0, "search_engine", "web_browser"),
        call=np.tile(np.arange(TURNS - 1), lives),
        argument=np.array([f"{QUERY} {n % 2_000}" for n in range(calls)]),
        start_ns=tools[0].ravel(),
        end_ns=tools[1].ravel(),
        status=np.full(calls, "ok"),
        observation_tokens=np.full(calls, 150),
    )
    made |= _trainer(ids, step_of)
    made["samples"], readings = _samples(rng)
    made["processes"] = _table(
        "processes",
        2,
        file=np.array(["a.jsonl", "b.jsonl"]),
        role=np.array(["controller", "rollout"]),
        pool=np.array(["train", "rollout"]),
        gpu_uuids=pa.array([[_uuid(n) for n in range(4)], [_uuid(n) for n in range(4, GPUS)]]),
        versions_json=np.array(["{}", "{}"]),
        mono_ns=np.full(2, BEGIN),
        first_ns=np.full(2, BEGIN),
        last_ns=np.full(2, BEGIN + HOUR),
        ended=np.full(2, True),
    )
    gpus = [{"uuid": _uuid(n), "name": "NVIDIA H100 80GB HBM3", "power_limit_watts": 700.0} for n in range(GPUS)]
    meta = {"run_id": folder.name, "status": "finished", "exit_code": 0, "gpus": gpus, "wall_s": 3600.0}
    run = RunTables(spec=spec(), meta=meta, run_dir=folder, tables=made)
    return run, lives * (2 * TURNS - 1) + made["spans"].num_rows, readings


def _lives() -> int:
    return SPANS // (2 * TURNS - 1)


def _uuid(gpu: int) -> str:
    return f"GPU-{gpu:04d}"


def _calls(rng: np.random.Generator, starts: Ns) -> tuple[tuple[Ns, Ns], tuple[Ns, Ns], Ns]:
    """Starts and ends of turns and of tool calls, (trajectories, number); and the trajectories' ends."""
    lives = starts.size
    turn = (rng.lognormal(0.2, 0.5, (lives, TURNS)) * S).astype(np.int64)
    tool = (rng.lognormal(0.4, 0.8, (lives, TURNS - 1)) * S).clip(max=20 * S).astype(np.int64)
    lengths = np.zeros((lives, 2 * TURNS - 1), dtype=np.int64)
    lengths[:, 0::2], lengths[:, 1::2] = turn, tool
    ends = starts[:, None] + np.cumsum(lengths, axis=1)
    begins = ends - lengths
    last = np.minimum(ends[:, -1], BEGIN + HOUR - S)
    return (
        (np.minimum(begins[:, 0::2], last[:, None]), np.minimum(ends[:, 0::2], last[:, None])),
        (np.minimum(begins[:, 1::2], last[:, None]), np.minimum(ends[:, 1::2], last[:, None])),
        last,
    )


def _trainer(ids: npt.NDArray[Any], step_of: Ns) -> dict[str, pa.Table]:
    """Steps of 30 s with their phases, and a weight sync at each end."""
    number = np.arange(1, STEPS + 1)
    begin = BEGIN + (number - 1) * STEP_S * S
    parts = (
        ("wait_rollout", "wait", 8.0),
        ("logprob", "fwd", 6.0),
        ("train", "update", 14.5),
        ("weight_sync", "s", 1.4),
    )
    names, natives, starts, ends = [], [], [], []
    at = begin.copy()
    for phase, native, length in parts:
        names += [phase] * STEPS
        natives += [native] * STEPS
        starts.append(at)
        at = at + int(length * S)
        ends.append(at)
    size = STEPS * len(parts)
    order = np.argsort(step_of, kind="stable")
    cuts = np.searchsorted(step_of[order], np.arange(1, STEPS + 2))
    consumed = [ids[order[cuts[n] : cuts[n + 1]]].tolist() for n in range(STEPS)]
    return {
        "spans": _table(
            "spans",
            size,
            phase=np.array(names),
            native_name=np.array(natives),
            pool=np.full(size, "train"),
            step=np.tile(number, len(parts)),
            container=np.full(size, False),
            start_ns=np.concatenate(starts),
            end_ns=np.concatenate(ends),
            attributes_json=np.full(size, "{}"),
        ),
        "steps": _table(
            "steps",
            STEPS,
            step=number,
            policy_version=number,
            trained_at=number - 1,
            start_ns=begin,
            end_ns=begin + STEP_S * S,
            trajectory_ids=pa.array(consumed, pa.list_(pa.string())),
            dropped_ids=pa.array([[]] * STEPS, pa.list_(pa.string())),
            trajectories=np.array([len(each) for each in consumed]),
            recorder_ns=number * 1_000_000,
        ),
        "weight_syncs": _table(
            "weight_syncs",
            STEPS,
            version=number,
            pool=np.full(STEPS, "rollout"),
            start_ns=begin + int(28.5 * S),
            end_ns=begin + int(29.9 * S),
        ),
    }


def _samples(rng: np.random.Generator) -> tuple[pa.Table, int]:
    """Every reading of every GPU at HZ; how many readings that is."""
    times = BEGIN + (np.arange(int(3_600 * HZ)) * (S / HZ)).astype(np.int64)
    columns = [
        name
        for name in TABLES["samples"].names
        if name.endswith(("_watts", "_ratio", "_bytes", "_hz", "_celsius", "_joules")) and not name.startswith("dcgm")
    ]
    tables = []
    for gpu in range(GPUS):
        power = 250 + 200 * ((times - BEGIN) % (STEP_S * S) > 8 * S) + rng.normal(0, 40, times.size)
        values: dict[str, Any] = {name: rng.integers(1, 100, times.size) for name in columns}
        values |= {"power_instant_watts": power, "power_average_watts": power}
        values |= {"energy_joules": np.cumsum(power / HZ), "power_limit_watts": np.full(times.size, 700.0)}
        tables.append(_table("samples", times.size, gpu=np.full(times.size, _uuid(gpu)), mono_ns=times, **values))
    return pa.concat_tables(tables), times.size * GPUS * len(columns)


def _table(name: str, size: int, **given: Any) -> pa.Table:
    """A table of that many rows: what is not given is unknown, or what stands for nothing where that is not allowed."""
    plain: dict[pa.DataType, Any] = {pa.int64(): 0, pa.string(): "", pa.bool_(): False, pa.float64(): 0.0}
    columns = []
    for field in TABLES[name]:
        value = given.pop(field.name, None)
        if value is not None:
            columns.append((value if isinstance(value, pa.Array) else pa.array(value)).cast(field.type))
        elif field.nullable:
            columns.append(pa.nulls(size, field.type))
        else:
            stand = HOST if field.name == "host" else plain[field.type]
            columns.append(pa.array([stand] * size, field.type))
    assert not given, sorted(given)
    return pa.Table.from_arrays(columns, schema=TABLES[name])
