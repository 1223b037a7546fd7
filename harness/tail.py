"""Follows the growing event files of a run, each line once, and only when it is complete."""

from collections.abc import Iterator
from pathlib import Path

from harness.protocol.events import Event, decode

CHUNK_BYTES = 1024 * 1024


class Tail:
    """Reads `events/*.jsonl` from where it stopped; files may appear at any time and end in half a line."""

    def __init__(self, events: Path) -> None:
        self.events = events
        self._offsets: dict[str, int] = {}
        self._partial: dict[str, bytes] = {}

    def poll(self) -> Iterator[tuple[str, Event | ValueError]]:
        """What was added: (file name, event), a damaged line as its ValueError. A missing folder adds nothing."""
        for path in sorted(self.events.glob("*.jsonl")):
            yield from self._read(path)

    def cut(self) -> list[str]:
        """Names of the files whose last line has no end yet: after the run these lines are lost."""
        return sorted(name for name, rest in self._partial.items() if rest)

    def _read(self, path: Path) -> Iterator[tuple[str, Event | ValueError]]:
        name = path.name
        with path.open("rb") as file:
            file.seek(self._offsets.get(name, 0))
            while chunk := file.read(CHUNK_BYTES):
                self._offsets[name] = file.tell()
                *lines, self._partial[name] = (self._partial.get(name, b"") + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield name, _event(name, line)


def _event(name: str, line: bytes) -> Event | ValueError:
    try:
        return decode(line.decode("utf-8"))
    except ValueError as error:
        return ValueError(f"{name}: {error}")
