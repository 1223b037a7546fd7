"""The trace format: what is written comes back, a killed recording is readable, wrong files are told as such."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_calls import made

from harness.protocol.errors import SpecError
from workloads.deep_research.trace import (
    SCHEMA,
    TraceWriter,
    read_trace,
    seal_trace,
    write_trace,
)
from workloads.deep_research.trace_facts import FACTS_KEY, VERSION_KEY
from workloads.deep_research.trace_names import PART

CALLS = [
    made(0),
    made(1, question=None, started_wall_ns=None, served_s=None, http_status=None, size=None, text=None, links=None),
    made(2, status="timeout", detail="too late", links=()),
    made(3, observation_tokens=17, argument=None, call=None),
]


def recorded(path: Path, *calls: Any, facts: dict[str, Any] | None = None) -> TraceWriter:
    writer = TraceWriter(path, facts)
    assert all(writer.append(call) for call in calls)
    return writer


def test_what_is_recorded_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    writer = recorded(path, *CALLS, facts={"tools": "local", "n": 3})
    assert not path.exists()
    writer.close()
    writer.close()
    found = read_trace(path)
    assert list(found.calls()) == CALLS
    assert (found.facts, found.complete, found.damaged_lines) == ({"tools": "local", "n": 3}, True, 0)
    assert [each.name for each in tmp_path.iterdir()] == ["t.parquet"]
    assert not writer.append(made(9))
    assert (writer.calls, writer.lost) == (4, 1)


def test_units_and_version_are_in_the_file(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.parquet", CALLS, {})
    file = pq.ParquetFile(tmp_path / "t.parquet")
    assert file.metadata.metadata[VERSION_KEY] == b"1"
    units = {field.name: field.metadata[b"unit"].decode() for field in file.schema_arrow}
    assert (units["latency_s"], units["size"], units["started_mono_ns"]) == ("s", "byte", "ns")


def test_calls_come_in_the_order_in_which_they_were_asked(tmp_path: Path) -> None:
    # They are recorded when they end.
    recorded(tmp_path / "t.parquet", made(2), made(0), made(1)).close()
    assert [call.call for call in read_trace(tmp_path / "t.parquet").calls()] == [0, 1, 2]


def test_a_recording_without_a_call_leaves_no_file_and_an_empty_trace_is_read(tmp_path: Path) -> None:
    recorded(tmp_path / "t.parquet").close()
    assert list(tmp_path.iterdir()) == []
    write_trace(tmp_path / "t.parquet", [], {})
    found = read_trace(tmp_path / "t.parquet")
    assert (found.table.num_rows, found.table.schema.names) == (0, SCHEMA.names)


def test_more_calls_than_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_trace(path, (made(n) for n in range(2_345)), {})
    assert [call.call for call in read_trace(path).calls()] == list(range(2_345))


def test_text_without_utf8_is_recorded_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    recorded(path, made(0, text="half \ud800 a pair", links=(("\udfff", "u"),))).close()
    (call,) = read_trace(path).calls()
    assert (call.text, call.links) == ("half ? a pair", (("?", "u"),))


KILLED = """
import os, signal, sys
from pathlib import Path
from trace_calls import made
from workloads.deep_research.trace import TraceWriter
writer = TraceWriter(Path(sys.argv[1]), {"tools": "local"})
for number in range(50):
    writer.append(made(number))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_recording_loses_no_answered_call(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    )
    assert child.returncode == -9
    for name in (path, path.with_name("t.parquet.part")):
        found = read_trace(name)
        assert [call.call for call in found.calls()] == list(range(50))
        assert (found.complete, found.facts) == (False, {"tools": "local"})
    with pytest.raises(SpecError, match="killed or still runs"):
        TraceWriter(path)
    assert seal_trace(path.with_name("t.parquet.part"), tmp_path / "other.parquet") == 50
    assert read_trace(tmp_path / "other.parquet").complete


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_cut_last_line_is_dropped_and_counted(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "t.parquet"
    recorded(path, made(0), made(1))
    part = path.with_name(path.name + PART)
    part.write_bytes(part.read_bytes()[:-cut])
    found = read_trace(path)
    assert [call.call for call in found.calls()] == [0]
    assert (found.damaged_lines, found.complete) == (1, False)
    seal_trace(part, tmp_path / "whole.parquet")
    assert read_trace(tmp_path / "whole.parquet").facts == {"damaged_lines": 1}


@pytest.mark.parametrize(
    "line",
    [b"[]\n", b"{}\n", b"\xff\xfe\n", b'{"call": 1}\n', None, b"\n"],
    ids=["list", "empty", "bytes", "few", "type", "no"],
)
def test_a_damaged_line_in_the_middle_costs_that_line(tmp_path: Path, line: bytes | None) -> None:
    path = tmp_path / "t.parquet"
    recorded(path, made(0), made(1), made(2))
    part = path.with_name(path.name + PART)
    lines = part.read_bytes().splitlines(keepends=True)
    lines[2] = line if line is not None else json.dumps({**json.loads(lines[2]), "latency_s": "fast"}).encode() + b"\n"
    part.write_bytes(b"".join(lines))
    found = read_trace(path)
    assert ([call.call for call in found.calls()], found.damaged_lines) == ([0, 2], 1)


def test_a_full_disk_loses_records_and_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    writer = recorded(path, made(0))

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    monkeypatch.setattr(writer, "_file", Full(writer._file))
    assert not writer.append(made(1))
    assert not writer.append(made(2))
    assert (writer.calls, writer.lost) == (1, 2)
    assert "No space" in (writer.error or "")
    writer.close()
    found = read_trace(path)
    assert ([call.call for call in found.calls()], found.facts) == ([0], {"lost_calls": 2})


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"mine")
    for write in (lambda: TraceWriter(path), lambda: write_trace(path, CALLS, {})):
        with pytest.raises(SpecError, match="never written over"):
            write()
    assert path.read_bytes() == b"mine"


