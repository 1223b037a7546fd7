"""When GPUs were gone: from where their sampler found them lost until it found them again."""

import json
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow.compute as pc

from results.gpu_sensors import gpu_pools
from results.intervals import NO_NS, Ns, grid_of, level, merge
from results.store import RunTables
from results.tracks import FOREVER

LOST = "GpuLostError"  # the sampler's failure; its message names the GPU's UUID in brackets
RETURNED = "telemetry.gpu_returned"  # its metric, with the label `gpu`


def lost_gpus(run: RunTables, gpus: Collection[str]) -> dict[str, tuple[Ns, Ns]]:
    """The stretches (ns) in which each of these GPUs was gone; without those that never were."""
    rows = run.tables["failures"].select(["type", "message", "mono_ns"]).to_pylist()
    lost = [(row["mono_ns"], row["message"]) for row in rows if row["type"] == LOST and row["mono_ns"] is not None]
    if not lost:
        return {}
    back = _returns(run)
    found = {}
    for gpu in gpus:
        at = sorted(when for when, message in lost if f"({gpu})" in message)
        if at:
            ends = [min((end for end in back.get(gpu, ()) if end > begin), default=FOREVER) for begin in at]
            found[gpu] = merge(np.array(at, dtype=np.int64), np.array(ends, dtype=np.int64))
    return found


def more_lost_than(run: RunTables, pools: Collection[str], spare: int, low: int, high: int) -> tuple[Ns, Ns]:
    """The stretches of [low, high) in which more than `spare` GPUs of these pools were gone."""
    lost = lost_gpus(run, [gpu for gpu, pool in gpu_pools(run).items() if pool in pools])
    if not lost:
        return NO_NS, NO_NS
    starts = np.concatenate([begins for begins, _ in lost.values()])
    ends = np.concatenate([stops for _, stops in lost.values()])
    grid = grid_of(low, high, starts, ends)
    hit = level(starts, ends, grid) > spare
    return merge(grid[:-1][hit], grid[1:][hit])


def _returns(run: RunTables) -> Mapping[str, list[int]]:
    probes = run.tables["probes"]
    found: dict[str, list[int]] = {}
    rows = probes.filter(pc.equal(probes.column("name"), RETURNED)).select(["mono_ns", "labels_json"])
    for row in rows.to_pylist():
        found.setdefault(str(json.loads(row["labels_json"]).get("gpu")), []).append(row["mono_ns"])
    return found
