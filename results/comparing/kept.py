"""Measures on disk: small Parquet, one row per run and measure and one per step, and no spans.

The same file serves as what a run keeps beside its tables, and as one of a baseline's in git. The facts of its runs
(spec, machine, versions, notes) are one JSON text in the file's metadata; whatever is compared is in the rows.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError
from harness.protocol.kinds import fits, name_of
from harness.protocol.unfinished import made_whole
from results.collect import collect
from results.comparing import code
from results.comparing.measures import MEASURES, RunMeasures, StepSeries, Value, on_devices
from results.comparing.measuring import measure_run
from results.store import is_collected, is_run_folder, load_run, table_path
from results.table_problems import MOST_SIGNS

FORMAT = 1
KEPT = "measures.parquet"  # in a run's folder
_KEY, _STAMP = b"bench.measures", b"bench.stamp"

SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("framework", pa.string(), nullable=False),
        pa.field("placement", pa.string(), nullable=False),
        pa.field("measure", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("step", pa.int64()),  # null: of the run
        pa.field("plan", pa.string()),  # names the plans that the step trained on
        pa.field("value", pa.float64()),  # null: unknown
        pa.field("why", pa.string()),  # why it is unknown
    ]
)
_APART = ("values", "series")  # in the rows; all other fields of a run are in the metadata
_FACTS = {name: kind for name, kind in get_type_hints(RunMeasures).items() if name not in _APART}


def write_measures(path: Path, runs: Sequence[RunMeasures], *, stamp: str = "") -> None:
    """Writes runs to one file, whole or not at all; the same runs give the same bytes.

    Raises:
        OSError: it cannot be written.
    """
    facts = [{name.name: getattr(run, name.name) for name in fields(run) if name.name not in _APART} for run in runs]
    text = json.dumps({"format": FORMAT, "runs": facts}, sort_keys=True, default=dict)
    table = rows(runs).replace_schema_metadata({_KEY: text.encode(), _STAMP: stamp.encode()})
    with made_whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", store_schema=True)


def rows(runs: Sequence[RunMeasures]) -> pa.Table:
    """Runs as rows of SCHEMA: each measure of a run, then those of its steps."""
    made: list[dict[str, Any]] = []
    for run in runs:
        about = {"run_id": run.run_id, "framework": run.framework, "placement": run.placement}
        for name, value in run.values.items():
            unit = on_devices(MEASURES[name], [run.device]).unit if name in MEASURES else ""
            made.append({**about, "measure": name, "unit": unit, "value": value.value, "why": value.why or None})
        for name, seconds in run.series.seconds.items():
            made += [
                {**about, "measure": name, "unit": "s", "step": step, "plan": plan, "value": one}
                for step, plan, one in zip(run.series.steps, run.series.plans, seconds, strict=True)
            ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def read_measures(path: Path) -> list[RunMeasures]:
    """The runs of one file.

    Raises:
        SpecError: missing, damaged, no file of measures, or of a format that this version does not read.
    """
    return _runs(path, _open(path))


def load_baseline(folder: Path) -> list[RunMeasures]:
    """The runs of all `*.parquet` of a folder, by their start and name; a run that two files hold is an error.

    Raises:
        SpecError: no such folder, no file in it, or one of them cannot be read.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise SpecError(f"{folder}: no baseline (it holds no *.parquet); make one with `bench baseline accept`")
    runs = [run for file in files for run in read_measures(file)]
    names = [run.run_id for run in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(f"{folder}: {', '.join(twice)}: in more than one file; take all but one away")
    return sorted(runs, key=lambda run: (run.started_utc or "", run.run_id))


def is_measures(path: Path) -> bool:
    """Whether `path` is a file of measures."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def measures_of(run_dir: Path) -> RunMeasures:
    """A run's measures: those kept in its folder while they are of its tables and of this code, else computed anew.

    A run that was not collected is collected first. What is computed is kept, where the folder can be written.

    Raises:
        SpecError: not a run folder, or its spec or tables cannot be read.
    """
    held = kept_measures(run_dir)
    if held is not None:
        return held
    measured = measure_run(load_run(run_dir) if _complete(run_dir) else collect(run_dir))
    with suppress(OSError):
        write_measures(run_dir / KEPT, [measured], stamp=stamp_of(run_dir))
    return measured


def kept_measures(run_dir: Path) -> RunMeasures | None:
    """The measures that a run keeps in its folder; None unless they are of its tables, and of this code."""
    path = run_dir / KEPT
    if _complete(run_dir) and path.is_file():
        with suppress(SpecError):
            table = _open(path)
            found = _runs(path, table)
            if len(found) == 1 and (table.schema.metadata or {}).get(_STAMP, b"").decode(
                "utf-8", "replace"
            ) == stamp_of(run_dir):
                return found[0]
    return None


def _complete(run_dir: Path) -> bool:
    return is_run_folder(run_dir) and is_collected(run_dir) and (run_dir / "sealed").exists()


def stamp_of(run_dir: Path) -> str:
    """Names what kept measures were computed from: the run's tables as they lie there, and this code."""
    told = [code.digest()]
    for path in (table_path(run_dir, "runs"), table_path(run_dir, "spans"), run_dir / "meta.json"):
        with suppress(OSError):
            state = path.stat()
            told.append(f"{path.name}:{state.st_size}:{state.st_mtime_ns}")
    return " ".join(told)


def _open(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError) as error:
        raise SpecError(f"{path}: cannot be read as Parquet ({error})") from None
    if _KEY not in (table.schema.metadata or {}) or table.schema.names != SCHEMA.names:
        raise SpecError(f"{path}: no file of measures; give a run folder, a sweep, or a baseline made by bench")
    return table


def _runs(path: Path, table: pa.Table) -> list[RunMeasures]:
    try:
        return _read(path, table)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_SIGNS]
        raise SpecError(f"{path}: what it says of its runs cannot be read ({said}): make it anew") from None


