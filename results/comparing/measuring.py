"""A run's tables -> its measures: the one place where what is compared is computed."""

import json
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow.compute as pc

from harness.protocol.spec import SYSTEM_FIELDS, Device, Load, Policy
from results.adherence import consumed_digest
from results.classes import Class
from results.comparing.measures import EXPOSED, MEASURES, OTHER, PARTS, RunMeasures, StepSeries, Value
from results.comparing.parts import WAITS, Parts, step_parts
from results.host_samples import lost_samples
from results.importing.imported import LABEL, is_imported
from results.metrics import RunFigures, compute
from results.store import RunTables
from results.tracks import floats, ints, tracks
from results.window import Window

STEP_TIME = "step_time_s"
_OF_FIGURES = (
    STEP_TIME,
    "throughput_tokens_per_s_gpu",
    "goodput_tokens_per_s_gpu",
    "mfu_ratio",
    "power_utilisation_ratio",
    "joules_per_trained_trajectory",
    "tail_gap_share",
    "slot_loss_share",
    "group_tail_share",
)
CANCELLED = "cancelled"


def measure_run(run: RunTables, found: RunFigures | None = None) -> RunMeasures:
    """The measures of a run, whole or cut short; `found`: its figures, where they were computed already."""
    found = compute(run) if found is None else found
    values = {name: Value(None, found.no_window or "no steady window") for name in MEASURES}
    series = StepSeries()
    window = found.window
    if window is not None:
        arrays = tracks(run)
        parts = step_parts(run, arrays, window)
        unknown = _unknown(run, parts)
        series = _series(parts, unknown)
        values |= _figures(found)
        values |= _parts(parts, window, unknown)
        values |= _rollout(found, window, bool(run.tables["turns"].num_rows))
        values |= _latencies(run, window)
        values |= _consumed(run, parts.steps)
    spec, meta = run.spec, run.meta
    steps = series.steps
    return RunMeasures(
        run_id=run.run_id,
        framework=spec.framework,
        framework_version=_text(meta.get("framework_version")),
        placement=spec.placement.value,
        load=spec.load.value,
        device=spec.device.value,
        model=spec.model,
        seed=spec.seed,
        work_digest=spec.work_digest,
        spec_digest=spec.spec_digest,
        plans_digest=consumed_digest(run, steps) if steps else None,
        work={name: str(value) for name, value in spec.work.items()},
        system={name: _plain(getattr(spec, name)) for name in SYSTEM_FIELDS} | {"steps": str(spec.steps)},
        machine=_machine(run),
        versions=_versions(meta.get("versions")),
        bench_version=_text(meta.get("bench_version")),
        commit=(_text(meta.get("commit")) or "")[:12] + ("+" if meta.get("dirty") else "") or None,
        started_utc=_text(meta.get("started_utc")),
        status=_text(meta.get("status")) or "unknown",
        problems=_problems(run, found),
        notes=_notes(run, found),
        granularity=None if found.account is None else found.account.granularity,
        evidence=None if found.account is None else found.account.evidence,
        steps=len(steps),
        values={name: values[name] for name in MEASURES},
        series=series,
        adherence=found.adherence.content_ratio if spec.load is Load.FIXED else None,
        lost="" if window is None else lost_samples(run, window),
    )


def _figures(found: RunFigures) -> dict[str, Value]:
    made = {}
    for name in _OF_FIGURES:
        figure = found.figures[name]
        made[name] = Value(figure.value, "" if figure.value is not None else figure.note or "not known")
    start = found.staleness.at_start
    made["staleness_at_start_mean"] = Value(start.mean, "" if start.mean is not None else "no version is on record")
    return made


_PART_NAMES = (*(part.name for part in PARTS), "phase_generation_s", "phase_wait_rollout_s")


def _unknown(run: RunTables, parts: Parts) -> dict[str, str]:
    """Parts that the run's record says nothing of, and why: a run recorded with its steps only, a partial import."""
    if set(parts.ns) == {OTHER}:
        return dict.fromkeys(_PART_NAMES, "no phase of the train side is on record")
    if not run.tables["turns"].num_rows and any(f"phase_{phase}_s" in parts.ns for phase in WAITS):
        return dict.fromkeys(EXPOSED, "no turn is on record: what the wait was for is not known")
    return {}


def _series(parts: Parts, unknown: Mapping[str, str]) -> StepSeries:
    held = {name: ns for name, ns in parts.ns.items() if name in MEASURES and name not in unknown}
    seconds = {name: tuple((ns / 1e9).tolist()) for name, ns in held.items()}
    seconds[STEP_TIME] = tuple((parts.wall / 1e9).tolist())
    return StepSeries(steps=parts.steps, plans=parts.plans, seconds=seconds)


def _parts(parts: Parts, window: Window, unknown: Mapping[str, str]) -> dict[str, Value]:
    """Seconds per step; a part that never occurred took 0 seconds: the track was looked at, whole."""
    made = {
        name: Value(float(parts.ns[name].sum()) / 1e9 / window.steps if name in parts.ns else 0.0)
        for name in _PART_NAMES
    }
    return made | {name: Value(None, why) for name, why in unknown.items()}


