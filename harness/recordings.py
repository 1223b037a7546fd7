"""The traces that a run recorded: which there are when it is over, and made whole where its tool server was killed."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.protocol.errors import BenchError
from workloads.deep_research.trace_names import part_of, recordings


def free_recordings(record: str | None) -> tuple[Path, ...]:
    """The files that a run which records into `record` may make: of the two names, those that are not taken."""
    if record is None:
        return ()
    return tuple(path for path in recordings(Path(record)) if not path.exists() and not part_of(path).exists())


def keep_recordings(files: Iterable[Path], say: Callable[[str], None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Makes whole what was left of `files` when the run ended.

    Args:
        files: as `free_recordings` told before the run.
        say: is told what takes a while.

    Returns:
        The files that there are, and notes for the run: what was written where, and what could not be.
    """
    written: list[str] = []
    notes: list[str] = []
    files = tuple(files)
    for path in files:
        part = part_of(path)
        if part.exists():
            say(f"the recording {part.name} is made whole: the tool server was ended before it could")
            try:
                if _sealed(path):
                    notes.append(f"{path} was made of what the tool server left of it when it was killed")
            except BenchError as error:
                notes.append(f"the recording could not be made whole: {error}")
        written += [str(each) for each in (path, part) if each.exists()]
    if files and not written:
        notes.append(f"no tool call was recorded: {files[0]} was not made")
    if len(written) > 1:
        notes.append(f"the calls were recorded into {len(written)} files: {', '.join(written)}")
    return tuple(written), tuple(notes)


def lost_records(counters: Mapping[str, Any]) -> tuple[str, ...]:
    """A note where calls are missing from the recording, as the tool server's last counters tell it."""
    lost, kept = counters.get("lost_calls") or 0, counters.get("recorded_calls") or 0
    if not lost:
        return ()
    why = counters.get("recording_error") or "why is not known"
    return (f"{lost:,} of {lost + kept:,} calls could not be recorded ({why}); a replay will not find them",)


def _sealed(path: Path) -> bool:
    from workloads.deep_research.trace_left import seal_left  # loads pyarrow, which few runs need here

    return seal_left(path)
