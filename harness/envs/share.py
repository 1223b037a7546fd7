"""Environments share on disk what they have in common: identical files become hard links of one inode.

The frameworks pin many of the same wheels, PyTorch above all. pip's cache saves the second download of them, not their
second copy. See docs/adr/0005 for what is shared, what is not, and what that costs.
"""

import csv
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.envs.install import site_packages_of
from harness.envs.store import environments_folder

SMALLEST = (
    4096  # bytes, a block of the usual file systems: in the CPU environments of skyrl, areal and verl, 97 % of the
)
# bytes that can be shared are in the fifth of the files that are at least this large
PART = "link.part"
_CHUNK = 1 << 20
# Sources are left out for two reasons. People edit them where they lie, to try something, and an edit would reach the
# other environments. And a .pyc holds its source's mtime: with another environment's inode it would be out of date.
_OWN_SUFFIXES = (".py", ".pyc", ".pyo", ".pth")
_OWN_FOLDERS = (".dist-info", ".egg-info", "__pycache__")  # pip and bench rewrite these
_SKIPPED = (errno.ENOENT, errno.EXDEV, errno.EMLINK)  # says something of one file, not of the file system

_Key = tuple[str, int]  # sha256 as RECORD has it, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What one call linked. `refused`: why it stopped before its end; None when it did not."""

    files: int
    size_bytes: int  # of those files: what the disk has more room for
    sources: tuple[str, ...]  # names of the folders that they are shared with now
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of the files in an environment, and of those among them that another environment has too (same inode)."""

    size_bytes: int
    shared_bytes: int


def share_lock() -> Path:
    """The lock of who links, in whatever environment: of two builds that end together, the later one sees the other.

    Taken while the environment's own lock is held, never the other way round.
    """
    return environments_folder() / "share.lock"


def share(folder: Path, others: Sequence[Path]) -> Shared:
    """Makes files of one environment hard links to the identical ones of others. Call with its lock and `share_lock`.

    A file is replaced when another's RECORD lists the same sha256 and size, both are regular files with the same owner
    and mode on the same file system, and a comparison of all their bytes agrees. It is replaced at once (a link beside
    it, then a rename), so that an interruption leaves whole files only, and the next call finishes.

    Args:
        folder: the environment whose files are replaced; nothing may run from it.
        others: complete environments whose files stay; the first that has a file wins. One that is removed meanwhile
            does no harm.

    Returns:
        what was linked. A file system without hard links is no error: `refused` says so.
    """
    part = folder / PART
    files, size_bytes = 0, 0
    sources: list[str] = []
    refused: str | None = None
    with suppress(FileNotFoundError):
        part.unlink()  # of an interrupted call
    mine = {path: key for path, key in _listed(folder) if key[1] >= SMALLEST}
    theirs = _candidates(others, set(mine.values()))
    try:
        for path, key in mine.items():
            for source, owner in theirs.get(key, ()):
                linked = _link(source, path, part, size=key[1])
                if linked is None:
                    continue
                if linked:
                    files, size_bytes = files + 1, size_bytes + key[1]
                    sources.append(owner)
                break
    except OSError as error:
        refused = f"hard links cannot be made there: {error.strerror or error}"
    return Shared(files=files, size_bytes=size_bytes, sources=tuple(dict.fromkeys(sources)), refused=refused)


def usages(folders: Sequence[Path]) -> tuple[dict[Path, Usage], int]:
    """How large each environment is, and all of them together in bytes, what they share counted once.

    Looks at every file: about a second for each environment.
    """
    sizes: dict[Path, int] = {}
    linked: dict[Path, dict[tuple[int, int], int]] = {}
    owners: dict[tuple[int, int], int] = defaultdict(int)
    for folder in folders:
        sizes[folder], linked[folder] = _walk(folder)
        for inode in linked[folder]:
            owners[inode] += 1
    found = {
        folder: Usage(sizes[folder], sum(size for inode, size in linked[folder].items() if owners[inode] > 1))
        for folder in folders
    }
    counted = {inode: size for inodes in linked.values() for inode, size in inodes.items()}
    again = sum(size * (owners[inode] - 1) for inode, size in counted.items())
    return found, sum(sizes.values()) - again


def _listed(folder: Path) -> Iterator[tuple[str, _Key]]:
    """Files in site-packages that may be shared, as the RECORDs list them; whether they are there is not looked at."""
    site_packages = site_packages_of(folder / "venv")
    root = os.path.realpath(site_packages)
    inside: dict[str, bool] = {}
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        try:
            text = record.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for row in csv.reader(text.splitlines()):
            name, digest, size = (*row, "", "", "")[:3]
            if not digest.startswith("sha256=") or not size.isdecimal() or not _may_share(name):
                continue
            parent, _, last = name.rpartition("/")
            path = f"{root}/{parent}" if parent else root
            if path not in inside:  # a link to a folder may lead anywhere
                inside[path] = os.path.realpath(path) == path
            if inside[path]:
                yield f"{path}/{last}", (digest, int(size))


def _may_share(name: str) -> bool:
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "" in parts:  # bin/ and share/ of the venv are listed as ../../
        return False
    return not name.endswith(_OWN_SUFFIXES) and not any(part.endswith(_OWN_FOLDERS) for part in parts[:-1])


def _candidates(others: Sequence[Path], wanted: set[_Key]) -> Mapping[_Key, list[tuple[str, str]]]:
    found: dict[_Key, list[tuple[str, str]]] = defaultdict(list)
    for other in others:
        for path, key in _listed(other):
            if key in wanted:
                found[key].append((path, other.name))
    return found


def _link(source: str, path: str, part: Path, *, size: int) -> bool | None:
    """Replaces `path` by a link to `source`: True when done, False when it is one already, None when it may not be.

    Raises:
        OSError: the file system refuses; `path` is as it was.
    """
    before = _fit(source, path, size)
    if before is None:
        return None
    if before[0][:2] == before[1][:2]:
        return False
    # RECORD is what pip was told; only the bytes say what is there now.
    if not _same_bytes(source, path) or _fit(source, path, size) != before:
        return None
    try:
        os.link(source, part, follow_symlinks=False)
    except OSError as error:
        if error.errno in _SKIPPED:
            return None
        raise
    try:
        os.replace(part, path)  # noqa: PTH105 - thousands of files
    finally:
        part.unlink(missing_ok=True)
    return True


_State = tuple[int, int, int]  # device, inode, time of the last change of the content in ns


def _fit(source: str, path: str, size: int) -> tuple[_State, _State] | None:
    try:
        one, other = os.lstat(source), os.lstat(path)
    except OSError:
        return None
    same = one.st_dev == other.st_dev and one.st_size == other.st_size == size
    same = same and (one.st_mode, one.st_uid, one.st_gid) == (other.st_mode, other.st_uid, other.st_gid)
    if not same or not stat.S_ISREG(one.st_mode):
        return None
    return (one.st_dev, one.st_ino, one.st_mtime_ns), (other.st_dev, other.st_ino, other.st_mtime_ns)


def _same_bytes(source: str, path: str) -> bool:
    try:
        with open(source, "rb", 0) as one, open(path, "rb", 0) as other:  # noqa: PTH123 - thousands of files
            while True:
                mine, theirs = one.read(_CHUNK), other.read(_CHUNK)
                if mine != theirs:
                    return False
                if not mine:
                    return True
    except OSError:
        return False


def _walk(folder: Path) -> tuple[int, dict[tuple[int, int], int]]:
    """Bytes of all files, links not followed, each inode once; and the inodes with more than one name, with sizes."""
    total = 0
    linked: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - 50,000 files: Path costs 3x
            except OSError:
                continue  # removed meanwhile
            if found.st_nlink == 1:
                total += found.st_size
            else:
                linked[found.st_dev, found.st_ino] = found.st_size
    return total + sum(linked.values()), linked
