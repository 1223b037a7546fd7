"""A value read from JSON as the dataclass that declares it: key by key, each of its declared type and inside its range.

What is wrong is said with its key, as `constants.train_s.low = "a": allowed is a number from 0 up`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from harness.protocol.errors import SpecError
from harness.protocol.kinds import fits

Made = TypeVar("Made")
SHOWN = 40  # characters of a wrong value
_PLAIN = re.compile(r"[\w.-]+")
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is allowed of a field beyond its type; of a list or a table: of each value in it."""

    allowed: str
    holds: Callable[[Any], bool]
    filled: bool = False  # a list that may not be empty


Rules = Mapping[tuple[type, str], Rule]  # by dataclass and field


def made_of(kind: type[Made], held: object, rules: Rules, where: str = "") -> Made:
    """The dataclass `kind` from a JSON table; `where`: the key of that table.

    Raises:
        SpecError: names the key that is unknown, missing, or not what is allowed.
    """
    if not isinstance(held, dict):
        raise _wrong(where, held, "a table")
    declared = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]  # a dataclass, by contract
    if unknown := sorted(set(held) - set(known)):
        raise SpecError(f"{_key(where, unknown[0])}: unknown; known are {', '.join(known)}")
    for name, one in known.items():
        if name not in held and one.default is MISSING and one.default_factory is MISSING:
            raise SpecError(f"{_key(where, name)}: it is missing")
    read = {
        name: _value(declared[name], value, rules, rules.get((kind, name)), _key(where, name))
        for name, value in held.items()
    }
    try:
        return kind(**read)
    except SpecError as error:  # what its fields say of each other
        raise SpecError(f"{where}: {error}" if where else str(error)) from None


def _value(declared: Any, value: object, rules: Rules, rule: Rule | None, where: str) -> Any:
    origin, parts = get_origin(declared), get_args(declared)
    if origin is UnionType:  # X | None
        if value is None:
            return None
        return _value(next(part for part in parts if part is not NoneType), value, rules, rule, where)
    if is_dataclass(declared):
        return made_of(declared, value, rules, where)  # type: ignore[arg-type]  # a class, no instance
    if origin is tuple:  # tuple[X, ...]
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        if rule is not None and rule.filled and not value:
            raise _wrong(where, value, "a list that is not empty")
        return tuple(_value(parts[0], one, rules, rule, f"{where}[{k}]") for k, one in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _wrong(where, value, "a table")
        if unwritable := [name for name in value if not fits(name, str)]:
            raise SpecError(f"{_key(where, unwritable[0])}: allowed are keys that can be written as UTF-8")
        return {name: _value(parts[1], one, rules, rule, _key(where, name)) for name, one in value.items()}
    if not fits(value, declared) or (rule is not None and not rule.holds(value)):
        raise _wrong(where, value, rule.allowed if rule is not None else _WORDS[declared])
    return value


def _key(where: str, name: str) -> str:
    name = name if _PLAIN.fullmatch(name) and fits(name, str) else json.dumps(name)
    return f"{where}.{name}" if where else name


def _wrong(where: str, value: object, allowed: str) -> SpecError:
    text = json.dumps(value)  # as it stands in the file: null, true
    return SpecError(f"{where} = {text if len(text) <= SHOWN else text[:SHOWN] + '...'}: allowed is {allowed}")
