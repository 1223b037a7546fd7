"""Recordings that were left as lines, because the tool server was killed before it had made them whole."""

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from harness.protocol.errors import EnvError
from harness.protocol.unfinished import remove_left_of
from workloads.deep_research.trace import seal_trace
from workloads.deep_research.trace_names import part_of


def seal_left(path: Path) -> bool:
    """Makes the trace `path` of the lines beside it, if there is a call among them, and takes those away.

    Returns:
        False: there is none, or whoever writes them is alive.

    Raises:
        EnvError: `path` can't be written; the lines stay as they are.
        SpecError: the lines are no recording.
    """
    part = part_of(path)
    try:
        with part.open("rb") as file:
            if _written_by_another(file):
                return False
            if _is_bare(file):
                part.unlink()
                return False
            remove_left_of(path)
            if not path.exists():  # a trace that has its name is whole
                seal_trace(part, path)
            part.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EnvError(f"{path}: cannot be written: {error.strerror or error}; {part.name} is kept") from None
    return True


def _is_bare(file: BinaryIO) -> bool:
    """Whether it holds what a recording begins with, whole or cut, and nothing after it."""
    file.readline()
    return not file.read(1)


def _written_by_another(file: BinaryIO) -> bool:
    """Whether the writer of the lines still holds them; False on a disk that has no locks."""
    with suppress(OSError):
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
