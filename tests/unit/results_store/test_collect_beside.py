"""Events and samples are read beside each other: what goes wrong with either is told, and nothing is left behind."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of

from harness.telemetry.segment import Segment
from results import collect as collecting
from results import sample_table
from results.collect import collect


def a_run(tmp_path: Path, segments: int = 1) -> Path:
    run_dir = make_run(tmp_path / "run", [hello(), *follow(plan_of(make_spec(), 0, 0), 2_000)])
    (run_dir / "samples").mkdir()
    for number in range(segments):
        segment = Segment(run_dir / "samples" / f"node-{number}.arrows")
        for batch in range(10):
            segment.append({"host": f"node-{number}", "mono_ns": batch, "cpu_ratio": 0.5})
            segment.flush()
        segment.close()
    return run_dir


def left(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "tables").iterdir())


def test_damaged_readings_of_engines_are_told(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path)
    (run_dir / "samples" / "engines").mkdir()
    (run_dir / "samples" / "engines" / "node-1.jsonl").write_bytes(b'{"cut')
    failures = collect(run_dir).tables["failures"].to_pylist()
    (told,) = (row["message"] for row in failures if row["type"] == "damaged_samples")
    assert told == "samples/engines/node-1.jsonl: 1 lines cut or damaged"


def test_samples_that_cannot_be_written_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = a_run(tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("results.sample_table.TableWriter.write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        collect(run_dir)
    assert left(run_dir) == []


def test_a_collection_that_fails_leaves_the_older_tables_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = a_run(tmp_path)
    collect(run_dir)
    before = {path.name: path.read_bytes() for path in (run_dir / "tables").iterdir()}
    for source in ("samples", "events"):
        for path in (run_dir / source).iterdir():
            path.write_bytes(path.read_bytes()[:200])  # so that new tables would differ

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collecting, "runs_table", broken)  # the last of them
    with pytest.raises(OSError, match="No space left"):
        collect(run_dir)
    assert {path.name: path.read_bytes() for path in (run_dir / "tables").iterdir()} == before
    monkeypatch.undo()
    collect(run_dir)
    assert left(run_dir) == sorted(before)
    assert (run_dir / "tables" / "samples.parquet").read_bytes() != before["samples.parquet"]


def test_large_tables_are_read_again_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = a_run(tmp_path)
    whole = collect(run_dir).tables
    monkeypatch.setattr(collecting, "BATCH_ROWS", 1)
    parts = collect(run_dir).tables
    assert set(parts) == set(whole)
    for name in whole:
        assert parts[name].equals(whole[name], check_metadata=True), name


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_what_ends_the_reading_of_events_ends_that_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    run_dir = a_run(tmp_path, segments=3)
    begun, reads = threading.Event(), list[int]()
    read = sample_table._Source.read

    def slowly(source: Any, piece_bytes: int) -> None:
        begun.set()
        time.sleep(0.05)
        reads.append(1)
        read(source, 1)  # a piece for each batch: 30 of them, and more

    def ended(*_: object) -> None:
        assert begun.wait(60)
        raise kind("now")

    monkeypatch.setattr(sample_table._Source, "read", slowly)
    monkeypatch.setattr(collecting, "_event_tables", ended)
    before = threading.active_count()
    with pytest.raises(kind, match="now"):
        collect(run_dir)
    assert threading.active_count() == before
    assert len(reads) < 12, "the samples were read to their end"
    assert left(run_dir) == []
