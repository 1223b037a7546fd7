"""What `bench env list|check|remove` do."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from adapters.base import Environment, adapter_names, load_adapter
from harness.envs.build import differences
from harness.envs.layer import ensure_layer, project
from harness.envs.pins import normalise, read_pins
from harness.envs.probe import Import, probe
from harness.envs.store import Location, environments_folder, folder_size, locate, read_marker
from harness.protocol.errors import EnvError
from harness.protocol.spec import Device

ENGINES = ("vllm", "sglang")


class Status(StrEnum):
    """What an environment's folder can be used for."""

    COMPLETE = "complete"
    PARTIAL = "partial"  # its build was interrupted or failed; the next one finishes it
    BUILDING = "building"
    STALE = "stale pins"  # complete, but today's pins differ: no run uses it
    ABSENT = "not built"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """One line of `bench env list`. `size_bytes` and `created_utc` are None where there is none."""

    name: str
    path: Path
    size_bytes: int | None
    status: Status
    created_utc: str | None
    note: str


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


def known_environments() -> list[Environment]:
    """The environments of all installed adapters, one each, in the adapters' order."""
    found: dict[str, Environment] = {}
    for name in adapter_names():
        adapter = load_adapter(name)
        for device in Device:
            for engine in ENGINES:
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
    rows = [_row(folder, current.get(folder)) for folder in _folders()]
    there = {row.path for row in rows}
    for folder, environment in current.items():
        if folder not in there:
            rows.append(
                EnvironmentRow(
                    name=environment.name,
                    path=folder,
                    size_bytes=None,
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
    chosen = [folder for folder in _folders() if name in (folder.name, _name_of(folder))]
    if not chosen:
        there = ", ".join(sorted({_name_of(folder) for folder in _folders()})) or "none"
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


def _row(folder: Path, environment: Environment | None) -> EnvironmentRow:
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
        size_bytes=folder_size(folder) if marker is None else marker.size_bytes,
        status=status,
        created_utc=None if marker is None else marker.created_utc,
        note=note,
    )


def _folders() -> list[Path]:
    if not environments_folder().is_dir():
        return []
    return sorted(path for path in environments_folder().iterdir() if path.is_dir() and not path.name.startswith("."))


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
