"""Measures of many runs: those kept are read, the others are computed on all cores, and whoever waits is told."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.protocol.errors import SpecError
from results.comparing.kept import kept_measures, measures_of
from results.comparing.measures import RunMeasures
from results.spread import cores, spread
from results.store import tables_dir

WORTH_SPREADING = 6  # runs: a process takes about as long to start as two or three small runs take
Progress = Callable[[int, int, int], None]
"""Is told how many runs were computed, of how many, by how many processes; first of none, before it begins."""
WORTH_TELLING, LARGE_BYTES = 8, 100_000_000  # runs, or their tables on disk: less is soon done, and nobody is told
_PROCESS_BYTES = 400_000_000  # of a process with its libraries
_UNPACKED = 15  # bytes in memory for each of a run's tables on disk, at most, roughly


def measures_of_all(folders: Sequence[Path], progress: Progress | None = None) -> list[RunMeasures | SpecError]:
    """The measures of each run folder, in order; in place of one that has none, why.

    What is not kept, or of other tables or code, is computed: several runs at a time, as many as there are cores and
    memory for. The results are those of `measures_of`, however it is done. `progress` is told where it may take long.
    """
    found: list[RunMeasures | SpecError | None] = [kept_measures(folder) for folder in folders]
    cold = [place for place, each in enumerate(found) if each is None]
    paths = [folders[place] for place in cold]
    workers = min(len(paths), _room(paths)) if len(paths) >= WORTH_SPREADING else 1
    if len(cold) < WORTH_TELLING and sum(map(_bytes, paths)) < LARGE_BYTES:
        progress = None
    if progress is not None:
        progress(0, len(cold), workers)
    computed = spread(_measured, paths, workers) if workers > 1 else map(_measured, paths)
    for count, (place, made) in enumerate(zip(cold, computed, strict=True), start=1):
        found[place] = made
        if progress is not None:
            progress(count, len(cold), workers)
    return [each for each in found if each is not None]


def _measured(folder: Path) -> RunMeasures | SpecError:
    try:
        return measures_of(folder)
    except SpecError as error:
        return SpecError(str(error))


def _room(folders: Sequence[Path]) -> int:
    """How many processes: one per core, and no more than there is memory for."""
    free = _free_bytes()
    if free is None or not folders:
        return cores()
    return max(1, min(cores(), free // (_PROCESS_BYTES + _UNPACKED * max(map(_bytes, folders)))))


def _bytes(folder: Path) -> int:
    """What a run's tables take on disk."""
    return sum(file.stat().st_size for file in tables_dir(folder).glob("*.parquet"))


def _free_bytes() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
