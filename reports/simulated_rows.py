"""Rows of `bench simulate`, put together over their seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def together(rows: Sequence[Row], axes: Sequence[str]) -> list[list[Row]]:
    """Rows that differ by their seed alone, in the rows' order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(repr([row.get(name) for name in (*axes, "policy")]), []).append(row)
    return list(groups.values())


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the order statistics at 2.5 % and 97.5 %."""
    ordered = sorted(values)
    low = ordered[max(math.ceil(0.025 * len(ordered)) - 1, 0)]
    return sum(ordered) / len(ordered), low, ordered[math.ceil(0.975 * len(ordered)) - 1]
