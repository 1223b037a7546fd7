"""Tables whose columns have other types than they should: one line that says so, however much of them is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of

from harness.cli import call
from harness.protocol.errors import SpecError
from results.comparing.kept import KEPT
from results.schema import TABLES
from results.store import load_run, table_path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run", [hello(), *follow(plan_of(make_spec(), 0, 0), 2_000)])
    assert call(["collect", str(folder)]) == 0
    (folder / "sealed").touch()
    return folder


def rewrite(path: Path, column: str, values: pa.ChunkedArray) -> None:
    table = pq.read_table(path)
    table = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(table, path)


def as_text(path: Path, column: str) -> None:
    rewrite(path, column, pq.read_table(path)[column].cast(pa.string()))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("turns", "start_ns"),
        ("turns", "end_ns"),
        ("tool_calls", "end_ns"),
        ("tool_calls", "planned_ns"),
        ("spans", "start_ns"),
        ("spans", "turn"),
        ("samples", "mono_ns"),
        ("samples", "util_ratio"),
        ("trajectories", "start_ns"),
        ("processes", "pid"),
    ],
)
def test_another_type_is_told(run: Path, name: str, column: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = table_path(run, name)
    loaded = load_run(run)
    as_text(path, column)
    (run / KEPT).unlink()
    said = f"column {column} has type string, it should have {TABLES[name].field(column).type}; run `bench collect"
    for verb in ("report", "lint", "compare"):
        capsys.readouterr()
        assert call([verb, str(run), *([str(run)] if verb == "compare" else [])]) == 2, verb
        errors = capsys.readouterr().err
        assert f"{path}: {said}" in errors, verb
    for read in (
        lambda: loaded.frame(name),
        lambda: loaded.part(name, [column]),
        lambda: list(loaded.batches(name, [column])),
        lambda: list(loaded.batches(name, [column], known=[column], unknown=[column])),
    ):
        with pytest.raises(SpecError, match=f"column {column} has type string"):
            read()
    assert call(["collect", str(run)]) == 0
    assert call(["report", str(run)]) == 0


def test_a_number_where_a_text_should_be(run: Path) -> None:
    path, loaded = table_path(run, "turns"), load_run(run)
    rewrite(path, "trajectory_id", pq.read_table(path)["start_ns"])
    for text in ([], ["trajectory_id"]):
        with pytest.raises(SpecError, match="column trajectory_id has type int64, it should have string; run `bench c"):
            list(loaded.batches("turns", ["trajectory_id"], text=text))


def test_no_value_where_there_must_be_one(run: Path) -> None:
    path = table_path(run, "turns")
    values = pq.read_table(path)["start_ns"].to_pylist()
    rewrite(path, "start_ns", pa.chunked_array([pa.array([None, *values[1:]], pa.int64())]))
    loaded = load_run(run)
    for read in (
        lambda: loaded.frame("turns"),
        lambda: loaded.part("turns", ["start_ns"]),
        lambda: list(loaded.batches("turns", ["start_ns"])),
    ):
        with pytest.raises(SpecError, match=r"column start_ns has 1 nulls, none are allowed; run `bench collect"):
            read()
