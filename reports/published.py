"""Published tables: figures of chosen runs kept in a small Parquet file, and the pages that are written from it.

A folder holds `runs.parquet` (COLUMNS: one row per run and figure) and `tables.toml`: which tables there are, of which
runs, with which columns, between the markers of which page. The same folder gives the same pages, byte for byte.
"""

import re
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError
from reports.case import Case
from reports.exporting.files import written
from reports.markdown import UNKNOWN, escape, number, percent, seconds
from reports.markdown import table as markdown_table
from results.columns import BOOL, FLOAT, INT, TEXT, Column

FILE, SPEC = "runs.parquet", "tables.toml"
PHASE = "phase_share/"  # figures of this name: share of the step that a phase of the train track took
_SAY: Mapping[str, Callable[[float], str]] = {"seconds": seconds, "percent": percent, "number": number}
SHORT = 8  # characters of a commit or a digest
_FACT_FORMATS = ("text", "short")
FORMATS = (*_SAY, *_FACT_FORMATS)

COLUMNS: tuple[Column, ...] = (
    Column("run_id", TEXT, "", False, "name of the run"),
    Column("framework", TEXT, "", False, "adapter that ran"),
    Column("framework_version", TEXT, "", True, "its version"),
    Column("placement", TEXT, "", False, "colocated | disaggregated | async"),
    Column("device", TEXT, "", False, "cuda | cpu"),
    Column("gpu_name", TEXT, "", True, "model of the GPUs"),
    Column("machine", TEXT, "", True, "processor, its cores"),
    Column("engine", TEXT, "", False, "inference engine"),
    Column("model", TEXT, "", False, "model"),
    Column("gpus", INT, "GPU", False, "GPUs of the whole run"),
    Column("work_digest", TEXT, "", False, "names the work offered"),
    Column("spec_digest", TEXT, "", False, "names the work and the system under test"),
    Column("commit", TEXT, "", True, "commit of bench"),
    Column("dirty", BOOL, "", True, "the working tree differed from the commit"),
    Column("date", TEXT, "", True, "day it ran, UTC"),
    Column("metric", TEXT, "", False, "name of the figure, as in the table `metrics`, or phase_share/PHASE"),
    Column("unit", TEXT, "", False, "its unit"),
    Column("value", FLOAT, "", True, "its value; null: unknown"),
    Column("ci_low", FLOAT, "", True, "lower end of its interval"),
    Column("ci_high", FLOAT, "", True, "upper end of its interval"),
    Column("n", INT, "", True, "what it was computed from: how many"),
    Column("verdict", TEXT, "", True, "ok | warn | bad, where the figure has one"),
)
SCHEMA = pa.schema([column.field for column in COLUMNS])
_OF_FIGURE = ("metric", "unit", "value", "ci_low", "ci_high", "n", "verdict")
FACTS = tuple(column.name for column in COLUMNS if column.name not in _OF_FIGURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A column of a published table: a figure, or a fact of the run."""

    title: str
    name: str
    is_metric: bool
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A published table: where it stands, and what it shows of which runs."""

    name: str
    file: Path
    where: Mapping[str, tuple[Any, ...]]
    rows: tuple[str, ...]
    columns: tuple[Shown, ...]


def read(folder: Path) -> pa.Table:
    """The figures that `folder` holds; none where there is no file yet.

    Raises:
        SpecError: the file cannot be read, or has other columns.
    """
    path = folder / FILE
    if not path.exists():
        return SCHEMA.empty_table()
    try:
        return pq.read_table(path, partitioning=None).select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise SpecError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None


def add(folder: Path, runs: Sequence[Path], drop: Sequence[str] = ()) -> None:
    """Puts the figures of `runs` into the folder's file; a run that is there is replaced, those of `drop` go.

    Raises:
        SpecError: not a run folder, a run without an end on record, or a name in `drop` that is not there.
        OSError: the file cannot be written.
    """
    table = read(folder)
    known = set(pc.unique(table["run_id"]).to_pylist())
    if missing := [name for name in drop if name not in known]:
        raise SpecError(f"--drop {missing[0]}: not in {folder / FILE}; there are {', '.join(sorted(known)) or 'none'}")
    new = [_rows_of(run) for run in runs]
    gone = [*drop, *(rows[0]["run_id"] for rows in new)]
    table = table.filter(pc.invert(pc.is_in(table["run_id"], pa.array(gone, TEXT))))
    table = pa.concat_tables([table, *(pa.Table.from_pylist(rows, schema=SCHEMA) for rows in new)])
    order = [("framework", "ascending"), ("placement", "ascending"), ("run_id", "ascending"), ("metric", "ascending")]
    with written(folder / FILE) as file:
        pq.write_table(table.sort_by(order).combine_chunks(), file, compression="zstd")


def _rows_of(folder: Path) -> list[dict[str, Any]]:
    case = Case.load(folder)
    run, spec, meta = case.run, case.run.spec, case.run.meta
    if meta.get("status") != "finished":
        raise SpecError(f"{folder}: {meta.get('status')}, and only what finished is published")
    told = run.tables["runs"].to_pylist()[0]
    machine = meta.get("machine") or {}
    facts = {
        "run_id": run.run_id,
        "engine": spec.engine,
        "model": spec.model,
        "date": (told["started_utc"] or "")[:10] or None,
        "machine": f"{machine['cpu']}, {machine['cores']} cores" if {"cpu", "cores"} <= set(machine) else None,
    }
    facts |= {name: told[name] for name in SCHEMA.names if name in told and name not in facts}
    figures = [
        {"metric": one.metric, "unit": one.unit, "value": one.value, "ci_low": one.ci_low, "ci_high": one.ci_high}
        | {"n": one.n, "verdict": one.verdict}
        for one in case.figures.figures.values()
    ]
    figures += [
        {"metric": f"{PHASE}{row.phase}", "unit": "ratio", "value": row.share, "n": row.n}
        for row in case.figures.phases
    ]
    return [{**dict.fromkeys(SCHEMA.names), **facts, **figure} for figure in figures]


def read_spec(folder: Path) -> list[Table]:
    """The tables that `tables.toml` names; pages are looked for beside the folder.

    Raises:
        SpecError: missing, no TOML, or a table names something that is not there: says which and what is allowed.
    """
    path = folder / SPEC
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read: {error.strerror}; it says which tables stand in which pages, so write it first"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from None
    tables = raw.get("table")
    if set(raw) - {"table"} or not isinstance(tables, list):
        raise SpecError(f"{path}: allowed are [[table]] entries, and at least one")
    return [_table(folder, one, f"{path}: table {n}") for n, one in enumerate(tables, start=1)]


def _table(folder: Path, raw: Any, where: str) -> Table:
    keys = {"name", "file", "where", "rows", "columns"}
    if not isinstance(raw, dict) or not {"name", "file", "rows", "columns"} <= set(raw) <= keys:
        raise SpecError(f"{where}: keys are name, file, rows, columns and, if wanted, where")
    chosen = {key: tuple(v) if isinstance(v, list) else (v,) for key, v in dict(raw.get("where", {})).items()}
    if wrong := [name for name in (*chosen, *raw["rows"]) if name not in FACTS]:
        raise SpecError(f"{where}: {wrong[0]}: allowed is one of {', '.join(FACTS)}")
    columns = tuple(_shown(one, f"{where}, column {n}") for n, one in enumerate(raw["columns"], start=1))
    return Table(
        name=str(raw["name"]),
        file=folder.resolve().parent / str(raw["file"]),
        where=chosen,
        rows=tuple(raw["rows"]),
        columns=columns,
    )


def _shown(raw: Any, where: str) -> Shown:
    if not isinstance(raw, dict) or "title" not in raw or ("metric" in raw) == ("fact" in raw):
        raise SpecError(f"{where}: give title, metric or fact, and as ({', '.join(FORMATS)})")
    form = raw.get("as", "number" if "metric" in raw else "text")
    allowed = tuple(_SAY) if "metric" in raw else _FACT_FORMATS
    if form not in allowed or ("fact" in raw and raw["fact"] not in FACTS):
        raise SpecError(f"{where}: as is one of {', '.join(allowed)}; fact is one of {', '.join(FACTS)}")
    return Shown(title=raw["title"], name=raw.get("metric") or raw["fact"], is_metric="metric" in raw, form=form)


def render(table: Table, figures: pa.Table) -> list[str]:
    """The lines of a table: a row per combination of `rows`; of several runs the median, lowest and highest.

    Raises:
        SpecError: no run fits, a figure is in none of them, or runs that were offered different work would be mixed.
    """
    for name, allowed in table.where.items():
        figures = figures.filter(pc.is_in(figures[name], pa.array(allowed, SCHEMA.field(name).type)))
    if not figures.num_rows:
        raise SpecError(f"published table {table.name}: no run fits {dict(table.where)}")
    known = set(pc.unique(figures["metric"]).to_pylist())
    if missing := [one.name for one in table.columns if one.is_metric and one.name not in known]:
        raise SpecError(f"published table {table.name}: no figure {missing[0]} in these runs")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in figures.to_pylist():
        groups.setdefault(tuple(str(row[name]) for name in table.rows), []).append(row)
    works = {(key, row["work_digest"]) for key, rows in groups.items() for row in rows}
    if len(works) > len(groups):
        raise SpecError(f"published table {table.name}: a row would mix runs that were offered different work")
    header = [*(name.replace("_", " ") for name in table.rows), "runs", *(one.title for one in table.columns)]
    lines = []
    for key, rows in sorted(groups.items()):
        runs = len({row["run_id"] for row in rows})
        lines.append([*map(escape, key), str(runs), *(_cell(one, rows) for one in table.columns)])
    sides = "l" * len(table.rows) + "r" + "".join("r" if one.is_metric else "l" for one in table.columns)
    return markdown_table(header, lines, sides)


def _cell(shown: Shown, rows: list[dict[str, Any]]) -> str:
    if not shown.is_metric:
        size = SHORT if shown.form == "short" else None
        found = {UNKNOWN if (fact := row[shown.name]) is None else _fact(fact)[:size] for row in rows}
        return escape(", ".join(sorted(found)))
    values = sorted(row["value"] for row in rows if row["metric"] == shown.name and row["value"] is not None)
    if not values:
        return UNKNOWN
    say = _SAY[shown.form]
    middle = say(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({say(values[0])} – {say(values[-1])}, n = {len(values)})"


def _fact(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def check_places(folder: Path) -> None:
    """Whether every table has its place, whatever the figures will be.

    Raises:
        SpecError: as `read_spec`; or a page is missing or has not the markers of its table exactly once.
    """
    for table in read_spec(folder):
        _between(_read_page(table), table, [])


def pages(folder: Path) -> dict[Path, tuple[str, str]]:
    """Every page that the folder's tables stand in: what it holds, and what it should hold.

    Raises:
        SpecError: a page is missing or has not the markers of its table exactly once; or as `render` and `read_spec`.
    """
    figures = read(folder)
    found: dict[Path, tuple[str, str]] = {}
    for table in read_spec(folder):
        before, now = found.get(table.file) or (_read_page(table),) * 2
        found[table.file] = (before, _between(now, table, render(table, figures)))
    return found


def _read_page(table: Table) -> str:
    try:
        return table.file.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{table.file}: cannot be read: {error.strerror}") from None


def _between(text: str, table: Table, lines: list[str]) -> str:
    begin, end = f"<!-- published: {table.name} -->", f"<!-- /published: {table.name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise SpecError(f"{table.file}: should have the markers {begin} and {end}, in this order and once each")
    inside = "\n".join(["", *lines, ""])
    pattern = re.escape(begin) + r".*?" + re.escape(end)
    return re.sub(pattern, lambda _: f"{begin}\n{inside}\n{end}", text, flags=re.DOTALL)
