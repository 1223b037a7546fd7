"""`bench tools build`, `show` and `serve`: corpora built and looked at, a server that says where it is and ends."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.cli import call

BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]


@pytest.fixture
def own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A corpus of three pages, built by the verb."""
    source = tmp_path / "pages"
    source.mkdir()
    for name in ("gislur", "wuck", "zeposund"):
        (source / f"{name}.md").write_text(f"# {name.title()}\n\nAll about the river {name}.")
    assert call(["tools", "build", str(source), "-o", str(tmp_path / "own")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"own: 3 pages, 0 questions, digest [0-9a-f]{16}\n", said)
    assert f"--corpus {tmp_path / 'own'}" in said
    return tmp_path / "own"


def test_a_corpus_of_ones_own_is_shown_searched_and_read(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["tools", "show", str(own)]) == 0
    assert re.search(r"pages +3,", capsys.readouterr().out)
    assert call(["tools", "show", str(own), "--search", "river wuck"]) == 0
    assert "[1] Wuck" in capsys.readouterr().out
    assert call(["tools", "show", str(own), "--search", "nothinglikethis"]) == 0
    assert capsys.readouterr().out == "nothing found\n"
    assert call(["tools", "show", str(own), "--page", "http://corpus.test/wuck.md"]) == 0
    assert "All about the river wuck." in capsys.readouterr().out


def test_what_was_left_out_of_a_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "pages"
    source.mkdir()
    (source / "a.md").write_text("# A\n\nwords")
    (source / "b.pdf").write_bytes(b"%PDF")
    (source / "c.html").write_bytes(bytes(range(256)) * 20)
    assert call(["tools", "build", str(source), "-o", str(tmp_path / "own")]) == 0
    said = capsys.readouterr().out
    assert "own: 1 page, 0 questions, digest " in said
    assert "left out:\n  1 file: not .html, .md or .txt: b.pdf\n  1 file: no text, whatever its name" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "pages"]  # no lock beside it


def test_a_generated_corpus_lies_where_runs_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    assert call(["tools", "show", "generated:1000", "--seed", "3"]) == 2
    assert "not built yet: bench tools build generated:1000 --seed 3" in capsys.readouterr().err
    assert call(["tools", "build", "generated:1000", "--seed", "3"]) == 0
    assert f"{tmp_path}/corpora/generated-1000-3-" in capsys.readouterr().out
    assert call(["tools", "show", "generated:1000", "--seed", "3", "--questions", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count(" hop)\n") + said.count(" hops)\n") == 2
    assert "(1 hops)" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "generated:10"], "allowed are 1,000 to 1,000,000 pages"),
        (["build", "generated:1000", "--columns", "url=u"], "allowed with a table of your own"),
        (["build", "nowhere"], "give -o DIR"),
        (["build", "nowhere", "-o", "out"], "nowhere"),
        (["show", "nowhere"], "no corpus there"),
        (["serve", "--tools", "mock"], "mock tools need no server"),
        (["serve", "--tools", "replay:nowhere.parquet"], "cannot be read"),
        (["serve", "--tools", "web:serper", "--corpus", "x"], "allowed with local tools"),
        (["serve", "--port", "99999"], "99999"),
        (["polish"], "No such command 'polish'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["tools", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_server_says_where_it_is_and_ends_at_ctrl_c(own: Path) -> None:
    process = subprocess.Popen(
        [*BENCH, "tools", "serve", "--corpus", str(own)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("serving at ").strip()
        token = process.stdout.readline().removeprefix("token: ").strip()
        assert url.startswith("http://127.0.0.1:")
        body = json.dumps({"tool": "search_engine", "argument": "river wuck"}).encode()
        asked = urllib.request.Request(f"{url}/call", body, {"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=60) as response:
            assert json.load(response)["links"][0] == ["Wuck", "http://corpus.test/wuck.md"]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (0, "")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generated:abc"], "allowed is generated:PAGES"),
        (["generated:1,000"], "allowed is generated:PAGES"),
        (["pages.jsonl", "-o", "x", "--columns", "url"], "with url, title, text, html"),
        (["pages.jsonl", "-o", "x", "--columns", "url=a,url=b"], "url is given twice"),
    ],
)
def test_what_can_not_be_built_says_what_can(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["tools", "build", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_disk_that_is_full_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("workloads.deep_research.corpus.build.build_corpus", full)
    assert call(["tools", "build", "generated:1000", "-o", str(tmp_path / "c")]) == 3
    assert "database or disk is full; free some space" in capsys.readouterr().err
