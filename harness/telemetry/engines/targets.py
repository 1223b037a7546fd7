"""Which engines there are: announced by the adapters as metrics `engine.endpoint`, read off the growing event files."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.events import Metric, decode

ANNOUNCEMENT = "engine.endpoint"  # value 1: labels engine, url; value None: labels engine, reason
_MARK = f'"{ANNOUNCEMENT}"'.encode()
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An engine by the name that turns carry. `url` None: it has no endpoint, and `reason` says why."""

    engine: str
    url: str | None
    reason: str | None
    mono_ns: int  # when it was announced


class Announcements:
    """Reads `events/*.jsonl` from where it stopped. Lines are not decoded but for the few that announce."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._offsets: dict[str, int] = {}
        self._partial: dict[str, bytes] = {}

    def poll(self) -> list[Target]:
        """What was announced since the last call, in the order of the files' names and their lines."""
        found: list[Target] = []
        try:
            with os.scandir(self._events) as entries:
                files = sorted(((entry.name, entry) for entry in entries if entry.name.endswith(".jsonl")), key=_name)
        except OSError:
            return found  # looked at again with the next poll
        for name, entry in files:
            try:
                if entry.stat().st_size > self._offsets.get(name, 0):
                    found += self._read(name)
            except OSError:
                continue
        return found

    def _read(self, name: str) -> list[Target]:
        found: list[Target] = []
        with (self._events / name).open("rb") as file:
            file.seek(self._offsets.get(name, 0))
            while chunk := file.read(_CHUNK_BYTES):
                self._offsets[name] = file.tell()
                data = self._partial.get(name, b"") + chunk
                whole, _, self._partial[name] = data.rpartition(b"\n")
                if _MARK not in whole:
                    continue
                found += [target for line in whole.split(b"\n") if _MARK in line and (target := _target(line))]
        return found


def _name(file: "tuple[str, os.DirEntry[str]]") -> str:
    return file[0]


def _target(line: bytes) -> Target | None:
    try:
        event = decode(line.decode("utf-8"))
    except (ValueError, json.JSONDecodeError):
        return None  # a damaged line is told when the run is collected
    if not isinstance(event, Metric) or event.name != ANNOUNCEMENT:
        return None
    engine, url, reason = (event.labels.get(name) for name in ("engine", "url", "reason"))
    if not isinstance(engine, str):
        return None
    is_there = event.value is not None and isinstance(url, str)
    return Target(
        engine=engine,
        url=str(url) if is_there else None,
        reason=None if is_there else str(reason or "announced without an address"),
        mono_ns=event.mono_ns,
    )
