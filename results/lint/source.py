"""A file of whatever kind, linted: a table, a framework's log, a trace of sessions, an MLPerf log."""

from pathlib import Path
from typing import TypeVar

from harness.protocol.errors import SpecError
from results.importing import areal_console, verl_console
from results.importing.areal_tracer import read_sessions
from results.importing.mlperf_log import MARK, read_events
from results.importing.tables import read_tables
from results.lint.findings import Linted
from results.lint.given import Given
from results.lint.logs import lint_areal, lint_mlperf, lint_sessions, lint_verl
from results.lint.published import lint_tables

KINDS = ("table", "verl-console", "areal-console", "areal-tracer", "mlperf")
TABLES = (".csv", ".tsv", ".md", ".markdown")
HEAD_BYTES = 4096
MOST_ODD = 0.1  # of the signs of a head: above it, it is no text
MOST_BYTES = 512 * 2**20

_T = TypeVar("_T")


def lint_file(path: Path, given: Given, kind: str | None = None) -> Linted:
    """Checks one file; `kind` is one of KINDS, and is told from the file where it is None.

    Raises:
        SpecError: it cannot be read, is not of that kind, or a column of `given` is not in it.
    """
    text = read_text(path)
    kind = kind or kind_of(text, path.suffix.lower())
    lines, source = text.splitlines(), str(path)
    if kind == "table":
        try:
            tables = read_tables(text, path.suffix.lower())
        except ValueError as error:
            raise SpecError(f"{path}: no table can be read: {error}") from None
        if not any(table.rows for table in tables):
            why = "no table with rows (CSV, TSV, JSON, Markdown, text with tabs), and no log that is known"
            raise SpecError(f"{path}: {why}; name its kind with --from ({', '.join(KINDS)})")
        return lint_tables(source, tables, given)
    if given.columns:
        raise SpecError(f"--map: {path} is a log ({kind}), it has no columns; leave --map out")
    if kind == "mlperf":
        return lint_mlperf(source, *_some(read_events(lines), path, kind))
    if kind == "areal-tracer":
        return lint_sessions(source, *_some(read_sessions(lines), path, kind))
    read, lint = (verl_console, lint_verl) if kind == "verl-console" else (areal_console, lint_areal)
    steps = read.read_steps(lines)
    if not steps:
        raise SpecError(f"{path}: no step of a {kind} log in it; name its kind with --from ({', '.join(KINDS)})")
    return lint(source, steps, given)


def read_text(path: Path) -> str:
    """The text of a file; bytes that are no UTF-8 are replaced.

    Raises:
        SpecError: it cannot be read, is larger than 512 MiB, or is binary.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise SpecError(
                f"{path}: {size / 2**20:,.0f} MiB, allowed are {MOST_BYTES / 2**20:.0f}: cut out what is asked"
            )
        read = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror or error}") from None
    if _binary(read):
        raise SpecError(f"{path}: binary, or text that is not UTF-8; give a table or a log as UTF-8 text")
    return read.decode("utf-8", errors="replace")


def _binary(read: bytes) -> bool:
    """Whether the head of a file is no text. A log that was cut while it was written may begin with zeros."""
    head = read.lstrip(b"\0")[:HEAD_BYTES].decode("utf-8", errors="replace")
    odd = sum(sign == "\ufffd" or (ord(sign) < ord(" ") and sign not in "\t\n\v\f\r\b\x1b") for sign in head)
    return odd > MOST_ODD * len(head) or (bool(read) and not head)


def kind_of(text: str, suffix: str) -> str:
    """What a file is, by its content; `table` where it is none of the logs."""
    if suffix in TABLES:
        return "table"
    if MARK in text:
        return "mlperf"
    lines = text.splitlines()
    if verl_console.read_steps(lines):
        return "verl-console"
    if areal_console.read_steps(lines):
        return "areal-console"
    if text.lstrip().startswith("{") and read_sessions(lines[:100])[0]:
        return "areal-tracer"
    return "table"


def _some(read: tuple[list[_T], list[str]], path: Path, kind: str) -> tuple[list[_T], list[str]]:
    if not read[0]:
        first = f" ({read[1][0]})" if read[1] else ""
        raise SpecError(f"{path}: nothing of a {kind} file in it{first}; name its kind with --from")
    return read
