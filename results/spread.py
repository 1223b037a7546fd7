"""Work spread over processes of this machine: in order, ended by what interrupts it, and never outliving its parent."""

import atexit
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")
Progress = Callable[[int, int], None]  # how many are done, of how many
LAST = -1000  # of what a process does when it is through
LEAVE_S = 0.5  # for a process that is through; one that is still being started may need longer, and is ended


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def spread(
    work: Callable[[Given], Made],
    payloads: Sequence[Given],
    workers: int,
    *,
    at_once: int = 1,
    begin: Callable[[], None] | None = None,
) -> Iterator[Made]:
    """What `work` makes of each payload, in their order, as it becomes ready.

    `work` is a function of a module, and what it takes and makes can be pickled; so is `begin`, which each process
    calls first. `at_once` payloads are handed over together. Processes are spawned: a fork of one with the threads of
    Arrow or a numeric library in it can hang.

    Raises:
        Exception: what `work` raises; nothing is left running then.
    """
    with _pool(workers, begin) as pool:
        with pool.starting():
            made = pool.map(work, payloads, chunksize=at_once)
        yield from made


@contextmanager
def beside(begin: Callable[[], None], workers: int = 1) -> Iterator[Callable[[Callable[[], Made]], "Future[Made]"]]:
    """Processes beside this one, until the end of the block: what no one has waited for by then is given up.

    What is submitted is a function of a module, or a `functools.partial` of one, and can be pickled with what it
    makes. The processes are started at once, and call `begin` first. The block leaves nothing running.
    """
    with _pool(workers, None) as pool:
        with pool.starting():
            for _ in range(workers):
                pool.submit(begin)
        yield pool.submit


class _Spawning(SpawnContext):
    """Starts processes, and knows which: the pool does not say, and others of this one's are not its to end."""

    def __init__(self) -> None:
        self.started: list[BaseProcess] = []
        super().__init__()

    def Process(self, *given: Any, **named: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        made = SpawnProcess(*given, **named)
        self.started.append(made)
        return made


class _Pool(ProcessPoolExecutor):
    """Processes that end together: once one of them was killed, or this one gives up.

    What a process was killed in the middle of writing, the reader waits for as long as anyone holds the other end of
    the pipe: this process, which never writes to it, or another of them.
    """

    def __init__(self, workers: int, begin: Callable[[], None] | None) -> None:
        self._spawning = _Spawning()
        self._ending = threading.Event()
        super().__init__(workers, self._spawning, initializer=_begin, initargs=(pickle.dumps(begin),))

    @contextmanager
    def starting(self) -> Iterator[None]:
        """What is submitted first: with it, all processes start."""
        with _uninterrupted():
            yield
            self._write_nothing()
            if self._spawning.started:  # nothing to do starts none, and none would be waited for for ever
                threading.Thread(target=self._watch, name="processes", daemon=True).start()

    def _watch(self) -> None:
        wait([process.sentinel for process in self._spawning.started])
        if not self._ending.is_set():
            self.kill()

    def kill(self) -> None:
        """Ends all of them at once."""
        self._write_nothing()
        for process in self._spawning.started:
            if process.pid is not None:  # else it did not come so far
                process.kill()

    def _write_nothing(self) -> None:
        results = getattr(self, "_result_queue", None)  # None once it has ended
        if results is not None:
            results._writer.close()

    def end(self) -> None:
        """Ends all of them, and waits until they have ended.

        Those that are through leave by themselves, and clear up what they made on disk. Where something was given up,
        or one takes too long, they are ended.
        """
        self._ending.set()
        manager: threading.Thread | None = getattr(self, "_executor_manager_thread", None)  # None: nothing to do came
        if not self._pending_work_items:
            self.shutdown(wait=False)
            if manager is not None:
                manager.join(LEAVE_S)
        self.kill()
        self.shutdown(cancel_futures=True)
        if manager is not None:
            manager.join()


@contextmanager
def _pool(workers: int, begin: Callable[[], None] | None) -> Iterator[_Pool]:
    pool = _Pool(workers, begin)
    try:
        yield pool
    finally:
        pool.end()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What starts processes: Ctrl-C goes to all of a terminal's at once; they inherit that it is blocked, and this
    one ends them."""
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def told(made: Iterable[Made], total: int, progress: Progress | None) -> list[Made]:
    """All of what is made, `progress` told of each as it comes."""
    found = []
    for one in made:
        found.append(one)
        if progress is not None:
            progress(len(found), total)
    return found


def _begin(pickled: bytes) -> None:
    """In a process of the pool, first: `pickled` is what it calls then, if anything."""
    # The cores are shared out as processes already. Before numpy: what is called may bring it in as it is unpickled.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _end_with_parent()
    Finalize(None, _leave, exitpriority=LAST)
    begin: Callable[[], None] | None = pickle.loads(pickled)
    if begin is not None:
        begin()


def _leave() -> None:
    """In a process of the pool that is through, last: ends it at once, and does not first undo its imports.

    What was to be done at its end is done: matplotlib removes its folder where it had to make one for itself.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it was closed, or there is none
            stream.flush()
    os._exit(0)


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
