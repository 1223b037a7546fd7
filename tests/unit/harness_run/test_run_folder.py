"""Run folders: made once, locked while alive, and their status read from disk."""

import json
import os
from pathlib import Path

import pytest
from stand_in import make_spec

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from harness.run_folder import RunFolder, list_runs, read_status, run_status


def test_two_runs_in_one_second_have_folders_and_marks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run_folder.time.time", lambda: 1_800_000_000.0)
    one, two = RunFolder.create(tmp_path, make_spec()), RunFolder.create(tmp_path, make_spec())
    elsewhere = RunFolder.create(tmp_path / "elsewhere", make_spec())
    digest = make_spec().spec_digest[:6]
    assert one.path.name == f"20270115T080000Z-stand-in-colocated-{digest}"
    assert two.path.name == f"20270115T080000Z-stand-in-colocated-{digest}-2"
    assert elsewhere.path.name == one.path.name
    assert len({one.run_id, two.run_id, elsewhere.run_id}) == 3
    assert list_runs(tmp_path) == [one.path, two.path]
    assert RunSpec.load_file(one.path / "spec.json") == make_spec()


def test_running_is_believed_only_while_the_lock_is_held(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        assert run_status(folder.path) == "running"  # before meta.json is there
        folder.write_meta(status="running")
        assert run_status(folder.path) == run_status(folder.path) == "running"  # a reader leaves the lock as it was
    read = read_status(folder.path)
    assert (read.status, read.reason, read.sealed) == ("interrupted", "the harness was killed", False)
    (folder.path / "lock").unlink()  # copied elsewhere without it
    assert run_status(folder.path) == "interrupted"


def test_a_status_that_was_written_stands(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        folder.write_meta(status="stalled", reason="why", exit_code=4)
        folder.seal()
    read = read_status(folder.path)
    assert (read.status, read.reason, read.exit_code, read.sealed) == ("stalled", "why", 4, True)
    assert not (folder.path / ".ballast").exists()


def test_a_damaged_meta_reads_as_interrupted(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        pass
    for text in ("", "{", "[]", '{"status": "glorious"}'):
        (folder.path / "meta.json").write_text(text)
        assert run_status(folder.path) == "interrupted"


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not a run folder"):
        run_status(tmp_path)
    assert list_runs(tmp_path / "nowhere") == []
    (tmp_path / "stray").mkdir()
    assert list_runs(tmp_path) == []


def test_meta_is_replaced_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        folder.write_meta(a=1)
        folder.write_meta(b=Path("x"))
        assert json.loads((folder.path / "meta.json").read_text()) == {"a": 1, "b": "x"}
        assert not list(folder.path.glob("*.new"))


def test_an_adapter_writes_inside_the_folder_only(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        folder.write_files({"config/a/b.yaml": "x"})
        assert (folder.path / "config/a/b.yaml").read_text() == "x"
        for name in ("../outside", "/tmp/outside-of-the-run"):
            with pytest.raises(SpecError, match="inside the run folder"):
                folder.write_files({name: "x"})


def test_a_runs_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(SpecError, match="no run folder can be made"):
        RunFolder.create(tmp_path / "runs", make_spec())


def test_the_lock_is_not_inherited(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    assert folder._lock is not None
    assert not os.get_inheritable(folder._lock)
    with folder.held():
        pass


@pytest.mark.parametrize("damage", ["", "{", '{"status": "odd"}', None])
def test_a_sealed_run_without_its_meta_is_unknown(tmp_path: Path, damage: str | None) -> None:
    folder = RunFolder.create(tmp_path, make_spec())
    with folder.held():
        folder.write_meta(status="finished")
        folder.seal()
    (folder.path / "meta.json").unlink()
    if damage is not None:
        (folder.path / "meta.json").write_text(damage)
    assert run_status(folder.path) == "unknown (meta.json cannot be read)"
    (folder.path / "sealed").unlink()
    assert run_status(folder.path) == "interrupted"
