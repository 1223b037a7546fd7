"""A run as a Perfetto trace: where its processes, GPUs, engines and trajectories were at each moment, on one clock.

Rows: the run (steps, weights, admission, failures); a process per pool and host, a track per unit; the engines, with
running turns and their own counters; the GPUs and hosts with what was sampled; the trajectories, a track each, their
turns and tool calls inside. Every row of `spans` is exactly one slice whose category is its phase (or `container`).
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.compute as pc

from harness.protocol.phases import Phase
from reports.exporting.files import written
from reports.exporting.perfetto_file import Floats, Instants, Slice, TraceFile
from reports.exporting.source import CONTENT, Rows, bounds_ns, wall_minus_mono_ns
from results.columns import FLOAT
from results.gpu_sensors import gpu_pools
from results.schema import COLUMNS
from results.store import RunTables

NOT_COUNTERS = frozenset({"host", "gpu", "engine", "mono_ns", "uncertainty_ns", "family", "reason", "throttle_reasons"})
UNKNOWN_VERSION = -1
UNKNOWN_ENGINE = "engine not told"
Args = dict[str, Any]
Tracks = dict[tuple[str, str], dict[str, list[Slice]]]  # (host, pool) -> unit -> its slices
_PLACE, _OWNER, _SYNC_OWNER = ("host", "pid", "start_ns", "end_ns"), ("trajectory_id", "turn"), ("pool", "unit")
_TURN = ("turn", "engine", "prompt_tokens", "generated_tokens", "version_start", "version_end", "stop_reason")
_CALL = ("turn", "tool", "call", "argument", "planned_ns", "status", "observation_tokens", "served_ns", "detail")
_SYNC = ("version", "engine", "pause_ns", "transfer_ns", "resume_ns", "bytes")
_LIFE = (
    *("group_id", "prompt", "sample", "attempt", "status", "turns", "tool_calls", "generated_tokens", "reward"),
    *("version_first", "version_last", "version_trained", "step_consumed", "step_dropped", "message"),
)
_STEP = ("step", "policy_version", "trained_at", "trajectories", "loss_tokens", "processed_tokens", "reward_mean")


def export_perfetto(run: RunTables, path: Path, *, content: bool = False) -> None:
    """Writes the trace of a run to `path`. Queries, page addresses and messages are in it only with `content`.

    Raises:
        EnvError: Perfetto's package is not installed.
        OSError: `path` cannot be written; what was there is left as it was.
    """
    with written(path) as file:
        _Export(run, file, content).write()


class _Export:
    def __init__(self, run: RunTables, file: IO[bytes], content: bool) -> None:
        self.run = run
        self.trace = TraceFile(file)
        self.hidden = frozenset() if content else CONTENT
        self.spans = Rows.of(run, "spans")
        self.turns, self.calls = self._typed("turns", _OWNER, _TURN), self._typed("tool_calls", _OWNER, _CALL)
        self.syncs = self._typed("weight_syncs", _SYNC_OWNER, _SYNC)
        self.flows: dict[int, int] = {}  # row of spans -> flow from the step that made its version
        named = [run.tables[name]["engine"] for name in ("turns", "weight_syncs", "engine_samples")]
        self.engines = {engine for column in named for engine in pc.unique(column).to_pylist() if engine is not None}

    def write(self) -> None:
        bounds = bounds_ns(self.run) or (0, 0)
        self.trace.clock(bounds[0], wall_minus_mono_ns(self.run))
        self._run(*bounds, self._link_syncs())
        by_trajectory, by_engine = self._pools()
        self._engines(by_engine)
        self._sampled()
        self._trajectories(by_trajectory)

    def _typed(self, table: str, owner: tuple[str, ...], names: tuple[str, ...]) -> "_Typed":
        shown = tuple(name for name in names if name not in self.hidden)
        return _Typed.of(Rows.of(self.run, table, {*owner, *_PLACE, *shown}), owner, shown)

    def _sync(self, row: int) -> Args:
        is_sync = self.spans.columns["phase"][row] == Phase.WEIGHT_SYNC
        return self.syncs.of_span(self.spans, row) if is_sync else {}

    def _link_syncs(self) -> dict[int, list[int]]:
        """An arrow from the step that made a version to each sync that brought it: the flows of each version."""
        steps = Rows.of(self.run, "steps").columns
        began = dict(zip(steps["policy_version"], steps["start_ns"], strict=True))
        found: dict[int, list[int]] = defaultdict(list)
        for row in range(self.spans.count):
            version = self._sync(row).get("version", UNKNOWN_VERSION)
            if version in began and began[version] <= self.spans.columns["start_ns"][row]:
                self.flows[row] = len(self.flows) + 1
                found[version].append(self.flows[row])
        return found

    def _run(self, first: int, last: int, flows: dict[int, list[int]]) -> None:
        trace, run = self.trace, self.run
        process = trace.process(f"run {run.run_id}")
        spec = run.spec
        told = {"framework": spec.framework, "placement": spec.placement.value, "device": spec.device.value}
        told |= {"work_digest": spec.work_digest, "status": str(run.meta.get("status"))}
        trace.slices(process, "run", [Slice(first, last, run.run_id, "run", lambda: told)])
        steps = Rows.of(run, "steps")
        c = steps.columns
        trace.slices(
            process,
            "steps",
            [
                Slice(
                    *(c["start_ns"][row], c["end_ns"][row], f"step {c['step'][row]}", "step"),
                    partial(steps.known, row, _STEP),
                    flows.get(c["policy_version"][row], ()),
                )
                for row in range(steps.count)
            ],
        )
        weights = Rows.of(run, "weight_syncs")
        trace.instants(
            trace.track(process, "weights"),
            [
                (end, f"version {weights.columns['version'][row]} visible", "weights", weights.known(row, _SYNC))
                for row, end in enumerate(weights.columns["end_ns"])
            ],
        )
        self._gates(process)
        failures = Rows.of(run, "failures")
        names = tuple(name for name in ("boundary", "type", "message", "host", "pid") if name not in self.hidden)
        trace.instants(
            trace.track(process, "failures"),
            [
                (last if at is None else at, failures.columns["type"][row], "failure", failures.known(row, names))
                for row, at in enumerate(failures.columns["mono_ns"])
            ],
        )

    def _gates(self, process: int) -> None:
        gates = Rows.of(self.run, "gates")
        c = gates.columns
        self.trace.instants(
            self.trace.track(process, "admission"),
            [
                (
                    at,
                    "opened" if c["open"][row] else "closed",
                    "admission",
                    gates.known(row, ("why", "in_flight", "cap")),
                )
                for row, at in enumerate(c["mono_ns"])
            ],
        )
        table = self.run.tables["gates"]
        for name in ("in_flight", "cap"):
            self._counter(
                process, f"admission {name}", "trajectory", table["mono_ns"].to_numpy(), _numbers(table[name])
            )

    def _pools(self) -> tuple[dict[str, list[Slice]], dict[str, list[Slice]]]:
        """Writes the spans of pools; returns those of trajectories and of engines, by whose they are."""
        by_trajectory: dict[str, list[Slice]] = defaultdict(list)
        by_engine: dict[str, list[Slice]] = defaultdict(list)
        tracks: Tracks = defaultdict(lambda: defaultdict(list))
        c = self.spans.columns
        for row in range(self.spans.count):
            one = self._slice(row)
            trajectory, unit = c["trajectory_id"][row], c["unit"][row]
            engine = self._sync(row).get("engine", unit)
            if trajectory is not None:
                by_trajectory[trajectory].append(one)
            elif engine in self.engines:
                by_engine[engine].append(one)
            else:
                place, track = _place(c, row)
                tracks[place][track].append(one)
        self._opens(by_trajectory, tracks)
        for (host, pool), units in sorted(tracks.items()):
            process = self.trace.process(f"{pool} on {host}")
            for unit, slices in sorted(units.items()):
                self.trace.slices(process, unit, slices)
        return by_trajectory, by_engine

    def _opens(self, by_trajectory: dict[str, list[Slice]], tracks: Tracks) -> None:
        """What began and did not end, beside what did: it names what a process was at when it hung or was killed."""
        opens = Rows.of(self.run, "opens")
        c = opens.columns
        for row, trajectory in enumerate(c["trajectory_id"]):
            args = partial(opens.known, row, ("phase", "step", "turn", "role", "pid"))
            one = Slice(c["start_ns"][row], None, c["native_name"][row], "open", args)
            if trajectory is None:
                place, track = _place(c, row)
                tracks[place][track].append(one)
            elif c["phase"][row] is not None:  # else it is the trajectory itself, which is there already
                by_trajectory[trajectory].append(one)

    def _slice(self, row: int) -> Slice:
        c = self.spans.columns
        category = c["phase"][row]
        if c["container"][row] or category is None:
            category = "container"
        flow = (self.flows[row],) if row in self.flows else ()
        where = c["start_ns"][row], c["end_ns"][row], c["native_name"][row], category
        return Slice(*where, partial(self._args, row), (), flow)

    def _args(self, row: int) -> Args:
        c = self.spans.columns
        args = self.spans.known(row, ("step", "turn", "role", "pid"))
        rest = json.loads(c["attributes_json"][row] or "{}")
        args |= {k: v for k, v in rest.items() if v is not None and not (self.hidden and isinstance(v, str))}
        if c["trajectory_id"][row] is not None:
            typed = {Phase.GENERATION: self.turns, Phase.TOOL: self.calls}.get(c["phase"][row])
            args |= typed.of_span(self.spans, row) if typed else {}
        return args | self._sync(row)

    def _engines(self, spans: dict[str, list[Slice]]) -> None:
        turns = self.run.tables["turns"].select(["engine", "start_ns", "end_ns"])
        edges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for engine, start, end in zip(*(column.to_pylist() for column in turns.columns), strict=True):
            edges[engine or UNKNOWN_ENGINE] += [(start, 1), (end, -1)]
        if not (edges or self.engines):
            return
        process = self.trace.process("engines")
        samples = self.run.tables["engine_samples"]
        for engine in sorted({*self.engines, *edges}):
            track = self.trace.track(process, engine)
            self.trace.slices(track, "activity", spans.get(engine, []))
            if engine in edges:
                self.trace.values(self.trace.counter(track, "turns open", "turn"), *_running(edges[engine]))
            self._readings(track, "engine_samples", samples.filter(pc.equal(samples["engine"], engine)))

    def _sampled(self) -> None:
        """Column by column: the samples of a day are too much for one table."""
        places, at = self._sampled_places()
        pools = gpu_pools(self.run)
        parents = []
        for host in sorted({host for host, _ in places}):
            process = self.trace.process(f"GPUs and host {host}")
            for gpu in sorted((gpu for of, gpu in places if of == host), key=lambda gpu: gpu or ""):
                name = f"{gpu} ({pools.get(gpu, 'pool not told')})" if gpu else ""
                parents.append((self.trace.track(process, name) if name else process, places[host, gpu]))
        for column in COLUMNS["samples"]:
            if column.name in NOT_COUNTERS or not parents:
                continue
            values = _numbers(self.run.part("samples", [column.name])[column.name])
            for parent, rows in parents:
                self._counter(parent, column.name, column.unit, at[rows], values[rows])

    def _sampled_places(self) -> tuple[dict[tuple[str, str | None], Instants], Instants]:
        """The rows of each host, and of each GPU on it; and when each was sampled."""
        held: dict[tuple[str, str | None], list[Instants]] = defaultdict(list)
        times, before = [], 0
        for batch in self.run.batches("samples", ("host", "gpu", "mono_ns"), text=("host", "gpu")):
            names = [batch.column(column).dictionary.to_pylist() for column in ("host", "gpu")]
            hosts, gpus = (pc.fill_null(batch.column(c).indices, -1).to_numpy() for c in ("host", "gpu"))
            for host, gpu in np.unique(np.stack([hosts, gpus]), axis=1).T:
                rows = np.flatnonzero((hosts == host) & (gpus == gpu)) + before
                held[names[0][host], names[1][gpu] if gpu >= 0 else None].append(rows)
            times.append(batch.column("mono_ns").to_numpy())
            before += batch.num_rows
        at = np.concatenate(times) if times else np.empty(0, dtype=np.int64)
        return {place: np.concatenate(rows) for place, rows in held.items()}, at

    def _readings(self, parent: int, name: str, table: Any) -> None:
        """Every column of numbers that has any, as a counter; where a reading is unknown the counter has no value."""
        for column in COLUMNS[name]:
            if column.name not in NOT_COUNTERS:
                values = _numbers(table[column.name])
                self._counter(parent, column.name, column.unit, table["mono_ns"].to_numpy(), values)

    def _counter(self, parent: int, name: str, unit: str, at: Instants, values: Floats) -> None:
        """What is known of numbers, against instants."""
        known = np.isfinite(values)
        if known.any():
            self.trace.values(self.trace.counter(parent, name, unit), at[known], values[known])

    def _trajectories(self, inside: dict[str, list[Slice]]) -> None:
        rows = Rows.of(self.run, "trajectories")
        c = rows.columns
        names = tuple(name for name in _LIFE if name not in self.hidden)
        process = self.trace.process("trajectories") if rows.count or inside else 0
        for row in sorted(range(rows.count), key=lambda row: (c["start_ns"][row], c["trajectory_id"][row])):
            where = c["start_ns"][row], c["end_ns"][row], c["trajectory_id"][row], "trajectory"
            life = Slice(*where, partial(rows.known, row, names))
            self.trace.slices(process, life.name, [life, *inside.pop(life.name, [])])
        for trajectory, slices in inside.items():  # of which only spans were recorded
            self.trace.slices(process, trajectory, slices)


def _numbers(column: Any) -> Floats:
    """A column of numbers, NaN where none is known."""
    return np.asarray(pc.cast(column, FLOAT, safe=False).to_numpy(), dtype=np.float64)


def _place(columns: Mapping[str, list[Any]], row: int) -> tuple[tuple[str, str], str]:
    """Process and track of what a process recorded: its pool on its host, and its unit there."""
    pool = f"{columns['pool'][row]} pool" if columns["pool"][row] else "no pool"
    return (columns["host"][row], pool), columns["unit"][row] or f"{columns['role'][row]} {columns['pid'][row]}"


@dataclass(frozen=True, slots=True)
class _Typed:
    """The rows of a typed table by the span that each was made of: what both say of it."""

    rows: Rows
    owner: tuple[str, ...]
    names: tuple[str, ...]
    by_span: Mapping[tuple[Any, ...], int]

    @classmethod
    def of(cls, rows: Rows, owner: tuple[str, ...], names: tuple[str, ...]) -> "_Typed":
        keys = zip(*(rows.columns[name] for name in (*owner, *_PLACE)), strict=True)
        return cls(rows, owner, names, {key: row for row, key in enumerate(keys)})

    def of_span(self, spans: Rows, row: int) -> Args:
        found = self.by_span.get(tuple(spans.columns[name][row] for name in (*self.owner, *_PLACE)))
        return {} if found is None else self.rows.known(found, self.names)


def _running(edges: list[tuple[int, int]]) -> tuple[Instants, Floats]:
    """How many are open from each instant on; one that begins as another ends changes nothing."""
    at, order = np.unique(np.array([at for at, _ in edges], dtype=np.int64), return_inverse=True)
    changes = np.bincount(order, weights=np.array([change for _, change in edges], dtype=np.float64))
    kept = changes != 0
    return at[kept], np.cumsum(changes)[kept]
