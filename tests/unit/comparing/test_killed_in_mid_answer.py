"""Processes that are killed while they write what they made: who waits for it is told, and does not wait for ever."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

import pytest

from results.spread import beside, spread

HANG_S = 60
LARGE = 20_000_000  # bytes: far more than a pipe takes at once


class Slow:
    """A reader that takes the first part of a large answer, and the rest when it is told to."""

    def __init__(self) -> None:
        self.midway = threading.Event()
        self.go = threading.Event()

    def wait(self) -> None:
        self.midway.set()
        self.go.wait(HANG_S)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    found, read = Slow(), connection.Connection._recv  # type: ignore[attr-defined]

    def receive(self: Any, size: int, *given: Any) -> Any:
        if size >= LARGE:
            found.wait()
        return read(self, size, *given)

    monkeypatch.setattr(connection.Connection, "_recv", receive)
    yield found
    found.go.set()


def nothing() -> None:
    pass


def large() -> bytes:
    return b"x" * LARGE


def large_and_killed(number: int = 0) -> bytes:
    if number == 0:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()  # while it is written
    return large()


def test_who_gives_up_does_not_wait_for_the_rest(slow: Slow) -> None:
    def give_up() -> None:
        with beside(nothing, 2) as submit:
            submit(large)
            assert slow.midway.wait(HANG_S)
            threading.Timer(0.5, slow.go.set).start()
            raise RuntimeError("given up")

    through = threading.Event()

    def run() -> None:
        with pytest.raises(RuntimeError, match="given up"):
            give_up()
        through.set()

    threading.Thread(target=run, daemon=True).start()
    assert through.wait(HANG_S)


def test_what_is_left_of_the_others_is_told_as_broken(slow: Slow) -> None:
    def wait() -> None:
        with beside(nothing, 2) as submit:
            made = submit(large_and_killed)
            assert slow.midway.wait(HANG_S)
            threading.Timer(2.0, slow.go.set).start()
            made.result()

    told = threading.Event()

    def run() -> None:
        with pytest.raises(BrokenProcessPool):
            wait()
        told.set()

    threading.Thread(target=run, daemon=True).start()
    assert told.wait(HANG_S)


def test_work_that_is_spread_is_told_as_broken_too(slow: Slow) -> None:
    told = threading.Event()

    def run() -> None:
        with pytest.raises(BrokenProcessPool):
            list(spread(large_and_killed, [0, 1, 2], 2))
        told.set()

    threading.Timer(5.0, slow.go.set).start()
    threading.Thread(target=run, daemon=True).start()
    assert told.wait(HANG_S)


def test_without_work_nothing_is_left_waiting() -> None:
    before = threading.active_count()
    assert list(spread(large_and_killed, [], 2)) == []
    assert threading.active_count() == before
