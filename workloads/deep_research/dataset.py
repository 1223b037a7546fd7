"""The data set of a run: one row per prompt, in the form that workers read."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.protocol.errors import SpecError

FILE = "dataset.jsonl"  # in the run folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question. `prompt` is its place in the order of training, from 0, and the plan's `prompt`."""

    prompt: int
    question: str
    answers: tuple[str, ...] = ()  # any of them is right; none where nothing is judged by the answer
    hops: int | None = None  # facts to be found one after the other
    start_url: str | None = None  # a page to begin with, where one is known
    extra: Mapping[str, object] = field(default_factory=dict)


def write_rows(rows: Iterable[Row], path: Path) -> str:
    """Writes one JSON object per line; returns the digest of what was written."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for row in rows:
            line = (json.dumps(asdict(row), sort_keys=True, ensure_ascii=False) + "\n").encode()
            digest.update(line)
            file.write(line)
    return digest.hexdigest()[:16]


def read_rows(path: Path) -> list[Row]:
    """The rows that `write_rows` wrote.

    Raises:
        SpecError: the file can't be read, or a line (which is named) is not a row.
    """
    rows = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    raw = json.loads(line)
                    rows.append(Row(**{**raw, "answers": tuple(raw.get("answers", ()))}))
                except (ValueError, TypeError) as error:
                    raise SpecError(f"{path}:{number}: not a row of a data set: {error}") from None
    except OSError as error:
        raise SpecError(f"{path}: the data set can't be read: {error.strerror}") from None
    return rows
