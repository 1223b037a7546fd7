"""`--trace`: durations of a recorded trace of requests, given by flags."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from harness.protocol.errors import SpecError


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a trace and its columns, for `trace_law`."""
    for option in reversed(
        (
            click.option("--trace", type=click.Path(path_type=Path), metavar="FILE",
                         help="Durations from a Parquet file, one row per request, instead of --median, --sigma."),
            click.option("--per", "trace_per", metavar="COLUMN",
                         help="Its sessions: each is a trajectory, with a turn per row."),
            click.option("--generation", "trace_generation", metavar="COLUMN",
                         help="Seconds of a turn's generation; without --per: of a trajectory."),
            click.option("--tool", "trace_tool", metavar="COLUMN", help="Seconds of the tool before a turn."),
            click.option("--where", "trace_where", multiple=True, metavar="COLUMN=VALUE,...",
                         help="Rows that count. Repeats: all hold."),
            click.option("--tool-after", "trace_after", multiple=True, metavar="COLUMN=VALUE,...",
                         help="Of --tool, rows whose one before in the session is so: stop=tool_use."),
            click.option("--tool-at-most", "trace_at_most", type=float, metavar="SECONDS",
                         help="Of --tool, rows up to that."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def trace_law(
    trace: Path | None,
    per: str | None,
    generation: str | None,
    tool: str | None,
    where: Sequence[str],
    after: Sequence[str],
    at_most: float | None,
) -> dict[str, Any] | None:
    """The law of durations that the options describe, as in a scenario's file; None without a trace.

    Raises:
        SpecError: there is no such file, or one of them is missing that another needs.
    """
    if trace is None:
        given = [
            flag
            for flag, value in (
                ("--per", per), ("--generation", generation), ("--tool", tool), ("--where", where),
                ("--tool-after", after), ("--tool-at-most", at_most),
            )
            if value
        ]  # fmt: skip
        if given:
            raise SpecError(f"{given[0]}: give --trace, the file it is about")
        return None
    path = os.path.expanduser(trace)  # noqa: PTH111  # Path's raises for a user that isn't there, and for long names
    if os.path.isdir(path):  # noqa: PTH112
        raise SpecError(f"--trace {trace}: allowed is a Parquet file; this is a folder")
    if not os.path.exists(path):  # noqa: PTH110
        raise SpecError(f"--trace {trace}: there is no such file")
    if generation is None:
        raise SpecError("--trace: give --generation, the column with a turn's seconds")
    if tool is None and (after or at_most is not None):
        raise SpecError("--tool-after, --tool-at-most: give --tool, the column with a tool's seconds")
    if per is None and tool is not None:
        raise SpecError("--tool: give --per, the column that tells sessions apart")
    file = str(trace)
    rows = {"where": _choice("--where", where)} if where else {}
    turn = {"law": "recorded", "file": file, "column": generation, **rows}
    if per is None:
        return turn
    law: dict[str, Any] = {"law": "composed", "turns": {"file": file, "per": per, **rows}, "generation": turn}
    if tool is not None:
        law["tool"] = {"law": "recorded", "file": file, "column": tool, **rows}
        if after:
            law["tool"] |= {"after": _choice("--tool-after", after), "per": per}
        if at_most is not None:
            law["tool"]["at_most"] = at_most
    return law


def _choice(flag: str, texts: Sequence[str]) -> dict[str, list[Any]]:
    found = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not name.strip():
            raise SpecError(f"{flag} {text}: allowed is COLUMN=VALUE or COLUMN=VALUE,VALUE")
        found[name.strip()] = [_value(value.strip()) for value in values.split(",")]
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)
