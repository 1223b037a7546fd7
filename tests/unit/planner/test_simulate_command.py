"""`bench simulate`: flags, TOML, sweeps; the same figures however the work is spread."""

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from scenarios import scenarios

from harness.cli import call
from harness.cli.counted import counted
from harness.protocol.errors import SpecError
from results.planner.model import Composed, Empirical, LogNormal
from results.planner.scenario_file import durations_of, mapping_of, scenario_of


@settings(deadline=None, max_examples=60, derandomize=True)
@given(scenarios())
def test_a_scenario_survives_its_mapping_and_json(scenario):
    assert scenario_of(json.loads(json.dumps(mapping_of(scenario)))) == scenario


def rows(capsys, *arguments: str) -> list[dict]:
    assert call(["simulate", "--json", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_without_flags_it_is_the_workshop(capsys):
    synchronous, free = rows(capsys)

    assert (synchronous["policy"], free["policy"]) == ("synchronous", "async, unbounded")
    assert 10 <= synchronous["updates"] <= 18
    assert 104 <= free["updates"] <= 113
    assert synchronous["updates_per_hour_theory"] == pytest.approx(14.50, abs=0.01)
    assert free["updates_per_hour_theory"] == pytest.approx(109.18, abs=0.01)


def test_the_table_says_that_it_is_simulated_and_flags_what_is_unstable(capsys):
    assert call(["simulate", "--mode", "async", "--workers", "256", "--updates", "300"]) == 0

    out = capsys.readouterr().out
    assert "simulated in virtual time" in out
    assert "unstable" in out


def test_a_sweep_of_axes_and_seeds(capsys):
    found = rows(capsys, "--sweep", "sigma=0:1:3", "--sweep", "workers=32,64", "--seeds", "2", "--seed", "5")

    assert len(found) == 3 * 2 * 2 * 2  # the last: the two modes
    assert [row["seed"] for row in found[:2]] == [5, 6]
    assert {row["sigma"] for row in found} == {0, 0.5, 1}
    fastest = max(found, key=lambda row: row["updates"])
    assert (fastest["sigma"], fastest["workers"], fastest["mode"]) == (0, 64, "async")


def test_what_a_mode_has_no_use_for_is_left_out_of_it(capsys):
    found = rows(capsys, "--sweep", "max_staleness=none,0,1,2", "--hours", "0.2")

    assert [row["policy"].split()[0] for row in found].count("synchronous") == 1
    assert [row["max_staleness"] for row in found if row["mode"] == "async"] == [None, 0, 1, 2]


def test_a_toml_file_and_flags_that_win(tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text(
        """
        batch_size = 8
        horizon_updates = 40
        warmup_updates = 5
        [durations]
        law = "composed"
        turns = [[2, 9]]
        generation = { law = "log_normal", median_s = 4, sigma = 0.5 }
        tool = { law = "mixture", parts = [
            { weight = 60, law = "log_normal", median_s = 10, sigma = 0.6 },
            { weight = 40, law = "log_normal", median_s = 25, sigma = 0.8 } ] }
        [policy]
        group_size = 3
        in_flight = "partial"
        [pools]
        workers = 24
        slow_down = { concurrency = [1, 24], factor = [1.0, 2.0] }
        rollout_gpus = 4
        rollout_watts = { generating = 600, tool_wait = 120, weight_sync = 150, wait_train = 110 }
        train_gpus = 4
        train_watts = { train = 650, wait_rollout = 110, weight_sync = 150 }
        [sweep]
        max_staleness = [1, 4]
        mode = ["async"]
        """
    )

    found = rows(capsys, "-c", str(file), "--update-s", "33", "--seed", "3")

    assert [row["max_staleness"] for row in found] == [1, 4]
    assert found[0]["updates"] == 35
    assert found[0]["energy_j"] > 0
    assert found[0]["train_train_s"] == pytest.approx(35 * 33)
    assert found[0]["updates_per_hour"] < found[1]["updates_per_hour"]


def test_the_report_is_written_whole(tmp_path):
    out = tmp_path / "simulated"

    assert call(["simulate", "--sweep", "sigma=0.3,1", "--seeds", "2", "-o", str(out)]) == 0

    report = (out / "report.md").read_text()
    assert "nothing was measured" in report
    table = pq.read_table(out / "rows.parquet")
    assert table.num_rows == 8
    assert table.schema.field("updates_per_hour").metadata == {b"unit": b"1/h"}
    for name in ("updates_per_hour.svg", "updates_per_hour.png"):
        assert f"figures/{name}" in report or (out / "figures" / name).stat().st_size > 10_000
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert call(["simulate", "--sweep", "sigma=0.3,1", "--seeds", "2", "-o", str(out)]) == 0
    assert before == {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "sideways"], "mode = sideways"),
        (["--sigma", "-1"], "sigma = -1"),
        (["--workers", "0"], "workers = 0"),
        (["--sweep", "sigmo=1"], "sigmo: unknown"),
        (["--sweep", "sigma"], "--sweep sigma"),
        (["--sweep", "sigma=0:1:1"], "count from 2"),
        (["--sweep", "sigma=wide"], "sigma = 'wide'"),
        (["--hours", "1", "--updates", "3"], "exclude each other"),
        (["--seeds", "0"], "--seeds 0: allowed is a whole number from 1 to 1000000"),
        (["--seeds", "-3"], "--seeds -3: allowed is"),
        (["--seeds", "1000001"], "--seeds 1000001: allowed is"),
        (["--seeds", "600000", "--sweep", "sigma=1,2"], "2400000 scenarios (4 settings, 600000 seeds of each)"),
        (["-c", "/nowhere/at/all.toml"], "cannot be read"),
        (["--median", "nan"], "median_s = nan"),
        (["--jobs", "0"], "jobs = 0"),
        (["--mode", "async", "--bound", "discard"], "give max_staleness"),
        (["--updates", "5", "--warmup-updates", "5"], "nothing of 5 updates would be left"),
        (["--sweep", "policy.colocated=true,nein"], "colocated = 'nein': allowed is true or false"),
        (["--mode", "synchronous", "--max-staleness", "2"], "max_staleness = 2 with mode = synchronous"),
        (["--mode", "synchronous", "--sweep", "max_staleness=0,1"], "allowed with mode = async"),
        (["--mode", "one_step_off", "--in-flight", "wait"], "in_flight = wait with mode = one_step_off"),
        (["--mode", "async", "--over-sampling", "0.5"], "over_sampling = 0.5 with mode = async"),
        (["--mode", "async", "--colocated"], "colocated = True with mode = async"),
        (["--mode", "async", "--bound", "admission"], "give max_staleness"),
        (["--where", "type=n"], "--where: give --trace"),
        (["--trace", "nosuch.parquet"], "--trace nosuch.parquet: there is no such file"),
        (["--trace", "~nobody-of-that-name/x.parquet"], "there is no such file"),
        (["--trace", "x" * 300], "there is no such file"),
        (["--trace", "."], "--trace .: allowed is a Parquet file; this is a folder"),
        (["--trace", "x.parquet"], "give --generation"),
        (["--trace", "x.parquet", "--generation", "a", "--tool", "b"], "--tool: give --per"),
        (["--trace", "x.parquet", "--generation", "a", "--where", "b"], "--where b: allowed is COLUMN=VALUE"),
        (["--trace", "x.parquet", "--generation", "a", "--tool-at-most", "3"], "give --tool"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.parquet").touch()
    assert call(["simulate", *arguments]) == 2

    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.strip().count("\n") == 0


TYPES = [
    ("policy = 3", "policy = 3: allowed is a table"),
    ("pools = 'big'", "pools = 'big': allowed is a table"),
    ("seeds = true", "seeds = True"),
    ("seeds = 0", "seeds = 0: allowed is a whole number from 1 to 1000000"),
    ("seed = '1'", "seed = '1'"),
    ("batch_size = 8.0", "batch_size = 8.0"),
    ("horizon_s = true", "horizon_s = True"),
    ("horizon_updates = 2.5", "horizon_updates = 2.5"),
    ("warmup_updates = false", "warmup_updates = False"),
    ("durations = true", "durations = True"),
    ("[policy]\ncolocated = 'false'", "colocated = 'false': allowed is true or false"),
    ("[policy]\ncolocated = 0", "colocated = 0: allowed is true or false"),
    ("[policy]\nmode = 1", "mode = 1"),
    ("[policy]\nmode = ['async']", "mode = ['async']"),
    ("[policy]\norder = true", "order = True"),
    ("[policy]\ngroup_size = true", "group_size = True"),
    ("[policy]\nover_sampling = '0.5'", "over_sampling = '0.5'"),
    ("[policy]\nmax_staleness = 1.0", "max_staleness = 1.0"),
    ("[pools]\nworkers = '64'", "workers = '64'"),
    ("[pools]\nengines = 1.5", "engines = 1.5"),
    ("[pools]\ntrain = '15'", "pools.train = '15'"),
    ("[pools]\ntrain = true", "pools.train = True"),
    ("[pools]\nrollout_gpus = true", "rollout_gpus = True"),
    ("[pools]\nslow_down = 2", "pools.slow_down = 2"),
    ("[pools]\nslow_down = { concurrency = [1, '2'], factor = [1, 2] }", "slow_down.concurrency = '2'"),
    ("[pools]\ntrain_watts = 600", "pools.train_watts = 600"),
    ("[pools.train_watts]\ntrain = true", "train_watts.train = True"),
    (
        "durations = { law = 'recorded', file = '~nobody-of-that-name/x.parquet', column = 'a' }",
        "cannot be read as Parquet",
    ),
    ("[sweep]\nsigma = 1", "allowed is a table of lists"),
    ("[sweep]\nsigma = ['1']", "sigma = '1'"),
    ("[sweep]\ncolocated = ['false']", "colocated = 'false'"),
]


@pytest.mark.parametrize(("text", "words"), TYPES)
def test_a_value_of_another_type_in_a_file_is_one_line_and_exit_2(text, words, tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text(text + "\n")

    assert call(["simulate", "-c", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_true_and_false_of_a_sweep_are_that(capsys):
    found = rows(capsys, "--mode", "synchronous", "--sweep", "policy.colocated=true,false", "--hours", "0.2")

    assert [row["policy.colocated"] for row in found] == [True, False]
    assert [row["policy"] for row in found] == ["synchronous, colocated", "synchronous"]
    assert rows(capsys, "--mode", "synchronous", "--sweep", "colocated=true,false", "--hours", "0.2")[1]["policy"] == (
        "synchronous"
    )


def test_nothing_of_a_setting_is_no_setting(tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text("[policy]\nover_sampling = 0.0\ncolocated = false\nmode = 'async'\n")

    (row,) = rows(capsys, "-c", str(file), "--hours", "0.2")
    assert row["policy"] == "async, unbounded"
    with_zero = rows(capsys, "--mode", "async", "--sweep", "over_sampling=0,0.0", "--hours", "0.2")
    assert [one["policy"] for one in with_zero] == ["async, unbounded"]


def test_colocated_pools_with_offload_need_no_mode(tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text("horizon_updates = 5\n[policy]\ncolocated = true\n[pools]\noffload = 3\n")

    (row,) = rows(capsys, "-c", str(file))
    assert (row["policy"], row["train_offload_s"]) == ("synchronous, colocated", 15)
    assert call(["simulate", "-c", str(file)]) == 0
    assert "allow mode = synchronous only" in capsys.readouterr().err
    both = rows(capsys, "-c", str(file), "--mode", "synchronous,async")
    assert [row["train_offload_s"] for row in both] == [15, 0]


def test_a_horizon_on_an_axis_is_the_horizon(capsys):
    found = rows(capsys, "--mode", "async", "--sweep", "horizon_updates=5,300")

    assert [row["updates"] for row in found] == [5, 300]
    assert [row["window_s"] for row in rows(capsys, "--mode", "async", "--sweep", "horizon_s=60,7200")] == [60, 7200]


def test_what_a_file_leaves_out_is_said(tmp_path, capsys):
    file = tmp_path / "scenario.toml"
    file.write_text("batch_size = 8\nhorizon_updates = 5\n[durations]\nsigma = 0.5\n")
    assert call(["simulate", "-c", str(file), "--workers", "8", "--sweep", "update_s=3,5"]) == 0
    said = capsys.readouterr().err
    assert "durations.median_s = 20.0, policy.in_flight = keep\n" in said

    file.write_text(
        "batch_size = 8\nhorizon_updates = 5\ndurations = 4\n[policy]\nin_flight = 'partial'\n"
        "[pools]\nworkers = 8\ntrain = 1\n"
    )
    assert call(["simulate", "-c", str(file)]) == 0
    assert "left" not in (said := capsys.readouterr().err)
    assert said == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"law": "normal"}, "durations.law = normal"),
        ({"law": "log_normal", "median_s": 1}, "durations.sigma: missing"),
        ({"law": "log_normal", "median_s": 1, "sigma": 1, "mean": 3}, "durations.mean: unknown"),
        ({"law": "empirical", "values": []}, "at least one recorded duration"),
        ({"law": "composed", "turns": [0], "generation": 1}, "turns = 0"),
        ({"law": "composed", "turns": [[1]], "generation": 1}, "is no range"),
        ({"law": "mixture", "parts": [{"law": "fixed", "seconds": 1}]}, "parts[0].weight: missing"),
        (0, "no time at all"),
        ("long", "allowed is a table"),
    ],
)
def test_a_wrong_law_names_its_key(value, words):
    with pytest.raises(SpecError) as caught:
        scenario_of({"durations": value, "horizon_s": 1.0})

    assert words in str(caught.value)


def test_laws_in_short():
    assert durations_of({"law": "empirical", "values": [1, 2]}) == Empirical((1, 2))
    composed = durations_of({"law": "composed", "turns": [[2, 4], 9], "generation": 1})
    assert isinstance(composed, Composed)
    assert composed.turns == (2, 3, 4, 9)
    assert durations_of({"law": "log_normal", "median_s": 20, "sigma": 1}) == LogNormal(20, 1)


def test_an_unknown_axis_is_answered_with_the_names_of_the_help(capsys):
    assert call(["simulate", "--sweep", "nope=1"]) == 2
    said = capsys.readouterr().err
    assert "nope: unknown" in said
    assert "sigma" in said
    assert "update_s" in said
    assert "batch_size" in said


def test_progress_is_told_on_a_terminal_only(monkeypatch, capsys):
    assert counted("scenarios") is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tell = counted("scenarios")
    tell(1, 2000)
    tell(2000, 2000)
    assert capsys.readouterr().err.endswith("2,000/2,000 scenarios\n")
