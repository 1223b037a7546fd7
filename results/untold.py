"""Why readings of GPUs are not known: what the samplers said of each field that gave nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from results.energy import run_gpus
from results.gpu_sensors import gpu_pools
from results.schema import TABLES
from results.store import RunTables

UNSUPPORTED = "telemetry.unsupported"  # the sampler's metric, with the labels field, reason and, mostly, gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """One field and one reason. `never`: none of these GPUs gave it in the run; else they did, at other times."""

    field: str
    reason: str
    gpus: int | None  # None: it is not of one GPU
    never: bool


def untold(run: RunTables) -> tuple[Untold, ...]:
    """By field and reason, of the run's GPUs."""
    mine = set(gpu_pools(run)) or set(run_gpus(run, {}) or ())
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes.column("name"), UNSUPPORTED)).column("labels_json").to_pylist()
    found: dict[tuple[str, str], set[str]] = {}
    for labels in map(json.loads, rows):
        gpu = labels.get("gpu")
        if gpu is None or not mine or gpu in mine:
            said = found.setdefault((str(labels.get("field")), str(labels.get("reason"))), set())
            said |= set() if gpu is None else {str(gpu)}
    given = _given(run, {field: gpus for (field, _), gpus in found.items()}) if found else {}
    return tuple(
        Untold(field=field, reason=reason, gpus=len(gpus) or None, never=not (given.get(field, set()) & gpus))
        for (field, reason), gpus in sorted(found.items())
    )


def _given(run: RunTables, fields: Mapping[str, object]) -> dict[str, set[str]]:
    """The GPUs that gave each field that is a column of the samples."""
    columns = sorted(set(TABLES["samples"].names) & set(fields))
    given: dict[str, set[str]] = {name: set() for name in columns}
    for batch in run.batches("samples", ("gpu", *columns), text=("gpu",), known=columns) if columns else ():
        for name in columns:
            valid = pc.and_(batch.column(name).is_valid(), batch.column("gpu").is_valid())
            given[name] |= set(pc.unique(batch.column("gpu").filter(valid).cast("string")).to_pylist())
    return given
