"""Many scenarios: a base, axes to vary, seeds; a row of figures for each, in one order however they are spread."""

import copy
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from harness.protocol.errors import SpecError
from results.planner import compiled, oracles
from results.planner.checks import whole
from results.planner.engine import WORTH_COMPILING, expected_turns, simulate
from results.planner.model import Composed, InFlight, Mode, Scenario, mean_of
from results.planner.result import AT_START, CONVENTIONS, Result
from results.planner.scenario_file import Mapped, mapping_of, scenario_of
from results.planner.state import plain
from results.spread import Progress, cores, spread, told

# Short names of what is varied most; any other key is written as its path, e.g. pools.engines.
NAMES: Mapping[str, str] = {
    "median": "durations.median_s",
    "sigma": "durations.sigma",
    "workers": "pools.workers",
    "update_s": "pools.train",
    "sync_s": "pools.transfer",
    "mode": "policy.mode",
    "max_staleness": "policy.max_staleness",
    "bound": "policy.bound",
    "order": "policy.order",
    "in_flight": "policy.in_flight",
    "colocated": "policy.colocated",
    "over_sampling": "policy.over_sampling",
    "group_size": "policy.group_size",
}
# Modes that have a use for a setting of the policy; all have one for the others.
_MODES_OF: Mapping[str, tuple[str, ...]] = {
    "max_staleness": (Mode.ASYNC.value,),
    "bound": (Mode.ASYNC.value,),
    "in_flight": (Mode.ASYNC.value,),
    "over_sampling": (Mode.SYNCHRONOUS.value, Mode.ONE_STEP_OFF.value),
    "colocated": (Mode.SYNCHRONOUS.value,),
}
MOST_CELLS = 1_000_000
# Turns below which starting other processes costs more than it saves.
WORTH_SPREADING = 3_000_000
_MOST_AT_ONCE = 50  # scenarios handed to a process: what is done is told that often
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One scenario of a sweep: the values it has on the axes, and itself."""

    values: Mapping[str, Any]
    scenario: Scenario


def cells(
    base: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], seeds: int = 1, *, assumed: Collection[str] = ()
) -> list[Cell]:
    """Every combination of the axes' values, each with `seeds` seeds from the base's up.

    What a mode has no use for is left out of it: staleness in the synchronous ones, over-sampling in async; cells that
    become equal by this are made once. What no cell has a use for is refused, but for keys of the policy that are
    `assumed`: nobody asked for those.

    Raises:
        SpecError: an unknown axis, an empty one, a scenario that can't be, a setting without a use, or too many cells.
    """
    whole("seeds", seeds, 1, MOST_CELLS)
    total = seeds
    for name, values in axes.items():
        if not values:
            raise SpecError(f"sweep.{name}: no values")
        total *= len(values)
    if total > MOST_CELLS:
        raise SpecError(
            f"sweep: {total} scenarios ({total // seeds} settings, {seeds} seeds of each); allowed is 1 to {MOST_CELLS}"
        )
    found: list[Cell] = []
    seen: set[str] = set()
    kept: set[str] = set()
    without: dict[str, str] = {}  # what was left out of a cell, and how that is told
    for chosen in itertools.product(*axes.values()):
        own: Row = dict(zip(axes, chosen, strict=True))
        mapping = copy.deepcopy(dict(base))
        for name, value in own.items():
            put(mapping, _path(name), value)
        left_out = useful(mapping)
        kept |= set(mapping.get("policy", {}))
        without |= left_out
        own |= {name: None for name in own if NAMES.get(name, name).removeprefix("policy.") in left_out}
        scenario = scenario_of(mapping)
        key = repr(scenario)
        if key in seen:
            continue
        seen.add(key)
        for number in range(seeds):
            found.append(Cell(values=own, scenario=replace(scenario, seed=scenario.seed + number)))
    for name, why in without.items():
        if name not in kept and name not in assumed:
            raise SpecError(why)
    return found


def _path(name: str) -> str:
    """The path of an axis. Raises SpecError for a name that is neither short nor the begin of a path."""
    known = {one.name for one in fields(Scenario)}
    if name not in NAMES and name.split(".", 1)[0] not in known:
        raise SpecError(
            f"sweep.{name}: unknown; known are {', '.join([*NAMES, 'batch_size', 'warmup_updates'])}, or the path of a "
            "key as in a scenario's file, e.g. pools.engines"
        )
    return NAMES.get(name, name)


def put(mapping: Mapped, path: str, value: Any) -> None:
    """Sets a key of nested tables; `none` takes it out.

    Raises:
        SpecError: something on the way is no table.
    """
    *tables, last = path.split(".")
    for name in tables:
        mapping = mapping.setdefault(name, {})
        if not isinstance(mapping, dict):
            raise SpecError(f"{path}: {name} is no table here, so nothing in it can be set")
    if value is None or value == "none":
        mapping.pop(last, None)
    else:
        mapping[last] = value


def useful(mapping: Mapped) -> dict[str, str]:
    """Takes out of the policy what its mode has no use for; returns those keys, each with words that say so.

    Raises:
        SpecError: the policy is no table.
    """
    policy = mapping.get("policy", {})
    if not isinstance(policy, dict):
        raise SpecError(f"policy = {policy!r}: allowed is a table")
    mode = str(policy.get("mode", Mode.ASYNC.value))
    left_out = {}
    for name, modes in _MODES_OF.items():
        if name in policy and mode in tuple(Mode) and mode not in modes:
            if name in ("over_sampling", "colocated") and not policy[name]:  # none of it was asked for
                del policy[name]
                continue
            told = f"{name} = {policy[name]} with mode = {mode}: nothing there has a use for it"
            left_out[name] = f"{told}; allowed with mode = {', '.join(modes)}"
    if "bound" in policy and "max_staleness" not in policy:
        left_out["bound"] = f"bound = {policy['bound']}: give max_staleness, which it keeps, in mode = async"
    if "colocated" in left_out and policy["colocated"] is True and isinstance(mapping.get("pools"), dict):
        mapping["pools"].pop("offload", None)  # separate pools move nothing off their GPUs
    for name in left_out:
        del policy[name]
    return left_out


def row_of(cell: Cell, result: Result) -> Row:
    """The figures of one scenario, as a row: unknown is None."""
    scenario = cell.scenario
    row: Row = dict(cell.values)
    ledger = result.ledger
    row |= {
        "policy": policy_name(scenario),
        "seed": scenario.seed,
        "updates": result.updates,
        "window_s": result.window_s,
        "updates_per_hour": result.updates_per_hour,
        "updates_per_hour_theory": theory(scenario),
        "trajectories_per_hour": result.trajectories_per_hour,
        "worker_busy_ratio": result.worker_busy,
        "mean_running": result.mean_running,
    }
    row |= {f"staleness_{name}": result.staleness[name].mean for name in CONVENTIONS}
    taken = result.staleness[AT_START].n
    row |= {
        "staleness_at_start_p95": result.staleness[AT_START].quantile(0.95),
        "violations": result.violations,
        "violations_ratio": result.violations / taken if result.violations is not None and taken else None,
        "unstable": result.unstable,
        "started": ledger.started,
        "trained": ledger.trained,
        "discarded": ledger.discarded,
        "cut": ledger.cut,
        "in_flight": ledger.in_flight,
        "queued": ledger.queued,
        "energy_j": result.total_energy_j,
        "energy_per_trajectory_j": result.energy_per_trajectory_j,
    }
    row |= {f"train_{name}_s": value for name, value in result.train_s.items()}
    row |= {f"rollout_{name}_s": value for name, value in result.rollout_s.items()}
    row["digest"] = result.digest
    return row


def policy_name(scenario: Scenario) -> str:
    """The policy in a few words, e.g. `async, max_staleness 1 by admission`."""
    policy = scenario.policy
    parts = [policy.mode.value]
    if policy.colocated:
        parts[0] = "synchronous, colocated"
    if policy.mode is Mode.ASYNC:
        bound = policy.max_staleness
        parts.append("unbounded" if bound is None else f"max_staleness {bound} by {policy.bound.value}")
        if policy.in_flight is not InFlight.PARTIAL and update_stops(scenario):
            parts.append(f"in flight: {policy.in_flight.value}")
    if policy.over_sampling:
        parts.append(f"over-sampling {policy.over_sampling:g}")
    return ", ".join(parts)


def update_stops(scenario: Scenario) -> bool:
    """Whether what new weights do to trajectories in flight makes a difference."""
    pools = scenario.pools
    waits = scenario.policy.in_flight is InFlight.WAIT
    return waits or any(mean_of(law) > 0 for law in (pools.pause, pools.transfer, pools.resume))


def theory(scenario: Scenario) -> float | None:
    """Updates per hour in the long run by closed form, where there is one; else None."""
    policy, pools, law = scenario.policy, scenario.pools, scenario.durations
    if isinstance(law, Composed) or not pools.slow_down.flat or policy.group_size > 1 or policy.over_sampling:
        return None
    parts = (pools.offload, pools.logprob, pools.train, pools.pause, pools.transfer, pools.resume)
    update_s = sum(mean_of(part) for part in parts)
    if policy.mode is Mode.SYNCHRONOUS and pools.workers >= scenario.batch_size:
        return 3600 / oracles.synchronous_step_s(law, scenario.batch_size, update_s)
    if policy.mode is Mode.ASYNC and policy.max_staleness is None and not update_stops(scenario):
        return 3600 * oracles.asynchronous_rate(law, pools.workers, scenario.batch_size, update_s)
    return None


def _row(payload: tuple[Mapped, Mapped]) -> Row:
    values, mapping = payload
    cell = Cell(values=values, scenario=scenario_of(mapping))
    return row_of(cell, simulate(cell.scenario))


def run(
    sweep: Sequence[Cell], *, jobs: int | None = None, ray_address: str | None = None, progress: Progress | None = None
) -> list[Row]:
    """A row for each cell, in their order; how they are spread changes nothing in them.

    Args:
        sweep: the cells.
        jobs: processes; all cores when None. Little work is done in this one.
        ray_address: a Ray cluster to spread over instead.
        progress: is told how many are done.

    Raises:
        SpecError: jobs below 1, or Ray is not installed.
        EnvError: the cluster can't be reached, or lost the work.
    """
    if jobs is not None and jobs < 1:
        raise SpecError(f"jobs = {jobs}: allowed is 1 and more")
    payloads = [(dict(cell.values), mapping_of(cell.scenario)) for cell in sweep]
    if ray_address is not None:
        from results.planner import on_ray  # Ray is only there where someone asks for it

        return told(on_ray.spread(_row, payloads, ray_address), len(payloads), progress)
    workers = min(jobs or cores(), len(payloads))
    work = sum(expected_turns(cell.scenario) for cell in sweep)
    if workers <= 1 or (jobs is None and work < WORTH_SPREADING):
        return told(map(_row, payloads), len(payloads), progress)
    large = [cell.scenario for cell in sweep if expected_turns(cell.scenario) >= WORTH_COMPILING]
    if compiled.available():
        # Here once, and kept: not in every process at the same time.
        for one in {plain(scenario): scenario for scenario in large}.values():
            simulate(replace(one, horizon_s=None, horizon_updates=1, warmup_updates=0), backend="compiled")
    at_once = max(1, min(len(payloads) // (16 * workers), _MOST_AT_ONCE))
    return told(spread(_row, payloads, workers, at_once=at_once), len(payloads), progress)
