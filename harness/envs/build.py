"""Builds environments: once, however many runs ask at the same time, and never used half-made."""

import datetime
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from adapters.base import Environment
from harness.cache import CACHE_VARIABLE
from harness.envs.install import (
    Seen,
    drop_damaged,
    installed_names,
    missing_files,
    run_logged,
    site_packages_of,
    tied,
)
from harness.envs.layer import ensure_layer, is_ready, layer_folder, project
from harness.envs.pins import Pin, normalise, read_pins
from harness.envs.probe import probe, refuse_foreign
from harness.envs.progress import BuildProgress, Display, Report, Stage
from harness.envs.pythons import find_python
from harness.envs.share import share, share_lock
from harness.envs.store import (
    Location,
    Marker,
    complete_folders,
    folder_size,
    locate,
    make_folder,
    write_marker,
)
from harness.envs.wheels import write_wheel
from harness.protocol import PROTOCOL_VERSION
from harness.protocol.errors import EnvError

ROOM = 1.5  # free disk asked for, as a multiple of the environment's size: wheels lie beside what they become
_WAIT_S = 1.0
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class _Say:
    name: str
    report: Report

    def __call__(self, stage: Stage, message: str, done: int = 0, total: int = 0) -> None:
        self.report(BuildProgress(environment=self.name, stage=stage, message=message, done=done, total=total))


def ensure(environment: Environment | None, *, progress: Report | None = None) -> Path:
    """The interpreter to run an environment's worker with; builds the environment first when it is not there.

    Args:
        environment: None for the harness's own Python.
        progress: gets the news of a build; None shows it on stderr. An environment that is there says nothing.

    Raises:
        EnvError: it cannot be built, or the interpreter that `environment.python_variable` names will not do.
    """
    if environment is None:
        return Path(sys.executable)
    given = os.environ.get(environment.python_variable)
    if given:
        return trust(Path(given).expanduser().absolute(), environment)
    return create(environment, progress=progress)


def create(environment: Environment, *, progress: Report | None = None) -> Path:
    """Builds an environment, or finishes an interrupted build; does nothing when it is there. Returns its interpreter.

    Raises:
        EnvError: names what failed, the installer's last lines and its log.
    """
    location = locate(environment)
    wanted = project()
    layer = layer_folder(location, wanted)
    if location.marker() is not None and is_ready(layer):
        return layer / "bin" / "python"
    make_folder(location.path.parent)
    with ExitStack() as stack:
        report = progress if progress is not None else stack.enter_context(Display())
        stack.enter_context(_locked(location, report))
        marker = location.marker()  # read again: whoever held the lock may have built it
        if marker is None:
            marker = _build(environment, location, report)
        return ensure_layer(location, marker, wanted)


def trust(python: Path, environment: Environment) -> Path:
    """Checks the interpreter that the user named instead of a built environment.

    Looks for the environment's modules and imports the project; the frameworks themselves are imported by
    `bench env check`, and by the run.

    Raises:
        EnvError: says what is missing there.
    """
    where = f"{environment.python_variable}={python}"
    if not python.is_file() or not os.access(python, os.X_OK):
        raise EnvError(f"{where}: no program there; it must be the path of a Python with {environment.framework}")
    worker = ("harness.protocol", "adapters.base")
    found = probe(python, modules=environment.imports, imports=worker, isolated=False)
    broken = [row for row in found.imports if row.error is not None]
    if found.absent:
        raise EnvError(f"{where}: has no {', '.join(found.absent)}; install {environment.framework} there")
    if broken:
        install = project().checkout or f"agentic-rl-bench=={project().version}"
        flag = "-e " if project().checkout else ""
        raise EnvError(
            f"{where}: cannot import bench itself ({broken[0].error}); run "
            f"{python} -m pip install --no-deps {flag}{install}"
        )
    if found.protocol != PROTOCOL_VERSION:
        raise EnvError(
            f"{where}: its bench speaks protocol {found.protocol}, this one {PROTOCOL_VERSION}: reinstall it"
        )
    refuse_foreign(found, where)
    return python


def _build(environment: Environment, location: Location, report: Report) -> Marker:
    begun = time.monotonic()
    name = environment.name

    say = _Say(name, report)
    pins = read_pins(environment.requirements)
    python = find_python(environment.python)
    resumed = _resumable(location)
    _check_disk(environment, location)
    say(Stage.PLAN, _plan(environment, location, len(pins) + len(environment.local_wheels), resumed=resumed))
    make_folder(location.path)
    if resumed:
        for info in drop_damaged(site_packages_of(location.venv)):
            say(Stage.PLAN, f"{info} was not finished and is installed again")
    else:
        shutil.rmtree(location.venv, ignore_errors=True)
        say(Stage.VENV, f"making a virtual environment with {python}")
        run_logged(tied(python, "venv", str(location.venv)), location.log, what=f"{name}: venv")
    _install(environment, location, pins, say)
    say(Stage.CHECK, "checking what was installed")
    marker = _verify(environment, location, pins, begun)
    os.sync()  # the marker must not survive a crash that the files it speaks for do not
    write_marker(location.path, marker)
    shared = _share(location, say)
    took = time.monotonic() - begun
    say(Stage.DONE, f"built in {took:.0f} s, {marker.size_bytes / _GIGA:.2f} GB{shared} in {location.path}")
    return marker


