import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.errors import SpecError
from harness.protocol.events import Event, Step, Trajectory
from harness.protocol.spec import Device, Gpus, RunSpec
from reports import style
from reports.report import write_report

S = played.S
STUDY = "Model | Colocated | Disagg Async | Split (Train, Generate) | power utilization | wall clock time reduction"


def small(placement: str = "colocated", **changes: Any) -> RunSpec:
    split = Gpus(train=1, rollout=1) if placement != "colocated" else Gpus(train=2, rollout=2)
    return played.make_spec(placement, **({"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split} | changes))


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn but not rendered, but where a test undoes this."""

    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"")
        return files

    monkeypatch.setattr(style, "save", touch)


def row(text: str, header: str, place: int = 0) -> list[str]:
    """Cells of one row of the table whose header row begins so."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {header} |"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", lines[start + 2 + place])[1:-1]]


def reason(text: str, cell: str) -> str:
    """The footnote behind an unknown cell."""
    number = re.fullmatch(r"–\[\^(\d+)\]", cell)
    assert number is not None, cell
    return next(line for line in text.splitlines() if line.startswith(f"[^{number[1]}]: "))


def step_seconds(run: Path, spec: RunSpec, events: list[Event], first: int) -> float:
    """Mean seconds of the steps after `first`, boundary to boundary."""
    ends = {event.step: event.end_ns for event in events if isinstance(event, Step)}
    return (ends[spec.steps] - ends[first]) / S / (spec.steps - first)


def test_the_study_table_on_cpu_has_reasons_in_place_of_power(tmp_path: Path) -> None:
    specs = [small(), small("async")]
    runs = [folders.write_run(tmp_path / spec.placement.value, spec) for spec in specs]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    cells = row(text, STUDY)
    assert cells[0] == "random:qwen3-14b (random weights)"
    for place in (1, 2, 4, 6, 7):
        assert "no GPU power on a run without a GPU" in reason(text, cells[place])
    assert cells[3] == "1+1"
    window = re.findall(r"\*\*steady window\*\*: steps (\d+) to 8, n = (\d+)", text)
    times = [
        step_seconds(run, spec, played.play(spec), int(first) - 1)
        for run, spec, (first, _) in zip(runs, specs, window, strict=True)
    ]
    change = re.fullmatch(r"([+-]\d+\.\d)%\[\^\d+\]", cells[5])
    assert change is not None
    assert float(change[1]) == pytest.approx(100 * (times[1] / times[0] - 1), abs=0.06)
    assert cells[8] == f"{window[0][1]} and {window[1][1]}"
    assert "**No verdict.**" in text
    assert "no verdict follows from this ratio" in text
    assert "functional check on CPU" in text.splitlines()[0]
    assert "kJ" not in text
    assert "MFU" not in text


def test_runs_of_different_work_are_refused_and_the_fields_named(tmp_path: Path) -> None:
    one = folders.write_run(tmp_path / "one", small())
    two = folders.write_run(tmp_path / "two", small("async", seed=2, context_tokens=16_384))
    with pytest.raises(SpecError, match=r"different work: seed \(1 and 2\), context_tokens \(32768 and 16384\)"):
        write_report([one, two], tmp_path / "out")
    assert not (tmp_path / "out/report.md").exists()


def test_on_gpus_the_table_has_power_points_and_joules(tmp_path: Path) -> None:
    specs = [small(device=Device.CUDA), small("async", device=Device.CUDA)]
    runs = [gpus.write_gpu_run(tmp_path / spec.placement.value, spec) for spec in specs]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    cells = row(text, STUDY)
    alone = []
    for run in runs:
        page = write_report([run], run).read_text(encoding="utf-8")
        power = row(page, "GPU power and energy | value", 0)[1]
        joules = next(line for line in page.splitlines() if line.startswith("| energy per trained trajectory"))
        alone.append((float(power.rstrip("%")), re.findall(r"\| ([\d,.]+) J", joules)[0]))
    assert cells[1] == f"{alone[0][0]}%"
    assert cells[2] == f"{alone[1][0]}%"
    points = re.fullmatch(r"([+-]\d+\.\d) pp", cells[4])
    assert points is not None
    assert float(points[1]) == pytest.approx(alone[1][0] - alone[0][0], abs=0.11)
    assert [cells[6], cells[7]] == [alone[0][1], alone[1][1]]
    assert re.fullmatch(r"-\d+\.\d%", cells[5])
    assert "direction: none" in text
    assert "No verdict" not in text
    assert "a difference is shown here, not proven" in text
    assert "never verified: skyrl colocated, skyrl async" in text


def test_different_numbers_of_gpus_give_no_wall_clock_reduction(tmp_path: Path) -> None:
    specs = [small(device=Device.CUDA), small("async", device=Device.CUDA, gpus=Gpus(train=2, rollout=2))]
    runs = [gpus.write_gpu_run(tmp_path / spec.placement.value, spec) for spec in specs]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    assert "different numbers of GPUs (2, 4)" in reason(text, row(text, STUDY)[5])


def test_a_disaggregated_run_has_its_own_column(tmp_path: Path) -> None:
    runs = [folders.write_run(tmp_path / name, small(name)) for name in ("colocated", "disaggregated")]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    assert "no async run was given" in reason(text, row(text, STUDY)[2])
    cells = row(text, STUDY.replace("Disagg Async", "Disaggregated"))
    assert cells[3] == "1+1"
    assert re.match(r"[+-]\d", cells[5])


def test_a_run_without_a_window_has_no_step_time(tmp_path: Path) -> None:
    events = [event for event in played.play(small("async")) if not (isinstance(event, Step) and event.step > 1)]
    runs = [
        folders.write_run(tmp_path / "colocated", small()),
        folders.write_run(tmp_path / "async", small("async"), events, status="failed"),
    ]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    assert "did not finish (status failed)" in reason(text, row(text, STUDY)[5])
    assert "Not finished: `async`" in text
    short = [runs[0], folders.write_run(tmp_path / "short", small("async"), events)]
    text = write_report(short, tmp_path / "out").read_text(encoding="utf-8")
    assert "no steady window" in reason(text, row(text, STUDY)[5])


def test_consumed_work_is_shown_and_a_difference_flagged(tmp_path: Path) -> None:
    spec = small("async")
    events = played.play(spec)
    heavy = [
        replace(e, observation_tokens=int(e.observation_tokens * 1.05)) if isinstance(e, Trajectory) else e
        for e in events
    ]
    one = folders.write_run(tmp_path / "one", spec, events)
    two = folders.write_run(tmp_path / "two", spec, heavy)
    text = write_report([one, two], tmp_path / "out").read_text(encoding="utf-8")
    header = "Run | trained trajectories | generated tokens | observation tokens | tool calls | tool seconds"
    base, other = row(text, header, 0), row(text, header, 1)
    assert base[0] == "async 1"
    assert "(+0.0%)" in other[2]
    assert re.fullmatch(r"\*\*[\d,]+ \(\+5\.0%\)\*\*", other[3])
    assert "**Consumed work differs by more than 2.0%**: observation tokens of async 2" in text
    same = write_report([one, folders.write_run(tmp_path / "three", spec, events)], tmp_path / "same")
    assert "differs by more than" not in same.read_text(encoding="utf-8")


def test_machines_and_versions_that_differ_are_listed(tmp_path: Path) -> None:
    one = folders.write_run(tmp_path / "one", small())
    two = folders.write_run(
        tmp_path / "two",
        small("async", overrides={"a.b": "1|2"}),
        versions={"skyrl": "0.4.1", "vllm": "0.30.0", "torch": "2.12.0"},
        machine={"host": "node-2", "cpu": "Other CPU", "cores": 4},
    )
    text = write_report([one, two], tmp_path / "out").read_text(encoding="utf-8")
    part = text.split("## Machines, versions and settings in which the runs differ")[1].split("\n## ")[0]
    assert "| host | node-1 | node-2 |" in part
    assert "| version of skyrl | 0.4.0 | 0.4.1 |" in part
    assert r"| override a.b | – | 1\|2 |" in part
    assert "vllm" not in part
    assert "**Not comparable**: the devices differ (CPU, 2 cores and CPU, 4 cores)." in text


def test_frameworks_are_rows_of_their_own(tmp_path: Path) -> None:
    runs = []
    for framework in ("skyrl", "simulated"):
        for placement in ("colocated", "async"):
            spec = small(placement, framework=framework)
            runs.append(folders.write_run(tmp_path / f"{framework}-{placement}", spec))
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    assert row(text, STUDY, 0)[0].startswith("skyrl, random:qwen3-14b")
    assert row(text, STUDY, 1)[0].startswith("simulated, random:qwen3-14b")
    assert "ratios between frameworks" in text
    assert text.splitlines()[0].endswith("(simulated, functional check on CPU)")


def test_runs_of_one_cell_are_taken_together(tmp_path: Path) -> None:
    runs = [folders.write_run(tmp_path / "base", small())]
    events = played.play(small("async"))
    runs += [folders.write_run(tmp_path / name, small("async"), events) for name in ("a", "b")]
    text = write_report(runs, tmp_path / "out").read_text(encoding="utf-8")
    single = write_report(runs[:2], tmp_path / "single").read_text(encoding="utf-8")
    both, one = row(text, STUDY), row(single, STUDY)
    assert both[5].partition("%")[0] == one[5].partition("%")[0]
    steps = int(one[8].split(" and ")[1])
    assert both[8].split(" and ")[1] == str(2 * steps)


def test_the_page_of_several_runs_is_the_same_bytes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # real pictures
    runs = [folders.write_run(tmp_path / name, small(name)) for name in ("colocated", "async")]
    for name in ("one", "two"):
        write_report(runs, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    stems = [
        "steps",
        *(f"{place}-{what}" for place in ("1-colocated", "2-async") for what in ("straggler", "timeline")),
    ]
    assert {str(p) for p in files} == {"report.md"} | {f"figures/{s}.{kind}" for s in stems for kind in ("png", "svg")}
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
