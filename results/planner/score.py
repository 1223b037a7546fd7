"""A prediction held against the run that followed it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError
from results.comparing.measures import RunMeasures
from results.planner.calibration.constants import PUBLISHED

FORMAT = 1
NORMAL_90 = 1.2815515655446004  # quantile of the normal distribution: half of an 80 % interval, in its deviations
_SHORT = 80  # characters of two values that are told; of longer ones (a preset's definition) the name
# What is scored: name of the prediction -> measure of the run.
SCORED = {
    "step_s": "step_time_s",
    "throughput": "throughput_tokens_per_s_gpu",
    "goodput": "goodput_tokens_per_s_gpu",
    "power_ratio": "power_utilisation_ratio",
    "joules": "joules_per_trained_trajectory",
    "staleness": "staleness_at_start_mean",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One figure. `low`, `high`: of 80 %.

    `error`: predicted / measured - 1; None with `why` where one of them is unknown or 0.
    """

    name: str
    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None
    error: float | None
    inside: bool | None
    widened: bool = False  # whether the interval holds how runs as long as this one vary
    why: str = ""


def score(document: dict[str, Any], run: RunMeasures) -> tuple[str, list[Scored]]:
    """The candidate of a plan's document that the run is, and its figures beside the run's.

    Raises:
        SpecError: the document is no plan, the run may not be compared, the work differs, or the plan has no such
            candidate.
    """
    if document.get("format") != FORMAT or "predictions" not in document:
        raise SpecError("plan: not a plan's file; `bench plan RUN -o FOLDER` writes one (plan.json)")
    if run.problems:
        raise SpecError(f"{run.run_id}: {run.problems[0]}: nothing to score")
    try:
        return _score(document, run)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SpecError(
            f"plan: its file is damaged ({error!r}); make it anew with `bench plan RUN -o FOLDER`"
        ) from None


def _score(document: dict[str, Any], run: RunMeasures) -> tuple[str, list[Scored]]:
    planned = document.get("calibration", {})
    if differs := _other_work(planned, run):
        raise SpecError(f"{run.run_id}: its work is not that of {planned.get('name')} ({differs}): nothing to score")
    gpus = _split(run)
    for one in document["predictions"]:
        asked = one["candidate"]
        bound = int(run.system.get("max_staleness", "0"))
        split = asked["placement"] == run.placement and (asked["train_gpus"], asked["rollout_gpus"]) == gpus
        if split and (asked["placement"] != "async" or asked["max_staleness"] == bound):
            return one["name"], [
                _scored(name, one.get(name), run, _short_of(document, one, name, run)) for name in SCORED
            ]
    raise SpecError(
        f"{run.run_id} ({run.placement} {gpus[0]}+{gpus[1]}): not among the plan's candidates: "
        + ", ".join(one["name"] for one in document["predictions"])
    )


def read_plan(path: Path) -> dict[str, Any]:
    """A plan's document, from plan.json or its folder.

    Raises:
        SpecError: no such file, or not JSON.
    """
    path = path / "plan.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"plan = {path}: can't be read ({error})") from None
    if not isinstance(found, dict):
        raise SpecError(f"plan = {path}: not a plan's file")
    return found


def _other_work(planned: dict[str, Any], run: RunMeasures) -> str:
    """In what the run differs from what was calibrated, in words; another seed is another draw of the same work.

    Only what both know is compared: published phases name no framework, and often neither model nor groups.
    """
    before = {**planned.get("work", {})}
    before |= {name: str(planned.get(name) or "") for name in ("framework", "model", "device")}
    now = {**run.work, "framework": run.framework, "model": run.model, "device": run.device}
    if planned.get("source") == PUBLISHED:
        # Of a table's row it is certain how many trajectories a step has, and not how they are grouped.
        before["trajectories a step"] = _trajectories(planned)
        now["trajectories a step"] = _trajectories(run.work)
    else:
        before |= {name: str(planned.get(name) or "") for name in ("batch_size", "group_size")}
    both = sorted(set(before) & set(now) - {"seed"})
    other = [name for name in both if before[name] and now[name] and before[name] != now[name]]
    short = {name: len(before[name]) + len(now[name]) <= _SHORT for name in other}
    return ", ".join(f"{name}: {before[name]} and {now[name]}" if short[name] else name for name in other)


def _trajectories(about: Mapping[str, Any]) -> str:
    """In a step; "" where it isn't known."""
    sizes = [about.get("batch_size"), about.get("group_size")]
    return "" if None in sizes else str(math.prod(int(str(one)) for one in sizes))


def _split(run: RunMeasures) -> tuple[int, int]:
    text = run.system.get("gpus", "")
    digits = [int(word) for word in "".join(c if c.isdigit() else " " for c in text).split()]
    if len(digits) != 2:
        raise SpecError(f"{run.run_id}: its split is not on record")
    return digits[0], digits[1]


def _short_of(document: dict[str, Any], one: dict[str, Any], name: str, run: RunMeasures) -> float | None:
    """Standard deviation that a run of so few steps has beyond one of the plan's updates; None: not in the plan.

    A mean over n steps varies as 1 / sqrt(n) for long runs; the plan's draws hold what one over its updates has.
    """
    noise = one.get("noise", {}).get(name)
    if noise is None or run.steps < 1:
        return None
    return float(noise * math.sqrt(max(0.0, document["updates"] / run.steps - 1)))


def _interval(predicted: Any, more: float | None) -> tuple[float, float]:
    """The plan's 80 % interval, widened by the standard deviation `more`: in quadrature, as of normal distributions."""
    value, low, high = predicted["value"], predicted["low"], predicted["high"]
    half = NORMAL_90 * (more or 0.0)
    return value - math.hypot(value - low, half), value + math.hypot(high - value, half)


def _scored(name: str, predicted: Any, run: RunMeasures, more: float | None) -> Scored:
    measured = run.value(SCORED[name])
    if not isinstance(predicted, dict):
        why = "not predicted"
        return Scored(
            name=name, predicted=None, low=None, high=None, measured=measured, error=None, inside=None, why=why
        )
    value = predicted["value"]
    low, high = _interval(predicted, more)
    if measured is None:
        why = run.why(SCORED[name])
        return Scored(name=name, predicted=value, low=low, high=high, measured=None, error=None, inside=None, why=why)
    return Scored(
        name=name,
        predicted=value,
        low=low,
        high=high,
        measured=measured,
        error=value / measured - 1 if measured else None,
        inside=low <= measured <= high,
        widened=more is not None,
        why="" if measured else "0 was measured",
    )
