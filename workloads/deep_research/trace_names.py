"""The names of the files that a recording is made of. Standard library only."""

from pathlib import Path

PART = ".part"


def part_of(path: Path) -> Path:
    """The lines that the trace `path` is made of, while it is recorded."""
    return path.with_name(path.name + PART)


def restarted(path: Path) -> Path:
    """Where the calls go after a tool server that recorded into `path` was started again."""
    return path.with_name(f"{path.stem}-restarted{path.suffix}")


def recordings(path: Path) -> tuple[Path, Path]:
    """The traces that a run which records into `path` can make, in their order."""
    return path, restarted(path)
