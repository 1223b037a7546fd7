"""What outlives a crash of the machine: a file's bytes are synced by who writes them, its name by its folder."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable.

    Raises:
        OSError: it is not there, or the disk fails.
    """
    _sync(folder)


def sync_file(path: Path) -> None:
    """Makes the bytes of a file durable that a library wrote and has closed.

    Raises:
        OSError: it is not there, or the disk fails.
    """
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
