"""Whether a value that was read is of the type that a field declares. Standard library only."""

from collections.abc import Mapping
from math import isfinite
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

INT_LIMIT = 2**63  # a column holds no larger one


def fits(value: object, declared: Any) -> bool:
    """Whether `value` is of the type `declared`: numbers finite and not flags, texts such as can be written."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is tuple:  # tuple[X, ...]
        return isinstance(value, tuple) and all(fits(one, parts[0]) for one in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    if declared in (int, float):
        return _is_number(value, whole=declared is int)
    if declared is str:
        return isinstance(value, str) and _can_be_written(value)
    return value is None if declared is NoneType else isinstance(value, declared)


def name_of(declared: Any) -> str:
    """A declared type in words, e.g. `float or None`."""
    parts = get_args(declared) if get_origin(declared) is UnionType else (declared,)
    return " or ".join("None" if part is NoneType else getattr(part, "__name__", str(part)) for part in parts)


def _is_number(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return -INT_LIMIT <= value < INT_LIMIT if isinstance(value, int) else isfinite(value)


def _can_be_written(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
