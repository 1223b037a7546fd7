"""Collections that are killed (SIGKILL) while their tables get their places: the next reader makes all of them anew."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import follow, hello, make_run, make_spec, plan_of, write_file

from harness.cli import call
from harness.protocol.errors import SpecError
from harness.protocol.events import Event
from results.collect import collect
from results.opening import open_runs
from results.schema import TABLES
from results.store import COMPUTED, is_collected, load_run, table_path

PLACED = sorted(set(TABLES) - set(COMPUTED))
# A process for each folder, killed before the table of that number gets its place: one interpreter starts for all.
KILLED = """
import os, signal, sys
from pathlib import Path
from results.collect import collect

rename = Path.replace
for number, folder in enumerate(sys.argv[1:]):
    child = os.fork()
    if not child:
        left = [number]

        def replace(self, target):
            if self.suffix == ".parquet" and not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= self.suffix == ".parquet"
            return rename(self, target)

        Path.replace = replace
        collect(Path(folder))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(-os.waitstatus_to_exitcode(status))
"""


def events(count: int) -> list[Event]:
    spec = make_spec()
    return [event for n in range(count) for event in follow(plan_of(spec, n, 0), 2_000)]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: table_path(folder, name).read_bytes() for name in PLACED if table_path(folder, name).is_file()}


@pytest.fixture
def killed(tmp_path: Path) -> list[Path]:
    """Copies of a run that was collected, and then recorded more: one for each table before which it was killed."""
    first = make_run(tmp_path / "first", [hello(), *events(1)])
    collect(first)
    write_file(first, [hello(), *events(3)])
    copies = [shutil.copytree(first, tmp_path / f"killed-{number}") for number in range(len(PLACED))]
    answer = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, copies)], capture_output=True, text=True, check=True, timeout=300
    )
    assert answer.stdout.split() == ["9"] * len(copies), answer.stderr
    return copies


def test_tables_of_two_collections_are_never_taken_for_those_of_one(killed: list[Path], tmp_path: Path) -> None:
    old = contents(tmp_path / "first")
    new = contents(collect(shutil.copytree(tmp_path / "first", tmp_path / "whole")).run_dir)
    assert any(old[name] != new[name] for name in PLACED)
    mixed = 0
    for folder in killed:
        there = contents(folder)
        mixed += there not in (old, new)
        assert not is_collected(folder)
        with pytest.raises(SpecError, match=r"not collected \(no table runs\); run `bench collect"):
            load_run(folder)
        with pytest.raises(SpecError, match=r"not collected; run `bench collect"):
            open_runs(folder)
    assert mixed == len(PLACED)  # what runs lacks is enough to tell; the others are of either
    for verb, folder in (("collect", killed[0]), ("report", killed[len(PLACED) // 2])):
        assert call([verb, str(folder)]) == 0
        assert contents(folder) == new
