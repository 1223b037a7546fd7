"""Laws from Parquet files and from measured runs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cli import call
from harness.protocol.errors import SpecError
from results.planner.model import Composed, Empirical, Fixed
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


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Rows as a trace of agents' sessions has them: `think_s` is the time before a request, after the reply before."""
    rows = [
        # session, type, api_s, think_s, stop
        ("a", "n", 5.0, 0.0, "tool_use"),
        ("a", "n", 6.0, 3.0, "end_turn"),  # a tool before it; after it the user
        ("a", "n", 7.0, 900.0, "tool_use"),
        ("b", "n", 8.0, 0.0, "tool_use"),  # the first of its session comes after nothing
        ("a", "s", 1.0, 4.0, "tool_use"),  # a sub-agent's
        ("a", "n", 9.0, 40.0, ""),
        ("b", "n", None, 700.0, "tool_use"),
    ]
    names = ("session", "type", "api_s", "think_s", "stop")
    table = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    for name in ("session", "type", "stop"):
        table = table.set_column(table.schema.get_field_index(name), name, table[name].dictionary_encode())
    pq.write_table(table, tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, (0.0, 3.0, 900.0, 0.0, 4.0, 40.0, 700.0)),
        ({"where": {"type": "n"}}, (0.0, 3.0, 900.0, 0.0, 40.0, 700.0)),
        ({"where": {"type": ["n"], "stop": ["tool_use", ""]}}, (0.0, 900.0, 0.0, 40.0, 700.0)),
        ({"after": {"stop": "tool_use"}, "per": "session"}, (3.0, 4.0, 40.0, 700.0)),
        ({"where": {"type": "n"}, "after": {"stop": "tool_use"}, "per": "session"}, (3.0, 40.0, 700.0)),
        ({"where": {"type": "n"}, "after": {"stop": "tool_use", "type": "n"}, "per": "session"}, (3.0, 700.0)),
        ({"where": {"type": "n"}, "after": {"stop": "tool_use"}, "per": "session", "at_most": 600}, (3.0, 40.0)),
    ],
)
def test_rows_are_chosen_by_their_own_values_and_by_those_of_the_row_before(trace: Path, more: dict, expected: tuple):
    assert durations_of({"law": "recorded", "file": str(trace), "column": "think_s", **more}) == Empirical(expected)


def test_turns_count_the_rows_that_are_chosen(trace: Path):
    law = durations_of(
        {
            "law": "composed",
            "turns": {"file": str(trace), "per": "session", "where": {"type": "n"}},
            "generation": 1,
        }
    )

    assert law == Composed((2, 4), Fixed(1.0))


def test_flags_give_the_law_of_the_file(trace: Path, capsys):
    words = [
        "--trace",
        str(trace),
        "--per",
        "session",
        "--generation",
        "api_s",
        "--tool",
        "think_s",
        "--where",
        "type=n",
    ]
    words += ["--tool-after", "stop=tool_use", "--tool-at-most", "600", "--workers", "8", "--batch-size", "4"]
    file = trace.with_name("scenario.toml")
    rows = f"file = '{trace}', where = {{ type = 'n' }}"
    file.write_text(
        f"""
        batch_size = 4
        [durations]
        law = "composed"
        turns = {{ per = "session", {rows} }}
        generation = {{ law = "recorded", column = "api_s", {rows} }}
        tool = {{ law = "recorded", column = "think_s", {rows}, after = {{ stop = "tool_use" }}, per = "session",
                 at_most = 600 }}
        [pools]
        workers = 8
        """.replace("\n                 at_most", " at_most")
    )

    found = []
    for arguments in (words, ["-c", str(file)]):
        assert call(["simulate", "--mode", "async", "--json", "--updates", "20", *arguments]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] != ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"where": {"type": "x"}}, "where.type = 'x': no row of"),
        ({"where": {"kind": "n"}}, "has no column kind"),
        ({"where": "type"}, "where = 'type': allowed is a table"),
        ({"where": {"type": []}}, "allowed is a value or a list"),
        ({"after": {"stop": "tool_use"}}, "give per"),
        ({"after": {"stop": "no"}, "per": "session"}, "after.stop = 'no'"),
        ({"per": 3}, "per = 3"),
        ({"at_most": "600"}, "at_most = '600'"),
        ({"at_most": -1}, "holds no number that is chosen"),
        ({"wher": {}}, "wher: unknown"),
        ({"run": "one"}, "a recorded law has run, or file and column"),
    ],
)
def test_a_choice_that_can_t_be_says_where(trace: Path, more: dict, words: str):
    with pytest.raises(SpecError) as caught:
        durations_of({"law": "recorded", "file": str(trace), "column": "think_s", **more})

    assert "durations" in str(caught.value)
    assert words in str(caught.value)


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
