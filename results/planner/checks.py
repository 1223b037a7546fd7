"""Checks of one value each: what is wrong is a SpecError that names the key."""

import math
from enum import StrEnum
from typing import TypeVar

from harness.protocol.errors import SpecError

Choice = TypeVar("Choice", bound=StrEnum)


def number(name: str, value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SpecError(f"{name} = {value!r}: allowed is a number")
    return float(value)


def not_negative(name: str, value: object) -> None:
    """A number from 0 up."""
    if not 0 <= number(name, value) <= 1e15:
        raise SpecError(f"{name} = {value}: allowed is a number from 0 up")


def positive(name: str, value: object) -> None:
    """A number above 0."""
    if not 1e-12 <= number(name, value) <= 1e15:
        raise SpecError(f"{name} = {value}: allowed is a number above 0")


def whole(name: str, value: object, low: int, high: int) -> None:
    """A whole number of a range, both ends allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SpecError(f"{name} = {value!r}: allowed is a whole number from {low} to {high}")


def truth(name: str, value: object) -> None:
    """true or false. Text is neither: 'false' would count as true."""
    if not isinstance(value, bool):
        raise SpecError(f"{name} = {value!r}: allowed is true or false")


def instance(name: str, value: object, kind: type) -> None:
    """A value of a class of the model."""
    if not isinstance(value, kind):
        raise SpecError(f"{name} = {value!r}: allowed is a {kind.__name__}")


def choice(name: str, value: object, kind: type[Choice]) -> Choice:
    """The member of an enumeration that a name means."""
    try:
        if isinstance(value, str):
            return kind(value)
    except ValueError:
        pass
    raise SpecError(f"{name} = {value}: allowed is one of {', '.join(kind)}")
