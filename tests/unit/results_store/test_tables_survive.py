"""A collection that cannot be made, or of which nothing is left to be made from, costs none of the tables there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of

from harness.cli import call
from harness.telemetry.segment import Segment
from results.opening import open_runs
from results.schema import TABLES
from results.store import COMPUTED, load_run, table_path, tables_dir


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run", [hello(), *follow(plan_of(make_spec(), 0, 0), 2_000)])
    assert call(["collect", str(folder)]) == 0
    (folder / "sealed").touch()
    return folder


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in tables_dir(run).iterdir()}


def test_a_collection_without_room_leaves_all_tables(run: Path) -> None:
    before = contents(run)
    assert set(before) == {f"{name}.parquet" for name in TABLES}
    bench = f"from harness.cli import call; raise SystemExit(call(['collect', {str(run)!r}]))"
    limited = ["sh", "-c", 'ulimit -f 4; exec "$0" -c "$1"', sys.executable, bench]  # no file of more than some KiB
    answer = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode != 0, answer.stdout
    assert contents(run) == before


def test_a_report_writes_computed_tables_that_are_missing(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    for missing in (COMPUTED, COMPUTED[1:2]):
        for name in missing:
            table_path(run, name).unlink()
        assert call(["report", str(run), "-o", str(tmp_path / "out")]) == 0
        assert contents(run) == before
    assert open_runs(run).arrow("metrics").num_rows


def test_a_report_of_a_folder_that_cannot_be_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    table_path(run, "metrics").unlink()
    monkeypatch.setattr("reports.case.write_table", full)
    assert call(["report", str(run), "-o", str(tmp_path / "out")]) == 0
    assert not table_path(run, "metrics").exists()


@pytest.mark.parametrize("left", ["nothing", "folder", "empty file", "other file"])
def test_events_that_are_gone(run: Path, left: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, events = contents(run), run / "events"
    for path in events.iterdir():
        path.unlink()
    if left == "nothing":
        events.rmdir()
    elif left == "empty file":
        (events / "node-1-42.jsonl").touch()
    elif left == "other file":
        (events / "notes.txt").write_text("moved to the archive")
    for sealed in (True, False):
        if not sealed:
            (run / "sealed").unlink()  # a report would collect it anew
        capsys.readouterr()
        assert call(["collect" if sealed else "report", str(run)]) == 2
        said = capsys.readouterr().err
        assert f"{events}/*.jsonl: missing or empty, and tables made from it have rows (processes, spans, turns" in said
        assert f"move {tables_dir(run)} away" in said
        assert contents(run) == before


@pytest.mark.parametrize("all_of_it", [True, False])
def test_samples_that_are_gone(run: Path, all_of_it: bool, capsys: pytest.CaptureFixture[str]) -> None:
    samples = run / "samples"
    (samples / "engines").mkdir(parents=True)
    (samples / "gpus.json").write_text('{"gpus": []}')
    segment = Segment(samples / "node-1.arrows")
    segment.append({"host": "node-1", "mono_ns": 5, "cpu_ratio": 0.5})
    segment.close()
    assert call(["collect", str(run)]) == 0
    before = contents(run)
    assert load_run(run).rows("samples") == 1
    if all_of_it:
        shutil.rmtree(samples)
    else:
        (samples / "node-1.arrows").unlink()
    capsys.readouterr()
    assert call(["collect", str(run)]) == 2
    assert (
        f"{samples}/*.arrows: missing or empty, and tables made from it have rows (samples)" in capsys.readouterr().err
    )
    assert contents(run) == before


def test_a_run_of_which_nothing_was_ever_recorded_is_collected_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    for _ in range(2):
        assert call(["collect", str(folder)]) == 0


@pytest.mark.parametrize("verb", ["collect", "report", "lint"])
def test_a_file_where_the_tables_should_be(run: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path in tables_dir(run).iterdir():
        path.unlink()
    tables_dir(run).rmdir()
    tables_dir(run).write_text("mine")
    assert call([verb, str(run)]) == 2
    assert f"{tables_dir(run)}: not a folder; move it away" in capsys.readouterr().err
    assert tables_dir(run).read_text() == "mine"


@pytest.mark.parametrize("name", ["turns", "runs", "metrics"])
@pytest.mark.parametrize("verb", ["collect", "report", "lint"])
def test_a_folder_where_a_table_should_be(run: Path, name: str, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = table_path(run, name)
    path.unlink()
    before = contents(run)
    path.mkdir()
    (run / "sealed").unlink()  # so that all of them collect
    assert call([verb, str(run)]) == 2
    assert f"{path}: a folder, where a table's file belongs; move it away" in capsys.readouterr().err
    path.rmdir()
    assert contents(run) == before
