"""How verbs speak: one line for an error, plain aligned tables, and a place for tracebacks."""

import errno
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from harness.protocol.errors import NO_SPACE, BenchError, SpecError

# What a file system says of a place, and not of bench. ENOENT is not among them: a file of a run's own that is missing
# is for the traceback; a folder that can't be made is found by `writable`.
ORDINARY = NO_SPACE | frozenset(
    {
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EIO,
    }
)


INTERRUPTED = 130  # exit code of Ctrl-C, as a shell has it: 128 + SIGINT


class InternalError(BenchError):
    """A defect of bench itself, met while a run folder was at hand; its traceback was saved there."""


def fail(message: str, code: int) -> int:
    """Prints `bench: message` on stderr, unless the terminal is gone; returns the code."""
    with suppress(OSError, ValueError):
        click.echo(f"bench: {message}", err=True)
    return code


def terminal_gone(error: BaseException) -> bool:
    """Whether printing failed because a terminal was closed. (A closed pipe is a BrokenPipeError.)"""
    return isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None


def file_problem(error: OSError, doing: str, hint: str = "") -> SpecError:
    """One line for a place that can't be read or written."""
    return SpecError(f"{doing}: {error}" + (f"; {hint}" if hint else ""))


def writable(folder: Path, hint: str) -> None:
    """Makes a folder for results, and tries to write there.

    Raises:
        SpecError: it can't be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.filename is not None:  # the name of the try is of no use to anyone
            error.filename = str(folder)
        raise file_problem(error, "nothing can be written", hint) from None


def save_traceback(error: BaseException, folder: Path | None = None) -> Path:
    """Writes the traceback into `folder`, or into a temporary file where that is sealed or can't be written.

    Returns the path; /dev/stderr when it could only be printed. Never raises: the error itself must be told.
    """
    text = "".join(traceback.format_exception(error))
    if folder is not None and not (folder / "sealed").exists():
        path = folder / "bench-traceback.txt"
        with suppress(OSError):
            path.write_text(text, encoding="utf-8", errors="replace")
            return path
    with suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", prefix="bench-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
        return Path(file.name)
    with suppress(OSError, ValueError):
        click.echo(text, err=True)
    return Path("/dev/stderr")


@contextmanager
def traceback_into(folder: Path, doing: str, hint: str = "") -> Iterator[None]:
    """Turns an unexpected exception into a BenchError that names a traceback saved in the run folder.

    Raises:
        SpecError: in place of an ordinary OSError: a read-only folder, a full disk. Ends with `hint`.
        InternalError: in place of any other exception that is not a BenchError; output that is gone is left alone.
    """
    try:
        yield
    except (BenchError, BrokenPipeError):
        raise
    except Exception as error:
        if terminal_gone(error):
            raise
        if isinstance(error, OSError) and error.errno in ORDINARY:
            raise file_problem(error, doing, hint) from error
        path = save_traceback(error, folder)
        raise InternalError(
            f"unexpected {type(error).__name__} while {doing}: {error}; this is a defect of bench, details in {path}"
        ) from error


def folder_named(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """An option's value as a folder, there or not: not empty, and no bytes that are no UTF-8 (a spec can't hold those).

    Raises:
        SpecError: names the option and what is wrong.
    """
    if value is None:
        return None
    named = parameter.opts[-1]
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SpecError(f"{named} = {value!r}: the name is not valid UTF-8; give another folder") from None
    if not value.strip():
        raise SpecError(f"{named} = {value!r}: empty; give the path of a folder")
    path = Path(value)
    try:
        if path.exists() and not path.is_dir():
            raise SpecError(f"{named} = {value}: a file, not a folder")
    except OSError as error:
        raise SpecError(f"{named} = {value}: {error.strerror}") from None
    return path


def table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None) -> str:
    """Left-aligned columns, two blanks apart; the last column is not padded."""
    lines = [list(row) for row in (rows if header is None else [header, *rows])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
