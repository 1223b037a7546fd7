"""A gradient or a reading that is no number: in every export it is unknown, and the rest is there."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reports.exporting.mlperf import export_mlperf
from reports.exporting.otel import export_otlp
from reports.exporting.perfetto import export_perfetto
from results.store import RunTables, load_run


@pytest.fixture
def odd(gpu_run: Path) -> RunTables:
    """Every float of every table that allows unknown ones is NaN or infinite."""
    run = load_run(gpu_run)
    tables = dict(run.tables)
    for name, table in tables.items():
        for at, field in enumerate(table.schema):
            if pa.types.is_floating(field.type) and field.nullable:
                bad = pa.array([float("nan") if n % 2 else float("inf") for n in range(len(table))], field.type)
                table = table.set_column(at, field, bad)
        tables[name] = table
    return replace(run, tables=tables)


def test_otlp(odd: RunTables, tmp_path: Path) -> None:
    assert export_otlp(odd, tmp_path / "x") > 100
    for line in (tmp_path / "x").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert "bench.trajectory.status" in (tmp_path / "x").read_text()
    assert "bench.trajectory.reward" not in (tmp_path / "x").read_text()


def test_mlperf(odd: RunTables, gpu_run: Path, tmp_path: Path) -> None:
    samples = load_run(gpu_run).tables["samples"]  # figures are computed from these, and are not what is tried here
    export_mlperf(replace(odd, tables={**odd.tables, "samples": samples}), tmp_path / "x")
    for line in (tmp_path / "x").read_text().splitlines():
        json.loads(line.partition(" ")[2], parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert "bench.policy_version" in (tmp_path / "x").read_text()


def test_perfetto(odd: RunTables, gpu_run: Path, tmp_path: Path) -> None:
    export_perfetto(odd, tmp_path / "odd")
    export_perfetto(load_run(gpu_run), tmp_path / "plain")
    assert b"power_instant_watts" in (tmp_path / "plain").read_bytes()
    assert b"power_instant_watts" not in (tmp_path / "odd").read_bytes()
    assert b"memory_used" in (tmp_path / "odd").read_bytes()
