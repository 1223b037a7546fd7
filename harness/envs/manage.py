"""What `bench env list|check|share|remove` do."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from adapters.base import Adapter, Environment, load_adapters
from harness.envs.build import differences
from harness.envs.layer import ensure_layer, project
from harness.envs.pins import normalise, read_pins
from harness.envs.probe import Import, probe
from harness.envs.share import Shared, Usage, share, share_lock, usages
from harness.envs.store import (
    Location,
    complete_folders,
    environment_folders,
    environments_folder,
    locate,
    read_marker,
)
from harness.protocol.errors import EnvError
from harness.protocol.spec import Device


class Status(StrEnum):
    """What an environment's folder can be used for."""

    COMPLETE = "complete"
    PARTIAL = "partial"  # its build was interrupted or failed; the next one finishes it
    BUILDING = "building"
    STALE = "stale pins"  # complete, but today's pins differ: no run uses it
    ABSENT = "not built"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """One line of `bench env list`. What there is none of is None.

    `shared_bytes` are those of `size_bytes` that another environment has too, in the same place on the disk.
    """

    name: str
    path: Path
    size_bytes: int | None
    shared_bytes: int | None
    status: Status
    created_utc: str | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReport:
    """What `share_environments` did with one environment. `left`: why it was left as it is; `shared` is None then."""

    folder: Path
    shared: Shared | None
    left: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was found in a built environment. It is good when `problems` is empty."""

    name: str
    interpreter: Path
    python: str
    packages: int
    imports: tuple[Import, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No problem was found."""
        return not self.problems


def known_environments(adapters: Iterable[Adapter] | None = None) -> list[Environment]:
    """The environments of these adapters, one each, in their order; None: of all installed that can be loaded."""
    found: dict[str, Environment] = {}
    for adapter in load_adapters()[0] if adapters is None else adapters:
        for device in Device:
            for engine in adapter.engines(device):
                environment = adapter.environment(device, engine)
                if environment is not None:
                    found.setdefault(environment.name, environment)
    return list(found.values())


def list_environments(known: Iterable[Environment] | None = None) -> list[EnvironmentRow]:
    """What lies in the cache, and what could: by name, the current pins' folder first.

    Args:
        known: the environments that could be built; None: those of all installed adapters.

    Raises:
        EnvError: an environment's pins cannot be read.
    """
    environments = known_environments() if known is None else list(known)
    current = {location.path: environment for environment in environments for location in (locate(environment),)}
    folders = environment_folders()
    sizes, _ = usages(folders)
    rows = [_row(folder, current.get(folder), sizes[folder]) for folder in folders]
    there = {row.path for row in rows}
    for folder, environment in current.items():
        if folder not in there:
            rows.append(
                EnvironmentRow(
                    name=environment.name,
                    path=folder,
                    size_bytes=None,
                    shared_bytes=None,
                    status=Status.ABSENT,
                    created_utc=None,
                    note=f"{environment.size_gb:g} GB, about {environment.minutes:g} min; {environment.status}",
                )
            )
    return sorted(rows, key=lambda row: (row.name, row.path not in current, row.path))


def check(environment: Environment) -> CheckReport:
    """Imports every module of an environment in its interpreter, and compares versions and owners with its pins.

    Raises:
        EnvError: it is not built, or its interpreter dies.
    """
    location = locate(environment)
    marker = location.marker()
    if marker is None:
        state = "its build was not finished" if location.path.exists() else "it is not built"
        raise EnvError(
            f"{environment.name}: {state}: bench env create {environment.framework} --device {environment.device.value}"
        )
    with FileLock(location.lock):
        python = ensure_layer(location, marker, project())
    found = probe(python, imports=(*environment.imports, "harness.protocol"))
    wanted = {pin.name: pin.version for pin in read_pins(environment.requirements)}
    wanted |= {normalise(wheel.name): wheel.version for wheel in environment.local_wheels}
    versions = {normalise(name): version for name, version in found.packages.items()}
    problems = differences(wanted, versions)
    problems += [f"import {row.module}: {row.error}" for row in found.imports if row.error is not None]
    problems += [f"`{name}` also belongs to {', '.join(owners)}" for name, owners in sorted(found.foreign.items())]
    if not found.python.startswith(f"{environment.python}."):
        problems.append(f"its Python is {found.python}, not {environment.python}")
    return CheckReport(
        name=environment.name,
        interpreter=python,
        python=found.python,
        packages=len(found.packages),
        imports=found.imports,
        problems=tuple(problems),
    )


