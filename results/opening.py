"""Many collected runs at once, as Arrow or pandas tables with a `run_id`: what notebooks and `bench query` read."""

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.protocol.errors import SpecError
from harness.protocol.names import shown
from results.columns import TEXT, Column
from results.schema import COLUMNS, RUN_KEY, TABLES
from results.store import frame_of, is_collected, is_run_folder, read_table, said_in, table_path

RUN_ID = Column("run_id", TEXT, "", False, "name of the run")
SAID = "said_run_id"  # processes.run_id: what the process itself said


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Collected runs, by name. `left_out` says of folders that are no collected runs what they are."""

    folders: Mapping[str, Path]
    left_out: Mapping[Path, str] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(TABLES)

    def columns(self, name: str) -> tuple[Column, ...]:
        """The columns of a table, each with type, unit and meaning; `run_id` comes first.

        Raises:
            SpecError: there is no such table.
        """
        return columns_of(name)

    def describe(self, name: str) -> pd.DataFrame:
        """The columns of a table as a frame: column, type, unit, nullable, meaning."""
        rows = [(c.name, str(c.type), c.unit, c.nullable, c.doc) for c in self.columns(name)]
        return pd.DataFrame(rows, columns=["column", "type", "unit", "nullable", "meaning"])

    def arrow(self, name: str) -> pa.Table:
        """A table of all runs, one after the other; older schemas are brought up to date.

        Raises:
            SpecError: there is no such table, or one cannot be read.
        """
        columns = self.columns(name)
        schema = pa.schema([column.field for column in columns])
        parts = []
        for run_id, folder in self.folders.items():
            path = table_path(folder, name)
            if not path.is_file():
                continue  # of tables that a collection may lack
            table = read_table(path, name)
            if name != "runs":
                table = table.rename_columns([column.name for column in columns[1:]])
                table = table.add_column(0, schema.field(0), pa.array([run_id] * len(table), TEXT))
            parts.append(table.cast(schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def frame(self, name: str) -> pd.DataFrame:
        """`arrow` as a pandas frame: integers and flags in nullable types, unknown floats as NaN."""
        return frame_of(self.arrow(name))


def columns_of(name: str) -> tuple[Column, ...]:
    """The columns of a table of several runs: those of one run, after `run_id`.

    Raises:
        SpecError: there is no such table.
    """
    if name not in TABLES:
        raise SpecError(f"table {name!r}: allowed is one of {', '.join(TABLES)}")
    own = COLUMNS[name]
    if name == "runs":
        return own
    return (RUN_ID, *(replace(one, name=SAID) if one.name == RUN_ID.name else one for one in own))


def open_runs(*patterns: str | Path) -> Runs:
    """The collected runs that `patterns` name: globs, run folders, or folders of runs.

    Folders that are no collected run are left out, and `Runs.left_out` says why.

    Raises:
        SpecError: nothing was found; two folders hold one run; or a run was written by a newer bench.
    """
    folders: dict[str, Path] = {}
    left_out: dict[Path, str] = {}
    for path in _places(patterns):
        try:
            if not is_run_folder(path):
                continue
            collected = is_collected(path)
        except SpecError as error:
            left_out[path] = str(error).removeprefix(f"{shown(path)}: ")
            continue
        if not collected:
            left_out[path] = f"not collected; run `bench collect {path}`"
            continue
        read_table(table_path(path, "runs"), "runs")  # tells a newer schema, or damage, by name
        run_id = said_in(pq.read_schema(table_path(path, "runs")), RUN_KEY) or path.name
        if (first := folders.get(run_id)) is not None:
            # A folder of the run's name (its id may have a suffix) is the run itself, wherever it comes in the order.
            run, copy = (path, first) if f"{run_id}-".startswith(f"{path.name}-") else (first, path)
            raise SpecError(f"{copy}: holds the same run as {run} ({run_id}); move {copy} out of {copy.parent}")
        folders[run_id] = path
    if not folders:
        named = ", ".join(str(pattern) for pattern in patterns) or "nothing"
        why = "".join(f"; {path}: {reason}" for path, reason in list(left_out.items())[:3])
        raise SpecError(f"runs = {named}: no collected run there{why}; `bench list runs` shows what there is")
    return Runs(folders=folders, left_out=left_out)


def _places(patterns: tuple[str | Path, ...]) -> list[Path]:
    found: dict[Path, None] = {}
    for pattern in patterns:
        text = str(pattern)
        named = [Path(text)] if Path(text).exists() else [Path(one) for one in glob.glob(text)]  # noqa: PTH207 - also absolute patterns
        for path in named:
            inside = [path] if _closed(path) or is_run_folder(path) else _children(path)
            for one in sorted(inside):
                found[one.resolve()] = None
    return list(found)


def _closed(path: Path) -> bool:
    """Whether it is a folder that may not be looked into."""
    return path.is_dir() and not os.access(path, os.R_OK | os.X_OK)


def _children(path: Path) -> list[Path]:
    try:
        return [one for one in path.iterdir() if one.is_dir()] if path.is_dir() else []
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
