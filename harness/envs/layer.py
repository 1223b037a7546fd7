"""The project on top of an environment's pins: a venv of a few files, one per checkout.

The pins (gigabytes) are the same for every checkout of the project, the project is not: were it installed into the
shared venv, the checkout that came last would decide what the runs of all the others execute. So each checkout gets a
layer: its own interpreter, whose site-packages hold the project (a .pth line to the checkout, which is what an editable
install is; or, when bench itself was installed from a wheel, a copy of its packages) and, behind it on sys.path, the
site-packages of the pins. Written without pip: an editable install would fetch its build backend from an index, and a
run must start without one once its environment is there.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import harness
from harness.envs.pins import BUILDER_VERSION
from harness.envs.probe import DISTRIBUTION, NAMES, installer_environment, probe, refuse_foreign
from harness.envs.store import Location, Marker
from harness.envs.wheels import pack, unpack
from harness.protocol.errors import EnvError

_READY = "ready"
_METADATA = ("METADATA", "entry_points.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """This project as an environment gets it."""

    version: str
    checkout: Path | None  # None: installed from a wheel
    files: Mapping[str, bytes]
    dist_info: Mapping[str, str]

    @property
    def digest(self) -> str:
        """12 hex digits; another checkout or another content has another."""
        key = hashlib.sha256(json.dumps([BUILDER_VERSION, self.version, dict(self.dist_info)]).encode())
        for path, data in sorted(self.files.items()):
            key.update(f"{path}\0{len(data)}\0".encode() + data)
        return key.hexdigest()[:12]


def project() -> Project:
    """The project that runs this: a link to its checkout, else its installed files.

    Raises:
        EnvError: it is not installed at all (no metadata, so no entry points either).
    """
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        raise EnvError(f"{DISTRIBUTION} is not installed for this Python: pip install -e . in its checkout") from None
    dist_info = {name: text for name in _METADATA if (text := installed.read_text(name)) is not None}
    dist_info["top_level.txt"] = "".join(f"{name}\n" for name in NAMES)
    root = Path(harness.__file__).resolve().parent.parent
    if (root / "pyproject.toml").is_file():
        return Project(
            version=installed.version,
            checkout=root,
            files={"_agentic_rl_bench.pth": f"{root}\n".encode()},
            dist_info=dist_info,
        )
    return Project(version=installed.version, checkout=None, files=_installed_files(installed), dist_info=dist_info)


def ensure_layer(location: Location, marker: Marker, wanted: Project) -> Path:
    """The interpreter of the layer, made if it is not there. Call with the environment's lock held.

    Raises:
        EnvError: cannot be made, or another distribution owns one of the project's names.
    """
    folder = layer_folder(location, wanted)
    python = folder / "bin" / "python"
    if is_ready(folder):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    made = subprocess.run(
        [location.python, "-I", "-m", "venv", "--without-pip", "--symlinks", folder],
        capture_output=True,
        text=True,
        check=False,
        env=installer_environment(),
    )
    if made.returncode != 0:
        raise EnvError(f"{folder}: venv failed (exit {made.returncode}): {(made.stderr or made.stdout).strip()}")
    below = Path(marker.site_packages[0]).relative_to(location.venv)
    site_packages = folder / below
    with tempfile.TemporaryDirectory(prefix="bench-wheel-") as temporary:
        unpack(pack(DISTRIBUTION, wanted.version, wanted.files, Path(temporary), wanted.dist_info), site_packages)
    # `addsitedir` and not a bare path: the pins' own .pth files are to be read as well. Read after the project's line.
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in marker.site_packages)
    (site_packages / "_bench_environment.pth").write_text(lines, encoding="utf-8")
    _link_scripts(location.venv / "bin", folder / "bin")
    found = probe(python)
    refuse_foreign(found, location.name)
    _check_places(found.places, wanted.checkout or site_packages, location.name)
    (folder / _READY).touch()
    return python


def layer_folder(location: Location, wanted: Project) -> Path:
    """Where the layer of a project lies."""
    return location.path / "layers" / wanted.digest


def is_ready(folder: Path) -> bool:
    """Whether a layer was finished and its interpreter is still there."""
    return (folder / _READY).exists() and (folder / "bin" / "python").exists()


def _installed_files(installed: Distribution) -> dict[str, bytes]:
    files = {}
    for path in installed.files or ():
        if path.parts[0] in NAMES and path.suffix != ".pyc":
            files[str(path)] = path.read_binary()
    if not files:
        raise EnvError(f"{DISTRIBUTION} is installed, but its list of files is empty: reinstall it with pip")
    return files


def _link_scripts(source: Path, target: Path) -> None:
    # `ninja`, `ray` and others are found by programs that look beside the interpreter or on a PATH that starts there.
    for script in source.iterdir():
        own = script.name.lower().startswith(("python", "pip", "activate"))
        if not own and not (target / script.name).exists():
            (target / script.name).symlink_to(script)


def _check_places(places: Mapping[str, str | None], expected: Path, name: str) -> None:
    for package in NAMES:
        place = places[package]
        if place is None or not Path(place).resolve().is_relative_to(expected.resolve()):
            raise EnvError(f"{name}: `import {package}` would find {place}, not the one below {expected}")
