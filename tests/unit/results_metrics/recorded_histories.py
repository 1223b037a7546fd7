"""Hand-made run tables: a history is written down in seconds, and its tables are those a collected run would have."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.protocol.spec import Device, Gpus, Load, Offload, Placement, RunSpec
from results.schema import COLUMNS, TABLES
from results.store import RunTables

S = 1_000_000_000
_ZERO = {pa.int64(): 0, pa.float64(): 0.0, pa.string(): "", pa.bool_(): False}


def ns(seconds: float) -> int:
    """Seconds of a history as ns of its clock, which began 1000 s before it."""
    return round((1_000 + seconds) * S)


def make_spec(placement: str, **changes: Any) -> RunSpec:
    """A small complete spec."""
    together = placement == "colocated"
    base = RunSpec(
        framework="simulated",
        placement=Placement(placement),
        workload="deep-research",
        preset="deep-research-smoke",
        load=Load.FIXED,
        tools="mock",
        model="tiny",
        gpus=Gpus(train=2, rollout=2),
        nodes=1,
        steps=4,
        warmup_steps=1,
        batch_size=2,
        group_size=2,
        max_staleness=1 if placement == "async" else 0,
        seed=1,
        device=Device.CPU if not changes.get("device") else Device(changes.pop("device")),
        engine="simulated",
        rollout_tp=1 if not together else 2,
        context_tokens=4_096,
        micro_batch_tokens=4_096,
        offload=Offload.NONE,
        timeout=None,
        sample_hz=10.0,
    )
    return replace(base, **changes)


@dataclass
class History:
    """Rows of every table, added by what happened. Times are seconds of the history."""

    placement: str = "disaggregated"
    changes: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    run_dir: Path = Path("no-run")
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in TABLES})

    def add(self, table: str, **values: Any) -> None:
        """One row; columns that may not be null and are not given are 0, empty or False."""
        row = {c.name: None if c.nullable else _ZERO.get(c.type, []) for c in COLUMNS[table]}
        assert set(values) <= set(row), set(values) - set(row)
        self.rows[table].append({**row, **values})

    def span(self, phase: str | None, start: float, end: float, pool: str = "train", **more: Any) -> None:
        more = {"native_name": str(phase), "attributes_json": "{}", **more}
        self.add("spans", phase=phase, start_ns=ns(start), end_ns=ns(end), pool=pool, **more)

    def life(self, name: str, start: float, end: float | None, **more: Any) -> None:
        more = {"status": "open" if end is None else "ok", "group_id": "g", **more}
        ended = None if end is None else ns(end)
        self.add("trajectories", trajectory_id=name, start_ns=ns(start), end_ns=ended, **more)

    def turn(self, name: str, start: float, end: float, engine: str | None = None, **more: Any) -> None:
        self.add("turns", trajectory_id=name, start_ns=ns(start), end_ns=ns(end), engine=engine, **more)

    def tool(self, name: str, start: float, end: float, **more: Any) -> None:
        self.add("tool_calls", trajectory_id=name, start_ns=ns(start), end_ns=ns(end), **more)

    def step(self, step: int, end: float, ids: tuple[str, ...] = (), start: float | None = None, **more: Any) -> None:
        """A step, and what it makes known of the trajectories in `ids` (those must be there already)."""
        more = {"policy_version": step, "trained_at": step - 1, **more}
        begin = ns(end) if start is None else ns(start)
        self.add(
            "steps", step=step, start_ns=begin, end_ns=ns(end), trajectory_ids=list(ids), trajectories=len(ids), **more
        )
        for row in self.rows["trajectories"]:
            if row["trajectory_id"] in ids:
                row.update(step_consumed=step, version_trained=step - 1, consumed_ns=ns(end))
            if row["trajectory_id"] in more.get("dropped_ids", ()):
                row.update(step_dropped=step)

    def sync(self, version: int, start: float, end: float, engine: str | None = None, pool: str = "rollout") -> None:
        self.add("weight_syncs", version=version, start_ns=ns(start), end_ns=ns(end), engine=engine, pool=pool)

    def gate(self, at: float, is_open: bool, in_flight: int | None = None, cap: int | None = None) -> None:
        self.add("gates", mono_ns=ns(at), open=is_open, why="said so", in_flight=in_flight, cap=cap)

    def process(self, role: str, hello: float, bye: float | None = None, **more: Any) -> None:
        ended = None if bye is None else ns(bye)
        self.add("processes", role=role, mono_ns=ns(hello), bye_ns=ended, ended=bye is not None, **more)

    def run(self) -> RunTables:
        tables = {name: pa.Table.from_pylist(rows, schema=TABLES[name]) for name, rows in self.rows.items()}
        spec = make_spec(self.placement, **self.changes)
        return RunTables(spec=spec, meta=self.meta, run_dir=self.run_dir, tables=tables)
