"""A run as an MLPerf log: `:::MLLOG` lines with mlcommons' keys where it has them, `bench.*` for what it has not.

Format: https://github.com/mlcommons/logging (mllog); keys of round 6.1 and of its reinforcement learning benchmark.
mlcommons' checker accepts the log under `RULES`, which builds on its rules for all training logs. A run of bench is no
submission, and its log doesn't say that it is.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Load
from reports.exporting.files import written
from reports.exporting.source import Rows, bounds_ns, wall_minus_mono_ns
from results.metrics import compute
from results.store import RunTables

RULES = Path(__file__).parent / "mlperf_rules" / "bench_agentic_rl.yaml"
START, STOP, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
PARALLEL = ("tensor_parallelism", "pipeline_parallelism", "context_parallelism", "expert_parallelism")
_PARALLEL_KEY = re.compile(r"parallel|megatron|allocation|(^|[._])(tp|pp|cp|ep|dp)([._]|$)", re.IGNORECASE)
_DTYPE_KEY = re.compile(r"dtype|precision|quant|fp8|amp", re.IGNORECASE)
_CONFIGURED = frozenset({"simulated", "skyrl", "areal", "verl"})  # set up by bench's own adapters, so known here
_SAMPLING_KEY = re.compile(r"temperature|top_p", re.IGNORECASE)

Line = tuple[int, str, str, Any, dict[str, Any]]  # ns, event type, key, value, metadata


def export_mlperf(run: RunTables, path: Path) -> list[str]:
    """Writes the log of a run to `path`; returns what a reader should know: which keys were left out, and why.

    Raises:
        SpecError: the run has no wall time, which every line needs.
        OSError: `path` cannot be written; what was there is left as it was.
    """
    offset, bounds = wall_minus_mono_ns(run), bounds_ns(run)
    if offset is None or bounds is None:
        raise SpecError(
            f"{run.run_dir}: no process recorded both clocks, and every line of an MLPerf log has wall time"
        )
    log = _Log(run, *bounds)
    lines = sorted(log.lines(), key=lambda line: line[0])  # stable: lines of one instant stay in order
    with written(path) as file:
        for at, kind, key, value, metadata in lines:
            record = {
                "namespace": "bench" if key.startswith("bench.") else "",
                "time_ms": (at + offset) // 1_000_000,
                "event_type": kind,
                "key": key,
                "value": value,
                "metadata": metadata,
            }
            file.write(b":::MLLOG " + json.dumps(record, allow_nan=False).encode() + b"\n")
    return log.notes


class _Log:
    def __init__(self, run: RunTables, first: int, last: int) -> None:
        self.run = run
        self.first, self.last = first, last
        self.notes: list[str] = []
        steps = Rows.of(run, "steps")
        order = sorted(range(steps.count), key=lambda row: steps.columns["end_ns"][row])
        self.steps = [{name: column[row] for name, column in steps.columns.items()} for row in order]

    def lines(self) -> Iterator[Line]:
        yield self.first, POINT, "cache_clear", False, _from("spec.json")  # bench clears none
        yield self.first, START, "init_start", None, _from("tables/processes.parquet")
        for key, value, metadata in self._settings():
            yield self.first, POINT, key, value, _from("spec.json") | metadata
        if not self.steps:
            self.notes.append("no step was recorded: the log has no run_start, and the checker refuses it")
            return
        begin = min(step["start_ns"] for step in self.steps)
        yield begin, STOP, "init_stop", None, _from("tables/steps.parquet")
        yield begin, START, "run_start", None, _from("tables/steps.parquet")
        yield from self._step_lines()
        yield from self._syncs(begin)
        finished = self.run.meta.get("status") == "finished"
        status = {"status": "success" if finished else "aborted", "bench_status": self.run.meta.get("status")}
        yield self.last, STOP, "run_stop", None, _from("meta.json") | status
        for row, figure in enumerate(compute(self.run).figures.values()):
            told: dict[str, Any] = {"metric": figure.metric, "unit": figure.unit, "n": figure.n, "note": figure.note}
            told |= {"ci_low": figure.ci_low, "ci_high": figure.ci_high, "verdict": figure.verdict}
            yield self.last, POINT, "bench.figure", figure.value, _from("tables/metrics.parquet", row) | told

    def _settings(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        spec, run = self.run.spec, self.run
        yield "config_filename", "spec.json", {}
        yield "seed", spec.seed, {}
        yield "global_batch_size", spec.trajectories_per_step, {"unit": "trajectory"}
        yield "num_prompts_per_step", spec.batch_size, {}
        yield "num_generations_per_prompt", spec.group_size, {}
        yield "max_sequence_length", spec.context_tokens, {}
        yield "max_steps", spec.steps, {}
        yield "init_checkpoint_step", 0, {}
        yield "train_samples", spec.prompts * spec.group_size, {"unit": "trajectory"}
        yield "eval_samples", 0, {"reason": "steps do not evaluate"}
        if self._known(PARALLEL) and self._plain(PARALLEL, _PARALLEL_KEY):
            for key in PARALLEL:
                yield key, 1, {"side": "train", "rollout_tensor_parallelism": spec.rollout_tp}
        precision = tuple(f"lowest_numerical_precision_in_{part}" for part in ("linear", "attn", "comm"))
        if spec.framework == "simulated":
            self.notes.append(f"{', '.join(precision)}: left out, nothing is computed by the simulated framework")
        elif self._known(precision) and self._plain(precision, _DTYPE_KEY):
            for key in precision:
                yield key, "fp32" if spec.device is Device.CPU else "bfloat16", {}
        sampling = tuple(f"generation_training_rollout_{part}" for part in ("temperature", "top_p"))
        if spec.load is Load.FIXED and self._plain(sampling, _SAMPLING_KEY):
            for key in sampling:
                yield key, 1.0, {}
        yield "bench.run_id", run.run_id, {}
        yield "bench.framework", spec.framework, {"version": run.meta.get("framework_version")}
        yield "bench.placement", spec.placement.value, {}
        yield "bench.device", spec.device.value, {}
        yield "bench.gpus", spec.total_gpus, {"train": spec.gpus.train, "rollout": spec.gpus.rollout}
        yield "bench.model", spec.model, {}
        yield "bench.tools", spec.tools, {"workload": spec.workload, "preset": spec.preset, "load": spec.load.value}
        yield "bench.work_digest", spec.work_digest, {}
        yield "bench.spec_digest", spec.spec_digest, {}
        yield "bench.max_staleness", spec.max_staleness, {}

    def _known(self, keys: tuple[str, ...]) -> bool:
        """Whether an adapter of bench's own sets `keys` for the run's framework: else they are left out, and noted."""
        framework = self.run.spec.framework
        if framework not in _CONFIGURED:
            self.notes.append(f"{', '.join(keys)}: left out, not known of {framework}")
        return framework in _CONFIGURED

    def _plain(self, keys: tuple[str, ...], touches: re.Pattern[str]) -> bool:
        """Whether what bench configures for `keys` is what ran: else they are left out, and it is noted."""
        spec = self.run.spec
        changed = [name for name in spec.overrides if touches.search(name)]
        why = "the framework's own settings were kept" if spec.as_shipped else f"changed by -o {', '.join(changed)}"
        if spec.as_shipped or changed:
            self.notes.append(f"{', '.join(keys)}: left out, {why}")
        return not (spec.as_shipped or changed)

    def _step_lines(self) -> Iterator[Line]:
        calls, ages = self._calls(), self._ages()
        samples, free = 0, 0
        for row, step in enumerate(self.steps):
            told = _from("tables/steps.parquet", row) | {"step": step["step"]}
            # Steps of an async trainer may overlap by what it does between them; blocks of a log may not.
            begin, end = max(step["start_ns"], free), step["end_ns"]
            free = end
            yield begin, START, "block_start", None, told | {"samples_count": samples}
            samples += step["trajectories"]
            seconds = (step["end_ns"] - step["start_ns"]) / 1e9
            more = {name: step[name] for name in ("loss_tokens", "processed_tokens", "reward_mean", "grad_norm")}
            dropped = {"trajectories": step["trajectories"], "dropped": len(step["dropped_ids"])}
            yield (
                end,
                POINT,
                "bench.policy_version",
                step["policy_version"],
                told | more | dropped | {"seconds": seconds},
            )
            if step["trajectories"]:
                stale = [ages.get(name) for name in step["trajectory_ids"]]
                yield end, POINT, "bench.staleness", *self._staleness(stale, told)
            used = [calls.get(name, (0, 0, 0)) for name in step["trajectory_ids"]]
            number, failed, ns = (sum(column) for column in zip(*used, strict=True)) if used else (0, 0, 0)
            yield end, POINT, "bench.tool_calls", number, told | {"failed": failed, "seconds": ns / 1e9}
            yield end, STOP, "block_stop", None, told | {"samples_count": samples}

    def _staleness(self, ages: list[int | None], told: dict[str, Any]) -> tuple[float | None, dict[str, Any]]:
        known = [age for age in ages if age is not None]
        mean = sum(known) / len(known) if known else None
        beyond = sum(age > self.run.spec.max_staleness for age in known)
        found = {"n": len(known), "unknown": len(ages) - len(known), "max": max(known, default=None)}
        return mean, told | found | {"violations": beyond, "of": "at_start"}

    def _ages(self) -> dict[str, int | None]:
        """Versions between the first token of each trajectory and the weights that it was trained on."""
        c = Rows.of(self.run, "trajectories").columns
        pairs = zip(c["trajectory_id"], c["version_trained"], c["version_first"], strict=True)
        return {name: None if trained is None or first is None else trained - first for name, trained, first in pairs}

    def _calls(self) -> Mapping[str, tuple[int, int, int]]:
        """Number, failed ones and ns of the tool calls of each trajectory."""
        found: dict[str, tuple[int, int, int]] = {}
        c = Rows.of(self.run, "tool_calls").columns
        for name, start, end, status in zip(c["trajectory_id"], c["start_ns"], c["end_ns"], c["status"], strict=True):
            number, failed, ns = found.get(name, (0, 0, 0))
            found[name] = (number + 1, failed + (status not in (None, "ok")), ns + end - start)
        return found

    def _syncs(self, begin: int) -> Iterator[Line]:
        syncs = Rows.of(self.run, "weight_syncs")
        c = syncs.columns
        for row in range(syncs.count):
            told = _from("tables/weight_syncs.parquet", row) | {
                "sync": row,
                "engine": c["engine"][row] or c["unit"][row],
            }
            told |= {"before_run": c["start_ns"][row] < begin, "bytes": c["bytes"][row]}
            told |= {f"{part}_s": _seconds(c[f"{part}_ns"][row]) for part in ("pause", "transfer", "resume")}
            yield c["start_ns"][row], START, "bench.weight_sync_start", c["version"][row], told
            yield c["end_ns"][row], STOP, "bench.weight_sync_stop", c["version"][row], told


def _from(file: str, row: int = 0) -> dict[str, Any]:
    """Where a line comes from, under the names that MLPerf has for the place in a program's text."""
    return {"file": file, "lineno": row}


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
