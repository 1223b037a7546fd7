"""The engines' own numbers: read from what the scrapers left, and as arrays per engine."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from results.intervals import Ns
from results.rows import Rows
from results.schema import COLUMNS
from results.store import RunTables
from results.tracks import floats, ints

HELD_PERIODS = 2  # a reading says nothing of what is farther away than this many scrape periods
_FLOATS = frozenset(column.name for column in COLUMNS["engine_samples"] if column.type == pa.float64())
_TEXTS = frozenset(column.name for column in COLUMNS["engine_samples"] if column.type == pa.string())
_NAMES = tuple(column.name for column in COLUMNS["engine_samples"])
_NEEDED = frozenset(column.name for column in COLUMNS["engine_samples"] if not column.nullable)


def read_engine_samples(folder: Path) -> tuple[pa.Table, list[str]]:
    """The readings of all scrapers, by time; and what could not be read (`file: why`). No folder: no rows."""
    rows, problems = Rows("engine_samples"), []
    for path in sorted(folder.glob("*.jsonl")):
        damaged = 0
        for line in path.read_bytes().split(b"\n"):
            if not line.strip():
                continue
            values = _values(line)
            if values is None:
                damaged += 1
            else:
                rows.add(*values)
        if damaged:
            problems.append(f"{path.name}: {damaged} lines cut or damaged")
    return rows.table("mono_ns"), problems


def _values(line: bytes) -> list[Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not all(_fits(name, row.get(name)) for name in _NAMES):
        return None
    return [float(row[name]) if name in _FLOATS and row.get(name) is not None else row.get(name) for name in _NAMES]


def _fits(name: str, value: Any) -> bool:
    if value is None:
        return name not in _NEEDED
    if name in _TEXTS:
        return isinstance(value, str)
    whole = type(value) is int and -(2**63) <= value < 2**63
    return whole or (name in _FLOATS and type(value) is float)


@dataclass(frozen=True, slots=True)
class Series:
    """One engine's answers, by time. Unknown values are NaN."""

    engine: str
    mono_ns: Ns
    uncertainty_ns: Ns
    values: Mapping[str, npt.NDArray[np.float64]]
    failed: int  # calls without an answer before the last that had one: after it, the engine had gone

    @property
    def reach_ns(self) -> int:
        """How far from a reading it is still believed."""
        return round(HELD_PERIODS * float(np.median(np.diff(self.mono_ns)))) if self.mono_ns.size > 1 else 0

    def known(self, name: str) -> tuple[Ns, npt.NDArray[np.float64]]:
        """Times and values of one reading, where there is one."""
        there = ~np.isnan(self.values[name])
        return self.mono_ns[there], self.values[name][there]


def series_of(run: RunTables) -> dict[str, Series]:
    """The engines that gave numbers, by name."""
    table = run.tables["engine_samples"]
    found: dict[str, Series] = {}
    for engine in sorted(pc.unique(table.column("engine")).to_pylist()):
        mine = table.filter(pc.equal(table.column("engine"), engine))
        good = mine.filter(pc.is_valid(mine.column("family")))
        if good.num_rows:
            last_ns = int(good.column("mono_ns")[-1].as_py())
            before = mine.filter(pc.less_equal(mine.column("mono_ns"), last_ns)).num_rows
            found[engine] = Series(
                engine=engine,
                mono_ns=ints(good.column("mono_ns")),
                uncertainty_ns=ints(good.column("uncertainty_ns")),
                values={name: floats(good.column(name)) for name in sorted(_FLOATS)},
                failed=before - good.num_rows,
            )
    return found
