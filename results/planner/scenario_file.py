"""Scenarios as plain mappings: of TOML files, of command lines, and as they travel to other processes.

A law is a number (always so many seconds) or a table with `law`: fixed (seconds), log_normal (median_s, sigma),
empirical (values), recorded (run: a measured run's trajectories; or file and column of a Parquet file, and of its rows
those that where, after with per, and at_most choose), mixture (parts: tables with weight and a law), and for durations
also composed (turns, generation, tool). A range of turns is [[low, high]]; { file, per } takes as many as a Parquet
file has rows per value of that column, of those that its where chooses.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError
from results.planner.model import (
    Composed,
    Durations,
    Empirical,
    Fixed,
    Law,
    LogNormal,
    Mixture,
    Policy,
    Pools,
    Scenario,
    SlowDown,
)
from results.planner.recorded import chosen_of, column_values, rows_per, trajectory_seconds

Mapped = dict[str, Any]
_CHOICE = ("where", "after", "per", "at_most")
_KEYS = {
    "fixed": ("seconds",),
    "log_normal": ("median_s", "sigma"),
    "empirical": ("values",),
    "recorded": ("run", "file", "column", *_CHOICE),
    "mixture": ("parts",),
    "composed": ("turns", "generation", "tool"),
}
_OPTIONAL = ("tool", "run", "file", "column", *_CHOICE)
_LAW_FIELDS = ("logprob", "train", "pause", "transfer", "resume", "offload")


def scenario_of(mapping: Mapping[str, Any]) -> Scenario:
    """The scenario that a mapping describes; what it leaves out has the model's own value.

    Raises:
        SpecError: names the key that is unknown, missing or wrong.
    """
    values = dict(mapping)
    _known(values, Scenario, "")
    if "durations" not in values:
        raise SpecError("durations: missing; e.g. durations = { law = 'log_normal', median_s = 20, sigma = 1 }")
    values["durations"] = durations_of(values["durations"])
    policy = _table(values.get("policy", {}), "policy")
    _known(policy, Policy, "policy.")
    pools = _table(values.get("pools", {}), "pools")
    _known(pools, Pools, "pools.")
    for name in _LAW_FIELDS:
        if name in pools:
            pools[name] = law_of(pools[name], f"pools.{name}")
    if "slow_down" in pools:
        curve = _table(pools["slow_down"], "pools.slow_down")
        _known(curve, SlowDown, "pools.slow_down.")
        pools["slow_down"] = SlowDown(**{name: _numbers(curve[name], f"pools.slow_down.{name}") for name in curve})
    for name in ("rollout_watts", "train_watts"):
        if name in pools:
            pools[name] = _table(pools[name], f"pools.{name}")
    values["policy"], values["pools"] = Policy(**policy), Pools(**pools)
    return Scenario(**values)


def mapping_of(scenario: Scenario) -> Mapped:
    """The mapping of a scenario, of JSON's types: `scenario_of` gives the scenario back."""
    found = _plain(scenario)
    found["durations"] = _law_mapping(scenario.durations)
    found["pools"] |= {name: _law_mapping(getattr(scenario.pools, name)) for name in _LAW_FIELDS}
    found["pools"]["slow_down"] = {
        "concurrency": list(scenario.pools.slow_down.concurrency),
        "factor": list(scenario.pools.slow_down.factor),
    }
    return found


def read_toml(path: Path) -> Mapped:
    """The mapping in a TOML file.

    Raises:
        SpecError: it can't be read, or is no TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not TOML: {error}") from None


def law_of(value: object, where: str) -> Law:
    """The law that a number or a table describes."""
    found = _law_of(value, where, durations=False)
    assert not isinstance(found, Composed)
    return found


def durations_of(value: object) -> Durations:
    """The law of trajectories' durations that a number or a table describes."""
    return _law_of(value, "durations", durations=True)


