"""gpus.json: what the GPUs of a run are, and how well their counters can be read."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.protocol.unfinished import made_whole

SCHEMA_VERSION = 1
FILE_NAME = "gpus.json"


class Description:
    """The file, replaced atomically at each change. Entries of other hosts, and of a sampler before, are kept."""

    def __init__(self, folder: Path, host: str) -> None:
        self._path = folder / FILE_NAME
        self._host = host
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, Any]] = {}
        self._kept = [entry for entry in _read(self._path) if isinstance(entry, dict)]

    def put(self, uuid: str, facts: Mapping[str, Any]) -> None:
        """Adds facts to a GPU's entry and writes the file.

        Raises:
            OSError: it cannot be written; the file before stays.
        """
        with self._lock:
            entry = self._entries.setdefault(uuid, {"host": self._host, "uuid": uuid})
            entry.update(facts)
            self._write()

    def write_empty(self) -> None:
        """Writes the file without an entry of this host: no GPU was found."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        others = [e for e in self._kept if e.get("host") != self._host or e.get("uuid") not in self._entries]
        mine = sorted(self._entries.values(), key=lambda entry: int(entry.get("index", 0)))
        text = json.dumps({"schema_version": SCHEMA_VERSION, "gpus": others + mine}, indent=1)
        with made_whole(self._path, durable=True) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _read(path: Path) -> list[Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return list(raw["gpus"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # none yet, or one that says nothing: this sampler writes its own
