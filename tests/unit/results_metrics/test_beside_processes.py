"""Which processes are ended when work that was spread over them fails: its own, and no others."""

import multiprocessing
import time
from functools import partial
from multiprocessing.context import SpawnProcess

import pytest

from results.spread import beside


def nothing() -> None:
    """A process's work of no time."""


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
