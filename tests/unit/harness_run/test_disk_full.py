"""A disk that is full in the middle of a run: a small file system of its own, and the same without one."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import HERE, StandIn, make_spec

import harness.run as run_module
from harness.live import SilentDisplay
from harness.protocol.errors import EnvError, WorkerError
from harness.run import run
from harness.run_folder import RunFolder, list_runs, read_status
from results.collect import collect

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0


def test_a_run_on_a_disk_that_fills_up(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("this machine allows no mount in a user namespace")
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    script = f"""
        mount -t tmpfs -o size=5m none {small} || exit 99
        {sys.executable} {HERE / "stand_in_harness.py"} {small}/runs steps=10000 padding=200000 no-sampler
        code=$?
        cp -r {small}/runs {kept}
        exit $code
    """
    done = subprocess.run([*NAMESPACE, "sh", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 4, done.stdout + done.stderr
    run_dir = list_runs(kept)[0]
    status = read_status(run_dir)
    assert (status.status, status.exit_code, status.sealed) == ("failed", 4, True)
    assert status.reason.startswith("disk full")
    assert not (run_dir / ".ballast").exists()
    tables = collect(run_dir).tables
    assert tables["steps"].num_rows >= 5
    assert "RecorderFullError" in str(tables["failures"].to_pylist())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_the_ballast_pays_for_the_last_words(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        folder.write_meta(status="running")
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if (folder.path / ".ballast").exists():
                raise OSError(number, os.strerror(number))
            real(descriptor)

        monkeypatch.setattr("harness.run_folder.os.fsync", fsync)
        folder.write_meta(status="failed", reason="disk full")
    assert not (folder.path / ".ballast").exists()
    assert read_status(folder.path).reason == "disk full"


def test_without_ballast_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    assert folder.drop_ballast()
    assert not folder.drop_ballast()

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.run_folder.os.fsync", fsync)
    with folder.held(), pytest.raises(OSError, match="No space left"):
        folder.write_meta(status="failed")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_for_a_run_at_all(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("harness.run_folder.os.posix_fallocate", allocate)
    with pytest.raises(EnvError, match="free some space"):
        RunFolder.create(tmp_path, make_spec())
    assert not list(tmp_path.iterdir())


def test_tables_that_cannot_be_written_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(run_dir: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_module, "collect", no_room)
    with pytest.raises(WorkerError, match="bench collect"):
        run(make_spec(), StandIn(), tmp_path, display=SilentDisplay(), sampler=())
    status = read_status(list_runs(tmp_path)[0])
    assert (status.status, status.exit_code, status.sealed) == ("failed", 4, False)
    assert "the events are kept" in status.reason


def test_a_process_that_says_it_could_not_record_ends_the_run(tmp_path: Path) -> None:
    code = """
import time
from harness.protocol.events import Failure
from harness.protocol.recorder import Recorder
recorder = Recorder.from_environment("controller")
recorder.emit(Failure(mono_ns=1, boundary="recorder", type="RecorderFullError", message="cannot record"))
time.sleep(600)
"""
    result = run(make_spec(), StandIn(argv=("-c", code)), tmp_path, display=SilentDisplay(), sampler=())
    assert (result.status, result.exit_code) == ("failed", 4)
    assert result.reason.startswith("disk full: a process of the run could not record")


def test_lost_events_fail_a_run_that_went_well_otherwise(tmp_path: Path) -> None:
    code = """
from harness.protocol.recorder import Recorder
recorder = Recorder.from_environment("controller")
recorder.lost_events = 3
recorder.bye()
"""
    result = run(make_spec(), StandIn(argv=("-c", code)), tmp_path, display=SilentDisplay(), sampler=())
    assert (result.status, result.exit_code) == ("failed", 4)
    assert "3 events could not be recorded" in result.reason
