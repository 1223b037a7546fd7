"""Segments as they are written and as they are read, whole, cut, damaged or on a full disk."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.telemetry import segment as module
from harness.telemetry.description import Description
from harness.telemetry.segment import END_OF_STREAM, SCHEMA, Segment
from results.samples import read_gpus, read_samples, read_segments
from results.schema import SAMPLES, conform


def write(path: Path, *, batches: int, rows: int = 3, start: int = 0) -> list[int]:
    """Writes batches and returns the size of the file after each."""
    segment = Segment(path)
    sizes = []
    for batch in range(batches):
        for row in range(rows):
            segment.append({"host": "h", "gpu": "GPU-1", "mono_ns": start + batch * rows + row, "util_ratio": 0.5})
        segment.flush()
        sizes.append(path.stat().st_size)
    segment.close()
    return sizes


def test_the_writer_and_the_reader_have_the_same_columns():
    assert [(f.name, f.type, f.nullable) for f in SCHEMA] == [(f.name, f.type, f.nullable) for f in SAMPLES]


def test_rows_come_back_as_they_were_and_null_where_nothing_was_read(tmp_path):
    segment = Segment(tmp_path / "a.arrows")
    segment.append({"host": "h", "gpu": None, "mono_ns": 2, "uncertainty_ns": 1, "cpu_ratio": 0.0})
    segment.append({"host": "h", "gpu": "GPU-1", "mono_ns": 1, "power_instant_watts": 71.5, "energy_joules": None})
    segment.close()
    assert segment.rows == 2
    table = read_samples(tmp_path)
    assert table.schema.equals(SAMPLES, check_metadata=True)
    conform("samples", table)
    first, second = table.to_pylist()
    assert {k: v for k, v in first.items() if v is not None} == {
        "host": "h",
        "gpu": "GPU-1",
        "mono_ns": 1,
        "power_instant_watts": 71.5,
    }
    assert (second["gpu"], second["cpu_ratio"]) == (None, 0.0)


def test_a_file_cut_at_any_byte_is_read_up_to_its_last_whole_batch(tmp_path):
    sizes = write(tmp_path / "whole.arrows", batches=3)
    content = (tmp_path / "whole.arrows").read_bytes()
    header = sizes[0] - (sizes[1] - sizes[0])
    folder = tmp_path / "cut"
    folder.mkdir()
    for length in range(0, len(content) + 1, 7):
        (folder / "x.arrows").write_bytes(content[:length])
        found = read_segments(folder)
        whole = sum(size <= length for size in sizes)
        assert found.table["mono_ns"].to_pylist() == list(range(3 * whole)), length
        # between batches the stream could have ended; anywhere else the cut is told
        if length not in (header, *sizes) and length < sizes[-1]:
            assert len(found.problems) == 1, length
            assert "x.arrows" in found.problems[0]


def test_a_killed_writer_needs_no_end_of_stream(tmp_path):
    segment = Segment(tmp_path / "a.arrows")
    segment.append({"host": "h", "mono_ns": 1})
    segment.flush()
    assert read_segments(tmp_path).problems == ()
    assert read_samples(tmp_path).num_rows == 1
    segment.close()


def test_all_segments_are_read_and_sorted_by_time(tmp_path):
    write(tmp_path / "h-2-1.arrows", batches=1, start=0)
    write(tmp_path / "h-1-2.arrows", batches=1, start=10)
    assert read_samples(tmp_path)["mono_ns"].to_pylist() == [0, 1, 2, 10, 11, 12]


def test_what_is_no_segment_is_told_and_the_others_are_read(tmp_path):
    write(tmp_path / "good.arrows", batches=1)
    (tmp_path / "empty.arrows").touch()
    (tmp_path / "text.arrows").write_text("not arrow at all, but longer than a header")
    with pa.OSFile(str(tmp_path / "other.arrows"), "wb") as sink:
        table = pa.table({"x": [1]})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    found = read_segments(tmp_path)
    assert found.table.num_rows == 3
    assert [problem.partition(":")[0] for problem in found.problems] == ["empty.arrows", "other.arrows", "text.arrows"]


def test_a_segment_without_a_column_of_today_has_nulls_there(tmp_path):
    older = pa.table({"host": ["h"], "gpu": ["GPU-1"], "mono_ns": pa.array([5], pa.int64())})
    with pa.OSFile(str(tmp_path / "old.arrows"), "wb") as sink, pa.ipc.new_stream(sink, older.schema) as writer:
        writer.write_table(older)
    (row,) = read_samples(tmp_path).to_pylist()
    assert (row["mono_ns"], row["energy_joules"]) == (5, None)


def test_an_empty_folder_is_an_empty_table(tmp_path):
    assert read_samples(tmp_path).num_rows == 0
    assert read_samples(tmp_path).schema.equals(SAMPLES)


def test_a_segment_never_overwrites_a_file(tmp_path):
    (tmp_path / "a.arrows").write_bytes(b"before")
    with pytest.raises(FileExistsError):
        Segment(tmp_path / "a.arrows")
    assert (tmp_path / "a.arrows").read_bytes() == b"before"


FULL_DISK = """
import resource, sys
from pathlib import Path
from harness.telemetry.segment import Segment
segment = Segment(Path(sys.argv[1]))
def batch(start):
    for n in range(start, start + 4):
        segment.append({"host": "h", "mono_ns": n})
    segment.flush()
