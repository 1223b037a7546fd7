"""An extracting process: `python -P -m workloads.deep_research.serving.extractor`. Pages in, their texts out, in order.

It ends with its standard input, and also in the middle of a page when whoever started it is gone.
"""

import contextlib
import os
import resource
import signal
import threading
import time

from workloads.deep_research.serving.extraction import extracted
from workloads.deep_research.serving.extractors import encoded, receive, send

_MOST_MEMORY = 4 << 30  # bytes of its address space
_LOOK_S = 2.0


def main() -> None:
    """Extracts until there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > _MOST_MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, most))  # a page's MemoryError, not the machine's
    pages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked, data = receive(pages)
            found = extracted(data, asked["content_type"], asked["charset"], asked["url"], asked["limit_s"])
            send(answers, encoded(found))


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    main()
