"""Files that are written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.protocol.unfinished import made_whole


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that becomes `path` when all of it was written; what was there stays until then.

    Raises:
        OSError: it cannot be written.
    """
    with made_whole(path) as temporary, temporary.open("wb") as file:
        yield file
