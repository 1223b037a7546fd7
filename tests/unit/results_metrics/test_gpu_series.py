"""Readings of GPUs, from samples whose columns are read together in some rows and apart in others."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_histories import History, ns

from results.gpu_series import BUSY_CLOCK, readings_of, series_of
from results.schema import TABLES
from results.store import RunTables, StoredTables, TableWriter, table_path
from results.table_parts import parts_of

POWER = ("energy_joules", "power_instant_watts", "power_average_watts", "power_limit_watts")


def history() -> History:
    made = History("colocated", {"device": "cuda"})
    rng = np.random.default_rng(1)
    for number in range(300):
        gpu = ("GPU-0", "GPU-1", "GPU-other", None)[number % 4]
        told = {name: float(rng.integers(1, 99)) for name in POWER if rng.uniform() < (0.98 if number > 150 else 1)}
        if number % 3 == 0:
            told["sm_clock_hz"] = int(rng.integers(1, 9))
            told |= {"throttle_reasons": int(rng.integers(0, 4))} if number % 2 else {}
            told |= {"util_ratio": float(rng.integers(0, 2))} if number % 5 else {}
        made.add("samples", gpu=gpu, mono_ns=ns(int(rng.integers(0, 200))), **told)
    return made


def stored(run: RunTables, folder: Path, rows: int) -> RunTables:
    """The same run with its samples in a file, so many rows a group."""
    path = table_path(folder, "samples")
    path.parent.mkdir(parents=True)
    samples = run.tables["samples"]
    with TableWriter(path, "samples", "run") as writer:
        for begin in range(0, samples.num_rows, rows):
            writer.write(samples.slice(begin, rows))
    others = {name: table for name, table in run.tables.items() if name != "samples"}
    return RunTables(spec=run.spec, meta=run.meta, run_dir=folder, tables=StoredTables(folder, ["samples"], others))


def expected(run: RunTables, gpu: str, name: str) -> list[tuple[int, float]]:
    """The last reading of each instant, row by row."""
    found: dict[int, float] = {}
    for row in run.tables["samples"].to_pylist():
        value = row["sm_clock_hz"] if name == BUSY_CLOCK else row[name]
        if name == BUSY_CLOCK and value is not None:
            reasons = row["throttle_reasons"]
            busy = reasons & 1 == 0 if reasons is not None else (row["util_ratio"] or 0) > 0
            value = value if busy else None
        if row["gpu"] == gpu and value is not None:
            found[row["mono_ns"]] = float(value)
    return sorted(found.items())


@pytest.mark.parametrize("rows", [7, 1_000])
def test_each_gpu_has_its_own_readings_of_each_kind(tmp_path: Path, rows: int) -> None:
    run = history().run()
    gpus = ["GPU-1", "GPU-0", "GPU-absent"]
    for one in (run, stored(run, tmp_path, rows)):
        found, latest = readings_of(one, gpus)
        samples = [row for row in run.tables["samples"].to_pylist() if row["gpu"] is not None]
        assert latest == max(row["mono_ns"] for row in samples)
        for gpu in gpus:
            mine = [row["mono_ns"] for row in samples if row["gpu"] == gpu]
            assert found[gpu].first_ns == (min(mine) if mine else None)
            for name in (*POWER, BUSY_CLOCK):
                series = found[gpu].series[name]
                pairs = list(zip(series.times.tolist(), series.values.tolist(), strict=True))
                assert pairs == expected(run, gpu, name), (gpu, name)


def test_columns_that_were_always_read_together_share_their_times() -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(50):
        told = {name: float(second) for name in POWER if second != 30 or name != "power_average_watts"}
        made.add("samples", gpu="GPU-0", mono_ns=ns(second), **told)
    found, _ = readings_of(made.run(), ["GPU-0"])
    series = found["GPU-0"].series
    assert np.shares_memory(series["energy_joules"].times, series["power_limit_watts"].times)
    assert series["power_average_watts"].times.size == 49
    assert series["power_instant_watts"].times.size == 50


def test_parts_without_any_of_the_columns_are_not_read(tmp_path: Path) -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(40):
        told = {"dcgm_sm_active_ratio": 0.5} if 20 <= second < 25 else {"util_ratio": 0.1}
        made.add("samples", gpu="GPU-0", mono_ns=ns(second), **told)
    run = stored(made.run(), tmp_path, 10)
    columns = ("mono_ns", "gpu", "dcgm_sm_active_ratio")
    assert sum(part.num_rows for part in run.batches("samples", columns)) == 40
    (part,) = run.batches("samples", columns, known=("dcgm_sm_active_ratio", "ecc_corrected_errors"))
    assert part.column("mono_ns").to_pylist() == [ns(second) for second in range(20, 30)]
    found = series_of(run, ["GPU-0"], ("dcgm_sm_active_ratio", "ecc_corrected_errors"))["GPU-0"]
    assert found["dcgm_sm_active_ratio"].times.tolist() == [ns(second) for second in range(20, 25)]
    assert found["ecc_corrected_errors"].times.size == 0


def test_parts_in_which_nothing_is_missing_are_not_read(tmp_path: Path) -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(40):
        made.add("samples", gpu=None if second == 33 else "GPU-0", mono_ns=ns(second), cpu_ratio=0.5)
    run = stored(made.run(), tmp_path, 10)
    (part,) = run.batches("samples", ("mono_ns", "gpu"), unknown=("gpu",))
    assert part.column("mono_ns").to_pylist() == [ns(second) for second in range(30, 40)]
    hosts = run.where("samples", ("mono_ns", "gpu"), lambda batch: batch.column("gpu").is_null(), unknown=("gpu",))
    assert hosts.column("mono_ns").to_pylist() == [ns(33)]


def test_a_table_of_an_older_writer_has_no_word_on_what_it_lacks(tmp_path: Path) -> None:
    """Statistics are not in every file: then every part is read."""
    path = tmp_path / "samples.parquet"
    schema = TABLES["samples"]
    column = schema.get_field_index("util_ratio")
    table = pa.table({"mono_ns": [1, 2], "util_ratio": pa.nulls(2, schema.field(column).type)})
    pq.write_table(table, path, write_statistics=False)
    assert sum(part.num_rows for part in parts_of(path, ["mono_ns"], known=["util_ratio"])) == 2
    pq.write_table(table, path)
    assert sum(part.num_rows for part in parts_of(path, ["mono_ns"], known=["util_ratio"])) == 0


def test_a_frame_is_made_once_and_each_has_its_own_columns(tmp_path: Path) -> None:
    made = History()
    made.life("a", 1, 2)
    run = made.run()
    kept = RunTables(spec=run.spec, meta={}, run_dir=tmp_path, tables=StoredTables(tmp_path, [], run.tables))
    first = kept.frame("trajectories")
    first["status"] = "changed"
    first["more"] = 1
    again = kept.frame("trajectories")
    assert again["status"].tolist() == ["ok"]
    assert "more" not in again
    assert np.shares_memory(first["start_ns"].to_numpy(), again["start_ns"].to_numpy())


def test_columns_are_read_once_and_those_of_a_long_table_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(history().run(), tmp_path, 100)
    whole = run.tables["samples"]
    for keeps in (2**20, 10):
        monkeypatch.setattr("results.store.KEPT_ROWS", keeps)
        kept = stored(history().run(), tmp_path / str(keeps), 100)
        first = kept.part("samples", ("gpu", "mono_ns"))
        again = kept.part("samples", ("mono_ns", "util_ratio", "gpu"))
        assert again.equals(whole.select(["mono_ns", "util_ratio", "gpu"]).replace_schema_metadata(None))
        shared = [
            first.column("mono_ns").chunk(0).buffers()[1].address
            == again.column("mono_ns").chunk(0).buffers()[1].address
        ]
        assert shared == [keeps > 10]