def _rollout(found: RunFigures, window: Window, turns: bool) -> dict[str, Value]:
    account = found.account
    names = [name for name, measure in MEASURES.items() if measure.account]
    if not turns:
        return {name: Value(None, "no turn is on record") for name in names}
    if account is None:
        return {name: Value(None, "no time account") for name in names}
    side = next((unit.pool for unit in account.units if unit.pool != "train"), None)
    if side is None:
        return {name: Value(None, "no rollout unit is on record") for name in names}
    seconds = account.pool_seconds(side)
    made = {}
    for member in Class:
        name = f"rollout_{member.value}_s"
        if name in MEASURES:
            made[name] = Value(seconds.get(member.value, 0.0) / window.steps)
    return made


def _latencies(run: RunTables, window: Window) -> dict[str, Value]:
    calls = run.tables["tool_calls"]
    took = ints(calls.column("end_ns")) - ints(calls.column("start_ns"))
    ended = window.holds(ints(calls.column("end_ns")))
    ended &= np.asarray(pc.fill_null(pc.not_equal(calls.column("status"), CANCELLED), True).to_numpy(), dtype=np.bool_)
    turns = run.tables["turns"]
    tokens = floats(turns.column("generated_tokens"))
    inside = window.holds(ints(turns.column("end_ns"))) & ~np.isnan(tokens)
    spent = float((ints(turns.column("end_ns")) - ints(turns.column("start_ns")))[inside].sum()) / 1e9
    made = float(tokens[inside].sum())
    return {
        "tool_latency_s": Value(float(took[ended].mean()) / 1e9)
        if ended.any()
        else Value(None, "no tool call ended in the window"),
        "turn_s_per_token": Value(spent / made) if made else Value(None, "no token was generated in the window"),
    }


def _consumed(run: RunTables, steps: tuple[int, ...]) -> dict[str, Value]:
    lives = run.frame("trajectories")
    used = lives[lives["step_consumed"].isin(list(steps))]
    made = {}
    for name, column, scale in (
        ("consumed_generated_tokens", "generated_tokens", 1.0),
        ("consumed_observation_tokens", "observation_tokens", 1.0),
        ("consumed_tool_calls", "tool_calls", 1.0),
        ("consumed_tool_s", "tool_ns", 1e-9),
    ):
        if used.empty:
            made[name] = Value(None, "no trajectory was trained on in the window")
        elif used[column].isna().any():
            made[name] = Value(None, "a consumed trajectory has no count on record")
        else:
            made[name] = Value(float(used[column].sum()) * scale / len(used))
    return made


def _problems(run: RunTables, found: RunFigures) -> tuple[str, ...]:
    said = []
    if is_imported(run.spec):
        said.append(f"is {LABEL}: its work and machine are not known")
    status = run.meta.get("status") or "unknown"
    if status != "finished":
        said.append(f"did not finish (status {status})")
    if found.window is None:
        said.append(f"no steady window: {found.no_window or 'not known why'}")
    if run.spec.device is Device.CUDA and found.contamination.reasons:
        said.append(f"contaminated: {'; '.join(found.contamination.reasons)}")
    return tuple(said)


def _notes(run: RunTables, found: RunFigures) -> tuple[str, ...]:
    spec, said = run.spec, []
    if found.window is not None and found.window.not_steady:
        said.append(f"not steady: {'; '.join(found.window.not_steady)}")
    ratio = found.adherence.content_ratio
    if spec.load is Load.FIXED and ratio is not None and ratio < 1:
        said.append(f"{found.adherence.started - found.adherence.adhering} trajectories did not do what was planned")
    if found.account is not None and not found.account.covered:
        said.append(f"{found.account.worst.other_s:.2f} s of the window have no name")
    if spec.device is Device.CPU and found.contamination.reasons:
        said.append("; ".join(found.contamination.reasons))
    if spec.policy is Policy.SCRIPTED:
        said.append("scripted policy")
    if spec.overrides or spec.as_shipped or spec.faults:
        ways = [f"{key}={value}" for key, value in sorted(spec.overrides.items())]
        ways += ["as shipped"] if spec.as_shipped else []
        said.append(f"non-standard: {', '.join([*ways, *spec.faults])}")
    if run.meta.get("record_detail") == "steps":
        said.append("recorded with steps only")
    return tuple(said)


def _machine(run: RunTables) -> dict[str, str | None]:
    machine = run.meta.get("machine")
    held: Mapping[str, object] = machine if isinstance(machine, Mapping) else {}
    listed = run.meta.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, Mapping)] if isinstance(listed, list) else []
    models = " + ".join(sorted({str(gpu["name"]) for gpu in gpus if gpu.get("name")})) or None
    told = {key: _text(held.get(key)) for key in ("host", "cpu", "cores", "memory_bytes", "kernel", "python")}
    driver = " + ".join(sorted(set(_drivers(run)))) or None
    return {**told, "gpus": models, "gpu_count": str(run.spec.total_gpus), "driver": driver}


def _drivers(run: RunTables) -> Iterator[str]:
    """The GPUs' driver, as each sampler says it."""
    for row in run.tables["processes"].select(["role", "versions_json"]).to_pylist():
        if row["role"] == "sampler" and (driver := json.loads(row["versions_json"] or "{}").get("driver")):
            yield str(driver)


def _versions(versions: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in sorted(versions.items())} if isinstance(versions, Mapping) else {}


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
