"""The page of a sweep, from played runs: no run is waited for."""

import math
import re
from dataclasses import replace
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
from reports import style
from reports.case import Case
from reports.matrix import write_matrix
from reports.replicates import log_mean, plain_mean


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn but not rendered."""

    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"")
        return files

    monkeypatch.setattr(style, "save", touch)


def spec_of(placement: str, seed: int = 1, **changes: Any) -> RunSpec:
    split = Gpus(train=1, rollout=1) if placement != "colocated" else Gpus(train=2, rollout=2)
    small: dict[str, Any] = {"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split, "seed": seed}
    return played.make_spec(placement, **(small | changes))


class Sweep:
    """A sweep folder filled by hand: planned entries, and what became of each."""

    def __init__(self, tmp_path: Path, specs: list[tuple[str, RunSpec | None]]) -> None:
        """`specs`: label and spec of each entry's cell, in order; equal labels are one cell; None: refused."""
        self.tmp_path = tmp_path
        cells: dict[str, Cell] = {}
        entries = []
        for label, spec in specs:
            framework, placement = label.split()[:2]
            if label not in cells:
                asked: dict[str, object] = {"framework": framework, "placement": placement}
                refused = None if spec else "it has no such mode"
                cells[label] = Cell(number=len(cells), label=label, asked=asked, spec=spec, refused=refused)
            if spec is not None:
                entries.append(Entry(number=len(entries) + 1, round=1, cell=cells[label].number))
        plan = Plan(cells=tuple(cells.values()), entries=tuple(entries), repeats=1, shuffle=1)
        self.folder = SweepFolder.create(tmp_path / "sweep", plan, tmp_path / "runs")

    def run(self, entry: int, *, play_seed: int = 0, **meta: Any) -> Path:
        """A finished run of that entry; `play_seed` makes its times others than its twin's."""
        spec = self.folder.plan.cells[self.folder.plan.entries[entry - 1].cell].spec
        assert spec is not None
        path = folders.write_run(self.tmp_path / "runs" / f"run-{entry}", spec, self.events(spec, play_seed), **meta)
        self.ended(entry, "finished", f"../runs/run-{entry}")
        return path

    def events(self, spec: RunSpec, play_seed: int) -> Any:
        """The same plans as `spec` has, played with other train times."""
        events = played.play(spec)
        if not play_seed:
            return events
        return [_slower(event, 1 + 0.02 * play_seed) for event in events]

    def ended(self, entry: int, status: str, run: str | None = None, reason: str = "") -> None:
        self.folder.journal.add("cell_started", entry=entry, run=run)
        self.folder.journal.add("cell_ended", entry=entry, run=run, status=status, reason=reason, took_s=61.0)

    def page(self) -> str:
        return write_matrix(self.folder.path, self.tmp_path / "out").read_text(encoding="utf-8")


def _slower(event: Any, factor: float) -> Any:
    """Every time of an event moved away from the beginning by that factor."""
    changes = {
        name: int(played.BEGIN + (value - played.BEGIN) * factor)
        for name in ("mono_ns", "start_ns", "end_ns")
        if isinstance(value := getattr(event, name, None), int)
    }
    return replace(event, **changes)


def rows(text: str, title: str) -> list[list[str]]:
    """Cells of the first table under a heading, header first."""
    part = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def note(text: str, cell: str) -> str:
    """The footnote a cell points to."""
    number = re.search(r"\[\^(\d+)\]", cell)
    assert number is not None, cell
    return next(line for line in text.splitlines() if line.startswith(f"[^{number[1]}]: "))


def test_the_interval_is_the_t_interval_of_logs() -> None:
    found = log_mean([10.0, 12.0, 11.0])
    logs = [math.log(value) for value in (10.0, 12.0, 11.0)]
    middle = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((x - middle) ** 2 for x in logs) / 2) / math.sqrt(3)  # t(0.975; 2)
    assert found.n == 3
    assert found.value == pytest.approx(math.exp(middle))
    assert (found.low, found.high) == (
        pytest.approx(math.exp(middle - half), rel=1e-5),
        pytest.approx(math.exp(middle + half), rel=1e-5),
    )


