"""What a node has to hand over: its growing files, in small pieces, from where the other side says it is.

Nothing is kept in memory and nothing is acknowledged: the side that asks says how much of each file it has, so a lost
answer, a new connection and a new process on either side all go on where the files stand.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Folder -> endings of files that only grow; of any host, they are told apart by the host that their names begin with.
GROWING: Mapping[str, tuple[str, ...]] = {
    "events": (".jsonl",),
    "samples": (".arrows",),
    "samples/engines": (".jsonl",),
    "logs": (".log",),
}
REPLACED = ("samples/gpus.json",)  # files that are written anew
WHOLE = -1  # the offset of a piece that replaces its file
LIMIT_BYTES = 4 * 1024 * 1024  # of one answer
SHARE_BYTES = 64 * 1024  # of one file in an answer, at least: none waits behind a longer one


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Bytes of a file. `at` is their place in it, or WHOLE; `mark` is what `have` is to say of it next time."""

    path: str  # relative, with slashes
    at: int
    mark: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One answer: pieces, and how many bytes there are beyond them."""

    pieces: tuple[Piece, ...]
    left: int


def may_come(path: str) -> bool:
    """Whether a node may write that file of a run's folder."""
    if path in REPLACED:
        return True
    parts = PurePosixPath(path)
    endings = GROWING.get(str(parts.parent), ())
    return parts.name.endswith(endings) and not parts.name.startswith(".") if endings else False


def others(root: Path) -> list[str]:
    """Files of a node's folder that are not handed over, sorted; a name that begins with a dot is still being made.

    Raises:
        OSError: a folder can't be read.
    """
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in names if not may_come(name) and not PurePosixPath(name).name.startswith("."))


def take(root: Path, have: Mapping[str, int], limit: int = LIMIT_BYTES) -> Taken:
    """What is new in `root` to a side that has `have[path]` bytes of each file (of a replaced one: its mark).

    Raises:
        OSError: a file can't be read.
    """
    news: list[tuple[str, int, int]] = []  # path, bytes they have, bytes there are
    for folder, endings in GROWING.items():
        for path in sorted((root / folder).glob("*")):
            name = f"{folder}/{path.name}"
            if path.name.endswith(endings) and path.is_file() and (size := path.stat().st_size) > have.get(name, 0):
                news.append((name, have.get(name, 0), size))
    pieces = [piece for name in REPLACED if (piece := _whole(root, name, have.get(name))) is not None]
    share = max(SHARE_BYTES, limit // max(1, len(news)))
    left = 0
    for name, begin, size in news:
        room = min(share, limit)
        data = _read(root / name, begin, room) if room > 0 else b""
        limit -= len(data)
        left += max(0, size - begin - len(data))
        if data:
            pieces.append(Piece(path=name, at=begin, mark=begin + len(data), data=data))
    return Taken(pieces=tuple(pieces), left=left)


def _whole(root: Path, name: str, mark: int | None) -> Piece | None:
    path = root / name
    try:
        changed = path.stat().st_mtime_ns
        if changed == mark:
            return None
        return Piece(path=name, at=WHOLE, mark=changed, data=path.read_bytes())
    except FileNotFoundError:
        return None


def _read(path: Path, begin: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(size)