batch(0)
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
try:
    batch(4)
except OSError:
    print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
batch(8)
segment.close()
print(segment.rows, segment.lost_rows)
"""


def test_a_batch_that_does_not_fit_costs_itself_and_not_what_follows(tmp_path):
    path = tmp_path / "a.arrows"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "8", "4"]
    found = read_segments(tmp_path)
    assert found.problems == ()
    assert found.table["mono_ns"].to_pylist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_descriptions_of_other_hosts_and_of_a_sampler_before_are_kept(tmp_path):
    first = Description(tmp_path, "a")
    first.put("GPU-1", {"index": 1, "name": "old"})
    first.put("GPU-0", {"index": 0, "name": "old"})
    Description(tmp_path, "b").put("GPU-9", {"index": 0, "name": "other host"})
    again = Description(tmp_path, "a")
    again.put("GPU-1", {"index": 1, "name": "new"})
    again.put("GPU-1", {"sample_period_s": 0.1})
    found = [(g["host"], g["index"], g["uuid"], g["name"], g.get("sample_period_s")) for g in read_gpus(tmp_path)]
    assert found == [
        ("a", 0, "GPU-0", "old", None),
        ("a", 1, "GPU-1", "new", 0.1),
        ("b", 0, "GPU-9", "other host", None),
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.telemetry.description import Description

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Description(Path(sys.argv[1]), "a").put("GPU-0", {"index": 0})
"""


