"""What a user asked, before defaults: read from a TOML file and flags, decoded and checked for type and key."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Strict, TypeAdapter, ValidationError

from adapters.base import adapter_names
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, Policy, Thinking

_SPLIT = re.compile(r"^(\d+)(?:\+(\d+))?$")


def _number(value: object) -> object:
    # TOML integers are fine where a float is meant; true, "8", inf and nan are not.
    if isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError("not a finite number")


def _gpus(value: object) -> object:
    """`4+4`, `8` (one number stands for both pools; a colocated run has one), or `{train = 4, rollout = 4}`."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and (match := _SPLIT.match(value.replace(" ", ""))):
        train = int(match[1])
        return Gpus(train=train, rollout=int(match[2])) if match[2] else Gpus(train=train, rollout=0)
    if isinstance(value, dict) and set(value) == {"train", "rollout"}:
        counts = list(value.values())
        if all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
            return Gpus(**value)
    raise ValueError("not a GPU split")


Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), BeforeValidator(_number)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]
Split = Annotated[Gpus, BeforeValidator(_gpus)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Every key a user may set, None where it is left to the defaults. `overrides` is per framework."""

    framework: Text | None = None
    placement: Placement | None = None
    workload: Text | None = None
    preset: Text | None = None
    load: Load | None = None
    tools: Text | None = None
    record: Text | None = None
    web_cache: Text | None = None
    allow_private: Flag | None = None
    corpus: Text | None = None
    dataset: Text | None = None
    columns: dict[str, Text] | None = None
    reward: Text | None = None
    policy: Policy | None = None
    thinking: Thinking | None = None
    max_turns: Whole | None = None
    turn_tokens: Whole | None = None
    model: Text | None = None
    gpus: Split | None = None
    nodes: Whole | None = None
    steps: Whole | None = None
    warmup_steps: Whole | None = None
    batch_size: Whole | None = None
    group_size: Whole | None = None
    max_staleness: Whole | None = None
    seed: Whole | None = None
    device: Device | Literal["auto"] | None = None
    engine: Text | None = None
    rollout_tp: Whole | None = None
    context_tokens: Whole | None = None
    micro_batch_tokens: Whole | None = None
    offload: Offload | None = None
    timeout: Number | None = None
    sample_hz: Number | None = None
    dcgm: Text | None = None
    ray_address: Text | None = None
    latency_scale: Number | None = None
    as_shipped: Flag | None = None
    unverified: Flag | None = None
    faults: tuple[Text, ...] | None = None


KEYS = tuple(f.name for f in fields(Request))
SHOWN_KEYS = tuple(key for key in KEYS if key != "faults")  # faults are for bench's own tests


def _choices(kind: type[StrEnum], *more: str) -> str:
    return "one of " + ", ".join([*more, *(member.value for member in kind)])


_WHOLE = "a whole number"
_ALLOWED: Mapping[str, str] = {
    "placement": _choices(Placement),
    "load": _choices(Load),
    "device": _choices(Device, "auto"),
    "offload": _choices(Offload),
    "policy": _choices(Policy),
    "thinking": _choices(Thinking),
    "columns": 'a table, e.g. columns = {prompt = "question", answer = "answer"}',
    "gpus": "train+rollout, e.g. 4+4, or one number when colocated, e.g. 8",
    **dict.fromkeys(
        (
            "nodes",
            "steps",
            "warmup_steps",
            "batch_size",
            "group_size",
            "max_staleness",
            "seed",
            "rollout_tp",
            "context_tokens",
            "micro_batch_tokens",
            "max_turns",
            "turn_tokens",
        ),
        _WHOLE,
    ),
    "timeout": "a number of seconds",
    "sample_hz": "a number, in samples a second",
    "latency_scale": "a number; 1 is as planned",
    "as_shipped": "true or false",
    "allow_private": "true or false",
    "unverified": "true or false",
    "faults": "a list of name or name=value",
}


class _VerbatimFloat(float):
    """A TOML float that remembers how it was written, so that `lr = 1e-6` and `-o lr=1e-6` are the same override."""

    text: str

    def __new__(cls, text: str) -> "_VerbatimFloat":
        number = super().__new__(cls, text)
        number.text = text
        return number


def read_toml(path: Path) -> tuple[dict[str, object], dict[str, dict[str, str]]]:
    """The keys of a file, and its overrides per framework (dotted key -> verbatim value).

    Raises:
        SpecError: unreadable, not TOML (with the line), or an override table of an unknown framework.
    """
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"), parse_float=_VerbatimFloat)
    except OSError as error:
        raise SpecError(f"config = {path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"config = {path}: not valid TOML: {error}") from None
    tables = raw.pop("overrides", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SpecError(f"overrides in {path}: allowed is one table per framework, e.g. [overrides.skyrl]")
    for name in tables:
        if name not in adapter_names():
            raise SpecError(f"[overrides.{name}] in {path}: unknown framework{suggest(name, adapter_names())}")
    return raw, {name: dict(_flatten(table, "", path)) for name, table in tables.items()}


def parse_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; the last of a repeated key wins, the value is kept verbatim.

    Raises:
        SpecError: a text without `=` or without a key.
    """
    parsed = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise SpecError(
                f"override = {pair!r}: allowed is KEY=VALUE, e.g. -o trainer.policy.optimizer_config.lr=1e-6"
            )
        parsed[key.strip()] = value
    return parsed


def decode(raw: Mapping[str, object], source: str) -> Request:
    """Typed values of what one source (a file, the flags) sets.

    Raises:
        SpecError: an unknown key (with the nearest known one), or a value of the wrong type.
    """
    for key, value in raw.items():
        if key not in KEYS:
            raise SpecError(f"{key} = {_show(value)} in {source}: unknown key{suggest(key, SHOWN_KEYS)}")
    try:
        return _adapter().validate_python(dict(raw))
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        value = raw[key]
        allowed = _ALLOWED.get(key, "a text")
        near = ""
        if isinstance(value, str) and allowed.startswith("one of "):
            near = suggest(value, allowed.removeprefix("one of ").split(", "), listing=False)
        raise SpecError(f"{key} = {_show(value)} in {source}: allowed is {allowed}{near}") from None


def suggest(name: str, known: Iterable[str], *, listing: bool = True) -> str:
    """The end of an error message: the nearest known name, and (unless `listing` is off) all of them."""
    names = list(known)
    near = difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.5) or difflib.get_close_matches(
        name, names, n=1, cutoff=0.5
    )
    hint = f"; did you mean {near[0]}?" if near else ""
    return hint + (f" (allowed: {', '.join(names)})" if listing else "")


@cache
def _adapter() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


def _flatten(table: Mapping[str, object], prefix: str, path: Path) -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{name}.", path)
        else:
            yield name, _verbatim(name, value, path)


def _verbatim(name: str, value: object, path: Path) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case _VerbatimFloat():
            return value.text
        case int() | str():
            return str(value)
    raise SpecError(
        f"{name} = {_show(value)} in {path}: allowed is a text, number or truth value;"
        " write a list as the text the framework reads, e.g. \"['x.jsonl']\""
    )


def _show(value: object) -> str:
    return value.text if isinstance(value, _VerbatimFloat) else repr(value)