def _share(location: Location, say: _Say) -> str:
    """Links what other environments have too; after the marker, so that builds that end together find each other.

    No failure: an environment of its own files is as good. Returns what to say of its size.
    """
    lock = FileLock(share_lock())
    try:
        with lock:
            others = [folder for folder in complete_folders() if folder != location.path]
            if not others:
                return ""
            say(Stage.SHARE, "looking for files that other environments have too")
            done = share(location.path, others)
    except OSError as error:
        say(Stage.SHARE, f"nothing is shared with other environments: {error}")
        return ""
    if done.refused is not None:
        say(Stage.SHARE, f"not all that could be is shared with other environments: {done.refused}")
    if not done.files:
        return ""
    return f", {done.size_bytes / _GIGA:.2f} GB of it shared with {', '.join(done.sources)},"


def _install(environment: Environment, location: Location, pins: tuple[Pin, ...], say: _Say) -> None:
    folder = location.path / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wheels = [str(write_wheel(wheel, folder)) for wheel in environment.local_wheels]
    if not pins and not wheels:
        return
    site_packages = site_packages_of(location.venv)
    wanted = {pin.name for pin in pins} | {normalise(wheel.name) for wheel in environment.local_wheels}

    def count(seen: Seen) -> None:
        if seen.installing:
            say(Stage.INSTALL, "installing", len(installed_names(site_packages) & wanted), len(wanted))
        else:
            say(Stage.DOWNLOAD, "downloading", min(seen.collected, len(wanted)), len(wanted))

    requirements = ["-r", str(environment.requirements)] if pins else []
    arguments = ["install", "--no-deps", *environment.pip_arguments, *requirements, *wheels]
    command = tied(location.python, "pip", *arguments)
    run_logged(command, location.log, what=f"{environment.name}: pip install", on_poll=count)


def _verify(environment: Environment, location: Location, pins: tuple[Pin, ...], begun: float) -> Marker:
    found = probe(location.python)
    refuse_foreign(found, environment.name)
    versions = {normalise(name): version for name, version in found.packages.items()}
    wanted = {pin.name: pin.version for pin in pins}
    wanted |= {normalise(wheel.name): wheel.version for wheel in environment.local_wheels}
    wrong = differences(wanted, versions)
    if wrong:
        raise EnvError(f"{environment.name}: pip said it was done, but {'; '.join(wrong)}; log: {location.log}")
    for site_packages in found.site_packages:
        damaged = missing_files(Path(site_packages))
        if damaged:
            told = "; ".join(f"{info}: {reason}" for info, reason in sorted(damaged.items()))
            raise EnvError(f"{environment.name}: not whole: {told}. Run it again to have these installed again")
    return Marker(
        name=environment.name,
        digest=location.digest,
        created_utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=time.monotonic() - begun,
        size_bytes=folder_size(location.path),
        python=found.python,
        site_packages=found.site_packages,
        packages=dict(sorted(found.packages.items())),
    )


def differences(wanted: dict[str, str | None], installed: dict[str, str]) -> list[str]:
    """What is not as the pins want it, one phrase per package; names are normalised. A pin without version fits any."""
    wrong = []
    for name, version in sorted(wanted.items()):
        have = installed.get(name)
        if have is None:
            wrong.append(f"{name} is not installed")
        elif version is not None and have != version and have.partition("+")[0] != version:
            # A pin without a local part (`1.0`) is met by a build that has one (`1.0+cu130`), as pip has it.
            wrong.append(f"{name} is {have}, not {version}")
    return wrong


def _resumable(location: Location) -> bool:
    # pip itself must be whole: it repairs the rest.
    return location.python.exists() and "pip" in installed_names(site_packages_of(location.venv))


def _check_disk(environment: Environment, location: Location) -> None:
    needed = environment.size_gb * _GIGA * ROOM - folder_size(location.path)
    free = shutil.disk_usage(location.path.parent).free
    if free < needed:
        raise EnvError(
            f"{environment.name} needs {needed / _GIGA:.1f} GB free while it is built, {location.path.parent} has "
            f"{free / _GIGA:.1f} GB: free space (`bench env list` shows what is there), or set {CACHE_VARIABLE} to a "
            "folder on a larger disk"
        )


def _plan(environment: Environment, location: Location, packages: int, *, resumed: bool) -> str:
    cost = f"{environment.size_gb:g} GB, about {environment.minutes:g} min, {packages} packages"
    verb = "finishing an interrupted build" if resumed else "building"
    status = f"; pins: {environment.status}" if environment.status else ""
    return f"{verb} in {location.path} ({cost}{status})"


@contextmanager
def _locked(location: Location, report: Report) -> Iterator[None]:
    lock = FileLock(location.lock)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            message = f"another process is building it; waiting (its log: {location.log})"
            report(BuildProgress(environment=location.name, stage=Stage.WAITING, message=message))
            lock.acquire(poll_interval=_WAIT_S)
    except OSError as error:
        raise EnvError(f"{location.lock}: cannot be locked: {error}; set {CACHE_VARIABLE} to a local folder") from None
    try:
        yield
    finally:
        lock.release()
