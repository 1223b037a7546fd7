"""Measures on disk: nothing is lost on the way, and what is stale or damaged is never taken for good."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparing_folders import play_run
from made_measures import made_run, steady

from harness.protocol.errors import SpecError
from results.collect import collect
from results.comparing import kept
from results.comparing.comparison import Side, compare_sides
from results.comparing.kept import KEPT, is_measures, load_baseline, measures_of, read_measures, write_measures
from results.comparing.measures import MEASURES, Value, on_devices
from results.comparing.measuring import measure_run
from results.store import load_run


def test_what_is_written_is_read(tmp_path: Path) -> None:
    runs = [
        steady("one", 0.3, problems=("did not finish (status failed)",), notes=("a note",), commit=None),
        made_run("two", {"phase_train_s": [0.1, 0.2]}, plans=[None, "p"], seed=7),
    ]
    write_measures(tmp_path / "a.parquet", runs)
    assert read_measures(tmp_path / "a.parquet") == runs


def test_a_whole_run_is_read_as_it_was_measured(tmp_path: Path) -> None:
    run = measure_run(collect(play_run(tmp_path / "run", "async")))
    write_measures(tmp_path / "a.parquet", [run])
    assert read_measures(tmp_path / "a.parquet") == [run]
    assert (tmp_path / "a.parquet").stat().st_size < 40_000


@pytest.mark.parametrize(("device", "unit"), [("cpu", "token/s/process"), ("cuda", "token/s/GPU")])
def test_units_count_what_the_runs_have(device: str, unit: str) -> None:
    runs = [
        replace(run, device=device, values={**run.values, "throughput_tokens_per_s_gpu": Value(2.0)})
        for run in (steady("one", 0.3), steady("two", 0.4))
    ]
    kept_units = {row["unit"] for row in kept.rows(runs).to_pylist() if row["measure"] == "throughput_tokens_per_s_gpu"}
    assert kept_units == {unit}
    (pair,) = compare_sides([Side.of(run.run_id, [run]) for run in runs]).pairs
    claim = pair.claim("throughput_tokens_per_s_gpu")
    assert claim is not None
    assert claim.measure.unit == unit
    mixed = on_devices(MEASURES["throughput_tokens_per_s_gpu"], ["cpu", "cuda"])
    assert mixed.unit == "token/s/GPU"


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_measures(tmp_path / f"{name}.parquet", [steady("one", 0.3)])
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_run_keeps_its_measures_until_its_tables_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play_run(tmp_path / "run", "colocated")
    first = measures_of(run)
    assert (run / KEPT).is_file()
    computed = []

    def counted(tables):  # type: ignore[no-untyped-def]
        computed.append(tables.run_id)
        return measure_run(tables)

    monkeypatch.setattr(kept, "measure_run", counted)
    assert measures_of(run) == first
    assert not computed
    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**meta, "status": "failed"}))
    collect(run)
    assert measures_of(run).problems == ("did not finish (status failed)",)
    assert len(computed) == 1


def test_measures_of_other_code_are_computed_anew(tmp_path: Path) -> None:
    run = play_run(tmp_path / "run", "colocated")
    good = measures_of(run)
    write_measures(run / KEPT, [steady(good.run_id, 99.0)], stamp="another code")
    assert measures_of(run) == good


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    run = play_run(tmp_path / "run", "colocated")
    good = measures_of(run)
    (run / KEPT).write_bytes(b"PAR1 no parquet")
    assert measures_of(run) == good


def test_a_folder_that_cannot_be_written_is_compared_all_the_same(tmp_path: Path) -> None:
    run = play_run(tmp_path / "run", "colocated")
    collect(run)
    (run / KEPT).mkdir()  # what can't be replaced stands for what can't be written
    assert measures_of(run) == measure_run(load_run(run))


def test_bad_files_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "text.parquet").write_text("no")
    for name in ("other", "text", "gone"):
        with pytest.raises(SpecError, match=f"{name}.parquet"):
            read_measures(tmp_path / f"{name}.parquet")
        assert not is_measures(tmp_path / f"{name}.parquet")
    write_measures(tmp_path / "good.parquet", [steady("one", 0.3)])
    assert is_measures(tmp_path / "good.parquet")


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FORMAT", 99)
    write_measures(tmp_path / "a.parquet", [steady("one", 0.3)])
    monkeypatch.undo()
    with pytest.raises(SpecError, match="format 99"):
        read_measures(tmp_path / "a.parquet")


def test_baselines(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no baseline"):
        load_baseline(tmp_path)
    late = steady("late", 0.3, started_utc="2026-11-30T00:00:00Z")
    write_measures(tmp_path / "a.parquet", [late])
    write_measures(tmp_path / "b.parquet", [steady("early", 0.3), steady("middle", 0.3)])
    assert [run.run_id for run in load_baseline(tmp_path)] == ["early", "middle", "late"]
    write_measures(tmp_path / "c.parquet", [late])
    with pytest.raises(SpecError, match="late: in more than one file"):
        load_baseline(tmp_path)
