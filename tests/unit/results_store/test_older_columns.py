"""A table that was collected before it had a column says in one line that collecting renews it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.protocol.errors import SpecError
from results.schema import empty
from results.store import StoredTables, read_table, table_path, write_table

OLD, COLUMN = "turns", "cache_break"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run's folder whose table of turns lacks a column."""
    path = table_path(tmp_path / "run", OLD)
    path.parent.mkdir(parents=True)
    write_table(path, OLD, empty(OLD), "run")
    pq.write_table(pq.read_table(path).drop_columns([COLUMN]), path)
    return tmp_path / "run"


def test_every_way_of_reading_says_what_to_do(run_dir: Path) -> None:
    stored = StoredTables(run_dir, [OLD], {})
    ways = (
        lambda: read_table(table_path(run_dir, OLD), OLD),
        lambda: read_table(table_path(run_dir, OLD), OLD, columns=["start_ns", COLUMN]),
        lambda: stored[OLD],
        lambda: stored.part(OLD, [COLUMN]),
        lambda: list(stored.batches(OLD, ["start_ns", COLUMN], text=["trajectory_id"])),
    )
    for read in ways:
        with pytest.raises(SpecError) as raised:
            read()
        said = str(raised.value)
        assert COLUMN in said
        assert "bench collect" in said
        assert "\n" not in said
        assert "FieldRef" not in said
        assert len(said) < 300 + len(str(run_dir)) * 2
    assert stored.part(OLD, ["start_ns"]).column_names == ["start_ns"]
