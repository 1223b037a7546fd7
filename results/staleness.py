"""Staleness of what was trained on, in policy versions: four figures over consumed trajectories, by order statistics.

MEASURING.md, "Staleness". Version 0 is the initial weights; a batch trained into version s has trained_at = s - 1.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from results.figure import Figures
from results.stats import quantile, weighted_quantile
from results.store import RunTables
from results.tracks import floats, ints

_OF_TURNS = ("trajectory_id", "generated_tokens", "version_start", "version_end")
Versions = npt.NDArray[np.float64]  # NaN: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Versions, over `n` trajectories (per token: over `n` tokens). None when `n` is 0."""

    n: int
    unknown: int
    """Trajectories (tokens) left out because a version was not recorded."""
    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """`at_start` is the headline; `at_start` = `at_finish` + `in_queue` for each trajectory."""

    bound: int
    """max_staleness that was asked for; it applies to `at_start`."""
    consumed: int
    """Trajectories that the steps trained on."""
    at_start: Distribution
    """trained_at - version at the first generated token."""
    at_finish: Distribution
    """Version at the last generated token - version at the first."""
    in_queue: Distribution
    """trained_at - version at the last generated token."""
    per_token: Distribution
    """trained_at - version of each generated token, weighted by tokens."""
    resolution: str
    """`turn`: each token counts with the version its turn began with, the oldest it can have."""
    tokens_across_sync: int
    """Generated tokens of turns during which the version changed: their version is only known to lie between, and
    what the engine had cached came from older weights."""
    violations: int
    """Trajectories whose `at_start` is beyond the bound: counted, never clipped."""
    negative: int
    """Trajectories trained on before their version existed: a defect of the record, must be 0."""


def staleness(run: RunTables, steps: Collection[int] | None = None) -> Staleness:
    """The four figures over the trajectories that `steps` (None: all) trained on."""
    table = run.tables["trajectories"]
    table = table.filter(pc.is_valid(table["step_consumed"]))
    if steps is not None:
        table = table.filter(pc.is_in(table["step_consumed"], pa.array(sorted(steps), pa.int64())))
    trained, first, last = (floats(table[name]) for name in ("version_trained", "version_first", "version_last"))
    at_start = trained - first
    weights, ages, across = _tokens(run.part("turns", _OF_TURNS), table)
    return Staleness(
        bound=run.spec.max_staleness,
        consumed=table.num_rows,
        at_start=_distribution(at_start),
        at_finish=_distribution(last - first),
        in_queue=_distribution(trained - last),
        per_token=_weighted(ages, weights),
        resolution="turn",
        tokens_across_sync=across,
        violations=int((at_start > run.spec.max_staleness).sum()),
        negative=int(((at_start < 0) | (trained - last < 0)).sum()),
    )


def put_staleness_figures(figures: Figures, stale: Staleness, whole: Staleness, windowed: bool) -> None:
    """The run's figures of staleness: of the window's trajectories, and the violations of all."""
    start = stale.at_start
    notes = [] if windowed else ["of the whole run"]
    if start.unknown:
        notes.append(f"{start.unknown} trajectories without a version left out")
    if start.n == 0:
        notes.append("no trained trajectory has its versions on record")
    note = "; ".join(notes) or None
    for name, value in (("mean", start.mean), ("p50", start.p50), ("p95", start.p95), ("max", start.max)):
        figures.put(f"staleness_at_start_{name}", "version", value, n=start.n, note=note)
    known = whole.at_start.n
    figures.put(
        "staleness_violations",
        "trajectory",
        float(whole.violations) if known else None,
        n=known,
        note=f"of the whole run, bound {whole.bound}" if known else note,
    )


def _tokens(turns: pa.Table, consumed: pa.Table) -> tuple[npt.NDArray[np.int64], Versions, int]:
    """Generated tokens of each turn of the consumed trajectories, their staleness, and those across a sync."""
    place = pc.index_in(turns["trajectory_id"], value_set=consumed["trajectory_id"].combine_chunks())
    known = pc.and_(pc.is_valid(place), pc.is_valid(turns["generated_tokens"])).to_numpy()
    trained = floats(consumed["version_trained"])[ints(place)[known]]
    begin, end = floats(turns["version_start"])[known], floats(turns["version_end"])[known]
    tokens = ints(turns["generated_tokens"])[known]
    return tokens, trained - begin, int(tokens[end > begin].sum())


def _distribution(values: Versions) -> Distribution:
    known = values[~np.isnan(values)]
    return Distribution(
        n=known.size,
        unknown=values.size - known.size,
        mean=float(known.mean()) if known.size else None,
        p50=quantile(known, 0.5),
        p95=quantile(known, 0.95),
        max=float(known.max()) if known.size else None,
    )


def _weighted(values: Versions, weights: npt.NDArray[np.int64]) -> Distribution:
    known = ~np.isnan(values) & (weights > 0)
    mass, ages = weights[known], values[known]
    total = int(mass.sum())
    return Distribution(
        n=total,
        unknown=int(weights.sum()) - total,
        mean=float((ages * mass).sum() / total) if total else None,
        p50=weighted_quantile(ages.astype(np.int64), mass, 0.5),
        p95=weighted_quantile(ages.astype(np.int64), mass, 0.95),
        max=float(ages.max()) if total else None,
    )
