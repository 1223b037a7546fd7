"""What a lint found: violations, what figures imply without saying it, and what could not be checked."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from results.lint.check import IDENTITIES, Check
from results.lint.quantity import Quantity

EVEN = 0.02  # of a range's width: by so much its two sides may differ and be printed as one `±`


class Severity(StrEnum):
    """How a finding is meant."""

    VIOLATION = "violation"  # no values that round to the printed ones keep the identity
    IMPLIED = "implied"  # true if the figures are, and not said beside them
    UNCHECKED = "cannot be checked"  # a figure that the identity needs is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: where, which identity, both sides (None where it could not be checked) and the tolerance."""

    severity: Severity
    identity: str
    source: str  # file or run
    row: str  # step, table row, trajectory ...
    message: str
    line: int | None = None  # of the file, from 1
    left: float | None = None
    right: float | None = None
    left_words: str = ""
    right_words: str = ""
    direction: str = ""
    tolerance: float | None = None
    unit: str = ""


@dataclass(slots=True)
class Linted:
    """The findings of one source, and how many checks were made, by identity."""

    source: str
    findings: list[Finding] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    columns_not_read: list[str] = field(default_factory=list)  # headings of columns of numbers that nothing is known of

    @property
    def checks(self) -> int:
        """Identities that could be checked, each place counted."""
        return sum(self.made.values())

    def of(self, severity: Severity) -> list[Finding]:
        """The findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def check(self, check: Check, row: str, line: int | None = None) -> None:
        """Counts a check, and keeps it where it failed."""
        for side, words in ((check.left, check.left_words), (check.right, check.right_words)):
            if not math.isfinite(side.value):
                why = "is no number" if math.isnan(side.value) else "is too large to be computed"
                self.unchecked(check.identity, row, f"{words} {why}", line)
                return
        self.made[check.identity] = self.made.get(check.identity, 0) + 1
        if check.holds:
            return
        said = f"{IDENTITIES[check.identity]}: {check.left_words} {figure(check.left)} {_not(check.direction)} "
        said += f"{check.right_words} {figure(check.right)}"
        said += f" {check.unit}" if check.unit else ""
        said += f"; {apart(check)}"
        said += f" (often: {check.hint})" if check.hint else ""
        self.findings.append(
            Finding(
                severity=Severity.VIOLATION,
                identity=check.identity,
                source=self.source,
                row=row,
                line=line,
                message=said,
                left=check.left.value,
                right=check.right.value,
                left_words=check.left_words,
                right_words=check.right_words,
                direction=check.direction,
                tolerance=check.tolerance,
                unit=check.unit,
            )
        )

    def add(self, other: "Linted", place: str) -> None:
        """Takes over what was found in a part of this source; `place` says where that is."""
        self.findings += [replace(one, source=other.source, row=f"{place}, {one.row}") for one in other.findings]
        for identity, count in other.made.items():
            self.made[identity] = self.made.get(identity, 0) + count
        self.notes += [f"{place}: {note}" for note in other.notes]

    def check_all(self, checks: Iterable[Check], row: str, line: int | None = None) -> None:
        """`check` for each."""
        for check in checks:
            self.check(check, row, line)

    def implied(
        self, identity: str, row: str, message: str, value: Quantity, *, unit: str = "", line: int | None = None
    ) -> None:
        """What figures imply: `value` is the implied number."""
        self.findings.append(
            Finding(
                severity=Severity.IMPLIED,
                identity=identity,
                source=self.source,
                row=row,
                line=line,
                message=message,
                left=value.value,
                left_words="implied",
                tolerance=value.half,
                unit=unit,
            )
        )

    def unchecked(self, identity: str, row: str, why: str, line: int | None = None) -> None:
        """An identity that lacks something."""
        self.findings.append(
            Finding(severity=Severity.UNCHECKED, identity=identity, source=self.source, row=row, line=line, message=why)
        )


def figure(quantity: Quantity) -> str:
    """A number with its rounding, e.g. `451 ±0.5`, or `1 (0.33 to 3)` where that is not the same on both sides."""
    text = f"{quantity.value:.7g}"
    below, above = quantity.value - quantity.low, quantity.high - quantity.value
    if max(below, above) <= 1e-9 * max(abs(quantity.value), 1e-300):
        return text
    if not math.isfinite(below) or not math.isfinite(above):
        if math.isfinite(above):
            return f"at most {quantity.high:.7g}"
        return f"at least {quantity.low:.7g}" if math.isfinite(below) else f"{text} (any number within its rounding)"
    if abs(below - above) > EVEN * (below + above):
        return f"{text} ({quantity.low:.3g} to {quantity.high:.3g})"
    return f"{text} ±{quantity.half:.2g}"


def apart(check: Check) -> str:
    """By how much the sides differ, and what was allowed."""
    gap = abs(check.left.value - check.right.value)
    share = f" ({gap / abs(check.right.value):.2%})" if check.right.value else ""
    return f"apart by {gap:.3g}{share}, rounding allows {check.tolerance:.2g}"


def _not(direction: str) -> str:
    return {"=": "is not", "<=": "is more than", "<": "is not below", ">=": "is less than"}[direction]