def test_what_a_killed_sampler_left_of_its_description_goes(tmp_path):
    Description(tmp_path, "a").put("GPU-1", {"index": 1})
    before = (tmp_path / "gpus.json").read_text()
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "gpus.json").read_text() == before
    Description(tmp_path, "a").put("GPU-0", {"index": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["gpus.json"]
    assert [gpu["uuid"] for gpu in read_gpus(tmp_path)] == ["GPU-0", "GPU-1"]


def test_a_damaged_description_is_an_error_and_a_missing_one_no_gpus(tmp_path):
    assert read_gpus(tmp_path) == []
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": 3}))
    with pytest.raises(ValueError, match=r"gpus\.json"):
        read_gpus(tmp_path)


VALUES = st.lists(
    st.fixed_dictionaries(
        {"host": st.text(max_size=5), "mono_ns": st.integers(-(2**63), 2**63 - 1)},
        optional={
            "gpu": st.none() | st.text(max_size=9),
            "power_instant_watts": st.none() | st.floats(allow_nan=False),
            "memory_used_bytes": st.none() | st.integers(0, 2**62),
        },
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=VALUES)
def test_any_rows_come_back_equal(tmp_path, rows):
    path = tmp_path / "x.arrows"
    path.unlink(missing_ok=True)
    segment = Segment(path)
    for row in rows:
        segment.append(row)
    segment.close()
    expected = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        found = stream.read_all().to_pylist()
    # Rows with the same names come together in their batch; readers sort by time.
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_writing_imports_no_pandas(tmp_path):
    code = """
import sys
from pathlib import Path
from harness.telemetry.segment import Segment
segment = Segment(Path(sys.argv[1]))
segment.append({"host": "h", "mono_ns": 1, "power_instant_watts": 1.5})
segment.close()
print("pandas" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a.arrows")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"


@pytest.mark.parametrize(
    ("column", "odd"), [("nvlink_tx_bytes", 2**63), ("nvlink_tx_bytes", 1.0), ("util_ratio", "57"), ("gpu", "\udc80")]
)
def test_rows_that_do_not_fit_their_columns_are_dropped_and_counted_and_the_others_are_written(tmp_path, column, odd):
    segment = Segment(tmp_path / "a.arrows")
    for at in range(4):
        segment.append({"host": "h", "gpu": "GPU-1", "mono_ns": at, column: odd if at == 2 else None})
    with pytest.raises(ValueError, match=f"1 rows .*{column}"):
        segment.flush()
    segment.append({"host": "h", "gpu": None, "mono_ns": 4, "uncertainty_ns": None, column: odd})
    with pytest.raises(ValueError, match="1 rows"):
        segment.close()
    assert (segment.rows, segment.lost_rows) == (3, 2)
    assert read_samples(tmp_path)["mono_ns"].to_pylist() == [0, 1, 3]
    assert (tmp_path / "a.arrows").read_bytes().endswith(END_OF_STREAM)


def test_of_rows_that_came_together_only_those_that_do_not_fit_are_dropped(tmp_path):
    segment = Segment(tmp_path / "a.arrows")
    values = {"power_instant_watts": [1.5, "57", 3.5], "power_limit_watts": (None, 700.0, 700.0)}
    segment.add(("h", ["GPU-1", "GPU-2", "GPU-3"], [1, 2, 3], [0, 0, 0], values))
    with pytest.raises(ValueError, match=r"1 rows .*power_instant_watts"):
        segment.close()
    assert (segment.rows, segment.lost_rows) == (2, 1)
    found = [(row["gpu"], row["mono_ns"], row["power_instant_watts"]) for row in read_samples(tmp_path).to_pylist()]
    assert found == [("GPU-1", 1, 1.5), ("GPU-3", 3, 3.5)]


@pytest.mark.parametrize(("number", "told"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)])
def test_rows_that_a_sync_says_are_lost_are_told_once_by_a_flush_that_is_made_all_the_same(
    tmp_path, monkeypatch, number, told
):
    """The kernel says so once, to whoever syncs first: a thread that no one asks."""
    synced = threading.Event()

    def fdatasync(_fd):
        if synced.is_set():
            return
        synced.set()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "FSYNC_PERIOD_S", 0.01)
    monkeypatch.setattr(module.os, "fdatasync", fdatasync)
    segment = Segment(tmp_path / "a.arrows")
    assert synced.wait(30)
    segment._syncer.join(0.5)  # until it has taken that in, or ended
    segment.append({"host": "h", "gpu": None, "mono_ns": 1})
    if told:
        with pytest.raises(OSError, match="rows are lost"):
            segment.flush()
    else:
        segment.flush()
    segment.append({"host": "h", "gpu": None, "mono_ns": 2})
    segment.close()
    assert read_samples(tmp_path)["mono_ns"].to_pylist() == [1, 2]