def remove(name: str) -> list[Path]:
    """Removes the environments of that name (`skyrl-cpu-vllm`: whatever their pins) or one folder (name-digest).

    Returns:
        the folders removed.

    Raises:
        EnvError: there is none, it is being built, or a process runs from it; nothing is removed then.
    """
    chosen = [folder for folder in environment_folders() if name in (folder.name, _name_of(folder))]
    if not chosen:
        there = ", ".join(sorted({_name_of(folder) for folder in environment_folders()})) or "none"
        raise EnvError(f"no environment {name!r} in {environments_folder()}; there: {there}")
    for folder in chosen:
        users = list(_users(folder))
        if users:
            raise EnvError(f"{folder.name} is in use by {', '.join(users)}: end that run first (bench list)")
    for folder in chosen:
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise EnvError(f"{folder.name} is being built by another process: end that first") from None
        try:
            # Renamed first, so that an interrupted removal leaves no environment that looks whole.
            doomed = folder.with_name(f".{folder.name}.removed")
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)
            shutil.rmtree(doomed)
        finally:
            lock.release()
    return chosen


def share_environments() -> Iterator[ShareReport]:
    """Links what the finished environments have in common, as a build does at its end; each after the ones before it.

    For environments that were built before there was another to share with, or on whose build that step was
    interrupted. One that is being built, or that a process runs from, is left as it is: a running program that loads a
    library by another name would otherwise take the new inode for another library.

    Raises:
        EnvError: the locks cannot be taken.
    """
    before: list[Path] = []
    for folder in complete_folders():
        yield _share_one(folder, before)
        before.append(folder)


def bytes_on_disk() -> int:
    """Bytes of all files of all environments, what they share counted once."""
    return usages(environment_folders())[1]


def _share_one(folder: Path, others: Sequence[Path]) -> ShareReport:
    try:
        with FileLock(folder.with_name(f"{folder.name}.lock")).acquire(blocking=False), FileLock(share_lock()):
            if read_marker(folder) is None:
                return ShareReport(folder=folder, shared=None, left="removed meanwhile")
            users = list(_users(folder))
            if users:
                return ShareReport(folder=folder, shared=None, left=f"in use by {', '.join(users)}")
            return ShareReport(folder=folder, shared=share(folder, others))
    except Timeout:
        return ShareReport(folder=folder, shared=None, left="another process builds or checks it")
    except OSError as error:
        raise EnvError(f"{environments_folder()}: {error}") from None


def _row(folder: Path, environment: Environment | None, usage: Usage) -> EnvironmentRow:
    marker = read_marker(folder)
    name = _name_of(folder)
    if _is_locked(folder):
        status, note = Status.BUILDING, ""
    elif marker is None or not Location(name, marker.digest, folder).python.exists():
        status, note = Status.PARTIAL, "the next build finishes it" if environment else "of other pins: can be removed"
    elif environment is None:
        status, note = Status.STALE, "of other pins: can be removed"
    else:
        status, note = Status.COMPLETE, f"Python {marker.python}, {len(marker.packages)} packages"
    return EnvironmentRow(
        name=name,
        path=folder,
        size_bytes=usage.size_bytes,
        shared_bytes=usage.shared_bytes,
        status=status,
        created_utc=None if marker is None else marker.created_utc,
        note=note,
    )


def _name_of(folder: Path) -> str:
    return folder.name.rpartition("-")[0] or folder.name


def _is_locked(folder: Path) -> bool:
    path = folder.with_name(f"{folder.name}.lock")
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    lock.release()
    return False


def _users(folder: Path) -> Iterator[str]:
    below = f"{folder}/"
    for process in psutil.process_iter(["pid", "cmdline"]):
        cmdline = process.info["cmdline"] or []
        if cmdline and cmdline[0].startswith(below):
            yield f"process {process.info['pid']}"
