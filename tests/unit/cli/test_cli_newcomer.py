"""What a newcomer does first, and what must not be called a defect of bench."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import harness.run
from harness.cli import call
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus, Placement
from harness.specs import Machine, check_machine, default_spec


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("BENCH_SKYRL_PYTHON", raising=False)


@pytest.mark.parametrize(("placement", "gpus"), [("colocated", "8"), ("async", "4+4")])
def test_a_node_is_shown_on_a_laptop(placement: str, gpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--framework", "skyrl", "--placement", placement, "--gpus", gpus]
    assert call([*asked, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "device = cuda: assumed for the dry run" in out
    assert "this machine can't start it" in out
    assert call(asked) == 2
    assert "--device cuda --dry-run" in capsys.readouterr().err


def a_run(where: Path) -> Path:
    folder = where / "runs" / "one"
    (folder / "logs").mkdir(parents=True)
    (folder / "spec.json").write_text(default_spec("skyrl", Placement.ASYNC, Device.CPU).to_json())
    (folder / "meta.json").write_text(json.dumps({"status": "finished"}))
    (folder / "sealed").touch()
    return folder


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EFBIG, errno.ENOTDIR])
@pytest.mark.parametrize(
    ("verb", "place"), [("collect", "results.collect.collect"), ("report", "reports.report.write_report")]
)
def test_a_folder_that_cannot_be_written_is_no_defect(
    number: int,
    verb: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number), "tables/spans.parquet")

    a_run(tmp_path)
    monkeypatch.setattr(place, refuse)
    assert call([verb, "one"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert os.strerror(number) in err
    assert "tables/spans.parquet" in err
    assert ("with -o" in err) == (verb == "report")
    assert "defect" not in err
    assert not list(tmp_path.rglob("bench-traceback.txt"))


@pytest.mark.parametrize("out", ["/proc/x", "file/below"])
def test_a_report_to_an_impossible_place(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path)
    (tmp_path / "file").touch()
    before = sorted(run.rglob("*"))
    assert call(["report", "one", "-o", out]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert out in err
    assert "-o" in err
    assert sorted(run.rglob("*")) == before


def test_a_traceback_that_cannot_be_kept_does_not_hide_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def break_(*_: object) -> None:
        raise ZeroDivisionError("by nought")

    run = a_run(tmp_path)
    (run / "sealed").unlink()
    monkeypatch.setattr("results.collect.collect", break_)
    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    assert call(["collect", "one"]) == 1
    err = capsys.readouterr().err
    assert "unexpected ZeroDivisionError while collecting: by nought" in err
    assert "Traceback" in err  # printed, as there is nowhere else


def test_a_sealed_run_gets_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_(*_: object) -> None:
        raise ZeroDivisionError("by nought")

    run = a_run(tmp_path)
    monkeypatch.setattr("results.collect.collect", break_)
    assert call(["collect", "one"]) == 1
    kept = Path(capsys.readouterr().err.strip().rpartition(" ")[2])
    assert kept.is_file()
    assert run not in kept.parents
    kept.unlink()


def test_a_terminal_that_is_gone_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path)
    ended = SimpleNamespace(run_dir=run, status="interrupted", reason="interrupted by SIGHUP", exit_code=129)

    def gone(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("harness.cli.run._report", lambda _: "summary")
    monkeypatch.setattr("harness.cli.preflight.preflight", lambda *_: [])
    monkeypatch.setattr(harness.run, "run", lambda *_, **__: monkeypatch.setattr("click.echo", gone) or ended)
    assert call(["run", "--framework", "simulated", "--placement", "async"]) == 129
    monkeypatch.undo()
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.rglob("bench-traceback.txt"))


def test_a_run_is_not_interrupted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = SimpleNamespace(
        run_dir=a_run(tmp_path), status="interrupted", reason="interrupted by Ctrl-C", exit_code=130
    )
    monkeypatch.setattr("harness.cli.run._report", lambda _: "summary")
    monkeypatch.setattr(harness.run, "run", lambda *_, **__: ended)
    assert call(["run", "--framework", "simulated", "--placement", "async"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("bench: one interrupted by Ctrl-C (")


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["run", "--framework", "simulated", "--placement", "async", "--dry-run"], ["--help"], ["logs", "one"],
     ["doctor"], ["env", "list"]],
    ids=lambda value: value[0],
)  # fmt: skip
def test_a_closed_pipe_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    a_run(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=100,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("verb", [["list", "runs"], ["collect", "one"], ["report", "one"], ["run", "--dry-run"]])
@pytest.mark.parametrize(("name", "part"), [("", "empty"), (" ", "empty"), ("r\udcff", "UTF-8"), ("file", "a file")])
def test_a_runs_folder_that_cannot_be_one(
    verb: list[str], name: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert call([*verb, "--runs-dir", name]) == 2
    err = capsys.readouterr().err
    assert "--runs-dir = " in err
    assert part in err


def test_an_empty_run_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", ""]) == 2
    assert "run = ''" in capsys.readouterr().err


def test_comparisons_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(_: object, out: Path, *_prices: object, **_how: object) -> Path:
        (out / "report.md").write_text("# A\n\n- **status**: finished[^1], a \\| b\n  - more\n\n## Section\n\nlong\n")
        return out / "report.md"

    shutil.copytree(a_run(tmp_path), tmp_path / "runs" / "two")
    monkeypatch.setattr("reports.report.write_report", write)
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    for number, more in enumerate([[], ["--print"]]):
        assert call(["report", "one", "two", *more]) == 0
        out = capsys.readouterr().out
        assert ("long" in out) == bool(number)
        assert ("A\n\nstatus" in out.replace("- ", "")) == (not number)
        assert ("finished, a | b" in out) == (not number)
    assert {path.name for path in tmp_path.glob("report*")} == {"report-now", "report-now-2"}


def test_a_comparison_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path)
    assert call(["report", "one", "one"]) == 2
    assert not list(tmp_path.glob("report*"))


PLACED = ["run", "--framework", "skyrl", "--placement", "async", "--device", "cpu", "--dry-run"]


def here(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith(("here ", "not checked"))]


def test_a_dry_run_says_what_it_did_not_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*PLACED, "--model", "some/model"]) == 0
    said = here(capsys)
    assert "this machine can start it" in said[0]
    assert any("not checked" in line and "whether some/model is in the local cache" in line for line in said)
    assert any("not checked" in line and "whether pip finds every pin" in line for line in said)


def test_a_dry_run_looks_at_the_python_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_SKYRL_PYTHON", str(tmp_path / "python"))
    assert call(PLACED) == 0
    assert f"can't start it: BENCH_SKYRL_PYTHON={tmp_path}/python: no program there" in here(capsys)[0]
    (tmp_path / "python").symlink_to(sys.executable)
    assert call(PLACED) == 0
    said = here(capsys)
    assert said[0].endswith("this machine can start it")
    assert "bench env check" in said[1]


def test_a_model_folder_without_a_config_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    asked = [*PLACED, "--model", str(tmp_path / "model")]
    assert call(asked) == 2
    assert "has no config.json" in capsys.readouterr().err
    (tmp_path / "model" / "config.json").write_text("{}")
    assert call(asked) == 0


def test_every_node_needs_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(default_spec("skyrl", Placement.COLOCATED, Device.CUDA), nodes=2, gpus=Gpus(train=16, rollout=16))
    check_machine(spec, Machine(gpu_memory_bytes=(2**36,) * 8))
    with pytest.raises(SpecError, match="at most 4 on each of 2 nodes, and 8 would be needed"):
        check_machine(spec, Machine(gpu_memory_bytes=(2**36,) * 4))
    with pytest.raises(SpecError, match="device = cuda"):
        check_machine(spec, Machine())


def test_output_that_finds_no_room_is_no_defect(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", "list", "frameworks"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 74
    (line,) = done.stderr.splitlines()
    assert "No space left" in line
    assert "defect" not in line
