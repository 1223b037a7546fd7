"""`bench query` and `results.open_runs`: the same rows as the tables, nothing but the tables, documented columns."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from harness.cli import call
from harness.protocol.errors import SpecError
from results.opening import open_runs
from results.querying import query
from results.schema import TABLES, VERSION_KEY
from results.store import load_run, table_path

PAGE = Path(__file__).parents[3] / "docs" / "query.md"
QUESTIONS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def ask(runs_dir: Path, sql: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = call(["query", sql, "--runs-dir", str(runs_dir), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_every_table_is_a_view_with_the_same_rows(runs_dir: Path) -> None:
    runs = open_runs(f"{runs_dir}/*")
    assert len(runs.folders) == 2
    for name in TABLES:
        here, asked = runs.arrow(name), query(runs, f"SELECT * FROM {name}")
        assert asked.column_names == [column.name for column in runs.columns(name)] == here.column_names
        assert asked.num_rows == sum(load_run(folder).tables[name].num_rows for folder in runs.folders.values())
        keys = [
            (column, "ascending")
            for column, kind in zip(here.column_names, here.schema.types, strict=True)
            if not pa.types.is_list(kind)
        ]
        # DuckDB names the field inside a list otherwise: compared as Python values.
        assert asked.sort_by(keys).to_pylist() == here.sort_by(keys).to_pylist(), name


def test_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_each_question_of_the_page_is_answered(runs_dir: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(runs_dir, QUESTIONS[number], capsys, "--format", "json")
    assert code == 0, err
    rows = json.loads(out)
    # A machine without a GPU has no row of one; every other question finds something in every run.
    assert rows or "gpu IS NOT NULL" in QUESTIONS[number]
    if "max(value) FILTER" in QUESTIONS[number]:
        assert all(value is not None for row in rows for value in row.values()), rows


def test_formats_say_the_same(runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "run_id, step, loss_tokens, trajectory_ids, NULL AS unknown, 'nan'::DOUBLE AS nan"
    sql = f"SELECT {columns} FROM steps ORDER BY 1, 2"
    _, text, _ = ask(runs_dir, sql, capsys, "--format", "json")
    rows = json.loads(text)
    assert len(rows) == 8
    assert rows[0]["unknown"] is None
    assert rows[0]["nan"] == "nan"  # JSON has no such number: told apart from what is not known
    _, text, _ = ask(runs_dir, sql, capsys, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["loss_tokens"]) for row in found] == [row["loss_tokens"] for row in rows]
    assert [json.loads(row["trajectory_ids"]) for row in found] == [row["trajectory_ids"] for row in rows]
    assert {row["unknown"] for row in found} == {""}
    assert {row["nan"] for row in found} == {"nan"}
    path = tmp_path / "answer.parquet"
    code, _, _ = ask(runs_dir, sql, capsys, "--format", "parquet", "-o", str(path))
    assert code == 0
    assert pq.read_table(path)["loss_tokens"].to_pylist() == [row["loss_tokens"] for row in rows]
    _, text, _ = ask(runs_dir, sql, capsys)
    assert len(text.splitlines()) == 9
    assert text.splitlines()[0].split() == list(rows[0])


def test_a_table_on_a_terminal_is_cut_and_says_so(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(runs_dir, "SELECT * FROM range(1000)", capsys)
    assert code == 0
    assert len(out.splitlines()) == 201
    assert "800 more rows" in err


def test_what_a_terminal_would_obey_is_not_printed(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ask(runs_dir, "SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS text", capsys)
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM 'https://example.com/x.parquet'",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{out}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "COPY (SELECT 1) TO '{table}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{table}'",
        "ATTACH '{out}'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW turns",
        "SELECT 1; SELECT 2",
        "SELEC 1",
        "SELECT nothing_of_that_name FROM turns",
        "SELECT 'a'::INT",
        "   ",
    ],
)
def test_what_is_not_reading_these_runs_is_refused(
    runs_dir: Path, async_run: Path, tmp_path: Path, sql: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_path(async_run, "turns")
    before, out_file = table.read_bytes(), tmp_path / "out"
    code, out, err = ask(runs_dir, sql.format(out=out_file, table=table), capsys)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("bench: query")
    assert not out_file.exists()
    assert table.read_bytes() == before


def test_an_older_schema_has_nulls(runs_dir: Path, tmp_path: Path) -> None:
    """Beside a run of today lies one of schema 1, whose turns had no `cache_break`."""
    folder = tmp_path / "runs"
    shutil.copytree(runs_dir, folder)
    old = sorted(folder.iterdir())[0]
    path = table_path(old, "turns")
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, VERSION_KEY: b"1"}
    pq.write_table(table.drop_columns(["cache_break"]).replace_schema_metadata(metadata), path)
    runs = open_runs(folder)
    rows = query(runs, "SELECT run_id, count(*) AS n, count(cache_break) AS known FROM turns GROUP BY 1").to_pylist()
    assert len(rows) == 2
    known = {row["run_id"]: row["known"] for row in rows}
    assert known.pop(next(name for name, place in runs.folders.items() if place.name == old.name)) == 0
    assert all(value > 0 for value in known.values()) or not known
    frame = runs.frame("turns")
    assert len(frame) == sum(row["n"] for row in rows)


def test_one_run_twice_and_a_newer_run_are_said(runs_dir: Path, async_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(async_run, copy)
    with pytest.raises(SpecError, match="same run"):
        open_runs(runs_dir, copy)
    path = table_path(copy, "runs")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, VERSION_KEY: b"99"}), path)
    with pytest.raises(SpecError, match="newer bench"):
        open_runs(copy)


@pytest.mark.parametrize("name", ["0-copy", "z-copy"])  # it comes before the run, or after it
def test_of_a_run_that_is_there_twice_the_copy_is_to_be_moved(
    async_run: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    run, copy = (Path(shutil.copytree(async_run, folder / one)) for one in (async_run.name, name))
    code, out, err = ask(folder, "SELECT count(*) AS n FROM runs", capsys, "--format", "json")
    assert (code, out) == (2, "")
    assert f"{copy}: holds the same run as {run} ({load_run(run).run_id}); move {copy} out of {folder}" in err
    copy.rename(tmp_path / name)
    code, out, err = ask(folder, "SELECT count(*) AS n FROM runs", capsys, "--format", "json")
    assert (code, json.loads(out)) == (0, [{"n": 1}]), err


def test_rows_that_were_never_computed_are_said_to_be_missing(
    runs_dir: Path, async_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(runs_dir, folder)
    run = folder / async_run.name
    table_path(run, "metrics").unlink()
    count = "SELECT count(DISTINCT run_id) AS n FROM metrics"
    code, out, err = ask(folder, count, capsys, "--format", "json")
    assert (code, json.loads(out)) == (0, [{"n": 1}])
    assert err == f"no rows: {run}: metrics not computed; run `bench report {run}`\n"
    assert ask(folder, "SELECT count(*) FROM turns", capsys)[2] == ""  # which has all its rows
    assert call(["report", str(run)]) == 0
    code, out, err = ask(folder, count, capsys, "--format", "json")
    assert (code, json.loads(out), err) == (0, [{"n": 2}], "")


def test_runs_without_tables_are_left_out_by_name(
    runs_dir: Path, async_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(runs_dir, folder)
    shutil.rmtree(folder / async_run.name / "tables")
    code, out, err = ask(folder, "SELECT count(*) AS n FROM runs", capsys, "--format", "json")
    assert code == 0
    assert json.loads(out) == [{"n": 1}]
    assert async_run.name in err
    assert "bench collect" in err
    code, _, err = ask(tmp_path / "nothing", "SELECT 1", capsys)
    assert code == 2
    assert "no collected run" in err


def test_tables_and_columns_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["query", "--tables"]) == 0
    assert set(TABLES) <= set(capsys.readouterr().out.split())
    assert call(["query", "--tables", "tool_calls"]) == 0
    text = capsys.readouterr().out
    assert "planned_ns" in text
    assert "latency that was imposed" in text
    assert call(["query", "--tables", "toolcalls"]) == 2


def test_the_package_opens_runs_lazily(runs_dir: Path) -> None:
    runs = results.open_runs(f"{runs_dir}/*")
    described = runs.describe("turns")
    assert list(described["column"]) == list(runs.frame("turns").columns)
    assert all(described["meaning"])
    with pytest.raises(AttributeError):
        results.nothing  # noqa: B018
