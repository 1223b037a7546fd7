"""Ctrl-C while a library computes that may not look for signals."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_S = 3.0


@contextmanager
def interruptible(message: str, code: int, grace_s: float = GRACE_S) -> Iterator[None]:
    """Ends the process with `code` where a SIGINT has not ended the block `grace_s` seconds after it came.

    Python handles a signal in the main thread, when that comes back from the library; the interpreter's own handler,
    which runs at once, wakes a thread here. For blocks that leave nothing half done: nothing is cleaned up. Only in the
    main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    over = threading.Event()

    def wait() -> None:
        while (came := reads.recv(64)) and signal.SIGINT not in came:
            pass
        if came and not over.wait(grace_s):
            os.write(2, f"bench: {message}\n".encode())
            os._exit(code)

    before = signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=wait, name="interrupts", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        writes.close()
        watcher.join()
        reads.close()
