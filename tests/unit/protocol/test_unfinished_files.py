"""Files and folders in the making: whole or not there, and what is left of them removed once no one holds it."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.protocol import unfinished
from harness.protocol.unfinished import made_apart, made_whole, remove_left

# Says where it writes, and waits to be killed.
WRITE = """
import sys, time
from pathlib import Path
from harness.protocol.unfinished import made_apart, made_whole

made = made_whole(Path(sys.argv[2])) if sys.argv[1] == "file" else made_apart(Path(sys.argv[2]))
with made as path:
    (path if sys.argv[1] == "file" else path / "part").write_text("half")
    print(path, flush=True)
    time.sleep(600)
"""
# Makes and removes, over and over, as the others do in the same folder.
OVER_AND_OVER = """
import sys
from pathlib import Path
from harness.protocol.unfinished import made_apart, made_whole, remove_left

folder = Path(sys.argv[1])
for number in range(200):
    remove_left(folder)
    with made_apart(folder) as apart, made_whole(folder / "whole") as temporary:
        (apart / "part").write_text("part")
        temporary.write_text("whole")
        (apart / "part").replace(folder / "part")
"""


def at_work(kind: str, path: Path) -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", WRITE, kind, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().rstrip())


def kill(process: "subprocess.Popen[str]") -> None:
    with process:
        process.kill()


def test_a_file_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with made_whole(path, durable=True) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    with pytest.raises(UnicodeEncodeError), made_whole(path) as temporary:
        temporary.write_text("half \udc00", encoding="utf-8")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError), made_whole(tmp_path / "no" / "a"):
        pass


def test_a_folder_goes_with_what_is_in_it(tmp_path: Path) -> None:
    with made_apart(tmp_path) as folder:
        (folder / "a").write_text("moved")
        (folder / "b").write_text("stays")
        (folder / "a").replace(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays(tmp_path: Path) -> None:
    target = tmp_path / "a"
    file, its_file = at_work("file", target)
    folder, its_folder = at_work("folder", tmp_path)
    others = [tmp_path / name for name in (".a.old.new", ".a.12.newer", "a.12.new", ".new-b", ".b.12.new")]
    for path in others:
        path.write_text("not left by a writer of a")
    with made_whole(target) as temporary:
        temporary.write_text("mine")
    remove_left(tmp_path)
    assert its_file.read_text() == "half"
    assert (its_folder / "part").read_text() == "half"
    kill(file)
    kill(folder)
    assert its_file.exists()
    (*kept, of_b) = others
    of_b.write_text("of a file that is not made now")
    with made_whole(target) as temporary:
        temporary.write_text("mine")
    assert not its_file.exists()
    assert its_folder.exists()
    assert of_b.exists()
    remove_left(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*kept, target])


@pytest.mark.parametrize("hours", [1, 25])
def test_what_another_machine_makes_stays_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Of whose locks this one may not be told."""

    def aged(*paths: Path) -> None:
        for path in paths:
            os.utime(path, (time.time() - hours * 3600,) * 2)

    stays = hours == 1
    with ExitStack() as its:
        monkeypatch.setattr(unfinished, "_machine", lambda: "0123abcd")
        folder = its.enter_context(made_apart(tmp_path))
        if not stays:
            its.enter_context(pytest.raises(FileNotFoundError))
        file = its.enter_context(made_whole(tmp_path / "a"))
        file.write_text("theirs")
        (folder / "part").write_text("half")
        monkeypatch.setattr(unfinished, "_machine", lambda: "4567cdef")
        monkeypatch.setattr(fcntl, "flock", lambda *_: None)
        aged(file, folder, folder / "lock")
        remove_left(tmp_path)
        assert folder.exists()  # what is in it has just changed
        aged(folder, folder / "part")
        with made_whole(tmp_path / "a") as temporary:
            assert temporary != file  # of processes that have the same number
            temporary.write_text("mine")
        remove_left(tmp_path)
        assert (file.exists(), folder.exists()) == (stays, stays)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == ("theirs" if stays else "mine")


def test_one_name_is_made_by_one_at_a_time(tmp_path: Path) -> None:
    """As two processes that have the same number would, in two containers that share the disk."""
    path, begun, done = tmp_path / "a", threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        with made_whole(path) as temporary:
            temporary.write_text("second")
        done.set()

    thread = threading.Thread(target=other)
    with made_whole(path) as temporary:
        thread.start()
        begun.wait(60)
        temporary.write_text("first")
        assert not done.wait(0.1)
    thread.join(60)
    assert path.read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_makers_that_clear_up_at_once_are_in_no_ones_way(tmp_path: Path) -> None:
    """The moments between a name and its lock, and between the file's place and the lock's end, many times over."""
    makers = [subprocess.Popen([sys.executable, "-c", OVER_AND_OVER, str(tmp_path)]) for _ in range(3)]
    assert [maker.wait(120) for maker in makers] == [0, 0, 0]
    remove_left(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part", "whole"]


def test_a_folder_that_was_taken_for_left_before_it_was_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = fcntl.flock, list[Path]()

    def flock(descriptor: int, how: int) -> None:
        if not removed:  # another process begins, and this one has no lock yet
            removed.extend(tmp_path.iterdir())
            remove_left(tmp_path)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with made_apart(tmp_path) as folder:
        assert removed
        assert removed != [folder]
        assert list(tmp_path.iterdir()) == [folder]


def test_on_a_disk_without_locks_all_is_made_and_nothing_is_taken_for_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    left = tmp_path / ".a.12.new"
    left.write_text("whose process may live")
    with made_apart(tmp_path) as folder, made_whole(tmp_path / "a") as temporary:
        remove_left(tmp_path)
        assert folder.is_dir()
        temporary.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([left, tmp_path / "a"])


def test_what_can_be_reached_by_a_link_is_not_removed(tmp_path: Path) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    (elsewhere / "a").write_text("mine")
    (here / ".new-link").symlink_to(elsewhere)
    remove_left(here)
    remove_left(tmp_path / "no such folder")
    assert [path.name for path in elsewhere.iterdir()] == ["a"]
