"""One training step as a log printed it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from results.lint.quantity import Printed, Quantity, read_number

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MANY_DECIMALS = re.compile(r"\.\d{7,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStep:
    """The figures of one step, as text, by the name the framework gives them. `line`: of the file, from 1."""

    step: int
    line: int
    values: Mapping[str, str]
    wall_s: float | None = None  # wall clock, seconds, at which it was printed; None where the log does not say

    @property
    def full(self) -> bool:
        """Whether floats are printed with all their digits, so that `1.0` is 1 and not 0.95 to 1.05."""
        return any(_MANY_DECIMALS.search(text) for text in self.values.values())

    def number(self, key: str) -> Quantity | None:
        """The figure of that name with its rounding; None where it is not there, or is no number."""
        text = self.values.get(key)
        found = None if text is None else printed(text, full=self.full)
        return None if found is None else found.quantity

    def value(self, key: str) -> float | None:
        """The figure of that name; None where it is not there, or is no number."""
        found = self.number(key)
        return None if found is None else found.value


def printed(text: str, *, full: bool) -> Printed | None:
    """A number of a log; one of a log that prints all digits was not rounded."""
    return read_number(text, exact=full)


def without_colour(line: str) -> str:
    """A line without terminal escapes, and only what a carriage return left standing."""
    return _ANSI.sub("", line).rstrip("\r\n").rpartition("\r")[2]
