"""Partial runs: what a source tells is there, what it does not is None, and the label stands wherever it is shown."""

import json
import shutil
from pathlib import Path

import pytest

from harness.cli import call
from harness.run_folder import list_runs
from results.importing.areal_tracer import read_sessions
from results.importing.imported import KNOWN, LABEL
from results.importing.log_steps import LogStep
from results.importing.verl_console import read_steps
from results.importing.verl_run import sequences
from results.lint.findings import Severity
from results.lint.runs import lint_run
from results.metrics import compute
from results.store import RunTables, load_run

RECORDED = Path(__file__).parents[1] / "lint" / "recorded"
VERL, SESSIONS = RECORDED / "verl-console.log", RECORDED / "areal-sessions-r0.jsonl"
COLOCATED = ["--placement", "colocated", "--gpus", "2"]
ASYNC = ["--placement", "async", "--gpus", "1+1", "--max-staleness", "1"]


def imported(source: Path, kind: str, out: Path, *options: str) -> RunTables:
    assert call(["import", str(source), "--from", kind, *options, "-o", str(out)]) == 0
    return load_run(list_runs(out)[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run imported from a recorded verl log, and one from recorded sessions of AReaL."""
    out = tmp_path_factory.mktemp("imported") / "runs"
    imported(VERL, "verl-console", out, *ASYNC)
    imported(SESSIONS, "areal-tracer", out, *ASYNC)
    return out


@pytest.fixture(scope="module")
def verl(runs: Path) -> RunTables:
    return load_run(next(path for path in runs.iterdir() if "-verl-" in path.name))


@pytest.fixture(scope="module")
def areal(runs: Path) -> RunTables:
    return load_run(next(path for path in runs.iterdir() if "-areal-" in path.name))


def test_steps_of_a_verl_log(verl: RunTables) -> None:
    log = read_steps(VERL.read_text(encoding="utf-8").splitlines())
    steps = verl.tables["steps"].to_pylist()
    assert [row["step"] for row in steps] == [2, 3, 4]
    for row, one in zip(steps, log, strict=True):
        assert (row["end_ns"] - row["start_ns"]) / 1e9 == pytest.approx(one.value("timing_s/step"), abs=1e-8)
        assert row["processed_tokens"] == one.value("perf/total_num_tokens")
        assert row["trajectories"] == 8  # its tokens / the mean prompt and response
        assert row["grad_norm"] == one.value("actor/grad_norm")
        assert row["loss_tokens"] is None
    spans = verl.frame("spans")
    trained = spans[(spans["step"] == 3) & (spans["native_name"] == "update_actor")].iloc[0]
    assert (trained["phase"], trained["pool"]) == ("train", "train")
    assert (trained["end_ns"] - trained["start_ns"]) / 1e9 == pytest.approx(log[1].value("timing_s/update_actor"))
    waits = spans[spans["native_name"] == "gen"]
    assert set(waits["phase"]) == {"wait_rollout"}  # async: what verl calls gen is the trainer's wait
    probes = verl.frame("probes")
    assert set(probes["name"]) >= {"perf/mfu/actor", "training/off_policy/trajectory_staleness/max"}


def test_generation_of_a_colocated_log_is_no_wait(tmp_path: Path) -> None:
    run = imported(VERL, "verl-console", tmp_path, *COLOCATED)
    spans = run.frame("spans")
    assert set(spans.loc[spans["native_name"] == "gen", "phase"]) == {"generation"}
    assert set(spans["pool"]) == {"both"}


@pytest.mark.parametrize("which", ["verl", "areal"])
def test_what_is_not_told_is_none_and_never_nothing(which: str, request: pytest.FixtureRequest) -> None:
    run: RunTables = request.getfixturevalue(which)
    found = compute(run)
    known = {name for name, figure in found.figures.items() if figure.value is not None}
    assert known == KNOWN[run.spec.preset]
    for name, figure in found.figures.items():
        if name not in known:
            assert figure.note
            assert LABEL in figure.note
    told = (found.throughput, found.account, found.energy, found.straggler, found.selection, found.engines)
    assert told == (None,) * 6
    assert not found.sync_proof.proven
    assert found.adherence.content_ratio is None


def test_the_window_of_a_verl_log_begins_after_its_first_step(verl: RunTables) -> None:
    found = compute(verl)
    assert found.window is not None
    assert (found.window.after_step, found.window.last_step) == (2, 4)
    assert any(LABEL in note for note in found.window.not_steady)
    assert sum(row.mean_s for row in found.phases) == pytest.approx(found.figures["step_time_s"].value)


def test_trajectories_of_areal_sessions(areal: RunTables) -> None:
    sessions, _ = read_sessions(SESSIONS.read_text(encoding="utf-8").splitlines())
    lives = {row["trajectory_id"]: row for row in areal.tables["trajectories"].to_pylist()}
    assert [lives[one.name]["status"] for one in sessions] == ["ok", "ok", "ok", "cancelled", "failed", "open"]
    for one in sessions:
        row = lives[one.name]
        assert row["group_id"] == f"t{one.task_id}"
        assert row["generated_tokens"] is None
        assert row["version_first"] is None
        if one.finalized_ts is None:
            assert row["end_ns"] is None
        else:
            assert (row["end_ns"] - row["start_ns"]) / 1e9 == pytest.approx(one.stated["total_s"], abs=1e-6)
        assert row["tool_ns"] / 1e9 == pytest.approx(one.stated.get("toolcall_s", 0.0), abs=1e-6)
        assert row["turns"] == sum(end is not None for _, end in one.phases.get("generate", ()))
    assert lives[sessions[3].name]["message"] == "rejected: stale_weight"
    (cut,) = areal.tables["opens"].to_pylist()  # its phase threw, and has no end
    assert cut["trajectory_id"] == sessions[4].name
    (process,) = areal.tables["processes"].to_pylist()
    assert process["wall_minus_mono_ns"] / 1e9 == pytest.approx(min(one.submit_ts for one in sessions))


@pytest.mark.parametrize("which", ["verl", "areal"])
def test_the_label_stands_wherever_the_run_is_shown(
    which: str, request: pytest.FixtureRequest, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: RunTables = request.getfixturevalue(which)
    assert call(["report", str(run.run_dir), "--print"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"# {run.spec.framework}, async: {LABEL}")
    for lack in run.meta["imported"]["lacks"]:
        assert lack.split(":")[0] in page
    assert "0 violations" in page
    assert call(["list", "runs", "--runs-dir", str(runs)]) == 0
    assert capsys.readouterr().out.count(LABEL) == 2


def test_the_source_is_kept_with_the_run(verl: RunTables) -> None:
    assert (verl.run_dir / "logs" / VERL.name).read_bytes() == VERL.read_bytes()
    meta = json.loads((verl.run_dir / "meta.json").read_text(encoding="utf-8"))
    assert meta["imported"]["from"] == "verl-console"
    assert str(RECORDED) not in (verl.run_dir / "meta.json").read_text(encoding="utf-8")


def test_imported_runs_are_compared_with_none(
    runs: Path, verl: RunTables, areal: RunTables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["report", str(verl.run_dir), str(areal.run_dir), "-o", str(tmp_path / "page")]) == 2
    assert f"{LABEL}: the work it was offered" in capsys.readouterr().err
    other = imported(VERL, "verl-console", tmp_path / "runs", *ASYNC)
    capsys.readouterr()
    allowed = ["--allow-different", "dataset_digest"]
    assert call(["compare", str(verl.run_dir), str(other.run_dir), *allowed]) == 2
    assert LABEL in capsys.readouterr().err


def test_collecting_an_imported_run_leaves_it_as_it_is(verl: RunTables, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["collect", str(verl.run_dir)]) == 2
    assert "import its source again" in capsys.readouterr().err
    assert load_run(verl.run_dir).tables["steps"].num_rows == 3


def test_imported_runs_pass_the_lint(runs: Path) -> None:
    for folder in list_runs(runs):
        linted = lint_run(folder)
        assert linted.of(Severity.VIOLATION) == []
        assert linted.checks > 20


def test_two_imports_of_one_file_have_folders_of_their_own(tmp_path: Path) -> None:
    for _ in range(2):
        imported(VERL, "verl-console", tmp_path, *ASYNC)
    assert len(list_runs(tmp_path)) == 2


def test_a_resumed_log_counts_from_where_it_was(tmp_path: Path) -> None:
    text = VERL.read_text(encoding="utf-8")
    for step in (2, 3, 4):
        text = text.replace(f"\nstep:{step} - ", f"\nstep:{step + 100} - ")
    log = tmp_path / "worker.log"
    log.write_text(text, encoding="utf-8")
    found = compute(imported(log, "verl-console", tmp_path / "runs", *ASYNC))
    assert found.window is not None
    assert (found.window.after_step, found.window.last_step) == (102, 104)


def test_a_count_that_rounding_leaves_open_is_none() -> None:
    values = {"perf/total_num_tokens": "1992.0", "prompt_length/mean": "50.0", "response_length/mean": "199.0"}
    assert sequences(LogStep(step=1, line=1, values=values)) == 8
    assert sequences(LogStep(step=1, line=1, values={**values, "response_length/mean": "2e2"})) is None
    assert sequences(LogStep(step=1, line=1, values={"perf/total_num_tokens": "1992.0"})) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "verl-console", "--placement", "async", "--gpus", "1+1"], "max_staleness"),
        (["--from", "verl-console", "--placement", "async", "--gpus", "2", "--max-staleness", "1"], "4+4"),
        (["--from", "verl-console", "--placement", "colocated", "--gpus", "1+1"], "one number"),
        (["--from", "verl-console", "--placement", "colocated", "--gpus", "0"], "gpus"),
        (["--from", "areal-tracer", *ASYNC], "no session"),
    ],
)
def test_wrong_requests(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["import", str(VERL), *options, "-o", str(tmp_path / "runs")]) == 2
    assert said in capsys.readouterr().err
    assert list_runs(tmp_path / "runs") == []


@pytest.mark.parametrize(
    "text",
    ["", "nothing of the kind\n", "step:1 - val-core/acc:0.5\n", "\x00\xff" * 50, "step:1 - a/b:1 - timing_s/gen:2\n"],
)
@pytest.mark.parametrize("kind", ["verl-console", "areal-tracer"])
def test_files_that_are_no_such_log(text: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.log"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    assert call(["import", str(path), "--from", kind, *ASYNC, "-o", str(tmp_path / "runs")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert list_runs(tmp_path / "runs") == []


def test_a_file_that_is_not_there_and_a_folder_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["import", str(tmp_path / "no.log"), "--from", "verl-console", *ASYNC, "-o", str(tmp_path)]) == 2
    taken = tmp_path / "taken"
    shutil.copyfile(VERL, taken)
    assert call(["import", str(VERL), "--from", "verl-console", *ASYNC, "-o", str(taken)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_cut_sessions_file_is_imported_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "sessions-r0.jsonl"
    path.write_bytes(SESSIONS.read_bytes()[:-100])
    run = imported(path, "areal-tracer", tmp_path / "runs", *ASYNC)
    assert run.tables["trajectories"].num_rows == 5
    assert any("left out: sessions-r0.jsonl, line 6" in note for note in run.meta["note"])


def test_sessions_of_several_ranks_are_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "sessions-r1.jsonl"
    text = SESSIONS.read_text(encoding="utf-8").replace('"rank": 0', '"rank": 1')
    other.write_text(text, encoding="utf-8")
    both = ["import", str(SESSIONS), str(other), "--from", "areal-tracer", *ASYNC, "-o", str(tmp_path / "runs")]
    assert call(both) == 0
    run = load_run(list_runs(tmp_path / "runs")[0])
    assert run.tables["trajectories"].num_rows == 12
    assert sorted(path.name for path in (run.run_dir / "logs").iterdir()) == [SESSIONS.name, other.name]
    # The same rank twice is no run, and a run has one console log.
    other.write_text(SESSIONS.read_text(encoding="utf-8"), encoding="utf-8")
    assert call(both) == 2
    assert "twice" in capsys.readouterr().err
    assert call(["import", str(VERL), str(other), "--from", "verl-console", *ASYNC, "-o", str(tmp_path)]) == 2
    assert "one console log" in capsys.readouterr().err
