"""What meta.json and the samplers' gpus.json say of a GPU, as far as it can be meant. Standard library only.

A value of another kind than its key's, or out of all reason, counts as not said, and is named.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.protocol.scalars import number, shown, text, whole

MOST_SECONDS = 86_400.0  # between two readings, or that one is the average of
MOST_WATTS = 1e6
MOST_COUNT = 2.0**62  # bytes, Hz
MOST_NAMED = 3

_TEXTS = ("host", "uuid", "name", "pci_bus_id", "compute_capability", "driver", "power_scope")
_WHOLE = ("index", "minor_number")
_ENDINGS: Mapping[str, Callable[[object], object | None]] = {
    "_s": lambda value: number(value, 0.0, MOST_SECONDS),
    "_watts": lambda value: number(value, 0.0, MOST_WATTS),
    "_bytes": lambda value: number(value, 0.0, MOST_COUNT),
    "_hz": lambda value: number(value, 0.0, MOST_COUNT),
    "_reason": text,
    "_source": text,
}


def facts_of(said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What is said of one GPU, without what can't be meant; and of that, `key = value` each. None stays."""
    facts, odd = {}, []
    for key, value in said.items():
        if value is None or _meant(key, value):
            facts[key] = value
        else:
            odd.append(f"{key} = {shown(value)}")
    return facts, odd


def facts_of_all(said: Iterable[object]) -> tuple[list[dict[str, Any]], list[str]]:
    """The same of a list of GPUs; what is no object is left out of it."""
    found, odd = [], []
    for place, gpu in enumerate(said):
        if not isinstance(gpu, Mapping):
            odd.append(f"gpus[{place}] = {shown(gpu)}")
            continue
        facts, wrong = facts_of(gpu)
        odd += [f"gpus[{place}].{one}" for one in wrong]
        found.append(facts)
    return found, odd


def odd_words(odd: Sequence[str]) -> str:
    """What a message says of values that are not used."""
    more = f" and {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
    return f"{', '.join(odd[:MOST_NAMED])}{more}: not used, for no such value can be meant"


def _meant(key: str, value: object) -> bool:
    if key in _TEXTS:
        return text(value) is not None
    if key in _WHOLE:
        return whole(value, 0) is not None
    if key == "mig_mode":
        return isinstance(value, bool)
    if key == "mig_instances":
        return isinstance(value, list) and all(isinstance(one, Mapping) and text(one.get("uuid")) for one in value)
    if key == "unsupported":
        return isinstance(value, Mapping)
    for ending, of_kind in _ENDINGS.items():
        if key.endswith(ending):
            return of_kind(value) is not None
    return True  # of a key that nothing here reads
