import fcntl
import json
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import bye, hello, make_run

import results.store as store
from harness.protocol.errors import SpecError
from harness.protocol.events import Gate
from results.collect import collect
from results.schema import TABLES, empty
from results.status import read_meta
from results.store import load_run, read_table, table_path, write_table

FAILURES = {"host": "h", "pid": 1, "mono_ns": 5, "boundary": "tool", "type": "E", "message": "m"}


def failures(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TABLES["failures"])


def test_a_write_that_fails_leaves_the_old_table_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "failures.parquet"
    write_table(path, "failures", failures([FAILURES]), "r")
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_table(path, "failures", empty("failures"), "r")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_tables_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / "failures.parquet"
    write_table(path, "failures", failures([FAILURES]), "r")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "LZ4"


def _fake(path: Path, version: str, columns: dict[str, list[object]], table: str = "failures") -> Path:
    metadata = {b"bench.table": table.encode(), b"bench.schema_version": version.encode(), b"bench.run_id": b"old"}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


def test_a_table_of_version_0_is_brought_up_to_date(tmp_path: Path) -> None:
    # In the fake version 0, times were seconds and a failure had no boundary.
    old = _fake(tmp_path / "f.parquet", "0", {"at_s": [1.5], "type": ["E"], "message": ["m"]})

    def from_0(name: str, table: pa.Table) -> pa.Table:
        assert name == "failures"
        rows = [
            {"mono_ns": round(row["at_s"] * 1e9), "boundary": "worker", "type": row["type"], "message": row["message"]}
            for row in table.to_pylist()
        ]
        return failures(rows)

    read = read_table(old, "failures", migrations={0: from_0, **store.MIGRATIONS})
    assert read.to_pylist() == [
        {"host": None, "pid": None, "mono_ns": 1_500_000_000, "boundary": "worker", "type": "E", "message": "m"}
    ]
    assert read.schema.metadata[b"bench.schema_version"] == str(store.SCHEMA_VERSION).encode()
    assert read.schema.metadata[b"bench.run_id"] == b"old"


def test_what_version_1_did_not_record_is_unknown(tmp_path: Path) -> None:
    new = {"call", "argument", "http_status", "wire_bytes", "served_ns", "detail"}
    values: dict[str, list[object]] = {
        "host": ["h"], "pid": [1], "trajectory_id": ["p0-s0-a0"], "turn": [0], "tool": ["search_engine"],
        "start_ns": [1], "end_ns": [2], "planned_ns": [1], "status": ["ok"], "observation_tokens": [4],
        "observation_bytes": [16],
    }  # fmt: skip
    (row,) = read_table(_fake(tmp_path / "t.parquet", "1", values, table="tool_calls"), "tool_calls").to_pylist()
    assert {name for name, value in row.items() if value is None} == new
    assert {name: [value] for name, value in row.items() if name not in new} == values


def test_samples_of_version_1_have_no_dcgm_and_no_memory_errors(tmp_path: Path) -> None:
    older = pa.Table.from_pylist([{"host": "h", "gpu": "GPU-0", "mono_ns": 5}], schema=store.TABLES["samples"])
    new = [name for name in older.column_names if name.startswith(("dcgm_", "ecc_"))]
    assert len(new) == 11
    older = older.drop_columns(new)
    path = tmp_path / "samples.parquet"
    metadata = {b"bench.table": b"samples", b"bench.schema_version": b"1", b"bench.run_id": b"old"}
    pq.write_table(older.replace_schema_metadata(metadata), path)
    (row,) = read_table(path, "samples").to_pylist()
    assert (row["gpu"], row["mono_ns"]) == ("GPU-0", 5)
    assert all(row[name] is None for name in new)


def test_trajectories_of_version_1_have_no_trained_tokens(tmp_path: Path) -> None:
    new = ("loss_tokens", "sequence_tokens")
    path = tmp_path / "trajectories.parquet"
    older = empty("trajectories").drop_columns(list(new))
    metadata = {b"bench.table": b"trajectories", b"bench.schema_version": b"1", b"bench.run_id": b"r"}
    pq.write_table(older.replace_schema_metadata(metadata), path)
    assert set(new) < set(read_table(path, "trajectories").column_names)


def test_an_older_table_without_a_reader_says_so(tmp_path: Path) -> None:
    old = _fake(tmp_path / "f.parquet", "0", {"x": [1]})
    with pytest.raises(SpecError, match=r"schema version 0 has no reader.*bench collect"):
        read_table(old, "failures")


def test_every_older_version_has_a_reader() -> None:
    assert set(store.MIGRATIONS) == set(range(1, store.SCHEMA_VERSION))


def test_a_newer_table_asks_for_a_newer_bench(tmp_path: Path) -> None:
    new = _fake(tmp_path / "f.parquet", "99", {"x": [1]})
    with pytest.raises(SpecError, match=r"f\.parquet: schema version 99 .* newer bench .*upgrade"):
        read_table(new, "failures")


