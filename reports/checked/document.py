"""A check as plain data, for other programs."""

from collections.abc import Sequence
from typing import Any

from reports.checked.page import outcome
from results.baselines.check import CellCheck
from results.comparing.claims import Gate


def document(cells: Sequence[CellCheck]) -> dict[str, Any]:
    """Everything that the page says, as JSON values; unknown is null.

    Changes, tolerances and standard deviations are shares (0.1: 10 % worse) where `kind` is `ratio`, else in the
    measure's unit.
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
        "doubts": list(cell.doubts),
        "differences": list(cell.differences),
        "gates": [_gate(one, cell) for one in cell.gates],
    }


def _gate(one: Gate, cell: CellCheck) -> dict[str, Any]:
    contrast, spread = one.contrast, cell.spreads.get(one.measure.name)
    return {
        "measure": one.measure.name,
        "unit": one.measure.unit,
        "kind": one.measure.kind if contrast is None else contrast.kind,
        "failed": one.failed,
        "underpowered": one.underpowered,
        "worse_by": one.change,
        "tolerance": cell.tolerances[one.measure.name],
        "estimate": None if contrast is None else contrast.estimate,
        "low": None if contrast is None else contrast.low,
        "high": None if contrast is None else contrast.high,
        "p_holm": one.p_adjusted,
        "smallest_change_found": one.detectable,
        "sd_between_occasions": None if spread is None else spread.between,
        "sd_within_an_occasion": None if spread is None else spread.within,
        "why": one.why,
    }
