"""The tracks of a run's timeline as the page draws them: exact where they are short, binned where they are long.

A track is one of: `states` (stretches as recorded), `shares` (per bin, the share of each state), `band` (least, mean
and most per bin), `stack` (means per bin, one upon the other). Each says in `how` what was done to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from harness.protocol.phases import Phase, Pool
from reports import style
from reports.case import Case
from reports.html.axis import Axis, Fineness
from reports.html.binning import Bins, Floats, bin_counts, bin_readings, bin_shares, even_edges
from reports.html.packing import packed
from reports.provenance import gpus
from results.classes import CODES
from results.gpu_series import series_of
from results.intervals import NO_NS, Ns, Timeline, innermost
from results.store import RunTables
from results.tracks import FOREVER, UNKNOWN, Tracks, floats, ints

LIMIT = "power_limit_watts"
MOST_TRACKS = 64  # of one group
_PHASES = {phase.value: code for code, phase in enumerate(Phase)}
_TRAINS = (Pool.TRAIN.value, Pool.BOTH.value)
Track = dict[str, Any]


def tracks_of(case: Case, found: Tracks, axis: Axis, fine: Fineness) -> list[Track]:
    """Every track of a run, in the order in which they are drawn."""
    made = _training(found, axis, fine)
    made += _units(case, axis, fine)
    made += _in_flight(found, axis, fine)
    made += _engines(found, axis, fine)
    made += _readings(case.run, axis, fine)
    return made


def marks_of(case: Case, axis: Axis) -> dict[str, Any]:
    """What is drawn across all tracks: steps, weight syncs, the steady window (seconds)."""
    steps = case.run.frame("steps").sort_values("step").drop_duplicates("step", keep="last")
    syncs = case.run.frame("weight_syncs")
    visible = syncs.groupby("version")["end_ns"].max() if len(syncs) else pd.Series(dtype="int64")
    window = case.figures.window
    return {
        "steps": [
            [int(step), axis.seconds(int(start)), axis.seconds(int(end))]
            for step, start, end in zip(steps["step"], steps["start_ns"], steps["end_ns"], strict=True)
        ],
        "syncs": [[int(str(version)), axis.seconds(int(at))] for version, at in visible.items()],
        "window": None if window is None else [axis.seconds(window.start_ns), axis.seconds(window.end_ns)],
    }


def _training(found: Tracks, axis: Axis, fine: Fineness) -> list[Track]:
    """One track per process that trains: its leaf spans by phase."""
    leaves = found.leaves[found.leaves["pool"].isin(_TRAINS) & found.leaves["phase"].isin(list(_PHASES))]
    leaves = leaves.drop_duplicates(["host", "pid", "phase", "start_ns", "end_ns"])
    parts = sorted(leaves.groupby(["host", "pid"], sort=True), key=lambda part: -len(part[1]))
    made = []
    for (host, pid), spans in parts[:MOST_TRACKS]:
        name = "trainer" if len(parts) == 1 else f"{host}, process {pid}"
        spans = spans.sort_values(["start_ns", "end_ns"], kind="stable")
        starts, ends = spans["start_ns"].to_numpy(np.int64), spans["end_ns"].to_numpy(np.int64)
        codes = spans["phase"].map(_PHASES).to_numpy().astype(np.int8)
        if len(spans) <= fine.stretches:
            said, natives = pd.factorize(spans["native_name"].astype(str))
            made.append(_exact("Training phases", name, list(_PHASES), axis, starts, ends, codes, said, list(natives)))
        else:
            nothing = len(_PHASES)
            painted = innermost(starts, ends, codes, axis.start_ns, axis.end_ns, nothing).timeline
            made.append(_shares("Training phases", name, list(_PHASES), axis, painted, fine.bins))
    return _first(made, len(parts))


def _units(case: Case, axis: Axis, fine: Fineness) -> list[Track]:
    """One track per unit of the time account; there is none outside the steady window."""
    account = case.figures.account
    if account is None:
        return []
    names = [member.value for member in CODES]
    units = account.units[:MOST_TRACKS]
    each = fine.stretches // len(units)
    made = []
    for unit in units:
        line = unit.timeline
        if line.codes.size <= each:
            made.append(
                _exact("Units: time account", unit.unit, names, axis, line.edges[:-1], line.edges[1:], line.codes)
            )
        else:
            made.append(_shares("Units: time account", unit.unit, names, axis, line, fine.bins))
    return _first(made, len(account.units))


def _exact(
    group: str,
    name: str,
    names: Sequence[str],
    axis: Axis,
    starts: Ns,
    ends: Ns,
    codes: "np.ndarray[Any, np.dtype[Any]]",
    said: "np.ndarray[Any, np.dtype[Any]] | None" = None,
    natives: Sequence[str] = (),
) -> Track:
    used = sorted({int(code) for code in codes})
    place = {code: n for n, code in enumerate(used)}
    track: Track = {
        "kind": "states",
        "group": group,
        "name": name,
        "names": [names[code] for code in used],
        "labels": [style.label(names[code]) for code in used],
        "start": axis.ticks(starts),
        "end": axis.ticks(ends),
        "code": packed([place[int(code)] for code in codes], "u1"),
        "how": "as recorded",
    }
    if said is not None:
        track |= {"said": packed(said, "u4"), "natives": [str(native) for native in natives]}
    return track


def _shares(group: str, name: str, names: Sequence[str], axis: Axis, line: Timeline, bins: int) -> Track:
    edges = even_edges(axis.start_ns, axis.end_ns, bins)
    shares = bin_shares(line, edges, int(max(len(names), int(line.codes.max()) + 1)))[: len(names)]
    used = [code for code in range(len(names)) if shares[code].any()]
    # Rounded up: what occurred in a bin is never shown as nothing.
    return {
        "kind": "shares",
        "group": group,
        "name": name,
        "names": [names[code] for code in used],
        "labels": [style.label(names[code]) for code in used],
        "bins": edges.size - 1,
        "shares": packed(np.minimum(np.ceil(shares[used] * 65_535), 65_535), "u2"),
        "how": f"share of each class in bins of {_bin(axis, edges.size - 1)}",
    }


def _in_flight(found: Tracks, axis: Axis, fine: Fineness) -> list[Track]:
    """Trajectories in flight by what they do: means per bin; and least, mean and most of their number."""
    if not found.life_start.size:
        return []
    edges = even_edges(axis.start_ns, axis.end_ns, fine.bins)
    alive = bin_counts(found.life_start, found.life_end, edges)
    generating = bin_counts(found.turns.start, found.turns.end, edges)
    tools = bin_counts(found.tools.start, found.tools.end, edges)
    neither = np.maximum(alive.mean - generating.mean - tools.mean, 0.0)
    layers = (("generating", "turn open", generating.mean), ("tool", "in a tool call", tools.mean))
    return [
        {
            "kind": "stack",
            "group": "Trajectories in flight",
            "name": "all",
            "unit": "trajectories",
            "bins": edges.size - 1,
            "layers": [
                {"name": name, "label": label, "mean": packed(mean, "f4")}
                for name, label, mean in (*layers, ("queued", "neither (queue, agent)", neither))
            ],
            "low": packed(alive.low, "u4"),
            "mean": packed(alive.mean, "f4"),
            "high": packed(alive.high, "u4"),
            "how": f"means over bins of {_bin(axis, edges.size - 1)}; lines: the least and the most at any instant",
        }
    ]


def _engines(found: Tracks, axis: Axis, fine: Fineness) -> list[Track]:
    """Turns open per engine, or of the whole pool where turns don't say their engine."""
    edges = even_edges(axis.start_ns, axis.end_ns, fine.bins)
    known = found.engines[:MOST_TRACKS]
    turns = found.turns
    if not turns.start.size:
        return []
    made = []
    for index, name in enumerate(known):
        mine = found.turn_engine == index
        made.append(
            _band("Engines: turns open", name, "turns", axis, bin_counts(turns.start[mine], turns.end[mine], edges))
        )
    hidden = found.turn_engine == UNKNOWN
    if hidden.any():
        name = "engine not told" if known else "all engines (not told apart)"
        bins = bin_counts(turns.start[hidden], turns.end[hidden], edges)
        made.append(_band("Engines: turns open", name, "turns", axis, bins))
    return _first(made, len(found.engines) + bool(hidden.any()))


