"""Which code a run's measures are computed by: a digest of every module that may have a part in them, and of no other.

Modules are found by their import statements, wherever in a file they stand, so that none is forgotten, and an edit of
what only reads measures (a verdict, a page, the planner) makes nobody compute 200 runs anew.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import results

ROOTS = ("results.collect", "results.comparing.measuring", "results.comparing.kept")
_PACKAGES = ("results", "workloads", "harness", "adapters")
_TOP = Path(results.__file__).parent.parent
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<of>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|import[ \t]+(?P<plain>[\w., \t]+))",
    re.MULTILINE,
)


@cache
def digest() -> str:
    """Names the code, 16 hexadecimal digits."""
    made = hashlib.sha256()
    for path in modules(ROOTS):
        made.update(path.read_bytes())
    return made.hexdigest()[:16]


def modules(roots: Iterable[str]) -> list[Path]:
    """The files of those modules and of all of the project's that they import, by name."""
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if name in found or path is None:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *_imported(path.read_text(encoding="utf-8"))]
    return [found[name] for name in sorted(found)]


def _imported(text: str) -> list[str]:
    names = []
    for each in _IMPORT.finditer(text):
        if (of := each["of"]) is not None:
            parts = [part.split() for part in each["names"].strip("() \n").split(",")]
            names += [of, *(f"{of}.{part[0]}" for part in parts if part)]  # the last may be a module, or none
        else:
            names += [part.split()[0] for part in each["plain"].split(",") if part.split()]
    return [name for name in names if name.partition(".")[0] in _PACKAGES]


def _file(name: str) -> Path | None:
    """The file of one of the project's modules; None for what is none."""
    if not name:
        return None
    path = _TOP.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
