"""`bench simulate`: what a placement would give, in virtual time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness.cli.counted import counted
from harness.cli.output import file_problem, folder_named, table, writable
from harness.cli.trace_law import trace_law, trace_options
from harness.protocol.errors import SpecError

# (flag, type, key of the scenario, help)
_SETTINGS: tuple[tuple[str, type, str, str], ...] = (
    ("--median", float, "durations.median_s", "Median seconds of a trajectory (log-normal). Default: 20."),
    ("--sigma", float, "durations.sigma", "Their spread, in log units. Default: 1."),
    ("--update-s", float, "pools.train", "Seconds of an update. Default: 15."),
    ("--sync-s", float, "pools.transfer", "Seconds of a weight sync, after it. Default: 0."),
    ("--workers", int, "pools.workers", "Trajectories at once. Default: 64."),
    ("--batch-size", int, "batch_size", "Groups in an update. Default: 64."),
    ("--group-size", int, "policy.group_size", "Trajectories of one prompt. Default: 1."),
    ("--max-staleness", int, "policy.max_staleness", "Versions a trajectory may lag (async). Default: no bound."),
    ("--bound", str, "policy.bound", "admission | discard: how that is kept. Default: admission."),
    ("--order", str, "policy.order", "first_finished | first_started: which the trainer takes."),
    ("--in-flight", str, "policy.in_flight", "partial | wait | keep: what new weights do to trajectories that run."
     " Default: keep (the workshop's)."),
    ("--over-sampling", float, "policy.over_sampling", "Share of groups started beyond a batch, then cut."),
    ("--colocated", bool, "policy.colocated", "Rollout and training take turns on the same GPUs (synchronous)."),
    ("--warmup-updates", int, "warmup_updates", "Updates left out of every figure. Default: 0."),
    ("--seed", int, "seed", "Default: 1."),
)  # fmt: skip
_MANY = 20  # scenarios from which on their number is said, and how far they are
MODES = ("synchronous", "async")
WORKSHOP: dict[str, Any] = {
    "durations": {"law": "log_normal", "median_s": 20.0, "sigma": 1.0},
    "pools": {"workers": 64, "train": 15.0},
    "policy": {"in_flight": "keep"},
    "batch_size": 64,
}


def _settings(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag, kind, key, text in reversed(_SETTINGS):
        how: dict[str, Any] = {"is_flag": True, "default": None} if kind is bool else {"type": kind}
        function = click.option(flag, key.replace(".", "__"), help=text, **how)(function)
    return function


@click.command("simulate", short_help="What a placement would give, in virtual time.")
@_settings
@click.option("--mode", help="synchronous | one_step_off | async, or several with commas. Default: synchronous,async"
              " (colocated: synchronous).")  # fmt: skip
@trace_options
@click.option("--hours", type=float, help="Virtual hours. Default: 1.")
@click.option("--updates", type=int, help="Updates, instead of hours.")
@click.option("--seeds", type=int, default=None, help="Seeds of each scenario, from --seed up. Default: 1.")
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=VALUES",
              help="Vary a setting: sigma=0.3,0.6,1 or sigma=0:1.5:16 (from, to, how many); none: unset. Repeats."
              " Keys: sigma, median, workers, batch_size, update_s, sync_s, mode, max_staleness, ...")  # fmt: skip
@click.option("-c", "--config", type=click.Path(path_type=Path), metavar="FILE",
              help="TOML file: a scenario, and [sweep] with lists. Flags win.")  # fmt: skip
@click.option("-o", "--out", metavar="DIRECTORY", callback=folder_named,
              help="Write report.md, rows.parquet and figures there.")  # fmt: skip
@click.option("--jobs", type=int, help="Processes. Default: as many as cores, where the work is worth it.")
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Spread over this Ray cluster (auto, HOST:PORT).")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON lines.")
def command(
    mode: str | None,
    hours: float | None,
    updates: int | None,
    seeds: int | None,
    sweeps: tuple[str, ...],
    config: Path | None,
    out: Path | None,
    jobs: int | None,
    ray_address: str | None,
    as_json: bool,
    trace: Path | None,
    trace_per: str | None,
    trace_generation: str | None,
    trace_tool: str | None,
    trace_where: tuple[str, ...],
    trace_after: tuple[str, ...],
    trace_at_most: float | None,
    **settings: Any,
) -> int:
    """Simulate rollout workers and a trainer: updates per hour, how busy the workers are, how stale the data.

    Example: bench simulate --sweep sigma=0:1.5:16 --out simulated

    Without flags it is the workshop of 64 workers: trajectories of 20 s median and spread 1, updates of 15 s, one hour,
    synchronous beside async. The same seed gives the same figures on every machine, however the work is spread.
    """
    from reports.simulated import grid, write_simulated
    from results.planner.scenario_file import read_toml
    from results.planner.sweep import MOST_CELLS, NAMES, cells, put, run

    given = read_toml(config) if config is not None else {}
    axes = given.pop("sweep", {})
    if not isinstance(axes, dict) or not all(isinstance(values, list) for values in axes.values()):
        raise SpecError("sweep: allowed is a table of lists, e.g. sigma = [0.3, 1.0]")
    file_seeds = given.pop("seeds", 1)
    for name in ("policy", "pools"):
        if not isinstance(given.get(name, {}), dict):
            raise SpecError(f"{name} = {given[name]!r}: allowed is a table")
    law = trace_law(trace, trace_per, trace_generation, trace_tool, trace_where, trace_after, trace_at_most)
    if law is not None:
        given["durations"] = law
    flags = {name.replace("__", "."): value for name, value in settings.items() if value is not None}
    base = _merged(WORKSHOP, given)
    for path, value in flags.items():
        put(base, path, value)
    axes |= dict(_axis(text) for text in sweeps)
    _horizon(base, axes, hours, updates)
    policy = base["policy"]
    if mode is not None:
        axes = {name: values for name, values in axes.items() if name != "mode"} | {"mode": mode.split(",")}
    elif "mode" not in axes and "policy.mode" not in axes and "mode" not in policy:
        axes["mode"] = [MODES[0]] if policy.get("colocated") is True else list(MODES)
        if len(axes["mode"]) == 1:
            click.echo("colocated: GPUs that take turns allow mode = synchronous only, so it is that one", err=True)
    if seeds is not None and not 1 <= seeds <= MOST_CELLS:
        raise SpecError(f"--seeds {seeds}: allowed is a whole number from 1 to {MOST_CELLS}")
    seeds = file_seeds if seeds is None else seeds
    varied = {NAMES.get(name, name) for name in axes}
    taken = _taken(given, {*flags, *varied})
    found = cells(base, axes, seeds, assumed=("in_flight",) if "policy.in_flight" in taken else ())
    if config is not None and taken:
        words = ", ".join(f"{path} = {value}" for path, value in taken.items())
        click.echo(f"{config} leaves out, and the workshop's value is taken: {words}", err=True)
    if out is not None:
        writable(out, "give another folder with --out")
    if len(found) >= _MANY:
        click.echo(f"{len(found):,} scenarios", err=True)
    rows = run(
        found, jobs=jobs, ray_address=ray_address, progress=counted("scenarios") if len(found) >= _MANY else None
    )
    names = list(axes)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        header, lines = grid(rows, names)
        click.echo(table(lines, header))
        click.echo("simulated in virtual time: nothing was measured; what the columns mean: docs/simulator.md")
    if out is not None:
        try:
            paths = write_simulated(
                rows, names, out, title="Simulated placements", scenario=json.dumps(base, indent=2, sort_keys=True)
            )
        except OSError as error:
            raise file_problem(error, "the report can't be written") from None
        click.echo(f"wrote {', '.join(str(path) for path in paths)}", err=True)
        if not any(path.suffix == ".svg" for path in paths):
            click.echo("no figure: no axis of numbers was varied, e.g. --sweep sigma=0:1.5:16", err=True)
    return 0


def _merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`given` over `base`: tables join key by key, but another law replaces the whole law."""
    found = {name: dict(value) if isinstance(value, dict) else value for name, value in base.items()}
    for name, value in given.items():
        if name == "durations" or not isinstance(value, dict) or not isinstance(found.get(name), dict):
            if name == "durations" and isinstance(value, dict) and "law" not in value:
                value = {**found[name], **value}
            found[name] = value
        else:
            found[name] |= value
    return found


