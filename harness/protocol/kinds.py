"""Whether a value that was read is of the type that a field declares. Standard library only."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from harness.protocol.scalars import number, text, whole


def fits(value: object, declared: Any) -> bool:
    """Whether `value` is of the type `declared`: numbers finite and not flags, texts such as can be written."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is tuple:  # tuple[X, ...]
        return isinstance(value, tuple) and all(fits(one, parts[0]) for one in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(fits(k, parts[0]) and fits(v, parts[1]) for k, v in value.items())
    if declared is int or (declared is float and isinstance(value, int)):
        return whole(value) is not None
    if declared is float:
        return number(value) is not None
    if declared is str:
        return text(value) is not None
    return value is None if declared is NoneType else isinstance(value, declared)


def name_of(declared: Any) -> str:
    """A declared type in words, e.g. `float or None`."""
    parts = get_args(declared) if get_origin(declared) is UnionType else (declared,)
    return " or ".join("None" if part is NoneType else getattr(part, "__name__", str(part)) for part in parts)
