"""What a lint found, as Markdown, as JSON, or as annotations of a GitHub workflow."""

import json
import math
from collections.abc import Sequence

from reports.markdown import code, escape, plural, table
from results.lint.findings import Finding, Linted, Severity

FORMATS = ("markdown", "json", "github")
SHOWN = 8  # columns not read that are named without `--all`
_LEVEL = {Severity.VIOLATION: "error", Severity.IMPLIED: "notice", Severity.UNCHECKED: "notice"}


def render(sources: Sequence[Linted], form: str, *, unchecked: bool = False) -> str:
    """The findings in one of FORMATS; `unchecked`: also what could not be checked. Equal findings give equal text."""
    if form == "json":
        return as_json(sources, unchecked=unchecked)
    return "\n".join((github if form == "github" else markdown)(sources, unchecked=unchecked))


def markdown(sources: Sequence[Linted], *, unchecked: bool = False) -> list[str]:
    """A section for each source: its findings in a table, and how many identities were checked."""
    lines: list[str] = []
    for one in sources:
        lines += [f"## {escape(one.source)}", "", _summary(one), ""]
        shown = _shown(one, unchecked)
        if shown:
            rows = [
                [finding.severity.value, escape(_place(finding)), code(finding.identity), escape(finding.message)]
                for finding in shown
            ]
            lines += [*table(["", "where", "identity", "what"], rows, "llll"), ""]
        notes = [*one.notes, *_not_read(one, unchecked)]
        lines += [f"- {escape(note)}" for note in notes]
        lines += [""] if notes else []
    return lines[:-1] if lines and not lines[-1] else lines


def as_json(sources: Sequence[Linted], *, unchecked: bool = False) -> str:
    """One object: `violations` and `implied` over all sources, and each source with its findings."""
    return json.dumps(
        {
            "violations": sum(len(one.of(Severity.VIOLATION)) for one in sources),
            "implied": sum(len(one.of(Severity.IMPLIED)) for one in sources),
            "sources": [
                {
                    "source": one.source,
                    "checks": one.checks,
                    "checks_by_identity": dict(sorted(one.made.items())),
                    "cannot_be_checked": len(one.of(Severity.UNCHECKED)),
                    "notes": one.notes,
                    "columns_not_read": one.columns_not_read,
                    "findings": [_object(finding) for finding in _shown(one, unchecked)],
                }
                for one in sources
            ],
        },
        indent=2,
        allow_nan=False,
    )


def github(sources: Sequence[Linted], *, unchecked: bool = False) -> list[str]:
    """Workflow commands: an error for each violation, a notice for the rest, at the file and line."""
    lines = []
    for one in sources:
        for finding in _shown(one, unchecked):
            title = f"{finding.severity.value}: {finding.identity}"
            place = f"file={_property(finding.source)}"
            place += f",line={finding.line}" if finding.line is not None else ""
            text = _data(f"{finding.row}: {finding.message}")
            lines.append(f"::{_LEVEL[finding.severity]} {place},title={_property(title)}::{text}")
        place = f"file={_property(one.source)},title=note"
        lines += [f"::notice {place}::{_data(note)}" for note in [*one.notes, *_not_read(one, unchecked)]]
    return lines


def _summary(one: Linted) -> str:
    counts = [plural(len(one.of(Severity.VIOLATION)), "violation"), f"{len(one.of(Severity.IMPLIED))} implied"]
    said = f"{plural(one.checks, 'check')} of {_identities(len(one.made))}: {', '.join(counts)}"
    left = len(one.of(Severity.UNCHECKED))
    return said + (f"; {left} could not be made (`--all` lists them)." if left else ".")


def _not_read(one: Linted, unchecked: bool) -> list[str]:
    """That columns of numbers were not read, and how they are named; `unchecked`: all of them."""
    names = one.columns_not_read
    if not names:
        return []
    shown = names if unchecked else names[:SHOWN]
    more = f" and {len(names) - len(shown)} more (--all lists them)" if len(names) > len(shown) else ""
    said = ", ".join(map(repr, shown))
    return [f"columns not read: {said}{more}; --map COLUMN=NAME says what one is (names: docs/lint.md)"]


def _identities(count: int) -> str:
    return f"{count} identit{'y' if count == 1 else 'ies'}"


def _shown(one: Linted, unchecked: bool) -> list[Finding]:
    order = (Severity.VIOLATION, Severity.IMPLIED, *([Severity.UNCHECKED] if unchecked else []))
    return [finding for severity in order for finding in one.of(severity)]


def _place(finding: Finding) -> str:
    return finding.row + (f", line {finding.line}" if finding.line is not None else "")


def _object(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "identity": finding.identity,
        "row": finding.row,
        "line": finding.line,
        "message": finding.message,
        "left": _number(finding.left),
        "left_words": finding.left_words,
        "direction": finding.direction,
        "right": _number(finding.right),
        "right_words": finding.right_words,
        "tolerance": _number(finding.tolerance),
        "unit": finding.unit,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
