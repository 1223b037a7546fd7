"""Runs the installer: its output in a log, its progress counted, its failures told with their last lines."""

import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.envs.pins import normalise
from harness.envs.probe import installer_environment
from harness.protocol.errors import EnvError

TAIL_LINES = 15
_POLL_S = 0.2
_GRACE_S = 10.0
_TIED = Path(__file__).with_name("tied.py")
_COLLECTED = re.compile(rb"^(?:Collecting|Processing|Requirement already satisfied)\b", re.MULTILINE)
_INSTALLING = b"Installing collected packages"
_HINTS = (
    (
        re.compile(r"No matching distribution found for torch==\S*\+cpu"),
        "PyTorch publishes its CPU builds in an index of their own. Tell the machine's pip about it, or about a folder "
        "that has the wheel: pip config set global.extra-index-url URL, or pip config set global.find-links FOLDER",
    ),
    (
        re.compile(r"No space left on device"),
        "the disk is full: free space, or set BENCH_CACHE (and TMPDIR for downloads) to a folder on a larger disk",
    ),
    (
        re.compile(r"NewConnectionError|name resolution|ReadTimeout|ConnectTimeout|ProxyError|SSLError", re.IGNORECASE),
        "no package index was reached: see `pip config list` for what the machine's pip is told",
    ),
    (
        re.compile(r"No matching distribution found for"),
        "no index that the machine's pip knows has that version for this Python: see `pip config list`",
    ),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the installer's output shows so far."""

    collected: int
    installing: bool


def tied(python: Path, module: str, *arguments: str) -> list[str]:
    """`python -m module arguments`, ended when this process ends however it ends."""
    return [str(python), "-I", str(_TIED), str(os.getpid()), module, *arguments]


def run_logged(command: Sequence[str], log: Path, *, what: str, on_poll: Callable[[Seen], None] | None = None) -> None:
    """Runs a command with its output appended to `log`; ends it when this is interrupted.

    Raises:
        EnvError: it failed; carries its last lines, the log's path and, where the reason is known, what to do.
    """
    with log.open("ab") as out:
        out.write(f"\n== {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {' '.join(command)}\n".encode())
        out.flush()
        begun = out.tell()
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=installer_environment()
            )
        except OSError as error:
            raise EnvError(f"{what}: {command[0]} does not start: {error}") from None
    try:
        code = _follow(child, log, begun, on_poll)
    except BaseException:
        _end(child)
        raise
    if code != 0:
        raise EnvError(_failure(what, code, log, begun))


def drop_damaged(site_packages: Path) -> list[str]:
    """Makes an interrupted installation resumable: what pip did not finish is made to look absent.

    pip writes a distribution's RECORD last. A .dist-info without one, or one that lists files that are not there whole,
    is removed; pip then installs that distribution again over what is left.

    Returns:
        the names of the .dist-info folders removed.
    """
    dropped = []
    for info in sorted(site_packages.glob("*.dist-info")):
        if _damage(info, sizes=True) is not None:
            shutil.rmtree(info)
            dropped.append(info.name)
    for left in site_packages.glob("~*"):  # what pip moved aside to replace it
        shutil.rmtree(left, ignore_errors=True)
    return dropped


def missing_files(site_packages: Path) -> dict[str, str]:
    """Distributions of a finished installation that are not whole: .dist-info -> what is wrong."""
    found = {}
    for info in site_packages.glob("*.dist-info"):
        # No sizes here: two distributions may ship the same file, and the later one's then counts.
        damage = _damage(info, sizes=False)
        if damage is not None:
            found[info.name] = damage
    return found


def installed_names(site_packages: Path) -> set[str]:
    """Normalised names of the distributions that are installed completely."""
    return {normalise(record.parent.name.partition("-")[0]) for record in site_packages.glob("*.dist-info/RECORD")}


def site_packages_of(venv: Path) -> Path:
    """site-packages of a venv of any Python version; the folder need not be there yet."""
    found = sorted(venv.glob("lib/python3.*/site-packages"))
    return found[0] if found else venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def tail(log: Path, begun: int = 0) -> list[str]:
    """The last lines of a log from a byte offset on, empty ones left out."""
    with log.open("rb") as file:
        file.seek(begun)
        text = file.read().decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return lines[-TAIL_LINES:]


def _follow(child: subprocess.Popen[bytes], log: Path, begun: int, on_poll: Callable[[Seen], None] | None) -> int:
    collected, installing, rest = 0, False, b""
    with log.open("rb") as said:
        said.seek(begun)
        while True:
            code = child.poll()
            *whole, rest = (rest + said.read()).split(b"\n")
            text = b"\n".join(whole)
            collected += len(_COLLECTED.findall(text))
            installing = installing or _INSTALLING in text
            if on_poll is not None:
                on_poll(Seen(collected, installing))
            if code is not None:
                return code
            time.sleep(_POLL_S)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _failure(what: str, code: int, log: Path, begun: int) -> str:
    lines = tail(log, begun)
    said = "".join(f"\n  {line}" for line in lines)
    text = "\n".join(lines)
    hint = next((f"\n{advice}" for pattern, advice in _HINTS if pattern.search(text)), "")
    return f"{what} failed (exit {code}); its last lines:{said}\nall of it: {log}{hint}"


def _damage(info: Path, *, sizes: bool) -> str | None:
    record = info / "RECORD"
    try:
        text = record.read_text(encoding="utf-8")
    except OSError:
        return "no RECORD: its installation was interrupted"
    for row in csv.reader(text.splitlines()):
        path, _, size = (*row, "", "")[:3]
        if not path or path.endswith(".pyc"):
            continue
        try:
            found = os.stat(info.parent / path).st_size  # noqa: PTH116 - tens of thousands of files
        except OSError:
            return f"{path} is missing"
        if sizes and size and found != int(size):
            return f"{path} has {found} bytes, not {size}"
    return None
