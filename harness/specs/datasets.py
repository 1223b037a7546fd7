"""Users' data sets: Parquet or JSON lines with a question and its answer in columns of any name, made into rows.

As files of this kind have them: a prompt is a text or a chat (a list of messages, of which the last user's is the
question; its content is a text or a list of parts, all of them texts); an answer is a text, a number or a list of texts
that are all right, or such a thing inside an object as `ground_truth`, `target`, `answer` or `answers` (SkyRL's and
verl's `reward_model` and `reward_spec` columns).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError
from workloads.deep_research.dataset import Row

# Looked for in this order where --columns does not name one.
QUESTION_COLUMNS = ("prompt", "question", "problem", "query")
ANSWER_COLUMNS = ("answer", "answers", "golden_answers", "ground_truth", "reward_spec", "reward_model", "target")
INSIDE_ANSWERS = ("ground_truth", "target", "answers", "answer")  # keys of an answer that is an object
BATCH_ROWS = 1_024
TEXT_PARTS = ("text", "input_text")  # types of a part of a message that is a text
MOST_SHOWN = 60


def read_dataset(path: Path, columns: Mapping[str, str], most: int | None = None, *, answers: bool = True) -> list[Row]:
    """The first `most` rows of a file, in its order.

    Args:
        columns: `prompt`, `answer` and `extra` -> the file's column. What is not named is looked for among the usual
            names; `extra` (an object that is handed to a scorer) by default takes nothing.
        answers: whether every row must have an answer (a live load is judged by it).

    Raises:
        SpecError: unreadable, without the columns, without rows, or a value that does not fit (names row and column).
    """
    rows: list[Row] = []
    named: tuple[str, str | None, str | None] | None = None
    for number, record in enumerate(islice(_records(path), most), start=1):
        if named is None:
            named = _columns(path, record, columns, answers)
        question, answer, extra = named
        where = f"dataset = {str(path)!r}, row {number}"
        rows.append(
            Row(
                prompt=number - 1,
                question=_question(record.get(question), f"{where}, column {question}"),
                answers=_answers(record.get(answer), f"{where}, column {answer}", answers) if answer else (),
                extra=_extra(record.get(extra), f"{where}, column {extra}") if extra else {},
            )
        )
    if not rows:
        raise SpecError(f"dataset = {str(path)!r}: it has no rows")
    return rows


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        else:
            yield from _json_lines(path)
    except OSError as error:
        raise SpecError(f"dataset = {str(path)!r}: cannot be read: {error.strerror or error}") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise SpecError(f"dataset = {str(path)!r}: not a Parquet file that can be read: {error}") from None


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        row = 0
        for line, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            row += 1
            try:
                record = json.loads(raw.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise SpecError(f"dataset = {str(path)!r}, row {row} (line {line}): not JSON: {error}") from None
            if not isinstance(record, dict):
                raise SpecError(
                    f"dataset = {str(path)!r}, row {row} (line {line}): allowed is an object, found {_shown(record)}"
                )
            yield record


def _columns(
    path: Path, record: Mapping[str, Any], asked: Mapping[str, str], answers: bool
) -> tuple[str, str | None, str | None]:
    there = ", ".join(record)
    for name, column in asked.items():
        if column not in record:
            raise SpecError(f"columns.{name} = {column!r}: {path} has no such column; it has {there}")
    question = asked.get("prompt") or next((name for name in QUESTION_COLUMNS if name in record), None)
    answer = asked.get("answer") or next((name for name in ANSWER_COLUMNS if name in record), None)
    if question is None:
        raise SpecError(f"dataset = {str(path)!r}: no question among its columns {there}; --columns prompt=COLUMN")
    if answer is None and answers:
        raise SpecError(f"dataset = {str(path)!r}: no answer among its columns {there}; --columns answer=COLUMN")
    return question, answer, asked.get("extra")


def _question(value: object, where: str) -> str:
    if isinstance(value, list) and value and all(isinstance(message, dict) for message in value):
        spoken = [message.get("content") for message in value if message.get("role") == "user"]
        value = spoken[-1] if spoken else None
        where += " (a chat: its last message of the user)"
        if isinstance(value, list):
            value = _joined(value, where)
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{where}: allowed is a text or a chat with a user's message, found {_shown(value)}")
    return _writable(value.strip(), where)


def _joined(parts: list[object], where: str) -> str:
    """The text of a content that is a list of parts, one below the other.

    Raises:
        SpecError: a part is no text; names it.
    """
    texts = []
    for number, part in enumerate(parts, start=1):
        text = part.get("text") if isinstance(part, dict) and part.get("type") in TEXT_PARTS else part
        if not isinstance(text, str):
            what = part.get("type") if isinstance(part, dict) else None
            found = f"type {_shown(what)}" if isinstance(what, str) and what not in TEXT_PARTS else _shown(part)
            raise SpecError(f"{where}, part {number} of {len(parts)}: allowed is a text, found {found}")
        texts.append(text)
    return "\n".join(texts)


def _answers(value: object, where: str, needed: bool) -> tuple[str, ...]:
    while isinstance(value, dict):
        inside = next((key for key in INSIDE_ANSWERS if value.get(key) is not None), None)
        if inside is None:
            break
        value = value[inside]
    if value is None and not needed:
        return ()
    values = value if isinstance(value, list) else [value]
    texts = tuple(_text(one) for one in values)
    for text in texts:
        _writable(text, where)
    if not texts or any(not text for text in texts):
        raise SpecError(f"{where}: allowed is a text, a number or a list of such, found {_shown(value)}")
    return texts


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
    return ""


def _extra(value: object, where: str) -> Mapping[str, object]:
    """An object, also one written as JSON text; anything else under the name `extra`."""
    if value is None:
        return {}
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    found = value if isinstance(value, dict) else {"extra": value}
    try:
        _writable(json.dumps(found, ensure_ascii=False), where)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"{where}: cannot be written as JSON: {error}") from None
    return found


def _writable(text: str, where: str) -> str:
    """The text, which UTF-8 must be able to hold: half of a surrogate pair, as broken JSON has it, it can't."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{where}: not a text that UTF-8 can hold: {error.reason} at {error.start}") from None
    return text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"
