"""The ledger of a baseline folder: who took which run in, when and why, and who may.

One JSON line an entry, only ever appended to, so that a merge in version control keeps both sides' lines and a review
sees each. Whoever writes the first line is trusted; they and those they trust may take runs in, and let others do so.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.protocol.durable import sync_folder
from harness.protocol.errors import SpecError

LEDGER = "ledger.jsonl"
ACCEPT, WITHDRAW, TRUST, DISTRUST = "accept", "withdraw", "trust", "distrust"
ACTIONS = (ACCEPT, WITHDRAW, TRUST, DISTRUST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. `what`: a run's id (accept, withdraw) or a person (trust, distrust)."""

    utc: str  # when the entry was made, ISO 8601
    who: str
    action: str
    what: str
    why: str
    cell: str = ""  # folder of the cell, for a run
    digest: str = ""  # SHA-256 of the run's measures as they were taken in


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the ledger amounts to: the runs that count, and who is trusted."""

    accepted: dict[str, Entry]  # run id -> the entry that took it in
    trusted: frozenset[str]
    ignored: tuple[str, ...]  # entries that have no effect, and why


def standing(entries: Iterable[Entry]) -> Standing:
    """Plays the ledger from its first line."""
    accepted: dict[str, Entry] = {}
    trusted: set[str] = set()
    ignored: list[str] = []
    for entry in entries:
        if not trusted:
            trusted.add(entry.who)
        if entry.who not in trusted:
            ignored.append(f"{entry.action} {entry.what} by {entry.who}, who is not trusted")
        elif entry.action == ACCEPT:
            accepted[entry.what] = entry
        elif entry.action == WITHDRAW:
            accepted.pop(entry.what, None)
        elif entry.action == TRUST:
            trusted.add(entry.what)
        elif len(trusted) == 1:
            ignored.append(f"distrust {entry.what}: nobody would be left to trust")
        else:
            trusted.discard(entry.what)
    return Standing(accepted=accepted, trusted=frozenset(trusted), ignored=tuple(ignored))


def parse(text: str, where: str) -> tuple[Entry, ...]:
    """The entries of a ledger's text; `where` names it in messages.

    Raises:
        SpecError: a line is no entry: names the line.
    """
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entries.append(_entry(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise SpecError(f"{where}, line {number}: no entry of a ledger ({error}); correct or remove it") from None
    return tuple(entries)


def read(folder: Path) -> tuple[Entry, ...]:
    """The entries of a baseline folder; none where there is no ledger.

    Raises:
        SpecError: a line is no entry, or the file can't be read.
    """
    path = folder / LEDGER
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} can't be read: {error}") from None
    return parse(text, str(path))


def append(folder: Path, entries: Sequence[Entry]) -> None:
    """Adds lines at the end, durable when it returns.

    Raises:
        SpecError: someone among `entries` may not do it, by the ledger so far.
        OSError: it can't be written.
    """
    before = read(folder)
    for entry in entries:
        trusted = standing(before).trusted
        if trusted and entry.who not in trusted:
            raise SpecError(
                f"{entry.who} may not change {folder}: trusted are {', '.join(sorted(trusted))}; one of them can run"
                f" `bench baseline trust {entry.who!r} --why ...`"
            )
        before = (*before, entry)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LEDGER
    cut = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        if cut:  # an editor left the last line without its end
            file.write("\n")
        for entry in entries:
            file.write(json.dumps(asdict(entry), ensure_ascii=False, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _entry(value: Any) -> Entry:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    unknown = set(value) - set(Entry.__dataclass_fields__)
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
    if any(not isinstance(text, str) for text in value.values()):
        raise TypeError("a value is no text")
    entry = Entry(**value)
    if entry.action not in ACTIONS:
        raise ValueError(f"action {entry.action!r}: allowed is one of {', '.join(ACTIONS)}")
    return entry
