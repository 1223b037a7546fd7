"""The journal of a sweep: one line per thing that happened, appended and fsynced, readable after any kill."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.protocol.durable import sync_folder

NAME = "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: `kind` is sweep_started | cell_started | cell_ended | sweep_ended; `data` has the rest."""

    kind: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class Journal:
    """Appends to a sweep folder's journal. Only the process that holds the sweep's lock may make one."""

    path: Path

    def add(self, kind: str, **data: object) -> None:
        """Writes one line and waits until it is on disk.

        Raises:
            OSError: it can't be written; the sweep must not go on, or it would not be resumable.
        """
        line = json.dumps({"k": kind, **data}, default=str) + "\n"
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = "\n" + line  # a kill cut the last line: it stays as it is, and spoils no other
            left = line.encode()
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            sync_folder(self.path.parent)


def read_journal(path: Path) -> tuple[list[Line], int]:
    """The lines in order, and how many were cut or damaged. No file: nothing has happened yet."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    lines: list[Line] = []
    damaged = 0
    for text in raw.split(b"\n"):
        if not text.strip():
            continue
        try:
            data = json.loads(text)
            lines.append(Line(kind=str(data.pop("k")), data=data))
        except (ValueError, AttributeError, KeyError):
            damaged += 1
    return lines, damaged
