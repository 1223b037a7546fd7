"""What `bench simulate` found: a table, a Parquet file, and the pictures. All of it is marked as simulated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.unfinished import made_whole
from reports.markdown import UNKNOWN, escape, number, percent, table
from reports.simulated_figures import FOOT, across_of, draw_all
from reports.simulated_rows import Row, middle, together

ROWS = "rows.parquet"
FIGURES = "figures"
# Columns that name a row rather than tell what came of it.
LABELS = ("policy", "seed")
NO_FIGURE = "No figure: no axis of numbers was varied."
UNITS = {"_per_hour": "1/h", "_per_hour_theory": "1/h", "_ratio": "1", "_s": "s", "_j": "J"}


def write_simulated(rows: Sequence[Row], axes: Sequence[str], out: Path, *, title: str, scenario: str) -> list[Path]:
    """Writes `report.md`, `rows.parquet` and, where an axis is of numbers, `figures/` under `out`; returns their paths.

    Without such an axis the report says so.

    Args:
        rows: as `results.planner.sweep` makes them, one per scenario.
        axes: what was varied, in the order asked for; the first number among them is the figure's x.
        out: made when missing.
        title: the report's heading.
        scenario: the base scenario, as TOML or JSON text.

    Raises:
        OSError: `out` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / ROWS]
    if across_of(rows, axes) is not None:
        (out / FIGURES).mkdir(exist_ok=True)
        paths += draw_all(rows, axes, out / FIGURES)
    write_rows(rows, out / ROWS)
    lines = [f"# {escape(title)}", "", f"{FOOT} See docs/simulator.md for what each column means.", ""]
    lines += table_of(rows, axes)
    for path in paths:
        if path.suffix == ".svg":
            lines += ["", f"![{path.stem.replace('_', ' ').capitalize()}]({FIGURES}/{path.name})"]
    if len(paths) == 1:
        lines += ["", NO_FIGURE]
    lines += ["", "## Base scenario", "", "```json", scenario, "```", ""]
    report = out / "report.md"
    with made_whole(report) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
    return [report, *paths]


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """The rows as Parquet: units in the names and in the fields' metadata.

    Raises:
        OSError: it cannot be written.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if len({type(value) for value in values if value is not None} - {int, float}) > 0 and not all(
            isinstance(value, str | bool) or value is None for value in values
        ):
            values = [None if value is None else str(value) for value in values]
        elif any(isinstance(value, float) for value in values):
            values = [None if value is None else float(value) for value in values]
        columns[name] = pa.array(values)
    fields = [pa.field(name, column.type, metadata=_metadata(name)) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={"source": "simulated"})
    with made_whole(path) as temporary:
        pq.write_table(pa.table(columns, schema=schema), temporary)


def table_of(rows: Sequence[Row], axes: Sequence[str]) -> list[str]:
    """Markdown lines: one row per scenario, over its seeds the mean and the middle 95 %."""
    header, cells = grid(rows, axes)
    align = "l" * (len(axes) + 1)
    return table([escape(name) for name in header], [[escape(cell) for cell in row] for row in cells], align)


def grid(rows: Sequence[Row], axes: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table, as plain text."""
    groups = together(rows, axes)
    shown: list[tuple[str, str, Any]] = [
        ("updates/h", "updates_per_hour", lambda value: number(value, 4)),
        ("theory", "updates_per_hour_theory", lambda value: number(value, 4)),
        ("busy", "worker_busy_ratio", percent),
        ("stale at finish", "staleness_at_finish", number),
        ("at take, moved", "staleness_at_take_moved", number),
        ("at start", "staleness_at_start", number),
        ("after", "staleness_after_update", number),
        ("beyond bound", "violations_ratio", percent),
        ("J/trajectory", "energy_per_trajectory_j", number),
    ]
    shown = [one for one in shown if any(row.get(one[1]) is not None for row in rows)]
    axes = [name for name in axes if name not in ("mode",)]
    header = [*axes, "policy", *(name for name, _, _ in shown), "note"]
    cells = []
    for group in groups:
        first = group[0]
        line = [UNKNOWN if first.get(name) is None else str(first[name]) for name in axes] + [str(first["policy"])]
        line += [_over(group, key, form) for _, key, form in shown]
        line.append(_note(group))
        cells.append(line)
    return header, cells


def _over(group: Sequence[Row], key: str, form: Any) -> str:
    values = [row[key] for row in group if row.get(key) is not None]
    if len(values) < len(group) or not values:
        return UNKNOWN
    if len(values) == 1 or "theory" in key:
        return str(form(values[0]))
    mean, low, high = middle(values)
    return f"{form(mean)} ({form(low)} to {form(high)})"


def _note(group: Sequence[Row]) -> str:
    notes = []
    if any(row["unstable"] for row in group):
        notes.append("unstable: finished work piles up")
    if any(row["updates_per_hour"] is None for row in group):
        notes.append("the warm-up did not end")
    return "; ".join(notes)


def _metadata(name: str) -> dict[str, str]:
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), None)
    return {} if unit is None else {"unit": unit}
