"""From the events, samples and meta.json of a run folder to its tables, however the run ended."""

from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.durable import sync_folder
from harness.protocol.errors import SpecError
from harness.protocol.scalars import number
from harness.protocol.spec import RunSpec
from harness.protocol.unfinished import made_apart, remove_left
from results.attributes import to_json
from results.clocks import Clocks
from results.defects import Defects
from results.engine_samples import read_engine_samples
from results.importing.imported import is_imported
from results.joins import add_open_trajectories, join_trajectories
from results.memory import small_pages
from results.plans import Plans
from results.reading import EventFile, OnAxis
from results.recorded import Recorded
from results.rows import Rows
from results.sample_table import write_samples
from results.samples import described_gpus
from results.schema import TABLES, empty, with_metadata
from results.status import read_meta
from results.store import (
    BATCH_ROWS,
    COMPUTED,
    RunTables,
    StoredTables,
    load_spec,
    run_id_of,
    table_path,
    tables_dir,
    write_table,
)
from results.texts import texts_as

LAST = "runs"  # the table that is there where all are: it goes first, and comes last
# What tables are made from, and those of its tables that have rows only where it was recorded.
SOURCES = {
    "events/*.jsonl": ("processes", "spans", "turns", "tool_calls", "trajectories", "steps"),
    "samples/*.arrows": ("samples",),
    "samples/engines/*.jsonl": ("engine_samples",),
}


@small_pages()
def collect(run_dir: Path) -> RunTables:
    """Makes the tables of a run and writes them under `tables/`; figures computed from older ones go then.

    The same files give the same bytes. Damaged lines, lost events and names that do not match become rows of
    `failures` with boundary `recording`; nothing else is dropped for them.

    Raises:
        SpecError: not a run folder, its spec.json cannot be read, or its events or samples are gone and their tables
            are not: nothing is touched then.
        OSError: the tables cannot be written; those that were there stay, computed ones too.
    """
    spec = load_spec(run_dir)
    meta, problem = read_meta(run_dir)
    if is_imported(spec):
        raise SpecError(
            f"{run_dir}: imported: it recorded nothing that tables could be made from; import its source again"
        )
    run_id = run_id_of(run_dir, meta)
    defects = Defects()
    if problem is not None:
        defects.add("bad_meta", problem)
    for odd in described_gpus(run_dir / "samples")[1]:
        defects.add("bad_gpus", f"samples/{odd}")
    clocks = Clocks.read(run_dir / "events")
    _still_recorded(run_dir)
    try:
        tables_dir(run_dir).mkdir(exist_ok=True)
    except FileExistsError:
        raise SpecError(f"{tables_dir(run_dir)}: not a folder; move it away, then collect the run") from None
    for name in TABLES:
        if (path := table_path(run_dir, name)).is_dir():
            raise SpecError(f"{path}: a folder, where a table's file belongs; move it away, then collect the run")
    for folder in (run_dir, run_dir / "samples", tables_dir(run_dir)):
        remove_left(folder)
    with made_apart(tables_dir(run_dir)) as staging:
        tables = _written(staging, _Run(run_dir, run_id, spec, meta, clocks, defects))
        _place(staging, run_dir, {*tables, "samples"})
    tables |= {name: empty(name) for name in COMPUTED}
    # Of many rows, they are read again where someone asks for them.
    stored = {"samples", *(name for name, table in tables.items() if table.num_rows > BATCH_ROWS)}
    ready = {
        name: with_metadata(name, texts_as(table, TABLES[name]), run_id)
        for name, table in tables.items()
        if name not in stored
    }
    return RunTables(spec=spec, meta=meta, run_dir=run_dir, tables=StoredTables(run_dir, stored, ready))


def _still_recorded(run_dir: Path) -> None:
    """Whether what the tables that are there were made from is there too.

    Raises:
        SpecError: events or samples are gone, and these tables are all that is left of them.
    """
    for source, names in SOURCES.items():
        if any(path.stat().st_size for path in run_dir.glob(source)):
            continue
        kept = [name for name in names if _has_rows(table_path(run_dir, name))]
        if kept:
            raise SpecError(
                f"{run_dir / source}: missing or empty, and tables made from it have rows ({', '.join(kept)}), which"
                f" collecting would lose; put it back, or move {tables_dir(run_dir)} away to collect without it"
            )