def _read(path: Path, table: pa.Table) -> list[RunMeasures]:
    held = json.loads(table.schema.metadata[_KEY])
    if held.get("format") != FORMAT:
        raise SpecError(
            f"{path}: measures of format {held.get('format')}, and this bench reads format {FORMAT}: make it anew"
        )
    columns = table.to_pydict()
    values: dict[str, dict[str, Value]] = {}
    series: dict[str, dict[str, list[float]]] = {}
    steps: dict[str, dict[int, str | None]] = {}
    for name, measure, step, plan, value, why in zip(
        *(columns[key] for key in ("run_id", "measure", "step", "plan", "value", "why")), strict=True
    ):
        if step is None:
            values.setdefault(name, {})[measure] = Value(value, why or "")
        else:
            series.setdefault(name, {}).setdefault(measure, []).append(value)
            steps.setdefault(name, {})[step] = plan
    return [_run(facts, values, series, steps) for facts in held["runs"]]


def _run(
    facts: dict[str, Any],
    values: dict[str, dict[str, Value]],
    series: dict[str, dict[str, list[float]]],
    steps: dict[str, dict[int, str | None]],
) -> RunMeasures:
    name = facts["run_id"]
    mine = steps.get(name, {})
    facts = {**facts, "problems": tuple(facts["problems"]), "notes": tuple(facts["notes"])}
    for fact, value in facts.items():
        if fact in _FACTS and not fits(value, _FACTS[fact]):
            raise ValueError(f"{fact} = {str(value)[:40]!r}: not of type {name_of(_FACTS[fact])}")
    return RunMeasures(
        **facts,
        values=values.get(name, {}),
        series=StepSeries(
            steps=tuple(mine),
            plans=tuple(mine.values()),
            seconds={measure: tuple(each) for measure, each in series.get(name, {}).items()},
        ),
    )


__all__ = [
    "KEPT",
    "SCHEMA",
    "is_measures",
    "kept_measures",
    "load_baseline",
    "measures_of",
    "read_measures",
    "rows",
    "stamp_of",
    "write_measures",
]