def test_what_is_no_table_of_that_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.parquet: missing; run `bench collect"):
        read_table(tmp_path / "gone.parquet", "failures")
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(SpecError, match=r"junk\.parquet: cannot be read"):
        read_table(tmp_path / "junk.parquet", "failures")
    other = _fake(tmp_path / "gates.parquet", "1", {"x": [1]}, table="gates")
    with pytest.raises(SpecError, match=r"'gates'.* expected 'failures'"):
        read_table(other, "failures")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "plain.parquet")
    with pytest.raises(SpecError, match="table ''"):
        read_table(tmp_path / "plain.parquet", "failures")


def test_what_is_no_run_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing: no such folder.*bench list"):
        load_run(tmp_path / "nothing")
    with pytest.raises(SpecError, match=r"not a run folder \(it has no spec\.json\)"):
        load_run(tmp_path)
    with pytest.raises(SpecError, match="not a run folder"):
        collect(tmp_path)
    run_dir = make_run(tmp_path / "run")
    with pytest.raises(SpecError, match=f"not collected .*`bench collect {run_dir}`"):
        load_run(run_dir)
    (run_dir / "spec.json").write_text("{}")
    with pytest.raises(SpecError, match=r"spec\.json"):
        collect(run_dir)


def test_a_collection_cut_short_reads_as_not_collected(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    collect(run_dir)
    table_path(run_dir, "turns").unlink()
    with pytest.raises(SpecError, match=r"no table turns\)"):
        load_run(run_dir)


def test_loading_gives_what_collecting_gave(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", [hello(), Gate(mono_ns=2_000, open=True, why="start"), bye(2)])
    made, read = collect(run_dir), load_run(run_dir)
    assert read.spec == made.spec
    assert read.meta == made.meta
    assert read.run_id == "run-1"
    assert set(read.tables) == set(TABLES)
    for name, table in made.tables.items():
        assert read.tables[name].equals(table, check_metadata=True), name


def test_unknown_integers_stay_unknown_in_frames(tmp_path: Path) -> None:
    big = 2**53 + 1  # not a float
    gates = [Gate(mono_ns=big, open=True, why="a", in_flight=3), Gate(mono_ns=big + 2, open=False, why="b")]
    frame = collect(make_run(tmp_path / "run", [hello(), *gates, bye(3)])).frame("gates")
    assert frame["mono_ns"].tolist() == [big, big + 2]
    assert frame["in_flight"].dtype == pd.Int64Dtype()
    assert frame["open"].dtype == pd.BooleanDtype()
    assert frame["in_flight"][0] == 3
    assert frame["in_flight"][1] is pd.NA


def test_a_frame_of_an_unknown_table_is_refused(tmp_path: Path) -> None:
    run = collect(make_run(tmp_path / "run"))
    with pytest.raises(SpecError, match="table 'hellos': allowed is one of class_energy, engine_samples, failures"):
        run.frame("hellos")


def test_a_running_run_without_a_living_harness_was_interrupted(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", status="running")
    meta, problem = read_meta(run_dir)
    assert (meta["status"], problem) == ("interrupted", None)
    lock = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert read_meta(run_dir)[0]["status"] == "running"
    finally:
        os.close(lock)
    assert collect(run_dir).frame("runs")["status"].tolist() == ["interrupted"]


@pytest.mark.parametrize(("text", "says"), [(None, "missing"), ("{", "cannot be read"), ("[]", "no object but list")])
def test_a_run_without_a_readable_meta_is_collected_and_says_so(tmp_path: Path, text: str | None, says: str) -> None:
    run_dir = make_run(tmp_path / "my-run", [hello(run_id="my-run"), bye(1)])
    (run_dir / "meta.json").unlink()
    if text is not None:
        (run_dir / "meta.json").write_text(text)
    run = collect(run_dir)
    assert run.run_id == "my-run"
    assert run.meta["status"] == "interrupted"
    (failure,) = run.tables["failures"].to_pylist()
    assert (failure["boundary"], failure["type"]) == ("recording", "bad_meta")
    assert says in failure["message"]


def test_the_runs_table_has_one_row_with_the_whole_request(tmp_path: Path) -> None:
    meta = {
        "commit": "abc",
        "dirty": False,
        "wall_s": 12,
        "exit_code": 0,
        "machine": {"host": "node-1"},
        "gpus": [{"name": "H100", "uuid": "a"}, {"name": "H100", "uuid": "b"}],
    }
    run = collect(make_run(tmp_path / "run", **meta))
    (row,) = run.tables["runs"].to_pylist()
    assert json.loads(row["spec_json"])["work_digest"] == row["work_digest"] == run.spec.work_digest
    assert (row["gpu_name"], row["gpus"], row["wall_s"], row["machine"]) == ("H100", 2, 12.0, "node-1")
    assert (row["framework_version"], row["reason"], row["dirty"]) == (None, None, False)


def test_a_sealed_run_whose_meta_is_lost_was_not_interrupted(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", [hello()])
    (run_dir / "meta.json").unlink()
    assert read_meta(run_dir)[0]["status"] == "interrupted"
    (run_dir / "sealed").touch()
    assert "status" not in read_meta(run_dir)[0]