def _taken(given: dict[str, Any], set_otherwise: set[str]) -> dict[str, Any]:
    """What the workshop gave the scenario, by path: neither the file nor a flag or an axis has it."""
    found = {}
    for name, value in WORKSHOP.items():
        own = given.get(name)
        if not isinstance(value, dict):
            if own is None and name not in set_otherwise:
                found[name] = value
        elif name != "durations" or own is None or (isinstance(own, dict) and "law" not in own):
            keys = [key for key in value if key != "law" and not (isinstance(own, dict) and key in own)]
            found |= {f"{name}.{key}": value[key] for key in keys if f"{name}.{key}" not in set_otherwise}
    return found


def _horizon(base: dict[str, Any], axes: dict[str, Any], hours: float | None, updates: int | None) -> None:
    if hours is not None and updates is not None:
        raise click.UsageError("--hours and --updates exclude each other")
    if hours is not None:
        base["horizon_s"] = hours * 3600
        base.pop("horizon_updates", None)
    elif updates is not None:
        base["horizon_updates"] = updates
        base.pop("horizon_s", None)
    elif not {"horizon_s", "horizon_updates"} & {*base, *axes}:
        base["horizon_s"] = 3600.0


def _axis(text: str) -> tuple[str, list[Any]]:
    """`sigma=0.3,1` or `sigma=0:1.5:16`.

    Raises:
        SpecError: it is neither.
    """
    name, sign, rest = text.partition("=")
    if not sign or not name.strip() or not rest.strip():
        raise SpecError(f"--sweep {text}: allowed is KEY=VALUE,VALUE,... or KEY=FROM:TO:COUNT")
    ends = rest.split(":")
    if len(ends) == 3:
        try:
            low, high, count = float(ends[0]), float(ends[1]), int(ends[2])
        except ValueError:
            raise SpecError(f"--sweep {text}: allowed is KEY=FROM:TO:COUNT with numbers") from None
        if not 2 <= count <= 100_000:
            raise SpecError(f"--sweep {text}: allowed is a count from 2 to 100000")
        values: list[Any] = [round(low + (high - low) * step / (count - 1), 12) for step in range(count)]
        whole = all(value == int(value) for value in values) and "." not in rest
        return name.strip(), [int(value) for value in values] if whole else values
    return name.strip(), [_value(part.strip()) for part in rest.split(",")]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"none": None, "true": True, "false": False}.get(text, text)
