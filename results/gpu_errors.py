"""Xid errors of the run's GPUs: which GPU, when, and whether inside the window."""

import json
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.compute as pc

from harness.protocol.scalars import text
from results.store import RunTables

XID = "telemetry.xid"  # the sampler's metric: the number, with the label `gpu` where the driver named it


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One error. `gpu` None: the driver did not say whose. `run_s`: seconds since the run's first process began."""

    gpu: str | None
    number: int
    mono_ns: int
    run_s: float | None

    def within(self, low: int, high: int) -> bool:
        """Whether it lies in [low, high) ns."""
        return low <= self.mono_ns < high


def xids(run: RunTables) -> tuple[Xid, ...]:
    """All of the run, in order of time."""
    probes = run.tables["probes"]
    rows = probes.filter(pc.equal(probes.column("name"), XID)).sort_by("mono_ns").to_pylist()
    begin = pc.min(run.tables["processes"].column("mono_ns")).as_py()
    return tuple(
        Xid(
            gpu=text(json.loads(row["labels_json"]).get("gpu")),
            number=int(row["value"]),
            mono_ns=row["mono_ns"],
            run_s=None if begin is None else (row["mono_ns"] - begin) / 1e9,
        )
        for row in rows
        if row["value"] is not None
    )


def gpus_with_xid(run: RunTables, gpus: Collection[str], low: int, high: int) -> set[str]:
    """Those that had one in [low, high) ns; one of which no GPU is known may have been any's."""
    found: set[str] = set()
    for one in xids(run):
        if one.within(low, high):
            found |= set(gpus) if one.gpu is None else {one.gpu} & set(gpus)
    return found