def test_a_folder_that_is_not_there_is_a_wrong_request(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be written"):
        TraceWriter(tmp_path / "none" / "t.parquet")
    with pytest.raises(SpecError, match="cannot be written"):
        write_trace(tmp_path / "none" / "t.parquet", CALLS, {})


def written(path: Path, table: pa.Table, **metadata: str) -> Path:
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({VERSION_KEY.decode(): "1", FACTS_KEY.decode(): "{}", **metadata})
    return path


def test_wrong_files_are_told_as_such(tmp_path: Path) -> None:
    good = pa.Table.from_pylist([call.row() for call in CALLS], schema=SCHEMA)
    files: list[tuple[str, Path]] = [("there is no such trace", tmp_path / "none.parquet")]
    text = tmp_path / "text.parquet"
    text.write_text("not parquet at all")
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"a": [1]}), plain)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(written(tmp_path / "whole.parquet", good).read_bytes()[:300])
    (tmp_path / "part.parquet.part").write_text("{}\n")
    (tmp_path / "empty.parquet.part").write_text("")
    files += [
        ("cannot be read as a trace", text),
        ("cannot be read as a trace", cut),
        ("cannot be read as a trace", tmp_path),
        ("is Parquet, but no trace", plain),
        ("written by a newer bench", written(tmp_path / "new.parquet", good, **{VERSION_KEY.decode(): "9"})),
        ("is no JSON object", written(tmp_path / "facts.parquet", good, **{FACTS_KEY.decode(): "[1"})),
        ("column latency_s is missing", written(tmp_path / "few.parquet", good.drop_columns(["latency_s"]))),
        (
            "column call is string, expected int64",
            written(tmp_path / "type.parquet", good.set_column(1, "call", pa.array(["a"] * len(CALLS)))),
        ),
        (
            "column tool has 4 values that are null",
            written(tmp_path / "null.parquet", good.set_column(2, "tool", pa.nulls(len(CALLS), pa.string()))),
        ),
        ("is not the rest of a recording", tmp_path / "part.parquet.part"),
        ("is not the rest of a recording", tmp_path / "empty.parquet"),
        ("there is no such recording", tmp_path / "gone.parquet.part"),
    ]
    for says, path in files:
        with pytest.raises(SpecError, match=says):
            read_trace(path)
