"""Data inside a page: arrays as base64 of little-endian numbers, and JSON that leads no parser of HTML astray."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# What could end a script element, begin a comment or an entity, or end a line of JavaScript.
_ESCAPED: Mapping[str, str] = {mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
_KINDS = ("u1", "u2", "u4", "i4", "f4")


def packed(values: npt.ArrayLike, kind: str) -> dict[str, str]:
    """An array as {"k": kind, "d": base64}.

    Args:
        values: numbers; they are rounded to `kind`.
        kind: u1, u2, u4 (unsigned), i4 (signed) or f4 (single precision; NaN is unknown).

    Raises:
        ValueError: another kind, or a number that the kind can't hold.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind = {kind!r}: allowed is one of {', '.join(_KINDS)}")
    given = np.asarray(values)
    if kind != "f4" and given.size:
        limits = np.iinfo(np.dtype(kind))
        if given.min() < limits.min or given.max() > limits.max:
            raise ValueError(f"{given.min()} to {given.max()}: does not fit {kind}")
    made = given.astype(f"<{kind}")
    return {"k": kind, "d": base64.b64encode(made.tobytes()).decode("ascii")}


def embedded(data: Any) -> str:
    """JSON for a `<script type="application/json">`; numbers that are not finite are an error.

    Raises:
        ValueError: a number is NaN or infinite: unknown is null.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark, instead in _ESCAPED.items():
        text = text.replace(mark, instead)
    return text.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair can't be written
