"""Folders of the machine in a page: written as what they stand for, since a report is passed on."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cache import CACHE_VARIABLE, cache_folder
from reports.markdown import escape

RUN = "RUN"
_PATH = r"(?<![\w./~$-])/(?:[^\s`'\"|,;:=()<>\[\]]+/)?"
# Runs made elsewhere: their cache is known by what bench puts there, a home by where homes are.
_CACHE = re.compile(_PATH + r"(?=(?:models/(?:tiny|random-)[^/\s]*-r\d+|envs/[a-z0-9]+-(?:cpu|cuda)-))")
_HOME = re.compile(r"(?<![\w./~$-])(?:/home/[^/\s`|]+|/Users/[^/\s`|]+|/root)(?=[/\s`|,;:]|$)")


def without_places(lines: Sequence[str], run_dirs: Mapping[str, Path]) -> list[str]:
    """Lines in which run folders read RUN, the cache folder $BENCH_CACHE, and homes `~`.

    Args:
        lines: the page.
        run_dirs: run id -> where its folder is now; it may have been elsewhere when the run was made.
    """
    known = [(str(folder), RUN) for folder in dict.fromkeys(run_dirs.values())]
    known.append((str(cache_folder()), f"${CACHE_VARIABLE}"))
    home = os.path.expanduser("~")  # noqa: PTH111 - "~" itself where there is no home, where Path.home() raises
    if home.count("/") and home != "/":
        known.append((home, "~"))
    ids = [re.escape(name) for name in {*run_dirs, *(folder.name for folder in run_dirs.values())} if name]
    moved = re.compile(_PATH + f"(?:{'|'.join(ids)})" + r"(?=[/\s`|,;:]|$)") if ids else None
    return [_line(line, known, moved) for line in lines]


def _line(line: str, known: Sequence[tuple[str, str]], moved: "re.Pattern[str] | None") -> str:
    if "/" not in line:
        return line
    for folder, word in known:
        for text in dict.fromkeys((folder, escape(folder))):
            line = re.sub(rf"(?<![\w./~$-]){re.escape(text)}(?![\w.-])", lambda _, word=word: word, line)  # type: ignore[misc]
    if moved is not None:
        line = moved.sub(RUN, line)
    return _HOME.sub("~", _CACHE.sub(f"${CACHE_VARIABLE}/", line))
