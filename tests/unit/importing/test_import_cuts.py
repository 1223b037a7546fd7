"""What the tables of an imported run cannot hold is said, and its source is linted with it."""

import re
from pathlib import Path

import pytest

from harness.cli import call
from harness.run_folder import list_runs
from results.lint.findings import Severity
from results.lint.given import Given
from results.lint.runs import lint_run
from results.lint.source import lint_file
from results.store import load_run

LONGER = "".join(f"step:{n} - timing_s/step:10 - timing_s/gen:20\n" for n in (1, 2, 3))


def imported(tmp_path: Path, text: str, *options: str) -> Path:
    log = tmp_path / "n2.log"
    log.write_text(text, encoding="utf-8")
    said = options or ("--placement", "colocated", "--gpus", "4")
    assert call(["import", str(log), "--from", "verl-console", *said, "-o", str(tmp_path / "runs")]) == 0
    return list_runs(tmp_path / "runs")[-1]


def test_phases_longer_than_their_step_are_said_and_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported(tmp_path, LONGER)
    assert "step 2 (line 2 of the log): its phases sum to 20 s (gen 20) in a step of 10 s" in capsys.readouterr().out
    of_the_log = lint_file(tmp_path / "n2.log", Given()).of(Severity.VIOLATION)
    of_the_run = lint_run(run).of(Severity.VIOLATION)
    assert len(of_the_log) == 3
    assert [(one.identity, one.line, one.left, one.right) for one in of_the_run] == [
        (one.identity, one.line, one.left, one.right) for one in of_the_log
    ]
    assert call(["lint", str(run)]) == 1
    assert "imported file n2.log, step 3" in capsys.readouterr().out
    assert call(["report", str(run), "--print"]) == 0
    page = capsys.readouterr().out
    assert "cut at its end" in page
    assert "3 violations" in page


def test_notes_of_a_long_log_are_few(tmp_path: Path) -> None:
    run = imported(tmp_path, "".join(f"step:{n} - timing_s/step:10 - timing_s/gen:20\n" for n in range(1, 60)))
    notes = load_run(run).meta["note"]
    assert len(notes) == 21
    assert notes[-1].startswith("39 more")


def test_phases_within_their_rounding_are_not_noted(tmp_path: Path) -> None:
    log = "step:{} - timing_s/step:10.0 - timing_s/gen:6.04 - timing_s/update_actor:4.0\n"
    run = imported(tmp_path, log.format(1) + log.format(2))
    assert load_run(run).meta["note"] == []
    assert lint_run(run).of(Severity.VIOLATION) == []


def test_phases_below_nothing_are_left_out_and_hide_no_other(tmp_path: Path) -> None:
    log = "step:{} - timing_s/step:10 - timing_s/gen:15 - timing_s/reward:-8\n"
    run = load_run(imported(tmp_path, log.format(1) + log.format(2)))
    notes = " ".join(run.meta["note"])
    assert "reward took -8 s" in notes
    assert "sum to 15 s" in notes
    assert set(run.frame("spans")["native_name"]) == {"gen"}
    assert (run.frame("spans")["end_ns"] >= run.frame("spans")["start_ns"]).all()


@pytest.mark.parametrize("number", ["1e400", "1e30", "9" * 30])
def test_numbers_that_no_table_holds(number: str, tmp_path: Path) -> None:
    log = f"step:1 - timing_s/step:{number} - a/b:1\nstep:2 - timing_s/step:3 - perf/total_num_tokens:{number}\n"
    run = load_run(imported(tmp_path, log + "step:3 - timing_s/step:3\n"))
    assert [row["step"] for row in run.tables["steps"].to_pylist()] == [2, 3]
    assert run.tables["steps"].to_pylist()[0]["processed_tokens"] is None
    assert any("1 steps" in note for note in run.meta["note"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--placement", "colocated", "--gpus", "4"), "colocated, 4 shared (cuda)"),
        (("--placement", "disaggregated", "--gpus", "4+2"), "disaggregated, 4+2 (train + rollout) (cuda)"),
    ],
)
def test_gpus_as_the_user_said(
    options: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = imported(tmp_path, LONGER, *options)
    capsys.readouterr()
    assert call(["report", str(run), "--print"]) == 0
    (line,) = re.findall(r"placement and GPUs, as the user said \| (.*) \|", capsys.readouterr().out)
    assert line.replace("\\", "") == said


def test_a_source_that_is_gone_is_said(tmp_path: Path) -> None:
    run = imported(tmp_path, LONGER)
    (run / "logs" / "n2.log").unlink()
    assert any("no longer in logs/" in note for note in lint_run(run).notes)
