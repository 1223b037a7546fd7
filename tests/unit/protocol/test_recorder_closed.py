"""A recorder that was closed: its descriptor's number may be another file's by then."""

import os
import threading

import pytest

from harness.protocol import recorder as module
from harness.protocol.recorder import Recorder, RecorderFullError, make_hello

HANG_S = 30.0


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path / "a.jsonl", make_hello("run-1", "controller"))
    yield made
    made.shut()


def test_a_late_line_is_refused_and_gets_into_no_other_file(recorder, tmp_path):
    """Threads of engines go on for a moment, while the trainer writes its checkpoint."""
    descriptor = recorder._fd
    recorder.bye()
    before = recorder.path.read_bytes()
    other = os.open(tmp_path / "checkpoint", os.O_WRONLY | os.O_CREAT)
    try:
        assert other == descriptor  # the kernel gives the lowest that is free
        with pytest.raises(RecorderFullError, match=r"a\.jsonl"):
            recorder.metric("late", 1.0)
        assert (tmp_path / "checkpoint").read_bytes() == b""
    finally:
        os.close(other)
    assert recorder.path.read_bytes() == before
    assert recorder.lost_events == 1


def test_closing_it_from_two_threads_at_once_closes_no_other_file(recorder, monkeypatch):
    """The second one comes before the first has closed it, and waits for the lock."""
    begun, go_on, failed = threading.Event(), threading.Event(), []
    fsync = os.fsync

    class Closed(threading.Event):
        def is_set(self):
            return False  # as both see it

    def slow(fd):
        begun.set()
        assert go_on.wait(HANG_S)
        fsync(fd)

    def shut():
        try:
            recorder.shut()
        except OSError as error:
            failed.append(error)

    recorder._closed = Closed()
    with monkeypatch.context() as patched:
        patched.setattr(module.os, "fsync", slow)
        both = [threading.Thread(target=shut) for _ in range(2)]
        both[0].start()
        assert begun.wait(HANG_S)
        both[1].start()
        go_on.set()
        for thread in both:
            thread.join(HANG_S)
    recorder._closed = threading.Event()
    assert not failed


def test_a_file_that_cannot_be_made_durable_is_closed_all_the_same(recorder, monkeypatch):
    descriptor = recorder._fd

    def fail(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(module.os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            recorder.shut()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
