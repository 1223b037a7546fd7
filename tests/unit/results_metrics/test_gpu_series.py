"""Readings of GPUs, from samples whose columns are read together in some rows and apart in others."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_histories import History, ns

from results.gpu_series import BUSY_CLOCK, readings_of, series_of
from results.schema import TABLES
from results.store import RunTables, StoredTables, table_path
from results.table_parts import parts_of
from results.table_writing import TableWriter

LIMIT = "power_limit_watts"
POWER = ("energy_joules", "power_instant_watts", "power_average_watts", LIMIT)


def history(in_order: bool = False) -> History:
    made = History("colocated", {"device": "cuda"})
    rng = np.random.default_rng(1)
    for number in range(300):
        gpu = ("GPU-0", "GPU-1", "GPU-other", None)[number % 4]
        told = {name: float(rng.integers(1, 99)) for name in POWER if rng.uniform() < (0.98 if number > 150 else 1)}
        told |= {LIMIT: float(rng.choice([300, 300, 300, 400, np.nan]))} if LIMIT in told else {}
        if number % 3 == 0:
            told["sm_clock_hz"] = int(rng.integers(1, 9))
            told |= {"throttle_reasons": int(rng.integers(0, 4))} if number % 2 else {}
            told |= {"util_ratio": float(rng.integers(0, 2))} if number % 5 else {}
        at = number // 5 if in_order else int(rng.integers(0, 200))
        made.add("samples", gpu=gpu, mono_ns=ns(at), **told)
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
        if row["gpu"] == gpu and value is not None and np.isfinite(value):
            found[row["mono_ns"]] = float(value)
    return sorted(found.items())


def turns(readings: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those whose value is not that of the reading before."""
    before = [None, *(value for _, value in readings)]
    return [each for each, value in zip(readings, before, strict=False) if each[1] != value]


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("rows", [7, 1_000])
def test_each_gpu_has_its_own_readings_of_each_kind(tmp_path: Path, rows: int, in_order: bool) -> None:
    run = history(in_order).run()
    gpus = ["GPU-1", "GPU-0", "GPU-absent"]
    for one in (run, stored(run, tmp_path, rows)):
        found = readings_of(one, gpus, also=("power_average_watts", "util_ratio", "throttle_reasons"))
        samples = [row for row in run.tables["samples"].to_pylist() if row["gpu"] is not None]
        assert found.latest == max(row["mono_ns"] for row in samples)
        of_hosts = [row["mono_ns"] for row in run.tables["samples"].to_pylist() if row["gpu"] is None]
        assert found.latest_host == max(of_hosts)
        for gpu in gpus:
            mine = [row["mono_ns"] for row in samples if row["gpu"] == gpu]
            assert found.gpus[gpu].first_ns == (min(mine) if mine else None)
            for name in (*POWER, BUSY_CLOCK, "util_ratio", "throttle_reasons"):
                series = found.gpus[gpu].series[name]
                pairs = list(zip(series.times.tolist(), series.values.tolist(), strict=True))
                if name == LIMIT:
                    assert turns(pairs) == turns(expected(run, gpu, name)), gpu
                    assert pairs[:1] + pairs[-1:] == expected(run, gpu, name)[:1] + expected(run, gpu, name)[-1:]
                    assert set(pairs) <= set(expected(run, gpu, name))
                else:
                    assert pairs == expected(run, gpu, name), (gpu, name)


def test_of_a_limit_that_hardly_changes_hardly_a_reading_is_kept(tmp_path: Path) -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(100):
        for gpu in ("GPU-0", "GPU-1"):
            limit = 350.0 if gpu == "GPU-1" and second >= 33 else 700.0
            made.add("samples", gpu=gpu, mono_ns=ns(second), power_limit_watts=limit)
    run = stored(made.run(), tmp_path, 1_000)
    for one in (made.run(), run):
        limits = {gpu: each.series[LIMIT] for gpu, each in readings_of(one, ["GPU-0", "GPU-1"]).gpus.items()}
        assert limits["GPU-0"].times.tolist() == [ns(0), ns(99)]
        assert limits["GPU-1"].times.tolist() == [ns(0), ns(32), ns(33), ns(99)]
        assert limits["GPU-1"].values.tolist() == [700.0, 700.0, 350.0, 350.0]


def test_what_nobody_wants_any_more_is_read_no_further(tmp_path: Path) -> None:
    run = stored(history(in_order=True).run(), tmp_path, 10)
    asked: list[int] = []

    def wanted() -> bool:
        asked.append(1)
        return len(asked) <= 3

    assert readings_of(run, ["GPU-0"], wanted=wanted).latest == ns(29 // 5)
    assert len(asked) == 4


def test_a_column_without_a_value_in_a_part_is_not_read_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(40):
        told = {"dcgm_sm_active_ratio": 0.5} if 20 <= second < 25 else {"util_ratio": 0.1}
        made.add("samples", gpu=None if second == 3 else "GPU-0", mono_ns=ns(second), **told)
    run = stored(made.run(), tmp_path, 10)
    read: list[list[str]] = []
    whole = pq.ParquetFile.read_row_group

    def noted(file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        read.append(columns)
        return whole(file, group, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    columns = ("dcgm_sm_active_ratio", "gpu", "host", "throttle_reasons", "util_ratio")
    found = pa.Table.from_batches(list(run.batches("samples", columns, text=("gpu",))))
    assert [len(each) for each in read] == [3, 3, 4, 3]
    expected = made.run().tables["samples"].select(list(columns))
    assert found.cast(expected.schema.remove_metadata()).equals(expected)


def test_columns_that_were_always_read_together_share_their_times() -> None:
    made = History("colocated", {"device": "cuda"})
    for second in range(50):
        told = {name: float(second) for name in POWER if second != 30 or name != "power_average_watts"}
        made.add("samples", gpu="GPU-0", mono_ns=ns(second), **told)
    series = readings_of(made.run(), ["GPU-0"], also=("power_average_watts",)).gpus["GPU-0"].series
    assert series["energy_joules"].times is series["power_instant_watts"].times
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
