"""Where environments lie, and what says that one is finished.

<cache>/envs/<name>-<digest>/   complete.json  written last: without it the folder is never used
                                build.log      everything the installer said
                                venv/          the pins; shared by every checkout of the project
                                layers/        per checkout: the project on top of venv/ (see layer.py)
<cache>/envs/<name>-<digest>.lock
<cache>/envs/share.lock           held by who links files of one environment to those of others (see share.py)
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from adapters.base import Environment
from harness.cache import CACHE_VARIABLE, cache_folder
from harness.envs.pins import digest
from harness.protocol.errors import EnvError

MARKER = "complete.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What complete.json says. Sizes in bytes, times in seconds; `packages` maps name to installed version."""

    name: str
    digest: str
    created_utc: str
    seconds: float  # this build's; a resumed build counts only its last part
    size_bytes: int
    python: str
    site_packages: tuple[str, ...]
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Location:
    """The folder of one environment."""

    name: str
    digest: str
    path: Path

    @property
    def venv(self) -> Path:
        """The virtual environment with the pins, without the project."""
        return self.path / "venv"

    @property
    def python(self) -> Path:
        """The interpreter of `venv`."""
        return self.venv / "bin" / "python"

    @property
    def log(self) -> Path:
        """Everything that venv and pip printed, appended by each attempt."""
        return self.path / "build.log"

    @property
    def lock(self) -> Path:
        """Held by who builds or removes; beside the folder, so that removing the folder leaves it."""
        return self.path.with_name(self.path.name + ".lock")

    def marker(self) -> Marker | None:
        """What a finished build left; None when there is none, or it is not this build's."""
        marker = read_marker(self.path)
        if marker is None or marker.digest != self.digest or not self.python.exists():
            return None
        return marker


def locate(environment: Environment) -> Location:
    """Where an environment with these pins lies, or will lie.

    Raises:
        EnvError: the pins cannot be read.
    """
    key = digest(environment)
    return Location(environment.name, key, environments_folder() / f"{environment.name}-{key}")


def environments_folder() -> Path:
    """The folder with one folder per environment."""
    return cache_folder() / "envs"


def environment_folders() -> list[Path]:
    """The folders of all environments, finished or not, by name."""
    if not environments_folder().is_dir():
        return []
    return sorted(path for path in environments_folder().iterdir() if path.is_dir() and not path.name.startswith("."))


def complete_folders() -> list[Path]:
    """The folders of finished environments, also those of other pins; the oldest first."""
    found = []
    for folder in environment_folders():
        marker = read_marker(folder)
        if marker is not None and Location(marker.name, marker.digest, folder).python.exists():
            found.append((marker.created_utc, folder))
    return [folder for _, folder in sorted(found)]


def read_marker(folder: Path) -> Marker | None:
    """The marker of an environment's folder; None when it has none or it cannot be understood."""
    try:
        raw = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return Marker(**{**raw, "site_packages": tuple(raw["site_packages"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_marker(folder: Path, marker: Marker) -> None:
    """Writes complete.json at once or not at all."""
    temporary = folder / f"{MARKER}.part"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(marker), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / MARKER)


def make_folder(path: Path) -> None:
    """Makes a folder of the cache.

    Raises:
        EnvError: not possible there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvError(
            f"the cache folder cannot be made: {error}; set {CACHE_VARIABLE} to a folder that you may write"
        ) from None


def folder_size(path: Path) -> int:
    """Bytes of all files below a folder, links not followed; 0 for a folder that is not there."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - 50,000 files: Path costs 3x
            except OSError:
                continue  # removed meanwhile
    return total
