"""`bench query`: names and numbers that a form cannot hold, damaged tables, and Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.cli import call
from results.store import table_path

NOT_FINITE = "SELECT 'inf'::DOUBLE a, '-inf'::DOUBLE b, 'nan'::DOUBLE c, NULL d, ['inf'::DOUBLE] e"


def ask(runs_dir: Path, sql: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = call(["query", sql, "--runs-dir", str(runs_dir), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_two_columns_of_one_name_are_refused(
    form: str, runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answer"
    code, _, err = ask(runs_dir, "SELECT 1 a, 2 a, 3 b", capsys, "--format", form, "-o", str(out))
    assert code == 2
    assert err.count("\n") == 1
    assert "named 'a'" in err
    assert "AS" in err
    assert not out.exists()
    code, text, _ = ask(runs_dir, "SELECT 1 a, 2 a", capsys)
    assert (code, text.split()) == (0, ["a", "a", "1", "2"])


def test_infinities_are_no_unknowns(runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = ask(runs_dir, NOT_FINITE, capsys, "--format", "json")
    assert json.loads(text) == [{"a": "inf", "b": "-inf", "c": "nan", "d": None, "e": ["inf"]}]
    _, text, _ = ask(runs_dir, NOT_FINITE, capsys, "--format", "csv")
    assert text.splitlines()[1] == 'inf,-inf,nan,,"[""inf""]"'
    _, text, _ = ask(runs_dir, NOT_FINITE, capsys)
    assert text.splitlines()[1].split()[:4] == ["inf", "-inf", "nan", "-"]
    path = tmp_path / "a.parquet"
    assert ask(runs_dir, NOT_FINITE, capsys, "--format", "parquet", "-o", str(path))[0] == 0
    assert pq.read_table(path)["a"].to_pylist() == [float("inf")]


@pytest.mark.parametrize("damage", ["cut", "empty", "overwritten"])
def test_a_damaged_table_is_named_with_its_run(
    damage: str, runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(runs_dir, runs)
    run = sorted(path for path in runs.iterdir() if path.is_dir())[0]
    path = table_path(run, "turns")
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {"cut": whole[:-100], "empty": b"", "overwritten": b"PAR1" + bytes(middle) + whole[middle + 4 :]}[damage]
    )
    code, out, err = ask(runs, "SELECT * FROM turns", capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err
    assert f"bench collect {run}" in err
    assert "SELECT" not in err
    assert "read_parquet" not in err
    assert ask(runs, "SELECT count(*) FROM steps", capsys)[0] == 0  # the others can be read


def test_ctrl_c_is_no_defect(runs_dir: Path) -> None:
    sql = "SELECT sum(a.range * b.range * c.range) FROM range(100000) a, range(100000) b, range(1000) c"
    # The program says when the query is about to begin: a signal while Python starts is another matter.
    program = (
        "import sys, results.querying as q; from harness.cli import main; asked = q.query\n"
        "def query(*a):\n    print('begins', file=sys.stderr, flush=True); return asked(*a)\n"
        "q.query = query; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "query", sql, "--runs-dir", str(runs_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    out, err = "", "it never ended"
    assert process.stderr is not None
    while "begins" not in (line := process.stderr.readline()):
        assert line, "it ended before the query"
    try:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "interrupted" in err
    assert "defect" not in err
