"""A played run leaves what a real one does: the same tables, columns and report; what differs is listed, with why."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.cli import call

REAL = json.loads(Path(__file__).with_name("real_runs.json").read_text())
SAMPLED = "nothing is sampled beside virtual time: what this machine does meanwhile says nothing of the run"
# Columns that had values in real runs and have none here; "*" is all of a table.
WITHOUT_VALUES = {
    "samples.*": SAMPLED,
    "engine_samples.*": SAMPLED,
    "opens.*": "no process was ended while something of it was open",
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("like") / "runs"
    words = ["--framework", "simulated", "--placement", "async", "--steps", "24"]
    assert call(["run", *words, "--runs-dir", str(runs)]) == 0
    (folder,) = runs.iterdir()
    return folder


def test_every_table_and_column_of_real_runs_is_there(played: Path) -> None:
    for name, columns in REAL["tables"].items():
        found = pq.read_schema(played / "tables" / f"{name}.parquet").names
        assert set(columns) <= set(found), name


def test_every_column_with_values_has_them_but_for_those_with_a_reason(played: Path) -> None:
    missing = set()
    for name, columns in REAL["tables"].items():
        table = pq.read_table(played / "tables" / f"{name}.parquet")
        for column, frameworks in columns.items():
            if frameworks and table[column].null_count == table.num_rows:
                missing.add(f"{name}.*" if f"{name}.*" in WITHOUT_VALUES else f"{name}.{column}")

    assert missing == set(WITHOUT_VALUES)


def test_the_report_has_a_real_ones_sections(played: Path) -> None:
    report = (played / "report.md").read_text()
    assert report.startswith("# simulated, async: simulated\n")

    assert [line for line in report.splitlines() if line.startswith("##")] == REAL["sections"]