def _has_rows(path: Path) -> bool:
    try:
        return bool(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return False  # not there, or nothing that could be lost


def _place(staging: Path, run_dir: Path, names: Collection[str]) -> None:
    """Gives tables that are whole their places. Killed amid it, it leaves a run that is not collected: without LAST.

    So those of two collections are never taken for those of one, and the next reader makes all of them anew. What was
    computed from the older ones goes after LAST: it is there as long as they are.
    """
    table_path(run_dir, LAST).unlink(missing_ok=True)
    sync_folder(tables_dir(run_dir))  # gone before another is in its place, after a crash of the machine too
    for name in COMPUTED:
        table_path(run_dir, name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name == LAST):
        if name == LAST:
            sync_folder(tables_dir(run_dir))
        (staging / table_path(run_dir, name).name).replace(table_path(run_dir, name))
    sync_folder(tables_dir(run_dir))


@dataclass(frozen=True, slots=True)
class _Run:
    """What is known before its events and samples are read."""

    run_dir: Path
    run_id: str
    spec: RunSpec
    meta: Mapping[str, Any]
    clocks: Clocks
    defects: Defects


def _written(folder: Path, run: _Run) -> dict[str, pa.Table]:
    """Makes and writes all tables into `folder`, the samples too, which are not among those that it returns."""
    recorded = Recorded(run.run_id, run.defects, compared=frozenset(run.clocks.clocks))
    stop = Event()
    tables: dict[str, pa.Table] = {}
    writing: list[Future[None]] = []
    # Beside each other: none holds Python's lock for much of its time, Arrow and NumPy do the work.
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(2) as writers:

        def write(made: Mapping[str, pa.Table]) -> None:
            tables.update(made)
            for name, table in made.items():
                writing.append(writers.submit(write_table, folder / f"{name}.parquet", name, table, run.run_id))

        sampling = beside.submit(
            write_samples, run.run_dir / "samples", folder / "samples.parquet", run.run_id, run.clocks, stop
        )
        try:
            write(_event_tables(run.run_dir, recorded, run.clocks.event))
            write({"trajectories": _trajectories(recorded, tables, run.spec)})
            engine_samples, cut = read_engine_samples(run.run_dir / "samples" / "engines")
            samples = sampling.result()
            for problem in (*samples.problems, *(f"engines/{one}" for one in cut)):
                run.defects.add("damaged_samples", f"samples/{problem}")
            for kind, message in run.defects.rows():
                recorded.add_failure(kind, message)
            machine = run.meta.get("machine")
            controller = _text_of(machine, "host") if isinstance(machine, dict) else None
            write(
                {
                    "failures": recorded.failures.table("mono_ns"),
                    "engine_samples": run.clocks.table(engine_samples),
                    "hosts": run.clocks.hosts(tables["processes"], samples.by_host, controller),
                    "runs": runs_table(run.run_id, run.spec, run.meta),
                }
            )
            for one in writing:
                one.result()
        except BaseException:
            stop.set()  # at Ctrl-C too: the file that was begun is removed
            for one in writing:
                one.cancel()
            raise
    return tables


def _event_tables(run_dir: Path, recorded: Recorded, on_axis: OnAxis) -> dict[str, pa.Table]:
    """What the events give without any joining, failures aside: more of those may be found elsewhere."""
    for path in sorted((run_dir / "events").glob("*.jsonl")):
        recorded.take_file(EventFile(path, on_axis))
    return recorded.finish()


def _trajectories(recorded: Recorded, tables: Mapping[str, pa.Table], spec: RunSpec) -> pa.Table:
    report = recorded.defects.add
    add_open_trajectories(
        recorded.trajectories, recorded.closed, tables["opens"], tables["turns"], tables["tool_calls"]
    )
    found = recorded.trajectories.table("start_ns")
    joined = join_trajectories(found, tables["steps"], Plans(spec), report)
    for step, count in sorted(Counter(tables["steps"]["step"].to_pylist()).items()):
        if count > 1:
            report("duplicate_step", f"step {step} was recorded {count} times")
    return joined


def runs_table(run_id: str, spec: RunSpec, meta: Mapping[str, Any]) -> pa.Table:
    """The one row of the `runs` table."""
    rows = Rows("runs")
    machine = meta.get("machine")
    gpus = meta.get("gpus")
    names = [gpu.get("name") for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    rows.add(
        run_id,
        spec.framework,
        _text_of(meta, "framework_version"),
        spec.placement.value,
        spec.work_digest,
        spec.spec_digest,
        spec.to_json(),
        to_json(meta),
        _text_of(meta, "commit"),
        value if isinstance(value := meta.get("dirty"), bool) else None,
        _text_of(meta, "bench_version"),
        _text_of(machine, "host") if isinstance(machine, dict) else None,
        " + ".join(sorted({name for name in names if isinstance(name, str)})) or None,
        spec.total_gpus,
        spec.device.value,
        _text_of(meta, "started_utc"),
        _text_of(meta, "ended_utc"),
        number(meta.get("wall_s")),
        _text_of(meta, "status"),
        _text_of(meta, "reason"),
        value if type(value := meta.get("exit_code")) is int else None,
    )
    return rows.table()


def _text_of(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return value if isinstance(value, str) else None
