"""Finding runs, listing them, and reading their logs."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import call
from harness.cli.runs import find_run
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Placement, RunSpec
from harness.run_folder import RunFolder
from harness.specs import default_spec

SPEC = default_spec("skyrl", Placement.ASYNC, Device.CPU)


def make_run(runs: Path, name: str, status: str, **meta: object) -> Path:
    folder = runs / name
    (folder / "logs").mkdir(parents=True)
    (folder / "spec.json").write_text(SPEC.to_json())
    (folder / "meta.json").write_text(json.dumps({"status": status, **meta}))
    return folder


def test_find_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    old = make_run(runs, "20260101T000000Z-skyrl-async-aaaaaa", "finished")
    new = make_run(runs, "20260102T000000Z-skyrl-colocated-bbbbbb", "finished")
    assert find_run("latest", runs) == new
    assert find_run(old.name, runs) == old
    assert find_run(str(old), runs) == old
    assert find_run("bbbbbb", runs) == new
    assert find_run("20260101", runs) == old
    with pytest.raises(SpecError, match="means 2 runs"):
        find_run("2026", runs)
    with pytest.raises(SpecError, match=f"did you mean {new.name}"):
        find_run("20260102T000000Z-skyrl-colocated-bbbbbc", runs)


def test_list_runs_says_status_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    make_run(runs, "1-finished", "finished", wall_s=61.4)
    make_run(runs, "2-killed", "running")
    make_run(runs, "3-stalled", "stalled", reason="no event for 300 s\nopen: train", wall_s=400.0)
    other = make_run(runs, "4-other-version", "finished")
    (other / "spec.json").write_text('{"framework": "skyrl"}')
    alive = RunFolder.create(runs, replace(SPEC, seed=2), name="5-alive")
    with alive.held():
        assert call(["list", "runs", "--runs-dir", str(runs)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        ["1-finished", "finished"],
        ["2-killed", "interrupted"],
        ["3-stalled", "stalled"],
        ["4-other-version", "finished"],
        ["5-alive", "running"],
    ]
    assert rows[1][2:] == ["tiny", "cpu", "8", "61", "s"]
    assert "killed" in rows[2]
    assert rows[3][-5:] == ["no", "event", "for", "300", "s"]
    assert rows[4][2] == "?"


def test_list_runs_of_an_empty_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", "runs", "--runs-dir", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"no runs under {tmp_path / 'none'}\n"


def test_list_frameworks_has_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", "frameworks"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["framework", "placement", "device", "possible", "verified", "on"]
    for framework in ("simulated", "skyrl"):
        for placement in Placement:
            for device in Device:
                cells = [row for row in rows if row.startswith(framework) and placement.value in row]
                assert sum(f" {device.value} " in row for row in cells) == 1
    assert any("skyrl 0.4.0" in row and "cuda" in row and "never on GPU" in row for row in rows)


def test_logs_shows_the_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "one", "finished")
    (run / "logs" / "worker.log").write_text("".join(f"line {i}\n" for i in range(100)))
    (run / "logs" / "ray").mkdir()
    (run / "logs" / "ray" / "raylet.out").write_bytes(b"caf\xe9\n")
    assert call(["logs", str(run), "-n", "2"]) == 0
    out = capsys.readouterr().out
    assert "==> logs/worker.log <==\nline 98\nline 99\n" in out
    assert "==> logs/ray/raylet.out <==\ncaf\ufffd\n" in out
    assert "line 97" not in out


def test_logs_of_a_run_without_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "one", "finished")
    assert call(["logs", str(run)]) == 0
    assert "no logs (yet)" in capsys.readouterr().out


def test_logs_follow_ends_with_the_run_and_misses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path, SPEC, name="one")
    log = folder.path / "logs" / "worker.log"
    log.write_text("before\n")
    folder.write_meta(status="running")

    def write_and_end() -> None:
        with folder.held():
            time.sleep(0.2)
            with log.open("a") as file:
                file.write("after\n")
            (folder.path / "logs" / "late.log").write_text("another file\n")
            folder.write_meta(status="finished")

    thread = threading.Thread(target=write_and_end)
    thread.start()
    assert call(["logs", str(folder.path), "-f"]) == 0
    thread.join()
    out = capsys.readouterr().out
    assert out.count("before") == 1
    assert out.count("after") == 1
    assert out.count("another file") == 1
    assert RunSpec.load_file(folder.path / "spec.json") == SPEC


def test_doctor_says_what_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["doctor"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["what", "found", "needed", "to", "do"]
    assert any("skyrl async on cpu" in row for row in rows)
    assert any("simulated colocated on cpu" in row and row.startswith("ok") for row in rows)


def test_list_runs_says_why_a_spec_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "spec.json").write_text("[]", encoding="utf-8")
    (tmp_path / "runs" / "one" / "sealed").touch()
    (tmp_path / "runs" / "one" / "meta.json").write_text('{"status": "finished"}', encoding="utf-8")
    assert call(["list", "runs", "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "spec.json cannot be read: it holds a list, and no settings by name" in capsys.readouterr().out