def _readings(run: RunTables, axis: Axis, fine: Fineness) -> list[Track]:
    """Power of each GPU; without GPUs, how busy each host's cores were."""
    ordered = [str(gpu["uuid"]) for gpu in gpus(run) if gpu.get("uuid")]
    seen = _sampled_gpus(run)
    uuids = [name for name in ordered if name in seen] + sorted(seen - set(ordered))
    kinds = (("power_instant_watts", "instant power"), ("power_average_watts", "power, averaged by the driver"))
    held = series_of(run, uuids[:MOST_TRACKS], (*(column for column, _ in kinds), LIMIT)) if uuids else {}
    made = []
    for index, (uuid, series) in enumerate(held.items()):
        for column, what in kinds:
            read = series[column]
            track = _sampled("GPUs: power", f"GPU {index}", "W", axis, fine, read.times, read.values)
            if track is not None:
                limit = series[LIMIT].values
                made.append({**track, "about": f"{what}, {uuid}", "limit": float(limit.max()) if limit.size else None})
                break
    if made:
        return _first(made, len(uuids))
    columns = ("host", "gpu", "mono_ns", "cpu_ratio")
    hosts = run.where("samples", columns, lambda batch: pc.is_null(batch.column("gpu")))
    for host in sorted(pc.unique(hosts.column("host")).to_pylist())[:MOST_TRACKS]:
        rows = hosts.filter(pc.equal(hosts.column("host"), host))
        times, values = ints(rows.column("mono_ns")), floats(rows.column("cpu_ratio"))
        track = _sampled("Hosts: cores in use", str(host), "", axis, fine, times, values)
        made += [] if track is None else [{**track, "limit": 1.0}]
    return made


