"""Finds an interpreter of the version that an environment's pins are for."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.protocol.errors import EnvError

_ASK = "import json, sys, venv, ensurepip; print(json.dumps([*sys.version_info[:2], sys.executable]))"
_ANSWER_LIMIT_S = 60


def find_python(version: str) -> Path:
    """An interpreter of that version ("3.11") that can make virtual environments.

    Looked for in this order: the one that runs this, `pythonX.Y` on PATH, pyenv's versions (newest first).

    Raises:
        EnvError: none found; says what to install.
    """
    refused = []
    for candidate in _candidates(version):
        found, reason = _ask(candidate, version)
        if found is not None:
            return found
        refused.append(f"{candidate}: {reason}")
    looked = "; ".join(refused) if refused else f"no python{version} on PATH, none in pyenv"
    raise EnvError(
        f"Python {version} with venv and pip is needed and was not found ({looked}): "
        f"install it (e.g. apt install python{version}-venv, or pyenv install {version}) and try again"
    )


def _candidates(version: str) -> Iterator[Path]:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield Path(sys.executable)
    name = f"python{version}"
    on_path = shutil.which(name)
    if on_path is not None:
        yield Path(on_path)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions = (path for path in root.glob(f"versions/{version}.*") if path.name.rpartition(".")[2].isdigit())
    for folder in sorted(versions, key=lambda path: int(path.name.rpartition(".")[2]), reverse=True):
        yield folder / "bin" / "python"


def _ask(candidate: Path, version: str) -> tuple[Path | None, str]:
    # A name on PATH may be a shim that answers only in some folders, and a distribution's Python may lack ensurepip.
    try:
        answer = subprocess.run(
            [candidate, "-I", "-c", _ASK], capture_output=True, text=True, timeout=_ANSWER_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not start ({error})"
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit {answer.returncode}"
    try:
        major, minor, executable = json.loads(answer.stdout)
    except ValueError:
        return None, f"answered {answer.stdout.strip()!r}"
    if f"{major}.{minor}" != version:
        return None, f"is Python {major}.{minor}"
    return Path(executable), ""
