"""A verl console log as the tables of a partial run: steps and phases laid end to end, every figure as a probe."""

import math
from collections.abc import Sequence
from typing import Any

from adapters.verl.phases import phases_for
from harness.protocol.errors import SpecError
from harness.protocol.phases import Phase, Pool
from harness.protocol.spec import Placement
from results.importing.log_steps import LogStep
from results.importing.partial import Built, Facts, process_row
from results.importing.verl_console import phases_of
from results.lint.identities import phases_within_step
from results.lint.quantity import Quantity

LACKS = (
    "when anything happened: steps are laid end to end, the gaps between them are not in the log",
    "trajectories, turns and tool calls: how long they took, what they generated, which step trained on which",
    "generated tokens apart from prompts and observations: no throughput of generation, no goodput",
    "the rollout side's time: no account of it, no stragglers",
    "versions of each trajectory (the log's own summary of staleness is among its figures)",
    "GPUs: power, energy, utilisation, and which they were",
    "what was planned: no plan adherence, no proof of the weight sync",
)
MOST_NOTES = 20  # of steps that are not as the log tells them
MOST_S = 1e8  # seconds of one step, three years: with more, nanoseconds of a log might not fit into 64 bits
_GEN = "replay_buffer.sample"  # what `gen` is on the controller, in the adapter's map


def build_verl(steps: Sequence[LogStep], facts: Facts) -> Built:
    """The rows of a log's steps.

    Raises:
        SpecError: no step of the log has a time.
    """
    timed = [step for step in steps if 0 < (step.value("timing_s/step") or 0) < MOST_S]
    if not timed:
        raise SpecError("the log has no step with timing_s/step: nothing of a run is in it")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("steps", "spans", "weight_syncs", "probes")}
    now = 0
    for step in timed:
        end = now + _ns(step.value("timing_s/step") or 0.0)
        rows["steps"].append(_step(step, now, end))
        _phases(rows, step, now, end, facts)
        rows["probes"] += [
            {"name": key, "mono_ns": end, "step": step.step, "value": value, "unit": "", "labels_json": "{}"}
            for key in step.values
            if (value := step.value(key)) is not None and math.isfinite(value)
        ]
        now = end
    rows["processes"] = [process_row(0, now, sum(map(len, rows.values())))]
    left = len(steps) - len(timed)
    notes = [f"{left} steps of the log have no time, or none that can be, and were left out"] if left else []
    told = [note for step in timed for note in _not_as_told(step)]
    notes += told[:MOST_NOTES]
    if len(told) > MOST_NOTES:
        notes.append(f"{len(told) - MOST_NOTES} more of such steps and phases; `bench lint` of the run names them all")
    return Built(
        framework="verl",
        kind="verl-console",
        rows=rows,
        lacks=LACKS,
        steps=timed[-1].step,
        first_step=timed[0].step,
        notes=notes,
    )


def _not_as_told(step: LogStep) -> list[str]:
    """What the log tells of a step's phases and its tables cannot: phases longer than it, and shorter than nothing."""
    where = f"step {step.step} (line {step.line} of the log)"
    told = phases_of(step)
    notes = [f"{where}: {name} took {seconds:g} s, which cannot be: left out" for name, seconds in told if seconds < 0]
    whole = step.number("timing_s/step")
    known = [
        (name, took) for name, seconds in told if seconds >= 0 and (took := step.number(f"timing_s/{name}")) is not None
    ]
    if whole is not None and known:
        check = phases_within_step([took for _, took in known], whole)
        if not check.holds:
            said = " + ".join(f"{name} {took.value:g}" for name, took in known)
            notes.append(
                f"{where}: its phases sum to {check.left.value:g} s ({said}) in a step of {whole.value:g} s:"
                " they are cut at its end"
            )
    return notes


def _step(step: LogStep, start: int, end: int) -> dict[str, Any]:
    tokens = step.value("perf/total_num_tokens")
    return {
        "step": step.step,
        "policy_version": step.step,  # verl's own: version v is what step v left
        "trained_at": step.step - 1,
        "start_ns": start,
        "end_ns": end,
        "trajectory_ids": [],
        "dropped_ids": [],
        "trajectories": sequences(step),
        "processed_tokens": None if tokens is None or abs(tokens) >= 2**63 else round(tokens),
        "reward_mean": step.value("critic/score/mean"),
        "grad_norm": step.value("actor/grad_norm"),
    }


def sequences(step: LogStep) -> int | None:
    """Trajectories that a step trained on: its tokens / the mean prompt and response; None where that is unclear."""
    tokens = step.number("perf/total_num_tokens")
    lengths = step.number("prompt_length/mean"), step.number("response_length/mean")
    if tokens is None or lengths[0] is None or lengths[1] is None:
        return None
    count: Quantity = tokens / (lengths[0] + lengths[1])
    spare = 1e-6 * abs(count.value)
    if not math.isfinite(count.low) or not math.isfinite(count.high):
        return None
    if abs(count.value) >= 2**63:
        return None
    whole = round(count.value)
    alone = math.ceil(count.low - spare) == math.floor(count.high + spare) == whole
    return whole if alone and whole > 0 else None


def _phases(rows: dict[str, list[dict[str, Any]]], step: LogStep, start: int, end: int, facts: Facts) -> None:
    named = phases_for(facts.placement)
    colocated = facts.placement is Placement.COLOCATED
    pool = Pool.BOTH.value if colocated else Pool.TRAIN.value
    now = start
    for name, seconds in phases_of(step):
        if seconds < 0:
            continue  # `_not_as_told` says so
        phase = named[_GEN] if name == "gen" else named[name]
        until = min(now + _ns(seconds), end)
        span = {"role": "controller", "pool": pool, "step": step.step, "start_ns": now, "end_ns": until}
        rows["spans"].append(
            {
                **span,
                "phase": None if phase is None else phase.value,
                "native_name": name,
                "container": phase is None,
                "attributes_json": "{}",
            }
        )
        if phase is Phase.WEIGHT_SYNC:
            times = {"start_ns": now, "end_ns": until}
            rows["weight_syncs"].append({"step": step.step, "version": step.step, "pool": pool, **times})
        now = until


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
