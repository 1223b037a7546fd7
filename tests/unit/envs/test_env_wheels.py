import base64
import csv
import hashlib
import zipfile
from pathlib import Path

from env_builders import wheel

from adapters.skyrl.environment import CPU_WHEELS
from harness.envs.wheels import unpack, write_wheel


def test_record_lists_every_file_with_its_hash_and_size(tmp_path: Path) -> None:
    path = write_wheel(wheel("Some.Name", {"some_name/__init__.py": "é\n", "a,b.txt": "x"}, "1.0+cpu"), tmp_path)
    assert path.name == "some_name-1.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        info = "some_name-1.0+cpu.dist-info"
        rows = {row[0]: row[1:] for row in csv.reader(archive.read(f"{info}/RECORD").decode().splitlines())}
        assert sorted(rows) == sorted(archive.namelist())
        assert rows.pop(f"{info}/RECORD") == ["", ""]
        for name, (digest, size) in rows.items():
            data = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={expected}", str(len(data)))


def test_the_same_wheel_has_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    for one in CPU_WHEELS:
        first, second = write_wheel(one, tmp_path), write_wheel(one, tmp_path / "again")
        assert first.read_bytes() == second.read_bytes()


def test_unpacked_wheels_are_found_by_their_metadata(tmp_path: Path) -> None:
    from importlib.metadata import distributions

    for one in CPU_WHEELS:
        unpack(write_wheel(one, tmp_path), tmp_path / "site")
    found = {d.metadata["Name"]: d for d in distributions(path=[str(tmp_path / "site")])}
    assert {name: d.version for name, d in found.items()} == {one.name: one.version for one in CPU_WHEELS}
    assert found["vllm"].version == "0.30.0+cpu"  # `+cpu` is what selects vLLM's CPU platform
    assert found["vllm"].read_text("INSTALLER") == "bench\n"
