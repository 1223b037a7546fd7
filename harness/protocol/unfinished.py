"""Files and folders that are under another name until they are whole, and what killed processes left of them.

Who makes one holds a lock (flock), which goes with the process however it ends: what no one holds was left, and is
removed when the next is made. What a living process makes stays, and so does everything on a disk without locks.

Machines may share the disk. Their processes' names differ by the machine, and not each file system tells one machine of
the locks of another (NFS mounted with `nolock` or `local_lock`, Lustre with `localflock`): what another machine made is
left alone until it has not changed for a day.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from harness.protocol.durable import sync_folder

_LOCK = "lock"
_MACHINE = r"(?:(?P<machine>[0-9a-f]{8})-)?"  # without it: made by an earlier version
_FOLDER = re.compile(rf"\.new-{_MACHINE}.*")
_FILE = re.compile(rf"\.(?P<name>.+)\.{_MACHINE}\d+\.new")  # of which file, and the process's number
_LONG_S = 86_400.0  # nobody makes anything for a day without a change to it


@contextmanager
def made_whole(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Another name beside `path`, to be written in the block; its file becomes `path` when the block ends well.

    What was at `path` stays until then, and for good where the block raises. `durable`: the file and its name outlive
    a crash of the machine.

    Raises:
        OSError: it cannot be written.
    """
    remove_left_of(path)
    temporary = path.with_name(f".{path.name}.{_machine()}-{os.getpid()}.new")
    descriptor = _held(temporary)
    try:
        try:
            yield temporary
            if durable:
                os.fsync(descriptor)
            temporary.replace(path)  # while it is held: no one takes it for left
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)
    if durable:
        sync_folder(path.parent)


@contextmanager
def made_apart(folder: Path) -> Iterator[Path]:
    """A new hidden folder in `folder`, for files that get their places together; removed with what is in it then.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        made = Path(tempfile.mkdtemp(prefix=f".new-{_machine()}-", dir=folder))
        with suppress(FileNotFoundError):  # taken for left before it was held
            descriptor = _held(made / _LOCK)
            break
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def remove_left(folder: Path) -> None:
    """Removes what killed processes left in `folder` of anything that `made_whole` and `made_apart` make there."""
    for entry in _inside(folder):
        if left := _FILE.fullmatch(entry.name):
            _remove_if_left(entry, left["machine"])
        elif (left := _FOLDER.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False):
            _remove_if_left(entry, left["machine"], _LOCK)


def remove_left_of(path: Path) -> None:
    """Removes what killed processes left beside `path` of the making of it."""
    for entry in _inside(path.parent):
        if (left := _FILE.fullmatch(entry.name)) and left["name"] == path.name:
            _remove_if_left(entry, left["machine"])


@cache
def _machine() -> str:
    """Names this machine, as its kernel does from one start to the next: containers on it share the locks, too."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        name = os.uname().nodename
    return hashlib.blake2s(name.encode(), digest_size=4).hexdigest()


def _may_be_left(entry: os.DirEntry[str], machine: str | None) -> bool:
    """Whether its lock says if it was left: it is of this machine, or has not changed for long."""
    if machine in (None, _machine()):
        return True
    with suppress(OSError):  # gone meanwhile
        inside = _inside(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else []
        return time.time() - max(one.stat(follow_symlinks=False).st_mtime for one in (entry, *inside)) > _LONG_S
    return False


def _inside(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def _held(path: Path) -> int:
    """Opens the file `path`, there or not, and holds it until the descriptor is closed."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # removed before it was held


def _remove_if_left(entry: os.DirEntry[str], machine: str | None, lock: str | None = None) -> None:
    """Removes a file, or a folder by the lock in it, that no living process holds."""
    if not _may_be_left(entry, machine):
        return
    path = Path(entry.path)
    held = path if lock is None else path / lock
    with suppress(OSError):  # gone meanwhile, or someone else's
        # A folder's lock is made where it lacks: who made the folder may be about to hold it, and finds out.
        descriptor = os.open(held, os.O_RDWR | os.O_CLOEXEC | (0 if lock is None else os.O_CREAT), 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is(held, descriptor):
                return
            if lock is None:
                path.unlink()
            else:
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
