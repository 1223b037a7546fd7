"""Run folders whose name is not valid UTF-8: one line for one that is named, and left out where many are read."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import call

BAD = os.fsdecode(b"20990101T000000Z-\xff")
SAID = "the name is not valid UTF-8"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated run, and with a copy of it that is badly named."""
    folder = tmp_path_factory.mktemp("named") / "runs"
    arguments = ["run", "--framework", "simulated", "--placement", "colocated", "--steps", "4"]
    assert call([*arguments, "--latency-scale", "0.2", "--runs-dir", str(folder)]) == 0
    (run,) = folder.iterdir()
    shutil.copytree(run, folder / BAD)
    shutil.copytree(run, folder.parent / "other" / run.name)
    meta = folder.parent / "other" / run.name / "meta.json"
    meta.write_text(meta.read_text(encoding="utf-8").replace(run.name, "another"), encoding="utf-8")
    assert call(["collect", str(meta.parent)]) == 0
    return folder


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["report"], []),
        (["report", "--html"], []),
        (["collect"], []),
        (["lint"], []),
        (["logs"], []),
        (["compare"], []),
        (["calibrate"], []),
        (["plan"], []),
        (["export"], ["--to", "perfetto"]),
        (["tools", "fit"], ["-o", "fit.json"]),
        (["tools", "trace"], ["-o", "trace.parquet"]),
        (["baseline", "accept"], ["--why", "first", "--baseline", "base"]),
        (["history", "series"], []),
    ],
    ids=" ".join,
)
def test_a_badly_named_run_is_one_line(
    before: list[str],
    after: list[str],
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = [str(next(path for path in runs.iterdir() if path.name != BAD))] if before == ["compare"] else []
    code = call([*before, *good, str(runs / BAD), *after])
    said = capsys.readouterr().err
    assert code == 2, said
    assert said.count("\n") == 1
    assert said.count(SAID) == 1
    assert "\\udcff" in said


def test_a_badly_named_runs_own_folder_is_ordinary_too(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs / BAD)
    for arguments in (["collect", "."], ["report", "."], ["export", ".", "--to", "perfetto"], ["lint", "."]):
        assert call(arguments) in (0, 2)
        assert "defect" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["tools", "build", BAD, "-o", "c"],
        ["tools", "build", "generated:1000", "-o", BAD],
        ["import", "--from", "verl-console", BAD],
        ["simulate", "--config", BAD],
        ["simulate", "--trace", BAD],
        ["lint", BAD],
        ["run", "--framework", "simulated", "--placement", "async", "--preset", BAD],
        ["run", "--framework", "simulated", "--placement", "async", "--tools", "local", "--corpus", BAD],
    ],
    ids=lambda arguments: " ".join(one for one in arguments if one != BAD),
)
def test_any_argument_of_such_a_name_is_an_ordinary_error(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / BAD).mkdir()
    code, said = call(arguments), capsys.readouterr().err
    assert code in (0, 2), said
    assert "No such option" not in said
    assert "defect" not in said


@pytest.mark.parametrize("arguments", [["history", BAD], ["baseline", "accept", "--why", "x", "--baseline", BAD]])
def test_nothing_is_written_into_a_folder_of_such_a_name(
    arguments: list[str],
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call([*arguments, str(next(path for path in runs.iterdir() if path.name != BAD))]) == 2
    assert SAID in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "select 1", "--runs-dir", "{runs}"],
        ["lint", "{runs}"],
        ["compare", "{runs}", "{runs}/../other"],
        ["list", "runs", "--runs-dir", "{runs}"],
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_it_is_left_out_of_its_folder_by_name(arguments: list[str], runs: Path) -> None:
    said = bench(*(one.format(runs=runs) for one in arguments))
    assert said.returncode == 0, said.stderr
    told = said.stdout if arguments[0] == "compare" else said.stderr  # a comparison tells it on its page
    assert any(SAID in line and "20990101T000000Z-" in line for line in told.splitlines()), told


def test_the_latest_run_is_one_with_a_name(runs: Path, tmp_path: Path) -> None:
    said = bench("report", "latest", "--runs-dir", str(runs), "-o", str(tmp_path / "out"))
    assert said.returncode == 0, said.stderr
