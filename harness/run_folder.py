"""The folder of a run: made once, locked while its harness lives, sealed at its end; and its status, read from disk."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.protocol.errors import NO_SPACE, EnvError, SpecError
from harness.protocol.names import NOT_UTF8, is_text
from harness.protocol.spec import RunSpec
from harness.protocol.unfinished import made_whole
from results.status import held, read_meta

BALLAST_BYTES = 1024 * 1024
FULL_BYTES = 256 * 1024  # with less than this free, the next write is as good as lost
STATUSES = ("running", "finished", "failed", "interrupted", "timeout", "stalled")
UNKNOWN = "unknown (meta.json cannot be read)"


@dataclass(slots=True)
class RunFolder:
    """A run folder being written. `meta` is what meta.json holds; `write_meta` changes both."""

    path: Path
    run_id: str
    meta: dict[str, Any] = field(default_factory=dict)
    _lock: int | None = None

    @classmethod
    def create(cls, runs_dir: Path, spec: RunSpec, *, name: str | None = None) -> "RunFolder":
        """Makes and locks a new folder: `<utc>-<framework>-<placement>-<digest6>`, or `name`.

        Raises:
            SpecError: `name` exists already: a run is never written over another; or `runs_dir` can't be a folder.
            EnvError: there is no room.
        """
        stem = name or f"{_utc('%Y%m%dT%H%M%SZ')}-{spec.framework}-{spec.placement.value}-{spec.spec_digest[:6]}"
        path = None
        try:
            runs_dir.mkdir(parents=True, exist_ok=True)
            path = _make_new(runs_dir.resolve(), stem, may_number=name is None)
            # Runs of two run folders may get one name in one second; what marks their processes must differ.
            folder = cls(path=path, run_id=f"{path.name}-{secrets.token_hex(3)}")
            folder._take_lock()
            for part in ("events", "samples", "logs", "tables"):
                (path / part).mkdir()
            _allocate(path / ".ballast")
            (path / "spec.json").write_text(spec.to_json() + "\n", encoding="utf-8")
        except OSError as error:
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
            what = f"no run folder can be made in {runs_dir}: {error}; "
            if error.errno in NO_SPACE:
                raise EnvError(what + "free some space, or name another place with --runs-dir") from error
            raise SpecError(what + "name another place with --runs-dir") from error
        return folder

    def write_meta(self, **changes: Any) -> None:
        """Changes meta.json, atomically and durably; on a full disk the ballast is given up for it.

        Raises:
            OSError: it can't be written even so.
        """
        self.meta.update(changes)
        text = json.dumps(self.meta, indent=2, default=str) + "\n"
        try:
            _replace(self.path / "meta.json", text)
        except OSError as error:
            if error.errno not in NO_SPACE or not self.drop_ballast():
                raise
            _replace(self.path / "meta.json", text)

    def write_files(self, files: Mapping[str, str]) -> None:
        """Writes an adapter's files under the folder.

        Raises:
            SpecError: a path leads out of the folder.
            OSError: one can't be written.
        """
        for name, text in files.items():
            target = (self.path / name).resolve()
            if not target.is_relative_to(self.path):
                raise SpecError(f"the adapter wants to write {name!r}: allowed are paths inside the run folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def drop_ballast(self) -> bool:
        """Frees the reserve so that the end of the run can still be written down. False: it was gone already."""
        try:
            (self.path / ".ballast").unlink()
        except FileNotFoundError:
            return False
        return True

    def disk_full(self) -> bool:
        """Whether the folder's file system has no room for the events to come."""
        stat = os.statvfs(self.path)
        blocks = stat.f_bfree if os.geteuid() == 0 else stat.f_bavail  # root may use the reserved blocks
        return blocks * stat.f_frsize < FULL_BYTES

    def seal(self) -> None:
        """Marks the folder as complete: the last thing written."""
        self.drop_ballast()
        with (self.path / "sealed").open("wb") as file:
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The block in which the run is alive; the lock is free after it, as it is after a kill."""
        try:
            yield
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # waits out a reader's glance


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What a run's folder says of it."""

    status: str  # one of STATUSES, or UNKNOWN
    reason: str
    exit_code: int | None
    sealed: bool
    meta: Mapping[str, Any]


def run_status(run_dir: Path) -> str:
    """The status of a run, one of STATUSES or UNKNOWN, from its folder alone.

    Raises:
        SpecError: not a run folder.
    """
    return read_status(run_dir).status


def read_status(run_dir: Path) -> RunStatus:
    """The status and what goes with it. A run that says `running` while no harness holds it was killed.

    A sealed run came to its end: where its meta.json is lost, how is UNKNOWN.

    Raises:
        SpecError: not a run folder.
    """
    try:
        if not (run_dir / "spec.json").is_file() and not (run_dir / "lock").is_file():
            raise SpecError(f"{run_dir}: not a run folder (it has no spec.json)")
    except OSError as error:
        raise SpecError(f"{run_dir}: cannot be read: {error.strerror}") from error
    meta, _ = read_meta(run_dir)
    sealed = (run_dir / "sealed").exists()
    if sealed and meta.get("status") not in STATUSES:
        return RunStatus(status=UNKNOWN, reason="", exit_code=None, sealed=True, meta={})
    if meta.get("status", "running") not in STATUSES:
        meta = {"status": "running" if held(run_dir / "lock") else "interrupted"}  # of another version, or damaged
    status = meta.setdefault("status", "running")
    reason = meta.get("reason") or ("the harness was killed" if status == "interrupted" else "")
    return RunStatus(
        status=status,
        reason=reason,
        exit_code=meta.get("exit_code"),
        sealed=sealed,
        meta=meta,
    )


def list_runs(runs_dir: Path) -> list[Path]:
    """The run folders in `runs_dir`, oldest first; empty when there is no such folder.

    Folders in it that may not be looked into, or whose name is not valid UTF-8, are left out; `find_runs` names them.

    Raises:
        SpecError: the folder can't be read.
    """
    return find_runs(runs_dir)[0]


def find_runs(runs_dir: Path) -> tuple[list[Path], dict[Path, str]]:
    """The run folders in `runs_dir`, oldest first, and why others in it can't be told to be any, or can't be read.

    Raises:
        SpecError: the folder can't be read.
    """
    runs: list[Path] = []
    closed: dict[Path, str] = {}
    try:
        inside = sorted(runs_dir.iterdir()) if runs_dir.is_dir() else []
    except OSError as error:
        raise SpecError(f"runs_dir = {runs_dir}: cannot be read: {error.strerror}") from error
    for path in inside:
        try:
            if (path / "spec.json").is_file():
                if is_text(path.name):
                    runs.append(path)
                else:
                    closed[path] = f"{NOT_UTF8}; rename it"
        except OSError as error:
            closed[path] = f"cannot be read: {error.strerror}"
    return runs, closed


def _make_new(parent: Path, stem: str, *, may_number: bool) -> Path:
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            if not may_number:
                raise SpecError(
                    f"{path} exists already: a run is never written over another; choose a new name"
                ) from None
            number += 1
            continue
        return path


def _allocate(path: Path) -> None:
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)


def _replace(path: Path, text: str) -> None:
    with made_whole(path, durable=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _utc(form: str, at: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if at is None else at, UTC).strftime(form)
