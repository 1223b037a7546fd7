"""Pictures drawn by a process beside the one that reports."""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reports import bars, curves
from reports.picture import drawn_beside, left_out, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = [bars.Row(name="async", parts={"train": 1.0, "wait_rollout": 2.0})]
STEPS = partial(bars.draw_steps, ROWS, title="t", how="h", foot="f")
CURVE = curves.Curve(name="a", steps=[1, 2], ended_s=[1.0, 2.0], means=[0.1, 0.2], smooth=[0.1, 0.15])
CURVES = partial(curves.draw, [CURVE], 3)


def _failing() -> "Figure":
    raise ValueError("this picture can't be drawn")


def _killing() -> "Figure":
    """Kills the process that draws, as a machine without memory does."""
    import multiprocessing
    import os
    import signal

    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return STEPS()


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_they_are_the_same_bytes_as_drawn_here(tmp_path: Path) -> None:
    for name, draw in (("steps", STEPS), ("reward", CURVES)):
        write_picture(name, "", draw, tmp_path / "here")
    with drawn_beside():
        for name, draw in (("steps", STEPS), ("reward", CURVES)):
            assert write_picture(name, "", draw, tmp_path / "beside").path == tmp_path / "beside" / f"{name}.png"
    assert _bytes(tmp_path / "beside") == _bytes(tmp_path / "here")
    assert set(_bytes(tmp_path / "here")) == {"reward.png", "reward.svg", "steps.png", "steps.svg"}


def test_what_a_drawing_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this picture can't be drawn"), drawn_beside():
        write_picture("steps", "", _failing, tmp_path)


def test_what_a_killed_process_leaves_is_drawn_here(tmp_path: Path) -> None:
    with drawn_beside():
        write_picture("first", "", STEPS, tmp_path)
        write_picture("killed", "", _killing, tmp_path)
        write_picture("after", "", CURVES, tmp_path)
    assert set(_bytes(tmp_path)) == {
        f"{name}.{kind}" for name in ("first", "killed", "after") for kind in ("png", "svg")
    }


def test_after_a_kill_pictures_are_drawn_here(tmp_path: Path) -> None:
    with drawn_beside():
        write_picture("killed", "", _killing, tmp_path)
        while not (tmp_path / "after.svg").exists():  # until it is known here that the other is gone
            write_picture("after", "", CURVES, tmp_path)
            time.sleep(0.5)
    assert (tmp_path / "killed.svg").is_file()


def test_a_block_that_raises_leaves_no_process(tmp_path: Path) -> None:
    import multiprocessing

    before = set(multiprocessing.active_children())
    with pytest.raises(TypeError), drawn_beside():
        write_picture("steps", "", STEPS, tmp_path / None)  # type: ignore[operator]
    assert set(multiprocessing.active_children()) <= before


def test_after_it_pictures_are_drawn_here_again(tmp_path: Path) -> None:
    with drawn_beside():
        pass
    write_picture("steps", "", lambda: STEPS(), tmp_path)  # what no other process could be given
    assert (tmp_path / "steps.svg").is_file()


def test_one_that_is_left_out_is_drawn_nowhere(tmp_path: Path) -> None:
    with drawn_beside(), left_out(lambda name: name == "steps.png"):
        write_picture("steps", "", STEPS, tmp_path)
        write_picture("reward", "", CURVES, tmp_path)
    assert set(_bytes(tmp_path)) == {"reward.png", "reward.svg"}


def test_who_reports_imports_no_matplotlib_unless_it_draws() -> None:
    heavy = "('matplotlib', 'rich', 'psutil')"
    code = f"import sys, reports.report, reports.run_page; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
