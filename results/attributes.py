"""Attributes of events: which types those with columns of their own have, and the JSON of the others."""

import json
from collections.abc import Mapping
from typing import Any

from harness.protocol.events import Scalar
from results.reading import INT_LIMIT

# The attributes of phases.*_ATTRIBUTES that are text; all others are integers.
TEXT_ATTRIBUTES = frozenset({"engine", "stop_reason", "tool", "status", "argument", "detail"})
FLAG_ATTRIBUTES = frozenset({"cache_break"})

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode  # made once: a call per event


def odd(name: str, value: Scalar) -> bool:
    """Whether an attribute that has a column is not of that column's type."""
    if value is None:
        return False
    if name in TEXT_ATTRIBUTES:
        return type(value) is not str
    if name in FLAG_ATTRIBUTES:
        return type(value) is not bool
    return type(value) is not int or not -INT_LIMIT <= value < INT_LIMIT


def to_json(raw: Mapping[str, Any]) -> str:
    """Compact JSON with sorted keys."""
    return _ENCODE(raw) if raw else "{}"
