"""What the recorder leaves on disk: in order, under load, after a fork, and when the disk is full."""

import errno
import json
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.protocol.events import Bye, Event, Failure, Gate, Hello, Metric, Open, Span, read_events
from harness.protocol.recorder import Recorder, RecorderFullError, make_hello


def make(path: Path) -> Recorder:
    return Recorder(path, make_hello("run-1", "controller", versions={"bench": "0.1.0"}))


def events_of(path: Path) -> list[Event]:
    read = list(read_events(path))
    assert not [event for event in read if isinstance(event, ValueError)]
    return [event for event in read if not isinstance(event, ValueError)]


def test_hello_first_bye_last_and_everything_between(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    step = recorder.open("train", "policy_train", pool="train", unit="u0", step=3, trajectory_id="p1-s0-a0", turn=2)
    end_ns = recorder.close(step, attributes={"bytes": 7, "engine": None, "note": 'quo"te\nnew line', "ratio": 0.5})
    recorder.metric("loss", 0.25, unit="nats", step=3, labels={"source": "trainer"})
    recorder.metric("probe", values=(1.0, -2.5))
    recorder.gate(False, "cap", in_flight=4, cap=4)
    recorder.failure("tool", RuntimeError("boom"))
    recorder.failure("worker", "plain words")
    recorder.bye()

    hello, opened, span, loss, probe, gate, boom, words, bye = events_of(tmp_path / "e.jsonl")
    assert isinstance(hello, Hello)
    assert (hello.run_id, hello.role, hello.pid, hello.versions) == (
        "run-1",
        "controller",
        os.getpid(),
        {"bench": "0.1.0"},
    )
    assert isinstance(opened, Open)
    assert isinstance(span, Span)
    assert (span.open_id, span.start_ns, span.end_ns) == (opened.id, opened.start_ns, end_ns)
    assert replace(span, end_ns=0, start_ns=0, open_id=None, attributes={}) == Span(
        phase="train",
        native_name="policy_train",
        start_ns=0,
        end_ns=0,
        pool="train",
        unit="u0",
        step=3,
        trajectory_id="p1-s0-a0",
        turn=2,
    )
    assert span.attributes == {"bytes": 7, "engine": None, "note": 'quo"te\nnew line', "ratio": 0.5}
    assert isinstance(loss, Metric)
    assert (loss.value, loss.unit, loss.labels) == (0.25, "nats", {"source": "trainer"})
    assert isinstance(probe, Metric)
    assert (probe.value, probe.values) == (None, (1.0, -2.5))
    assert isinstance(gate, Gate)
    assert (gate.open, gate.in_flight) == (False, 4)
    assert isinstance(boom, Failure)
    assert (boom.type, boom.message) == ("RuntimeError", "boom")
    assert isinstance(words, Failure)
    assert words.type == "message"
    assert isinstance(bye, Bye)
    assert (bye.events, bye.lost_events) == (8, 0)
    assert bye.recorder_ns > 0


def test_fast_path_and_encoder_agree(tmp_path: Path) -> None:
    # Spans are written by a format string; the line must mean what `encode` would have written.
    recorder = make(tmp_path / "e.jsonl")
    span = Span(
        phase=None,
        native_name='na"me\\\u20ac\n',
        start_ns=1,
        end_ns=2,
        container=True,
        attributes={"x": "\u2028"},
    )
    recorder.span(span.phase, span.native_name, 1, 2, container=True, attributes=span.attributes)
    recorder.emit(span)
    recorder.shut()
    fast, slow = events_of(tmp_path / "e.jsonl")[1:]
    assert fast == slow == span


def test_timed_records_a_block_that_raises(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    with pytest.raises(RuntimeError, match="inside"), recorder.timed("data", "load", pool="train", container=True):
        raise RuntimeError("inside")
    recorder.shut()
    _, opened, span = events_of(tmp_path / "e.jsonl")
    assert isinstance(opened, Open)
    assert isinstance(span, Span)
    assert (span.phase, span.container, span.open_id) == ("data", True, opened.id)
    assert span.end_ns >= span.start_ns


def test_unannounced_spans_write_one_line(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    recorder.close(recorder.open("tool", "search_engine", announce=False))
    recorder.shut()
    assert [type(event) for event in events_of(tmp_path / "e.jsonl")] == [Hello, Span]


def test_each_line_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    # A reader in another process sees it: nothing waits in a buffer that a SIGKILL would lose.
    path = tmp_path / "e.jsonl"
    recorder = make(path)
    recorder.gate(True, "start")
    assert [type(event) for event in events_of(path)] == [Hello, Gate]
    recorder.shut()


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    code = f"""
        import os, signal
        from pathlib import Path
        from harness.protocol.recorder import Recorder, make_hello
        recorder = Recorder(Path({str(path)!r}), make_hello("run-1", "controller"))
        for i in range(500):
            recorder.span("tool", "search", i, i + 1, trajectory_id=f"p{{i}}-s0-a0")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60, check=False)
    assert done.returncode == -9
    assert len(events_of(path)) == 501


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")

    def work(number: int) -> None:
        for i in range(200):
            recorder.close(recorder.open("tool", f"native-{number}", turn=i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.bye()
    events = events_of(tmp_path / "e.jsonl")
    assert len(events) == 1 + 8 * 200 * 2 + 1
    ids = [event.id for event in events if isinstance(event, Open)]
    assert len(set(ids)) == len(ids)


def test_an_existing_file_is_appended_to_never_truncated(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    make(path).shut()
    make(path).shut()
    assert len(events_of(path)) == 2


def test_shut_twice_is_harmless(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    recorder.bye()
    recorder.shut()
    assert len(events_of(tmp_path / "e.jsonl")) == 2


def test_cost_is_summed(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    before = recorder.cost_ns
    began = time.perf_counter_ns()
    for _ in range(100):
        recorder.span("tool", "search", 1, 2)
    took = time.perf_counter_ns() - began
    assert before < recorder.cost_ns <= before + took
    recorder.shut()


def test_a_forked_child_with_its_own_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_RUN_ID", "run-1")
    monkeypatch.setenv("BENCH_EVENTS", str(tmp_path))
    code = """
        import os
        from harness.protocol.recorder import Recorder
        parent = Recorder.from_environment("controller")
        child = os.fork()
        if child == 0:
            mine = Recorder.from_environment("engine", pool="rollout", gpu_uuids=("GPU-1",))
            mine.span("generation", "turn", 1, 2)
            mine.bye()
            os._exit(0)
        os.waitpid(child, 0)
        parent.span("train", "policy_train", 3, 4)
        parent.bye()
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], timeout=60, check=True)
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 2
    by_role = {}
    for path in files:
        hello, span, bye = events_of(path)
        assert isinstance(hello, Hello)
        assert isinstance(span, Span)
        assert isinstance(bye, Bye)
        assert path.stem == f"{hello.host}-{hello.pid}"
        by_role[hello.role] = (hello, span)
    assert by_role["engine"][0].gpu_uuids == ("GPU-1",)
    assert by_role["controller"][1].phase == "train"


def test_without_its_variables_there_is_no_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_EVENTS", raising=False)
    with pytest.raises(KeyError, match="BENCH_EVENTS"):
        Recorder.from_environment("controller")


def test_a_full_disk_is_an_error_at_once() -> None:
    with pytest.raises(RecorderFullError, match="/dev/full") as caught:
        make(Path("/dev/full"))
    assert caught.value.errno == errno.ENOSPC


def test_a_line_cut_by_a_limit_costs_itself_only(tmp_path: Path) -> None:
    # RLIMIT_FSIZE cuts a write as a full disk does: part of the line is written, then the room comes back.
    path = tmp_path / "e.jsonl"
    code = f"""
        import resource, signal, sys
        from pathlib import Path
        from harness.protocol.recorder import Recorder, RecorderFullError, make_hello
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        path = Path({str(path)!r})
        recorder = Recorder(path, make_hello("run-1", "controller"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 30, hard))
        errors = 0
        for i in range(2):
            try:
                recorder.span("tool", "lost", i, i)
            except RecorderFullError:
                errors += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        recorder.span("tool", "kept", 7, 8)
        recorder.bye()
        sys.exit(errors)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60, check=False)
    assert done.returncode == 2
    read = list(read_events(path))
    damaged = [event for event in read if isinstance(event, ValueError)]
    assert len(damaged) == 1
    kept = [event for event in read if isinstance(event, Span)]
    assert [span.native_name for span in kept] == ["kept"]
    bye = read[-1]
    assert isinstance(bye, Bye)
    assert bye.lost_events == 2
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY  # this process was left alone


def test_lines_are_json_objects_with_a_kind(tmp_path: Path) -> None:
    recorder = make(tmp_path / "e.jsonl")
    recorder.span("tool", "search", 1, 2)
    recorder.bye()
    lines = (tmp_path / "e.jsonl").read_text().splitlines()
    assert [json.loads(line)["k"] for line in lines] == ["hello", "span", "bye"]
