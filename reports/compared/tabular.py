"""A comparison as rows: CSV, JSON and Parquet hold the same, one row per pair of sides and measure or effect."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.compared.words import kinds, title
from reports.provenance import SIMULATED
from results.comparing.blame import Blame, Effect
from results.comparing.claims import Claim
from results.comparing.comparison import Comparison, Pair

_TEXT, _REAL, _WHOLE = pa.string(), pa.float64(), pa.int64()
SCHEMA = pa.schema(
    [
        ("a", _TEXT),
        ("b", _TEXT),
        ("section", _TEXT),
        ("measure", _TEXT),
        ("unit", _TEXT),
        ("better", _TEXT),
        ("kind", _TEXT),
        ("value_a", _REAL),
        ("value_b", _REAL),
        ("n_a", _WHOLE),
        ("n_b", _WHOLE),
        ("change", _REAL),
        ("ci_low", _REAL),
        ("ci_high", _REAL),
        ("confidence", _REAL),
        ("basis", _TEXT),
        ("p", _REAL),
        ("p_adjusted", _REAL),
        ("verdict", _TEXT),
        ("equivalent", pa.bool_()),
        ("detectable", _REAL),
        ("why", _TEXT),
        ("lost_a", _WHOLE),
        ("lost_b", _WHOLE),
        ("lost", _TEXT),
        ("label", _TEXT),
        ("device", _TEXT),
        ("simulated", pa.bool_()),
    ]
)
BLAME = "blame"


def rows(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The rows, in the page's order. `change`: B / A of a ratio, B - A of a difference, seconds a step of an effect.

    `basis`: what the interval rests on. `n_a`, `n_b`: of what: runs, seeds (pairs of runs) or steps (within runs only).
    `lost_a`, `lost_b`: runs without a value, which `n_a` and `n_b` do not count; `lost`: why they have none.
    `label`: what keeps the sides from being measurements of GPUs, as the page's title has it; None if nothing does.
    `device`: cpu | cuda, both where the sides differ. `simulated`: whether any run was made without a framework.
    """
    return [row | _about(pair) for one in found for pair in one.pairs for row in (*_claims(pair), *_blame(pair))]


def as_csv(found: Sequence[Comparison]) -> str:
    """Rows as CSV with a header; unknown is empty. Numbers are written as Python does: none is lost."""
    text = io.StringIO()
    writer = csv.DictWriter(text, SCHEMA.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows(found))
    return text.getvalue()


def as_json(found: Sequence[Comparison]) -> str:
    """Everything: each comparison's title, what was allowed, its sides, differences and rows."""
    whole = [
        {
            "title": title(one),
            "allowed_differences": [{"what": each.name, "values": each.values} for each in one.allowed],
            "cells_not_compared": list(one.apart),
            "noise": [
                {
                    "a": pair.base.label,
                    "b": pair.side.label,
                    "from": pair.noise or None,
                    "runs": pair.noise_runs or None,
                    "unused": pair.noise_unused or None,
                }
                for pair in one.pairs
            ],
            "rule": {
                "alpha": one.rule.alpha,
                "margin": one.rule.margin,
                "most_detectable": one.rule.most_detectable,
            },
            "sides": [
                {
                    "label": side.label,
                    "runs": [run.run_id for run in side.runs],
                    "notes": {run.run_id: list(run.notes) for run in side.runs if run.notes},
                    "left_out": [{"what": name, "why": why} for name, why in side.left_out],
                    "notices": list(side.notices),
                    "work_digests": sorted({run.work_digest for run in side.runs}),
                    "spec_digests": sorted({run.spec_digest for run in side.runs}),
                }
                for side in one.sides
            ],
            "differences": [{"what": what, "values": values} for what, values in one.differences],
            "rows": rows([one]),
        }
        for one in found
    ]
    return json.dumps(whole, indent=2, sort_keys=False, allow_nan=False) + "\n"


def write_parquet(found: Sequence[Comparison], path: Path) -> None:
    """Rows as Parquet.

    Raises:
        OSError: it cannot be written.
    """
    pq.write_table(pa.Table.from_pylist(rows(found), schema=SCHEMA), path, compression="zstd")


def _about(pair: Pair) -> dict[str, Any]:
    runs = (*pair.base.runs, *pair.side.runs)
    return {
        "label": ", ".join(kinds(runs)) or None,
        "device": ", ".join(sorted({run.device for run in runs})),
        "simulated": any(run.framework == SIMULATED for run in runs),
    }


def _claims(pair: Pair) -> Iterator[dict[str, Any]]:
    for family, claims in pair.claims.items():
        for claim in claims:
            yield _claim(pair, family, claim)


def _claim(pair: Pair, family: str, claim: Claim) -> dict[str, Any]:
    measure, contrast = claim.measure, claim.contrast
    return {
        "a": pair.base.label,
        "b": pair.side.label,
        "section": family,
        "measure": measure.name,
        "unit": measure.unit,
        "better": measure.direction,
        "kind": measure.kind if contrast is None else contrast.kind,
        "value_a": claim.a,
        "value_b": claim.b,
        "n_a": None if contrast is None else contrast.n_a,
        "n_b": None if contrast is None else contrast.n_b,
        "change": None if contrast is None else contrast.estimate,
        "ci_low": None if contrast is None else contrast.low,
        "ci_high": None if contrast is None else contrast.high,
        "confidence": None if contrast is None else contrast.confidence,
        "basis": None if contrast is None else contrast.basis,
        "p": None if contrast is None else contrast.p,
        "p_adjusted": claim.p_adjusted,
        "verdict": claim.verdict.value,
        "equivalent": claim.equivalent,
        "detectable": claim.detectable,
        "why": claim.why or None,
        "lost_a": claim.lost_a,
        "lost_b": claim.lost_b,
        "lost": claim.lost or None,
    }


def _blame(pair: Pair) -> Iterator[dict[str, Any]]:
    found = pair.blame
    if isinstance(found, str):
        return
    for one in (*found.effects, found.remainder, found.total):
        yield _effect(pair, one, found)


def _effect(pair: Pair, one: Effect, found: Blame) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    return row | {
        "a": pair.base.label,
        "b": pair.side.label,
        "section": BLAME,
        "measure": one.name if one.name != "step_time_s" else "total",
        "unit": "s",
        "better": "lower",
        "kind": "difference",
        "value_a": one.a_s,
        "value_b": one.b_s,
        "n_a": found.n[0],
        "n_b": found.n[1],
        "change": one.seconds,
        "ci_low": one.low,
        "ci_high": one.high,
        "confidence": None if one.low is None else 0.95,
        "basis": found.basis,
        "p_adjusted": one.p_adjusted,
    }
