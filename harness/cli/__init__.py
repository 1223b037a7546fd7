"""The `bench` command. Nothing is imported with this module, so that Ctrl-C is heard from the first moment on."""

import os
import sys
from collections.abc import Sequence


def call(arguments: Sequence[str]) -> int:
    """Runs one command line; returns its exit code. Errors are one line on stderr, never a traceback."""
    try:
        from harness.cli.verbs import answer

        return answer(arguments)
    except KeyboardInterrupt:  # before `answer` hears it, or while it says what went wrong
        sys.stderr.write("bench: interrupted\n")
        return 130


def main() -> None:
    """Entry point of the `bench` script."""
    code = call(sys.argv[1:])
    if code in (74, 129, 141):  # output found no room, the terminal went away, a pipe was closed
        # What is still buffered has nowhere to go, and must not fail once more while Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
    sys.exit(code)
