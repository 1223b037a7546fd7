"""From the events, samples and meta.json of a run folder to its tables, however the run ended."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from results.attributes import to_json
from results.clocks import Clocks
from results.defects import Defects
from results.engine_samples import read_engine_samples
from results.importing.imported import is_imported
from results.joins import add_open_trajectories, join_trajectories
from results.plans import Plans
from results.reading import EventFile, OnAxis
from results.recorded import Recorded
from results.rows import Rows
from results.sample_table import write_samples
from results.schema import empty, with_metadata
from results.status import read_meta
from results.store import COMPUTED, RunTables, StoredTables, load_spec, run_id_of, table_path, tables_dir, write_table


def collect(run_dir: Path) -> RunTables:
    """Makes the tables of a run and writes them under `tables/`; figures computed from older ones are removed.

    The same files give the same bytes. Damaged lines, lost events and names that do not match become rows of
    `failures` with boundary `recording`; nothing else is dropped for them.

    Raises:
        SpecError: not a run folder, or its spec.json cannot be read.
        OSError: the tables cannot be written.
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
    clocks = Clocks.read(run_dir / "events")
    tables_dir(run_dir).mkdir(exist_ok=True)
    for name in COMPUTED:
        table_path(run_dir, name).unlink(missing_ok=True)
    recorded = Recorded(run_id, defects, compared=frozenset(clocks.clocks))
    stop = Event()
    # Beside each other: neither holds Python's lock for much of its time, Arrow and NumPy do the work.
    with ThreadPoolExecutor(1) as beside:
        target = table_path(run_dir, "samples")
        writing = beside.submit(write_samples, run_dir / "samples", target, run_id, clocks, stop)
        try:
            tables = _event_tables(run_dir, recorded, spec, clocks.event)
            engine_samples, cut = read_engine_samples(run_dir / "samples" / "engines")
            samples = writing.result()
        except BaseException:
            stop.set()  # at Ctrl-C too: the file that was begun is removed
            raise
    for problem in (*samples.problems, *(f"engines/{one}" for one in cut)):
        defects.add("damaged_samples", f"samples/{problem}")
    for kind, message in defects.rows():
        recorded.add_failure(kind, message)
    tables["failures"] = recorded.failures.table("mono_ns")
    tables["engine_samples"] = clocks.table(engine_samples)
    machine = meta.get("machine")
    controller = _text_of(machine, "host") if isinstance(machine, dict) else None
    tables["hosts"] = clocks.hosts(tables["processes"], samples.by_host, controller)
    tables["runs"] = runs_table(run_id, spec, meta)
    tables_dir(run_dir).mkdir(exist_ok=True)
    for name in COMPUTED:
        table_path(run_dir, name).unlink(missing_ok=True)
    for name, table in tables.items():
        write_table(table_path(run_dir, name), name, table, run_id)
    tables |= {name: empty(name) for name in COMPUTED}
    ready = {name: with_metadata(name, table, run_id) for name, table in tables.items()}
    return RunTables(spec=spec, meta=meta, run_dir=run_dir, tables=StoredTables(run_dir, ("samples",), ready))


def _event_tables(run_dir: Path, recorded: Recorded, spec: RunSpec, on_axis: OnAxis) -> dict[str, pa.Table]:
    """What the events give, failures aside: more of those may be found elsewhere."""
    for path in sorted((run_dir / "events").glob("*.jsonl")):
        recorded.take_file(EventFile(path, on_axis))
    tables = recorded.finish()
    add_open_trajectories(
        recorded.trajectories, recorded.closed, tables["opens"], tables["turns"], tables["tool_calls"]
    )
    trajectories = recorded.trajectories.table("start_ns")
    report = recorded.defects.add
    tables["trajectories"] = join_trajectories(trajectories, tables["steps"], Plans(spec), report)
    for step, count in sorted(Counter(tables["steps"]["step"].to_pylist()).items()):
        if count > 1:
            report("duplicate_step", f"step {step} was recorded {count} times")
    return tables


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
        float(value) if isinstance(value := meta.get("wall_s"), int | float) else None,
        _text_of(meta, "status"),
        _text_of(meta, "reason"),
        value if type(value := meta.get("exit_code")) is int else None,
    )
    return rows.table()


def _text_of(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return value if isinstance(value, str) else None
