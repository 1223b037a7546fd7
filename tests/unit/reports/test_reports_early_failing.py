"""A report that fails after its pictures were begun: what an earlier one left stays, pictures and page alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Gpus, RunSpec
from harness.sweep.folder import SweepFolder
from harness.sweep.plan import Cell, Entry, Plan
from reports import bars, matrix, style
from reports.picture import drawn_beside, no_picture, placed_together, write_picture
from reports.report import write_report
from results import metrics
from results.collect import collect
from results.store import table_path

ASKED: dict[str, object] = {"framework": "skyrl", "placement": "async"}
ROWS = [bars.Row(name="async", parts={"train": 1.0, "wait_rollout": 2.0})]


def draw() -> Any:
    return bars.draw_steps(ROWS, title="t", how="h", foot="f")


def spec_of(steps: int, device: Device = Device.CPU) -> RunSpec:
    return played.make_spec(
        "async", batch_size=4, group_size=2, steps=steps, gpus=Gpus(train=1, rollout=2), device=device
    )


def unreadable(run: Path) -> Path:
    """A collected run whose samples are damaged, which is found out when they are read."""
    collect(run)
    path = table_path(run, "samples")
    content = bytearray(path.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # where what describes the table begins
    content[4:end] = bytes(byte ^ 0xA5 for byte in content[4:end])
    path.write_bytes(content)
    return run


def there(folder: Path) -> dict[str, bytes]:
    """Every file and folder below; those that are hidden, too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("steps", [8, 1])  # of the earlier one; of one step there is no time account
def test_pictures_and_page_of_an_earlier_report_stay(tmp_path: Path, steps: int) -> None:
    write_report([folders.write_run(tmp_path / "earlier", spec_of(steps))], tmp_path / "out")
    before = there(tmp_path / "out")
    damaged = unreadable(gpus.write_gpu_run(tmp_path / "damaged", spec_of(9, Device.CUDA)))
    with pytest.raises(SpecError, match=r"samples\.parquet: cannot be read"):
        write_report([damaged], tmp_path / "out")
    assert there(tmp_path / "out") == before


def test_pictures_that_others_were_drawing_do_not_come_either(tmp_path: Path) -> None:
    damaged = unreadable(gpus.write_gpu_run(tmp_path / "damaged", spec_of(9, Device.CUDA)))
    (tmp_path / "out").mkdir()
    with pytest.raises(SpecError, match=r"samples\.parquet: cannot be read"):
        write_report([damaged], tmp_path / "out", beside=True)
    assert there(tmp_path / "out") == {}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_what_ends_it_while_the_energy_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    write_report([folders.write_run(tmp_path / "earlier", spec_of(8))], tmp_path / "out")
    before = there(tmp_path / "out")
    other = folders.write_run(tmp_path / "other", spec_of(9))

    def ended(*_: object, **__: object) -> None:
        raise kind

    monkeypatch.setattr(metrics, "energy", ended)
    with pytest.raises(kind):
        write_report([other], tmp_path / "out")
    assert there(tmp_path / "out") == before


def test_a_page_that_finds_no_room_leaves_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report([folders.write_run(tmp_path / "earlier", spec_of(8))], tmp_path / "out")
    before = there(tmp_path / "out")
    other = folders.write_run(tmp_path / "other", spec_of(9))

    def full(*_: object, **__: object) -> None:
        assert list((tmp_path / "out").rglob(".new-*/account.png"))  # it was drawn before
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space left"):
        write_report([other], tmp_path / "out")
    assert there(tmp_path / "out") == before


def test_what_a_report_has_no_more_goes_when_it_is_there(tmp_path: Path) -> None:
    write_report([folders.write_run(tmp_path / "whole", spec_of(8))], tmp_path / "out")
    assert (tmp_path / "out" / "figures" / "account.png").is_file()
    write_report([folders.write_run(tmp_path / "short", spec_of(1))], tmp_path / "out")
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == {f"{name}.{kind}" for name in ("timeline", "straggler") for kind in ("png", "svg")}


def test_a_sweeps_page_that_fails_late_leaves_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(8)
    cell = Cell(number=0, label="skyrl async", asked=ASKED, spec=spec, refused=None)
    plan = Plan(cells=(cell,), entries=(Entry(number=1, round=1, cell=0),), repeats=1, shuffle=1)
    sweep = SweepFolder.create(tmp_path / "sweep", plan, tmp_path / "runs")
    folders.write_run(tmp_path / "runs" / "run-1", spec)
    sweep.journal.add("cell_started", entry=1, run="../runs/run-1")
    sweep.journal.add("cell_ended", entry=1, run="../runs/run-1", status="finished", reason="", took_s=61.0)

    def ended(*_: object) -> None:
        assert list((tmp_path / "out").rglob("steps.png"))  # it was drawn before
        raise RuntimeError

    monkeypatch.setattr(matrix, "_failed", ended)
    with pytest.raises(RuntimeError):
        matrix.write_matrix(sweep.path, tmp_path / "out")
    assert there(tmp_path / "out") == {}


def test_together_they_come_and_go_at_the_end_of_the_block(tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    write_picture("old", "", draw, folder)
    with placed_together(folder):
        no_picture("old", "", folder)
        picture = write_picture("new", "", draw, folder)
        assert {path.name for path in folder.glob("*.*g")} == {"old.png", "old.svg"}
    assert picture.path == folder / "new.png"
    assert set(there(folder)) == {"new.png", "new.svg"}


@pytest.mark.parametrize("around", [placed_together, lambda folder: drawn_beside()], ids=["together", "beside"])
def test_one_drawn_for_another_folder_is_none_of_them(tmp_path: Path, around: Callable[[Path], Any]) -> None:
    with around(tmp_path / "figures"):
        write_picture("new", "", draw, tmp_path / "elsewhere")
    assert set(there(tmp_path)) == {"elsewhere", "elsewhere/new.png", "elsewhere/new.svg"}


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_picture("one", "", draw, tmp_path)
    before = there(tmp_path)
    made = draw()
    save = made.savefig

    def cut(path: Path, **how: Any) -> None:
        save(path, **how)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        raise OSError("no space")

    made.savefig = cut
    with pytest.raises(OSError, match="no space"):
        style.save(made, tmp_path / "one")
    assert there(tmp_path) == before
