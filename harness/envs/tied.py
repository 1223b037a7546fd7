"""Runs a module as `python -m` does, but never longer than the process that started it (Linux).

A build whose harness is killed with SIGKILL gives its lock back at once; an installer that went on without it would
write into the same folder as the next one. Arguments: the parent's pid, the module, the module's arguments.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ties this process to its parent, then becomes the module."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the tie
        sys.exit("the process that started this is gone")
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
