"""Numbers and texts that others wrote: of the kind that is meant, or not known. Standard library only."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

INT_LIMIT = 2**63  # a column holds no larger one
MOST_DIGITS = 40  # of what is shown of a value


def number(value: object, least: float | None = None, most: float | None = None) -> float | None:
    """A finite number from `least` to `most`; None for anything else: a text, a flag, NaN, one out of all reason."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    inside = isfinite(found) and (least is None or found >= least) and (most is None or found <= most)
    return found if inside else None


def whole(value: object, least: int | None = None) -> int | None:
    """A whole number that a column can hold, `least` or more; None for anything else, a flag too."""
    if type(value) is not int or not -INT_LIMIT <= value < INT_LIMIT or (least is not None and value < least):
        return None
    return value


def text(value: object) -> str | None:
    """A text that can be written as UTF-8; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def writable(value: Any) -> Any:
    """What JSON said, its texts such as can be written: half of a surrogate pair, which JSON can hold, becomes `?`."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {writable(key): writable(one) for key, one in value.items()}
    return [writable(one) for one in value] if isinstance(value, list) else value


def shown(value: object) -> str:
    """What a message says of a value: its beginning."""
    try:
        said = repr(value)
    except ValueError:  # an integer of thousands of digits
        said = f"a number of kind {type(value).__name__}"
    return said if len(said) <= MOST_DIGITS else said[: MOST_DIGITS - 1] + "…"


def mapping(value: object) -> Mapping[str, Any]:
    """An object's entries; none for anything else."""
    return value if isinstance(value, Mapping) else {}
