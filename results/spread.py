"""Work spread over processes of this machine: in order, ended by what interrupts it, and never outliving its parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def spread(work: Callable[[Given], Made], payloads: Sequence[Given], workers: int) -> Iterator[Made]:
    """What `work` makes of each payload, in their order, as it becomes ready.

    `work` is a function of a module, and what it takes and makes can be pickled. Processes are spawned: a fork of one
    with the threads of Arrow or a numeric library in it can hang.

    Raises:
        Exception: what `work` raises; nothing is left running then.
    """
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    done = False
    try:
        # A terminal's Ctrl-C goes to all processes at once: they inherit that it is blocked, and this one ends them.
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            made = pool.map(work, payloads)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        yield from made
        done = True
    finally:
        if not done:
            for process in set(multiprocessing.active_children()) - before:
                process.kill()
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a process of the pool: ends it once the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
