"""The short temporary folder of a run: made, emptied of its logs, removed."""

import os
import shutil
import tempfile
from pathlib import Path

LOG_SUFFIXES = (".log", ".out", ".err", ".txt")
TAIL_BYTES = 1024 * 1024
MOST_FILES = 64
# Ray puts sockets under its temporary folder (…/session_<time>/sockets/plasma_store); a socket path holds < 108 bytes.
LONGEST_PATH = 60


def make_scratch() -> Path:
    """A new folder with a path short enough for sockets beneath it: in TMPDIR when that is short, else in /tmp.

    Raises:
        OSError: neither can be written.
    """
    inside = tempfile.gettempdir()
    if len(inside) > LONGEST_PATH - len("/bench-12345678"):
        inside = "/tmp"
    return Path(tempfile.mkdtemp(prefix="bench-", dir=inside))


def clear_scratch(scratch: Path, logs: Path) -> int:
    """Keeps the tails of the newest non-empty logs under `logs/scratch`, then removes the folder.

    At most MOST_FILES files and TAIL_BYTES bytes of each; what can't be read or written is left out.

    Returns:
        The number of files kept.
    """
    if not scratch.is_dir():
        return 0
    kept = 0
    for _, path in sorted(_log_files(scratch), reverse=True)[:MOST_FILES]:
        target = logs / "scratch" / path.relative_to(scratch)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as source:
                size = source.seek(0, os.SEEK_END)
                source.seek(max(0, size - TAIL_BYTES))
                target.write_bytes(source.read(TAIL_BYTES))
        except OSError:
            continue
        kept += 1
    shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _log_files(scratch: Path) -> list[tuple[float, Path]]:
    found = []
    for folder, _, names in os.walk(scratch):  # links (Ray's session_latest) are not followed
        for name in names:
            path = Path(folder) / name
            if path.suffix in LOG_SUFFIXES and path.is_file() and not path.is_symlink():
                stat = path.stat()
                if stat.st_size:
                    found.append((stat.st_mtime, path))
    return found
