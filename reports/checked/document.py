"""A check as plain data, for other programs."""

from collections.abc import Sequence
from typing import Any

from reports.checked.page import outcome
from results.baselines.check import CellCheck
from results.comparing.claims import Gate


def document(cells: Sequence[CellCheck]) -> dict[str, Any]:
    """Everything that the page says, as JSON values; unknown is null.

    Changes are shares (0.1: 10 % worse) where `kind` is `ratio`, else differences in the measure's unit.
    """
    return {"outcome": outcome(cells).value, "cells": [_cell(cell) for cell in cells]}


def _cell(cell: CellCheck) -> dict[str, Any]:
    return {
        "cell": cell.cell,
        "outcome": cell.outcome.value,
        "candidates": list(cell.candidates),
        "baseline": list(cell.baseline),
        "occasions": cell.occasions,
        "problems": list(cell.problems),
        "thin": list(cell.thin),
        "left_out": list(cell.left_out),
        "notes": list(cell.notes),
        "differences": list(cell.differences),
        "gates": [_gate(one) for one in cell.gates],
    }


def _gate(one: Gate) -> dict[str, Any]:
    contrast = one.contrast
    return {
        "measure": one.measure.name,
        "unit": one.measure.unit,
        "kind": one.measure.kind if contrast is None else contrast.kind,
        "failed": one.failed,
        "underpowered": one.underpowered,
        "worse_by": one.change,
        "estimate": None if contrast is None else contrast.estimate,
        "low": None if contrast is None else contrast.low,
        "high": None if contrast is None else contrast.high,
        "p_holm": one.p_adjusted,
        "smallest_change_found": one.detectable,
        "why": one.why,
    }
