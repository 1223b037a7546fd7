"""Settings by name, as JSON holds them, and in plain words what is wrong with those that can't be read."""

import json
from collections.abc import Sequence
from enum import StrEnum
from types import NoneType
from typing import Any, TypeVar

from harness.protocol.scalars import shown

_JSON_KINDS = {list: "a list", str: "a text", NoneType: "nothing"}
_MOST_NAMED, _MOST_SIGNS = 4, 40
_Kind = TypeVar("_Kind", bound=StrEnum)


def settings(text: str, needed: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """The settings in a JSON text.

    Raises:
        ValueError: no JSON, no object, without one that is needed, or with one that is not known; in words.
    """
    if not text.strip():
        raise ValueError("it is empty")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from None
    if not isinstance(raw, dict):
        raise ValueError(f"it holds {_JSON_KINDS.get(type(raw), 'a number')}, and no settings by name")
    if missing := [name for name in needed if name not in raw]:
        raise ValueError(f"it lacks {_named(missing)}")
    if unknown := [name for name in raw if name not in known]:
        raise ValueError(f"it has settings that this bench does not know: {_named(unknown)}")
    return raw


def one_of(kind: type[_Kind], name: str, value: object) -> _Kind:
    """A setting that has a few values.

    Raises:
        ValueError: it is none of them; names them.
    """
    for each in kind:
        if value == each.value:
            return each
    raise ValueError(f"{name} = {shown(value)}: allowed is one of {', '.join(kind)}")


def _named(names: Sequence[str]) -> str:
    first = [name[:_MOST_SIGNS] for name in names[:_MOST_NAMED]]
    more = len(names) - len(first)
    said = ", ".join(name if name.isprintable() else ascii(name) for name in first)
    return said + (f" and {more} more" if more else "")
