"""Laws from Parquet files and from measured runs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.protocol.errors import SpecError
from results.planner.model import Composed, Empirical
from results.planner.scenario_file import durations_of, mapping_of, scenario_of


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "session": pa.array(["a", "a", "a", "b", "b", "c"]).dictionary_encode(),
            "api_s": [1.0, 2.0, None, 4.0, 5.0, 6.0],
            "tokens": [1, 2, 3, 4, 5, 6],
            "empty": pa.array([None] * 6, type=pa.float64()),
        }
    )
    pq.write_table(table, tmp_path / "sessions.parquet")
    return tmp_path / "sessions.parquet"


def test_a_session_trace_is_composed_of_its_columns(sessions: Path):
    law = durations_of(
        {
            "law": "composed",
            "turns": {"file": str(sessions), "per": "session"},
            "generation": {"law": "recorded", "file": str(sessions), "column": "api_s"},
            "tool": {"law": "recorded", "file": str(sessions), "column": "tokens"},
        }
    )

    assert law == Composed((1, 2, 3), Empirical((1.0, 2.0, 4.0, 5.0, 6.0)), Empirical((1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))
    scenario = scenario_of({"durations": 1, "horizon_s": 1.0})
    assert scenario_of(mapping_of(scenario)) == scenario


def test_a_runs_trajectories_that_ended_well(tmp_path: Path):
    (tmp_path / "run" / "tables").mkdir(parents=True)
    table = pa.table(
        {
            "status": ["ok", "failed", "ok", None],
            "start_ns": [0, 0, 5_000_000_000, 7],
            "end_ns": [2_500_000_000, 9_000_000_000, 6_000_000_000, None],
        }
    )
    pq.write_table(table, tmp_path / "run" / "tables" / "trajectories.parquet")

    assert durations_of({"law": "recorded", "run": str(tmp_path / "run")}) == Empirical((2.5, 1.0))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"file": "SESSIONS", "column": "api"}, "has no column api; it has session, api_s"),
        ({"file": "SESSIONS", "column": "session"}, "no numbers"),
        ({"file": "SESSIONS", "column": "empty"}, "holds no number"),
        ({"file": "/nowhere.parquet", "column": "x"}, "cannot be read as Parquet"),
        ({"file": "SESSIONS"}, "a recorded law has run, or file and column"),
        ({"run": "/nowhere"}, "no run folder with tables"),
        ({}, "a recorded law has run, or file and column"),
    ],
)
def test_what_cannot_be_read_says_where(sessions: Path, table: dict, words: str):
    table = {key: str(sessions) if value == "SESSIONS" else value for key, value in table.items()}

    with pytest.raises(SpecError) as caught:
        durations_of({"law": "recorded", **table})

    assert "durations" in str(caught.value)
    assert words in str(caught.value)