def test_one_run_has_no_interval_and_none_is_unknown() -> None:
    assert (log_mean([3.0]).value, log_mean([3.0]).low, log_mean([None, 3.0]).n) == (3.0, None, 1)
    assert (log_mean([None], "no window").value, log_mean([None], "no window").why) == (None, "no window")
    zero = log_mean([0.0, 2.0])
    assert (zero.value, zero.low) == (1.0, None)
    assert "0" in zero.why
    assert plain_mean([0.0, 0.0]).high == 0.0
    assert plain_mean([1.0]).high is None


def test_cells_have_intervals_over_their_runs(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, [("skyrl colocated", spec_of("colocated")), ("skyrl async", spec_of("async"))] * 2)
    paths = [sweep.run(1), sweep.run(2), sweep.run(3, play_seed=1), sweep.run(4, play_seed=2)]
    text = sweep.page()
    assert text.splitlines()[0] == "# Sweep: skyrl x colocated, async (functional check on CPU)"
    assert "**No verdict.**" in text
    header, row = rows(text, "Frameworks x placements")
    assert (header, row[0]) == (["Framework", "colocated", "async"], "skyrl")
    for cell, pair in ((row[1], (0, 2)), (row[2], (1, 3))):
        times = [Case.load(paths[place]).figures.figures["step_time_s"].value for place in pair]
        want = math.sqrt(times[0] * times[1])  # type: ignore[operator]
        said = re.fullmatch(r"([\d.,]+) s \(([\d.,]+) s to ([\d.,]+) s; n = 2\)", cell)
        assert said is not None, cell
        value, low, high = (float(number.replace(",", "")) for number in said.groups())
        assert value == pytest.approx(want, rel=0.01)
        assert low < value < high
    trust = {cells[0]: cells for cells in rows(text, "Whether it may be believed")}
    assert trust["skyrl colocated"][1] == "2 of 2 finished"
    assert trust["skyrl colocated"][3] == "100.0%"
    assert trust["skyrl async"][7] == "2 of 2"
    assert "No run used a GPU" in text
    assert "![Average seconds of a step by phase, one bar per cell.](figures/steps.png)" in text
    assert (tmp_path / "out" / "figures" / "steps.png").exists()
    assert len(rows(text, "Runs, in the order in which they were planned")) == 5


def test_failed_and_refused_cells_are_shown_with_the_reason(tmp_path: Path) -> None:
    specs = [("skyrl colocated", spec_of("colocated")), ("skyrl async", spec_of("async")), ("verl async", None)]
    sweep = Sweep(tmp_path, [*specs, specs[0]])
    sweep.run(1)
    sweep.ended(2, "failed", reason="the worker ended with exit code 17")
    text = sweep.page()
    grid = {cells[0]: cells for cells in rows(text, "Frameworks x placements")}
    assert re.match(r"[\d.]+ s \(n = 1\), 1 of 2 finished, 1 pending", grid["skyrl"][1])
    assert grid["skyrl"][2].startswith("**0 of 1 finished, 1 failed**")
    assert "exit code 17" in note(text, grid["skyrl"][2])
    assert "not asked for" in note(text, grid["verl"][1])
    assert grid["verl"][2].startswith("refused")
    assert "it has no such mode" in note(text, grid["verl"][2])
    failed = rows(text, "Failed and refused")[1:]
    assert [(cells[0], cells[2]) for cells in failed] == [
        ("verl async", "refused"),
        ("skyrl colocated", "pending"),
        ("skyrl async", "failed"),
    ]
    assert "One run only" in text


