"""What is wrong with a run's folder or with the file of a table, in one line that says what to do."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from harness.protocol.errors import SpecError
from harness.protocol.names import NOT_UTF8, is_text, shown

MOST_SIGNS = 160  # of what Arrow says of a damaged file


def check_columns(path: Path, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Whether the file of a table has those columns.

    Raises:
        SpecError: it was collected before the table had one of them.
    """
    missing = [column for column in columns if column not in schema.names]
    if missing:
        raise SpecError(f"{path}: columns missing {missing}; run `bench collect {path.parent.parent}`")


def unreadable(path: Path, error: Exception) -> SpecError:
    """What to raise for the file of a table that cannot be read; Arrow's own messages may have many lines."""
    run_dir = path.parent.parent
    if isinstance(error, PermissionError):
        return SpecError(f"{path}: cannot be read: Permission denied; ask its owner for read access")
    said = " ".join(str(error).split())
    said = said if len(said) <= MOST_SIGNS else said[: MOST_SIGNS - 1] + "…"
    return SpecError(f"{path}: cannot be read ({said}); run `bench collect {run_dir}`")


def is_file(run_dir: Path, path: Path) -> bool:
    """Whether a file of a run's folder is there.

    Raises:
        SpecError: the folder may not be looked into; or the file is there, and its path is not valid UTF-8.
    """
    try:
        there = path.is_file()
    except OSError as error:
        raise SpecError(f"{run_dir}: cannot be read: {error.strerror}; ask its owner for read access") from None
    if there and not is_text(path):
        raise SpecError(f"{shown(run_dir)}: {NOT_UTF8}; rename the folder, or give another")
    return there
