"""What a recorder wrote is made durable within a period, and a process that writes nothing is not woken up for it."""

import errno
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.protocol import recorder as module
from harness.protocol.recorder import Recorder, RecorderFullError, make_hello

HANG_S = 30.0
PERIOD_S = 0.05


def is_of(folder, fd):
    return Path(f"/proc/self/fd/{fd}").readlink().parent == folder


@pytest.fixture
def synced(tmp_path, monkeypatch):
    """Sizes of the file at each sync; those that other tests' recorders still make are left out."""
    sizes = []

    def fsync(fd):
        size = os.fstat(fd).st_size
        if is_of(tmp_path, fd):
            sizes.append(size)

    monkeypatch.setattr(module, "FSYNC_PERIOD_S", PERIOD_S)
    names = {name: getattr(os, name) for name in dir(os) if not name.startswith("__")}
    monkeypatch.setattr(module, "os", SimpleNamespace(**(names | {"fsync": fsync})))
    return sizes


@pytest.fixture
def recorder(tmp_path, synced):
    made = Recorder(tmp_path / "a.jsonl", make_hello("run-1", "controller"))
    yield made
    made.shut()


def wait_for(what):
    end = time.monotonic() + HANG_S
    while not what():
        assert time.monotonic() < end
        time.sleep(PERIOD_S / 10)


def with_thread(path):
    """A recorder and its thread; other tests may have left some that wait."""
    before = set(threading.enumerate())
    recorder = Recorder(path, make_hello("run-1", "controller"))
    (thread,) = set(threading.enumerate()) - before
    return recorder, thread


def size_of(recorder):
    return recorder.path.stat().st_size


def test_all_that_was_written_is_synced_without_a_further_write(recorder, synced):
    for _ in range(20):
        recorder.metric("a", 1.0)
        time.sleep(PERIOD_S / 7)
    wait_for(lambda: synced and synced[-1] == size_of(recorder))


def test_what_is_written_during_a_sync_is_synced_after_it(tmp_path, monkeypatch, synced):
    begun, go_on = threading.Event(), threading.Event()
    fsync = module.os.fsync

    def slow(fd):
        fsync(fd)  # what comes now is not in it
        if is_of(tmp_path, fd):
            begun.set()
            assert go_on.wait(HANG_S)

    monkeypatch.setattr(module.os, "fsync", slow)
    recorder = Recorder(tmp_path / "b.jsonl", make_hello("run-1", "controller"))
    assert begun.wait(HANG_S)
    recorder.metric("a", 1.0)
    assert synced[-1] < size_of(recorder)
    go_on.set()
    wait_for(lambda: synced[-1] == size_of(recorder))
    recorder.shut()


def test_without_a_write_nothing_is_synced(recorder, synced):
    wait_for(lambda: synced)
    before = len(synced)
    time.sleep(6 * PERIOD_S)
    assert len(synced) == before
    recorder.metric("a", 1.0)
    wait_for(lambda: len(synced) > before)


@pytest.mark.parametrize("writes", [False, True])
def test_the_thread_ends_with_the_recorder(tmp_path, synced, writes):
    """Whatever it is doing just then: waiting for a write, or for a sync to be due."""
    recorder, thread = with_thread(tmp_path / "c.jsonl")
    wait_for(lambda: synced)
    if writes:
        recorder.metric("a", 1.0)
    recorder.shut()
    thread.join(HANG_S)
    assert not thread.is_alive()


def test_a_recorder_that_is_shut_just_before_a_sync_has_its_thread_end(tmp_path, synced, monkeypatch):
    """The period is over, and the thread has not looked yet whether it is still to sync."""
    recorder, thread = with_thread(tmp_path / "d.jsonl")
    shut = []

    class Closed(threading.Event):
        def wait(self, timeout=None):
            over = super().wait(timeout)
            if not over and not shut:
                fd = recorder._fd
                recorder.shut()
                shut.append(os.open(recorder.path, os.O_RDONLY))  # another file has its number now
                assert shut == [fd]
                return False
            return over

    before = recorder._closed
    wait_for(lambda: synced)
    recorder._closed = Closed()
    assert not before.is_set()
    recorder.metric("a", 1.0)
    thread.join(HANG_S)
    os.close(*shut)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("number", "lost"), [(errno.EIO, True), (errno.EDQUOT, True), (errno.EFBIG, True), (errno.EINVAL, False)]
)
def test_that_a_sync_lost_lines_is_told_by_the_next_ones(tmp_path, synced, monkeypatch, number, lost):
    """The kernel says so once, to the thread that syncs, and the sync at the end succeeds."""
    failing = [OSError(number, os.strerror(number))]
    fsync = module.os.fsync

    def once(fd):
        if failing and is_of(tmp_path, fd):
            raise failing.pop()
        fsync(fd)

    monkeypatch.setattr(module.os, "fsync", once)
    recorder, thread = with_thread(tmp_path / "e.jsonl")
    thread.join(HANG_S)
    assert not failing
    for _ in range(2):
        if lost:
            with pytest.raises(RecorderFullError, match=r"e\.jsonl"):
                recorder.metric("a", 1.0)
        else:
            recorder.metric("a", 1.0)
    assert recorder.lost_events == 2 * lost
    recorder.shut()