def test_seeds_are_pooled_and_said_and_a_missing_one_is_flagged(tmp_path: Path) -> None:
    specs = [
        (f"skyrl {placement} seed={seed}", spec_of(placement, seed))
        for placement in ("colocated", "async")
        for seed in (1, 2)
    ]
    sweep = Sweep(tmp_path, specs)
    for entry in (1, 2, 3):
        sweep.run(entry)
    sweep.ended(4, "failed", reason="it died")
    text = sweep.page()
    assert "A cell pools runs of equal specs but for the seed (1, 2)" in text
    speed = {cells[0]: cells for cells in rows(text, "Speed and energy")}
    assert set(speed) == {"Cell", "skyrl colocated", "skyrl async"}
    assert "n = 2" in speed["skyrl colocated"][2]
    assert "n = 1" in speed["skyrl async"][2]
    assert "**Not the same work**: skyrl async has no finished run of seed 2" in text


def test_other_work_is_refused(tmp_path: Path) -> None:
    specs = [("skyrl colocated", spec_of("colocated")), ("skyrl async", spec_of("async", batch_size=2))]
    sweep = Sweep(tmp_path, specs)
    sweep.run(1)
    sweep.run(2)
    with pytest.raises(SpecError, match=r"different work: batch_size \(4 and 2\)"):
        sweep.page()


def test_other_machines_are_said(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, [("skyrl colocated", spec_of("colocated")), ("skyrl async", spec_of("async"))])
    sweep.run(1)
    sweep.run(2, machine={"host": "node-2", "cpu": "Example CPU @ 2.0 GHz", "cores": 2})
    assert "**Not comparable**: the machines differ in host (node-1 and node-2)" in sweep.page()


def test_a_run_whose_folder_is_gone_or_another_is_left_out(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, [("skyrl colocated", spec_of("colocated")), ("skyrl async", spec_of("async"))])
    sweep.ended(1, "finished", "../runs/gone")
    folders.write_run(tmp_path / "runs" / "other", spec_of("async", seed=7))
    sweep.ended(2, "finished", "../runs/other")
    text = sweep.page()
    reasons = {cells[0]: cells[3] for cells in rows(text, "Failed and refused")}
    assert reasons["skyrl colocated"] == "its run folder is gone"
    assert reasons["skyrl async"] == "other is a run of another spec than planned"


def test_a_sweep_of_which_nothing_ran_still_has_a_page(tmp_path: Path) -> None:
    text = Sweep(tmp_path, [("skyrl colocated", spec_of("colocated"))]).page()
    assert "0 of 1 runs finished, 1 to go" in text
    assert "No run finished." in text


def test_on_gpus_power_and_energy_stand_beside_the_times(tmp_path: Path) -> None:
    specs = [spec_of(placement, device=Device.CUDA) for placement in ("colocated", "async")]
    sweep = Sweep(tmp_path, [("skyrl colocated", specs[0]), ("skyrl async", specs[1])])
    paths = [gpus.write_gpu_run(tmp_path / "runs" / f"run-{place}", spec) for place, spec in enumerate(specs, start=1)]
    for place in (1, 2):
        sweep.ended(place, "finished", f"../runs/run-{place}")
    text = sweep.page()
    assert text.splitlines()[0] == "# Sweep: skyrl x colocated, async"
    assert "No verdict" not in text
    assert "**random weights**" in text
    header, *lines = rows(text, "Speed and energy")
    assert header[-2:] == ["GPU power utilisation", "J per trained trajectory"]
    for path, cells in zip(paths, lines, strict=True):
        figures = Case.load(path).figures.figures
        power, joules = (figures[name].value for name in ("power_utilisation_ratio", "joules_per_trained_trajectory"))
        assert power is not None
        assert joules is not None
        assert cells[-2] == f"{100 * power:.1f}% (n = 1)"
        assert float(cells[-1].split(" ")[0].replace(",", "")) == pytest.approx(joules, rel=0.01)
