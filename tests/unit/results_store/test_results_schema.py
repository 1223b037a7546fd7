from pathlib import Path

import pyarrow as pa
import pytest
from small_runs import make_run

from harness.protocol.errors import SpecError
from results.collect import collect
from results.schema import COLUMNS, SAMPLES, SCHEMA_VERSION, TABLES, conform, empty
from results.store import is_collected, load_run, read_table, table_path, write_table

NAMES = {"runs", "processes", "spans", "steps", "trajectories", "turns", "tool_calls", "weight_syncs", "samples"}
NAMES |= {"gates", "probes", "metrics", "failures", "opens", "engine_samples", "hosts", "gpu_energy", "class_energy"}

# What a name ends in and the unit it then has: the unit a reader sees is the unit that is declared.
SUFFIXES = {
    "_ns": "ns",
    "_s": "s",
    "_tokens": "token",
    "_bytes": "byte",
    "_watts": "W",
    "_joules": "J",
    "_ratio": "ratio",
    "_hz": "Hz",
    "_celsius": "°C",
    "_per_s": "byte/s",
}


def test_the_tables_are_the_declared_ones() -> None:
    assert set(TABLES) == NAMES
    assert SAMPLES is TABLES["samples"]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_columns_name_says_its_unit_and_the_field_says_it_again(table: str) -> None:
    for column, field in zip(COLUMNS[table], TABLES[table], strict=True):
        suffix = max((s for s in SUFFIXES if column.name.endswith(s)), key=len, default=None)
        if suffix is not None:
            assert column.unit == SUFFIXES[suffix], column.name
        elif column.unit in {"ns", "s", "W", "J", "Hz", "°C"}:
            pytest.fail(f"{table}.{column.name} has unit {column.unit} and its name does not say so")
        assert field.metadata == {b"unit": column.unit.encode(), b"doc": column.doc.encode()}
        assert column.doc
        assert field.nullable == column.nullable


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_is_written_and_read_with_its_schema(table: str, tmp_path: Path) -> None:
    path = tmp_path / f"{table}.parquet"
    write_table(path, table, empty(table), "run-1")
    read = read_table(path, table)
    assert read.schema.equals(TABLES[table], check_metadata=False)
    assert [field.metadata for field in read.schema] == [field.metadata for field in TABLES[table]]
    assert read.schema.metadata == {
        b"bench.table": table.encode(),
        b"bench.schema_version": str(SCHEMA_VERSION).encode(),
        b"bench.run_id": b"run-1",
    }


def _gates(**changes: pa.Array) -> pa.Table:
    one = {"host": ["h"], "pid": [1], "mono_ns": [5], "open": [True], "why": ["full"]}
    columns = {name: pa.array(value) for name, value in one.items()}
    columns |= {"in_flight": pa.array([None], pa.int64()), "cap": pa.array([8], pa.int64())}
    return pa.table(columns | changes)


def test_conform_keeps_a_fitting_table_whatever_the_order_of_its_columns() -> None:
    gates = _gates()
    shuffled = gates.select(gates.column_names[::-1])
    assert conform("gates", shuffled).to_pylist() == gates.to_pylist()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (_gates().drop_columns(["why"]), r"missing \['why'\]"),
        (_gates(extra=pa.array([1])), r"unknown \['extra'\]"),
        (_gates(cap=pa.array([8.0])), "column cap has type double"),
        (_gates(why=pa.array([None], pa.string())), "column why has 1 nulls"),
    ],
)
def test_conform_names_the_column_that_does_not_fit(table: pa.Table, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        conform("gates", table, where="x.parquet")


def test_a_run_collected_before_engines_were_read_has_no_readings(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    collect(run_dir)
    path = table_path(run_dir, "engine_samples")
    path.unlink()
    assert is_collected(run_dir)
    table = load_run(run_dir).tables["engine_samples"]
    assert (table.num_rows, table.schema.names) == (0, TABLES["engine_samples"].names)
    assert not path.exists()
    table_path(run_dir, "turns").unlink()
    with pytest.raises(SpecError, match="no table turns"):
        load_run(run_dir)