def _sampled_gpus(run: RunTables) -> set[str]:
    """The GPUs that were sampled; the table is read part by part."""
    seen: set[str] = set()
    for batch in run.batches("samples", ("gpu",), text=("gpu",)):
        seen.update(str(name) for name in pc.unique(batch.column("gpu")).to_pylist() if name is not None)
    return seen


def _first(made: list[Track], known: int) -> list[Track]:
    """The tracks; the first of them says where there are more than are drawn."""
    if made and known > len(made):
        made[0] = {**made[0], "how": f"{made[0]['how']}; the first {len(made)} of {known:,}"}
    return made


def _sampled(
    group: str, name: str, unit: str, axis: Axis, fine: Fineness, times: Ns, values: Floats
) -> Mapping[str, Any] | None:
    times, values = times[~np.isnan(values)], values[~np.isnan(values)]
    if not values.size:
        return None
    # No finer than two readings a bin: an empty bin is then a gap, and not the sampler's own period.
    bins = int(np.clip(values.size // 2, 1, fine.bins))
    made = bin_readings(times, values, even_edges(axis.start_ns, axis.end_ns, bins))
    track = _band(group, name, unit, axis, made)
    return {**track, "how": f"{track['how']} (of {values.size:,} readings)"}


def _band(group: str, name: str, unit: str, axis: Axis, bins: Bins) -> Track:
    return {
        "kind": "band",
        "group": group,
        "name": name,
        "unit": unit,
        "bins": bins.n.size,
        "low": packed(bins.low, "f4"),
        "mean": packed(bins.mean, "f4"),
        "high": packed(bins.high, "f4"),
        "limit": None,
        "how": f"least, mean and most in bins of {_bin(axis, bins.n.size)}",
    }


def _bin(axis: Axis, bins: int) -> str:
    return style.duration(axis.length_s / bins)


def live_ends(found: Tracks, axis: Axis) -> Ns:
    """Ends of trajectories; of those that never ended, the end of the run."""
    return np.where(found.life_end == FOREVER, axis.end_ns, found.life_end) if found.life_end.size else NO_NS
