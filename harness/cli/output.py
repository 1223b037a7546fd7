"""How verbs speak: one line for an error, plain aligned tables, and a place for tracebacks."""

import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from harness.protocol.errors import BenchError


class InternalError(BenchError):
    """A defect of bench itself, met while a run folder was at hand; its traceback was saved there."""


def fail(message: str, code: int) -> int:
    """Prints `bench: message` on stderr; returns the code."""
    click.echo(f"bench: {message}", err=True)
    return code


def save_traceback(error: BaseException, folder: Path | None = None) -> Path:
    """Writes the traceback into `folder`, else into a temporary file; returns the path."""
    text = "".join(traceback.format_exception(error))
    if folder is not None:
        path = folder / "bench-traceback.txt"
        path.write_text(text, encoding="utf-8")
        return path
    with tempfile.NamedTemporaryFile("w", prefix="bench-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write(text)
    return Path(file.name)


@contextmanager
def traceback_into(folder: Path, doing: str) -> Iterator[None]:
    """Turns an unexpected exception into a BenchError that names a traceback saved in the run folder.

    Raises:
        InternalError: in place of any exception that is not a BenchError.
    """
    try:
        yield
    except BenchError:
        raise
    except Exception as error:
        path = save_traceback(error, folder)
        raise InternalError(
            f"unexpected {type(error).__name__} while {doing}: {error}; this is a defect of bench, details in {path}"
        ) from error


def table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> str:
    """Left-aligned columns, two blanks apart; the last column is not padded."""
    lines = [list(row) for row in (rows if header is None else [header, *rows])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
