"""Readings from `dcgmi dmon`: a table of fixed columns, printed once a period until told to stop.

    #Entity         SMACT             DRAMA
    ID
    GPU 0           0.512             N/A

The header comes again every some lines. Rows name DCGM's GPU ids; `dcgmi discovery -l` tells their UUIDs. Rows of
other entities (GPU-I: a MIG instance) are left out.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.telemetry.dcgm.fields import FIELDS, Field, number, reading
from harness.telemetry.values import Value

PROGRAM = "dcgmi"
DISCOVERY_TIMEOUT_S = 20.0
_ID = re.compile(r"^\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(GPU-[0-9a-fA-F-]+)")
_ROW = re.compile(r"^\s*GPU\s+(\d+)\s+(.*)$")
_OTHER = re.compile(r"^\s*(GPU-I|GPU-CI|SW|Switch|CPU|Link)\b", re.IGNORECASE)


class DmonError(Exception):
    """`dcgmi` cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: DCGM's GPU id, values by column, and reasons where there is none."""

    gpu_id: int
    values: Mapping[str, Value]
    reasons: Mapping[str, str]


def discover(program: str = PROGRAM) -> dict[int, str]:
    """DCGM's GPU ids and their UUIDs.

    Raises:
        DmonError: there is no such program, no host engine, or no GPU.
    """
    try:
        done = subprocess.run(
            [program, "discovery", "-l"], capture_output=True, text=True, timeout=DISCOVERY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DmonError(f"`{program} discovery -l` cannot be run: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[:300]
        raise DmonError(f"`{program} discovery -l` ended with {done.returncode}: {said} (is nv-hostengine running?)")
    found = parse_discovery(done.stdout)
    if not found:
        raise DmonError(f"`{program} discovery -l` lists no GPU")
    return found


def parse_discovery(text: str) -> dict[int, str]:
    """GPU ids and UUIDs of the table that `dcgmi discovery -l` prints."""
    found: dict[int, str] = {}
    current: int | None = None
    for line in text.splitlines():
        if match := _ID.match(line):
            current = int(match[1])
        if current is not None and (uuid := _UUID.search(line)):
            found[current] = uuid[1]
    return found


def command(
    period_s: float, fields: Sequence[Field] = FIELDS, program: str = PROGRAM, rows: int | None = None
) -> list[str]:
    """The argv that prints those fields once a period, line by line; `rows`: so often and no more."""
    ids = ",".join(str(one.id) for one in fields)
    count = [] if rows is None else ["-c", str(rows)]
    return [program, "dmon", "-e", ids, "-d", str(max(100, round(period_s * 1000))), *count]


def parse_lines(lines: Iterator[str], fields: Sequence[Field] = FIELDS) -> Iterator[Row | str]:
    """The rows of GPUs as they come, and lines (as they are) that are neither row nor header.

    Headings are cut to the width of their column and differ between versions; values come in the order asked for.
    """
    for line in lines:
        text = line.strip()
        if not text or text.startswith(("#", "ID", "Id")) or _OTHER.match(text):
            continue
        match = _ROW.match(text)
        words = match[2].split() if match else []
        if match is None or len(words) != len(fields):
            yield text[:200]
            continue
        values: dict[str, Value] = {}
        reasons: dict[str, str] = {}
        for one, word in zip(fields, words, strict=True):
            value, why = _value(one, word)
            values[one.column] = value
            if why is not None:
                reasons[one.column] = why
        yield Row(int(match[1]), values, reasons)


def _value(field: Field, word: str) -> tuple[Value, str | None]:
    if word == "N/A":
        return None, "N/A"
    try:
        return reading(field, number(word))
    except ValueError:
        return None, f"not a number: {word[:40]}"
