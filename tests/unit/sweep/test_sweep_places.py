"""Where a sweep can't write is said in one line before anything runs."""

import errno
import os
from pathlib import Path

import pytest
from sweep_files import PAIR, Runs, go, make_folder, plan_of

from harness.cli import call
from harness.protocol.errors import EnvError, SpecError
from harness.sweep.folder import SweepFolder


@pytest.mark.parametrize("place", ["/proc/x", "file/below"])
def test_a_runs_folder_that_cannot_be_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("sweep.toml").write_text(PAIR)
    assert call(["sweep", "-c", "sweep.toml", "--out", "new", "--runs-dir", place]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert place in line
    assert "with --runs-dir" in line
    assert not Path("new").exists()


@pytest.mark.parametrize(("status", "code"), [("failed", 2), ("finished", 0)])
def test_a_sweep_that_goes_on_needs_the_folder_only_for_what_is_left(
    status: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.cli.sweep._report", lambda *_: None)
    folder = make_folder(tmp_path, plan_of(tmp_path))
    go(folder, Runs(status))
    again = ["sweep", "--resume", str(folder.path), "--runs-dir", "/proc/x", "--retry-failed"]
    before = (folder.path / "journal.jsonl").read_bytes()
    assert call(again) == code
    lines = capsys.readouterr().err.splitlines()
    if code:
        assert len(lines) == 1
        assert "/proc/x" in lines[0]
        assert (folder.path / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("place", ["/proc/x", "file/below"])
def test_a_sweep_folder_that_cannot_be_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("sweep.toml").write_text(PAIR)
    assert call(["sweep", "-c", "sweep.toml", "--out", place]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert place in line
    assert line.endswith("name another folder with --out")


@pytest.mark.parametrize(
    ("number", "error", "advice"),
    [
        (errno.ENOSPC, EnvError, "free some space"),
        (errno.EFBIG, EnvError, "free some space"),
        (errno.EROFS, SpecError, ""),
    ],
)
def test_no_room_for_a_sweep(
    number: int, error: type[Exception], advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    plan = plan_of(tmp_path)
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(error, match=f"{advice}.*name another folder with --out"):
        SweepFolder.create(tmp_path / "sweep", plan, tmp_path / "runs")
