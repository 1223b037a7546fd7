"""Which processes are ended when work that was spread over them fails: its own, and no others."""

import atexit
import multiprocessing
import time
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from results.spread import beside, spread


def nothing() -> None:
    """A process's work of no time."""


def make_folder(folder: Path) -> None:
    """As matplotlib does where it may not write into the user's."""
    folder.mkdir()
    atexit.register(folder.rmdir)
    print(f"made {folder.name}")


def start_twice(process: SpawnProcess) -> None:
    process.start()
    process.start()


def test_those_that_something_else_started_meanwhile_go_on() -> None:
    mine = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    try:
        with pytest.raises(AssertionError, match="cannot start a process twice"), beside(nothing):
            start_twice(mine)
        assert mine.is_alive()
        assert multiprocessing.active_children() == [mine]
    finally:
        mine.kill()
        mine.join()


def test_what_no_one_waited_for_does_not_hold_up_the_end() -> None:
    """As an import that another process has not finished when all pictures are drawn."""
    with beside(nothing) as submit:
        submit(nothing).result(60)
        left = submit(partial(time.sleep, 600))
    assert left.done()
    assert multiprocessing.active_children() == []


def test_what_a_process_does_at_its_end_is_done(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with beside(nothing) as submit:
        submit(partial(make_folder, tmp_path / "a")).result(60)
        assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    assert list(spread(make_folder, [tmp_path / "b"], 1)) == [None]
    assert list(tmp_path.iterdir()) == []
    assert multiprocessing.active_children() == []
    assert capfd.readouterr().out == "made a\nmade b\n"


def test_one_that_does_not_leave_is_ended() -> None:
    with beside(nothing) as submit:
        submit(partial(atexit.register, time.sleep, 600)).result(60)
    assert multiprocessing.active_children() == []