def _law_of(value: object, where: str, *, durations: bool) -> Durations:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fixed(float(value))
    table = _table(value, where)
    name = table.pop("law", None)
    allowed = [one for one in _KEYS if durations or one != "composed"]
    if name not in allowed:
        raise SpecError(f"{where}.law = {name}: allowed is one of {', '.join(allowed)}, or a number of seconds")
    for key in table:
        if key not in _KEYS[name]:
            raise SpecError(f"{where}.{key}: unknown; a {name} law has {', '.join(_KEYS[name])}")
    for key in _KEYS[name]:
        if key not in table and key not in _OPTIONAL:
            raise SpecError(f"{where}.{key}: missing; a {name} law has {', '.join(_KEYS[name])}")
    match name:
        case "fixed":
            return Fixed(table["seconds"])
        case "log_normal":
            return LogNormal(table["median_s"], table["sigma"])
        case "empirical":
            return Empirical(_numbers(table["values"], f"{where}.values"))
        case "recorded":
            return Empirical(_recorded(table, where))
        case "mixture":
            return Mixture(_parts(table["parts"], where))
    tool = law_of(table.get("tool", 0), f"{where}.tool")
    return Composed(_turns(table["turns"], where), law_of(table["generation"], f"{where}.generation"), tool)


def _recorded(table: Mapped, where: str) -> tuple[float, ...]:
    if set(table) == {"run"}:
        return trajectory_seconds(str(table["run"]), f"{where}.run")
    if {"file", "column"} <= set(table) and "run" not in table:
        return column_values(str(table["file"]), str(table["column"]), where, chosen_of(table, where))
    raise SpecError(f"{where}: a recorded law has run, or file and column")


def _parts(value: object, where: str) -> tuple[tuple[float, Law], ...]:
    if not isinstance(value, list):
        raise SpecError(f"{where}.parts = {value!r}: allowed is a list of tables with weight and a law")
    parts = []
    for number, one in enumerate(value):
        table = _table(one, f"{where}.parts[{number}]")
        weight = table.pop("weight", None)
        if weight is None:
            raise SpecError(f"{where}.parts[{number}].weight: missing")
        parts.append((weight, law_of(table, f"{where}.parts[{number}]")))
    return tuple(parts)


def _turns(value: object, where: str) -> tuple[int, ...]:
    """`5`, `[2, 3, 3]`, the range `[[2, 9]]`, or `{ file, per }`."""
    if isinstance(value, Mapping):
        if set(value) - {"where"} != {"file", "per"}:
            raise SpecError(f"{where}.turns: a table of turns has file and per, and may have where")
        chosen = chosen_of({name: value[name] for name in value if name == "where"}, f"{where}.turns")
        return rows_per(str(value["file"]), str(value["per"]), f"{where}.turns", chosen)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, list | tuple):
        raise SpecError(f"{where}.turns = {value!r}: allowed is a count, a list of counts, or a range [[low, high]]")
    found: list[int] = []
    for one in value:
        if isinstance(one, list | tuple):
            if len(one) != 2 or not all(isinstance(end, int) for end in one) or one[1] - one[0] > 100_000:
                raise SpecError(f"{where}.turns: {one!r} is no range; allowed is [low, high]")
            found += range(one[0], one[1] + 1)
        else:
            found.append(one)
    return tuple(found)


def _numbers(value: object, where: str) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise SpecError(f"{where} = {value!r}: allowed is a list of numbers")
    return tuple(value)


def _table(value: object, where: str) -> Mapped:
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} = {value!r}: allowed is a table")
    return dict(value)


def _known(values: Mapping[str, Any], kind: type, prefix: str) -> None:
    names = [one.name for one in dataclasses.fields(kind)]
    for key in values:
        if key not in names:
            raise SpecError(f"{prefix}{key}: unknown; known are {', '.join(names)}")


def _plain(value: Any) -> Mapped:
    found: Mapped = {}
    for one in dataclasses.fields(value):
        content = getattr(value, one.name)
        if dataclasses.is_dataclass(content):
            content = {} if isinstance(content, SlowDown | Law | Composed) else _plain(content)
        elif isinstance(content, Mapping):
            content = dict(content)
        elif hasattr(content, "value"):
            content = content.value
        if content is not None:
            found[one.name] = content
    return found


def _law_mapping(law: Durations) -> Any:
    match law:
        case Fixed():
            return law.seconds
        case LogNormal():
            return {"law": "log_normal", "median_s": law.median_s, "sigma": law.sigma}
        case Empirical():
            return {"law": "empirical", "values": list(law.values)}
        case Mixture():
            parts = []
            for weight, part in law.parts:
                mapped = _law_mapping(part)
                table = mapped if isinstance(mapped, dict) else {"law": "fixed", "seconds": mapped}
                parts.append({"weight": weight, **table})
            return {"law": "mixture", "parts": parts}
        case Composed():
            return {
                "law": "composed",
                "turns": list(law.turns),
                "generation": _law_mapping(law.generation),
                "tool": _law_mapping(law.tool),
            }
