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
from results.stats import quantiles, weighted_quantile
from results.store import RunTables
from results.tracks import Index, floats, lives_of

_OF_TURNS = ("generated_tokens", "version_start", "version_end")
Versions = npt.NDArray[np.float64]  # NaN: unknown
Mask = npt.NDArray[np.bool_]


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


@dataclass(frozen=True, slots=True)
class TurnVersions:
    """Of each turn: its trajectory (a row of the table, UNKNOWN: none), its generated tokens, and its versions.

    These are of when it began and when it ended. NaN: unknown.
    """

    life: Index
    tokens: Versions
    begin: Versions
    end: Versions

    @classmethod
    def of(cls, run: RunTables, life: Index | None = None) -> "TurnVersions":
        """The turns of a run; `life`: where their trajectories are known already, in the table's order."""
        turns = run.part("turns", _OF_TURNS)
        if life is None:
            life = lives_of(run, "turns", run.tables["trajectories"]["trajectory_id"].combine_chunks())
        tokens, begin, end = (floats(turns[name]) for name in _OF_TURNS)
        return cls(life[: turns.num_rows], tokens, begin, end)


def staleness(run: RunTables, steps: Collection[int] | None = None, turns: TurnVersions | None = None) -> Staleness:
    """The four figures over the trajectories that `steps` (None: all) trained on; `turns`: where they are known."""
    table = run.tables["trajectories"].select(["step_consumed", "version_trained", "version_first", "version_last"])
    wanted = pc.is_valid(table["step_consumed"])
    if steps is not None:
        wanted = pc.and_(wanted, pc.is_in(table["step_consumed"], pa.array(sorted(steps), pa.int64())))
    table = table.filter(wanted)
    trained, first, last = (floats(table[name]) for name in ("version_trained", "version_first", "version_last"))
    at_start = trained - first
    weights, ages, across = _tokens(turns or TurnVersions.of(run), wanted.to_numpy(), trained)
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


def _tokens(turns: TurnVersions, consumed: Mask, trained: Versions) -> tuple[Versions, Versions, int]:
    """Generated tokens of each turn of the consumed trajectories, their staleness, and those across a sync.

    `trained`: the versions of the consumed ones alone, one after the other.
    """
    version, counts = np.full(consumed.size + 1, np.nan), np.append(consumed, False)  # UNKNOWN is the last of any list
    version[:-1][consumed] = trained
    known = np.flatnonzero(counts[turns.life] & ~np.isnan(turns.tokens))
    begin, end, tokens = turns.begin[known], turns.end[known], turns.tokens[known]
    return tokens, version[turns.life[known]] - begin, int(tokens[end > begin].sum())


def _distribution(values: Versions) -> Distribution:
    known = values[~np.isnan(values)]
    p50, p95 = quantiles(known, (0.5, 0.95))
    return Distribution(
        n=known.size,
        unknown=values.size - known.size,
        mean=float(known.mean()) if known.size else None,
        p50=p50,
        p95=p95,
        max=float(known.max()) if known.size else None,
    )


def _weighted(values: Versions, weights: Versions) -> Distribution:
    known = np.flatnonzero(~np.isnan(values) & (weights > 0))
    mass, ages = weights[known], values[known].astype(np.int64)
    total = int(mass.sum())
    every, of_age = _by_value(ages, mass)  # few ages, many turns of each
    return Distribution(
        n=total,
        unknown=int(weights.sum()) - total,
        mean=float((every * of_age).sum() / total) if total else None,
        p50=weighted_quantile(every, of_age, 0.5),
        p95=weighted_quantile(every, of_age, 0.95),
        max=float(ages.max()) if total else None,
    )


def _by_value(values: Index, weights: Versions) -> tuple[Index, Versions]:
    """The different values, and the weights of each added up: whole numbers, so that their order is no matter."""
    least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
    if most - least > values.size:
        every, place = np.unique(values, return_inverse=True)
    else:
        every, place = np.arange(least, most + 1, dtype=np.int64), values - least
    return every, np.bincount(place, weights=weights, minlength=every.size).astype(np.float64)
