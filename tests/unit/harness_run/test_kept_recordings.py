"""What becomes of a run's recording when the tool server was ended before it had made a trace of it."""

import shutil
from pathlib import Path

import pytest

from harness.protocol.errors import SpecError
from harness.recordings import free_recordings, keep_recordings
from harness.specs.inputs import read_tools
from harness.tool_server import RECORDING_GRACE_S, ToolServer
from workloads.deep_research.trace import Call, TraceWriter, read_trace
from workloads.deep_research.trace_names import part_of, restarted


def made(number: int) -> Call:
    return Call(
        trajectory_id="t0",
        call=number,
        tool="search_engine",
        argument=f"query {number}",
        started_mono_ns=number,
        latency_s=1.0,
        status="ok",
        text=f"answer {number}",
    )


def left(path: Path, calls: int = 3) -> None:
    """The lines of a killed server: a copy, as this process holds its own."""
    writer = TraceWriter(path.with_name("made-" + path.name), {"tools": "told"})
    for number in range(calls):
        writer.append(made(number))
    shutil.copy(part_of(writer.path), part_of(path))
    writer.close()
    writer.path.unlink(missing_ok=True)


def test_lines_that_were_left_become_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    left(path)
    unfinished = tmp_path / f".{path.name}.4711.new"  # of a server that was killed while it made the trace
    unfinished.write_bytes(b"half")
    said: list[str] = []
    written, notes = keep_recordings(files, said.append)
    assert written == (str(path),)
    assert said == ["the recording calls.parquet.part is made whole: the tool server was ended before it could"]
    assert notes == (f"{path} was made of what the tool server left of it when it was killed",)
    trace = read_trace(path)
    assert ([call.text for call in trace.calls()], trace.complete) == (["answer 0", "answer 1", "answer 2"], True)
    assert list(tmp_path.iterdir()) == [path]
    assert keep_recordings(files, said.append) == ((str(path),), ())
    assert len(said) == 1


def test_a_server_that_was_started_again_leaves_two_traces_and_both_are_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    left(path)
    again = TraceWriter(restarted(path))
    again.append(made(3))
    again.close()
    written, notes = keep_recordings(files, lambda _: None)
    assert written == (str(path), str(restarted(path)))
    assert notes[-1] == f"the calls were recorded into 2 files: {path}, {restarted(path)}"


def test_lines_that_are_still_written_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    writer = TraceWriter(path)
    writer.append(made(0))
    written, notes = keep_recordings(files, lambda _: None)
    assert (written, notes) == ((str(part_of(path)),), ())
    writer.append(made(1))
    writer.close()
    assert len(list(read_trace(path).calls())) == 2


def test_lines_that_are_no_recording_are_kept_and_told(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    part_of(path).write_bytes(b"something\nelse\n")
    written, notes = keep_recordings(files, lambda _: None)
    assert written == (str(part_of(path)),)
    assert notes[0].startswith(f"the recording could not be made whole: {part_of(path)}: is not the rest")
    assert part_of(path).exists()


@pytest.mark.parametrize("how", ["no line", "cut", "no call", "closed"])
def test_a_recording_without_a_call_leaves_nothing_and_the_run_says_so(tmp_path: Path, how: str) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    if how == "closed":
        TraceWriter(path).close()
    elif how == "no call":
        left(path, calls=0)
    else:
        part_of(path).write_bytes(b"" if how == "no line" else b'{"trace_ver')
    assert keep_recordings(files, lambda _: None) == ((), (f"no tool call was recorded: {path} was not made",))
    assert list(tmp_path.iterdir()) == []
    assert keep_recordings((), lambda _: None) == ((), ())  # nothing was to be recorded


def test_a_trace_beside_its_lines_is_the_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    left(path)
    shutil.copy(part_of(path), tmp_path / "lines")
    keep_recordings(files, lambda _: None)
    whole = path.read_bytes()
    (tmp_path / "lines").rename(part_of(path))  # its server was killed between the two steps
    assert keep_recordings(files, lambda _: None)[0] == (str(path),)
    assert path.read_bytes() == whole
    assert not part_of(path).exists()


def test_a_trace_that_cannot_be_written_leaves_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.parquet"
    files = free_recordings(str(path))
    left(path)

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workloads.deep_research.trace_left.seal_trace", full)
    _, notes = keep_recordings(files, lambda _: None)
    assert notes[0].endswith("cannot be written: No space left on device; calls.parquet.part is kept")
    assert part_of(path).exists()


@pytest.mark.parametrize("taken", ["calls.parquet.part", "calls-restarted.parquet", "calls-restarted.parquet.part"])
def test_names_that_are_taken_are_refused_and_never_touched(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).touch()
    path = tmp_path / "calls.parquet"
    with pytest.raises(SpecError, match=f"{taken} is there, of an earlier recording"):
        read_tools("local", str(path))
    assert len(free_recordings(str(path))) == 1
    assert free_recordings(None) == ()


def test_a_server_that_records_has_longer_to_end(tmp_path: Path) -> None:
    def orders(recordings: tuple[Path, ...]) -> dict[str, object]:
        server = ToolServer(arguments=("x",), address=tmp_path, log=tmp_path, stats=tmp_path, recordings=recordings)
        return server.orders()

    assert orders((tmp_path / "calls.parquet",))["service_grace_s"] == RECORDING_GRACE_S
    assert "service_grace_s" not in orders(())


def test_calls_that_were_not_recorded_are_a_note_of_the_run() -> None:
    from harness.recordings import lost_records

    counters = {"recorded_calls": 56, "lost_calls": 250, "recording_error": "No space left on device"}
    (note,) = lost_records(counters)
    assert note.startswith("250 of 306 calls could not be recorded (No space left on device)")
    assert lost_records({"recorded_calls": 56, "lost_calls": 0}) == ()
    assert lost_records({}) == ()
