import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import played_folders as folders
import played_gpus as gpus
import played_runs as played
import pytest

from harness.protocol.errors import SpecError
from harness.protocol.events import Bye, Event, Failure, Metric, Span, Step, Trajectory
from harness.protocol.spec import Device, Gpus, RunSpec
from reports import style
from reports.report import write_report

S = played.S


def small(placement: str = "colocated", **changes: object) -> RunSpec:
    """A run of 4 x 2 trajectories a step: the study's shape, quick to report."""
    split = Gpus(train=1, rollout=2) if placement != "colocated" else Gpus(train=2, rollout=2)
    return played.make_spec(placement, **({"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split} | changes))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text-only tests: pictures are drawn but not rendered."""

    def touch(_: object, stem: Path) -> list[Path]:
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        for file in files:
            file.write_bytes(b"")
        return files

    monkeypatch.setattr(style, "save", touch)


def report(folder: Path, spec: RunSpec, events: list[Event] | None = None, **meta: object) -> str:
    """The text of the report of a played run."""
    run = folders.write_run(folder / "run", spec, events, **meta)
    return write_report([run], folder / "out").read_text(encoding="utf-8")


def rows(text: str, header: str) -> dict[str, list[str]]:
    """The rows of the table whose header row begins so: first cell -> the others."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {header} |"))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        found[cells[0]] = cells[1:]
    return found


def test_the_phase_table_has_the_times_that_were_played(tmp_path: Path, no_pictures: None) -> None:
    spec = small()
    events = played.play(spec)
    text = report(tmp_path, spec, events)
    assert "| Phase | Avg time | % of step |" in text
    table = rows(text, "Phase | Avg time | % of step")
    window = range(spec.warmup_steps + 1, spec.steps + 1)
    ends = {event.step: event.end_ns for event in events if isinstance(event, Step)}
    whole = (ends[spec.steps] - ends[spec.warmup_steps]) / S
    for phase, name in (("train", "Train (policy update)"), ("generation", "Generate (inference + tools)")):
        spans = [
            event.end_ns - event.start_ns
            for event in events
            if isinstance(event, Span) and event.phase == phase and event.trajectory_id is None and event.step in window
        ]
        mean = sum(spans) / S / len(window)
        assert float(table[name][0].split()[0].replace(",", "")) == pytest.approx(mean, rel=0.006)
        assert float(table[name][1].rstrip("%")) == pytest.approx(100 * mean * len(window) / whole, abs=0.06)
    assert "other (nothing recorded)" in table
    assert table["**Total step**"][1] == "**100.0%**"


def test_a_sleep_that_nothing_names_is_shown_as_other(tmp_path: Path, no_pictures: None) -> None:
    spec = small()
    events = [event for event in played.play(spec) if not (isinstance(event, Span) and event.phase == "train")]
    text = report(tmp_path, spec, events)
    other = float(rows(text, "Phase | Avg time | % of step")["other (nothing recorded)"][0].split()[0])
    assert other > 25  # the unnamed updates of ~33 s
    assert "**too little: " in text


def test_a_cpu_run_says_so_and_shows_no_gpu_number(tmp_path: Path, no_pictures: None) -> None:
    text = report(tmp_path, small("async"))
    assert text.splitlines()[0] == "# skyrl, async: functional check on CPU"
    assert "No GPU: the run used no GPU, so no GPU figure is shown." in text
    for word in ("MFU", "mfu", "kJ", " W ", "joules", "power_", "NVIDIA"):
        assert word not in text, word
    assert not re.search(r"/s/GPU|/ s / GPU|GPU s\b", text)


def test_the_simulated_adapter_is_titled_simulated(tmp_path: Path, no_pictures: None) -> None:
    text = report(tmp_path, small(framework="simulated"))
    assert text.splitlines()[0] == "# simulated, colocated: simulated"
    assert "measure no framework" in text


def test_violations_of_the_staleness_bound_are_counted(tmp_path: Path, no_pictures: None) -> None:
    spec = small("async", steps=12)
    events = played.play(spec)
    first = {event.trajectory_id: event.version_first for event in events if isinstance(event, Trajectory)}
    beyond = consumed = 0
    for event in events:
        if isinstance(event, Step):
            ages = [event.policy_version - 1 - (first[name] or 0) for name in event.trajectory_ids]
            beyond += sum(age > spec.max_staleness for age in ages)
            consumed += len(ages)
    assert beyond > 0
    assert f"**{beyond} of {consumed} trajectories of the run beyond the bound**" in report(tmp_path, spec, events)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("none", "**weight sync**: proven"),
        ("stale", "**weight sync**: **NOT proven**"),
        ("absent", "**weight sync**: **not shown**: a part is not known"),
    ],
)
def test_the_weight_sync_verdict_follows_the_probes(tmp_path: Path, no_pictures: None, change: str, line: str) -> None:
    def changed(event: Event) -> Event | None:
        if isinstance(event, Metric) and event.name == "probe_logprobs" and event.labels["source"] == "engine":
            if change == "absent":
                return None
            if change == "stale":  # the engine stays at version 0, as without a sync
                return replace(event, values=tuple(-1.0 - 0.01 * i for i in range(8)))
        return event

    events = [kept for event in played.play(small()) if (kept := changed(event)) is not None]
    text = report(tmp_path, small(), events)
    assert line in text
    assert text.count("  - 3 follows: ") == 1


def test_a_deviation_from_the_plan_is_counted_and_told(tmp_path: Path, no_pictures: None) -> None:
    events = played.play(small())
    at = next(n for n, e in enumerate(events) if isinstance(e, Span) and e.trajectory_id and e.phase == "generation")
    turn = events[at]
    assert isinstance(turn, Span)
    tokens = turn.attributes["generated_tokens"]
    assert isinstance(tokens, int)
    events[at] = replace(turn, attributes={**turn.attributes, "generated_tokens": tokens - 1})
    text = report(tmp_path, small(), events)
    assert "**98.4%: 63 of 64 started trajectories as planned**" in text
    assert f"{turn.trajectory_id}: turn 0: {tokens - 1} generated tokens, planned {tokens}" in text


def test_failures_are_listed_and_cannot_break_the_table(tmp_path: Path, no_pictures: None) -> None:
    failure = Failure(mono_ns=played.BEGIN + 1, boundary="tool", type="Time|out", message="a | b\n# not a heading")
    events = [*played.play(small())[:-1], failure, failure]
    text = report(tmp_path, small(), events, status="failed", reason="it | broke", exit_code=4)
    assert rows(text, "Boundary | Kind | Count | First message")["tool"] == [
        r"Time\|out",
        "2",
        r"a \| b # not a heading",
    ]
    assert r"**failed**, exit code 4" in text
    assert r"it \| broke" in text


def test_overrides_settings_and_provenance_are_printed(tmp_path: Path, no_pictures: None) -> None:
    spec = small(overrides={"trainer.x|y": "1" * 300, "b": "`2`"})
    text = report(tmp_path, spec)
    assert "- `trainer.x\\|y=" + "1" * 300 + "`" in text
    assert "- `` b=`2` ``" in text
    assert "- `trainer.placement.colocate_all=true`" in text
    assert "- a plain note" in text
    for fact in ("node-1", "3a0c5858b2", "skyrl 0.4.0", "vllm 0.30.0", spec.work_digest, spec.spec_digest):
        assert fact in text
    sections = [section for section in text.split("\n## ")[1:] if "\n| " in section]
    for section in sections:
        if section.startswith("Provenance"):
            continue
        line = next(line for line in section.splitlines() if line.startswith("<sub>"))
        assert " · steps 3 to 8, " in line
        number = re.search(r"\[\^(\d+)\]</sub>$", line)
        assert number is not None, line
        assert len(line) < 100  # the rest is said once, in the note
        source = next(line for line in text.splitlines() if line.startswith(f"[^{number[1]}]: "))
        for fact in (
            "host node-1",
            "CPU, 2 cores",
            "bench 3a0c5858b2",
            "skyrl 0.4.0",
            "steady window steps",
            "other ",
            "trainer.x",
        ):
            assert fact in source, section.splitlines()[0]


def test_unknown_is_a_dash_with_its_reason(tmp_path: Path, no_pictures: None) -> None:
    events = [
        replace(event, loss_tokens=None, recorder_ns=None) if isinstance(event, Step) else event
        for event in played.play(small())
    ]
    text = report(tmp_path, small(), events, commit=None, framework_version=None, environment=None)
    loss = rows(text, "In the window | count")["loss tokens"][0]
    number = re.fullmatch(r"–\[\^(\d+)\]", loss)
    assert number is not None
    assert f"[^{number[1]}]: a step did not record the sum of its loss mask" in text
    defined = set(re.findall(r"^\[\^(\d+)\]:", text, flags=re.M))
    used = set(re.findall(r"\[\^(\d+)\](?!:)", text))
    assert used == defined


def test_a_killed_run_is_reported_up_to_its_last_event(tmp_path: Path, no_pictures: None) -> None:
    run = folders.write_run(tmp_path / "run", small(), status="running", exit_code=None, wall_s=None)
    path = next((run / "events").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.8)])
    (run / "meta.json").write_text(json.dumps({**json.loads((run / "meta.json").read_text()), "ended_utc": None}))
    text = write_report([run], run).read_text(encoding="utf-8")
    assert "**interrupted**" in text
    assert "1 damaged line" in text
    assert "1 process ended without saying so" in text
    assert "| **Total step** |" in text


@pytest.mark.parametrize("steps", [0, 1])
def test_without_a_window_everything_that_needs_one_says_why(tmp_path: Path, no_pictures: None, steps: int) -> None:
    whole = played.play(small())
    last = [event.end_ns for event in whole if isinstance(event, Step)][steps - 1] if steps else played.BEGIN + 25 * S
    kept = [event for event in whole if getattr(event, "end_ns", 0) <= last and not isinstance(event, Bye)]
    text = report(tmp_path, small(), kept, status="stalled", reason="no event for 300 s")
    assert "- **steady window**: **none**: " in text
    assert "No phase table: no steady window" in text
    assert "No time account: no steady window" in text
    assert "| **Total step** |" not in text
    assert (tmp_path / "out/figures/straggler.png").exists() == bool(steps)


def test_an_empty_run_folder_is_reported(tmp_path: Path, no_pictures: None) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "spec.json").write_text(small().to_json(), encoding="utf-8")
    text = write_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert "**interrupted**" in text
    assert "No straggler chart: no step trained on a trajectory." in text
    assert not re.search(r"\bnan\b|\bNone\b", text)


def test_nothing_consumed_is_no_chart_and_no_zero(tmp_path: Path, no_pictures: None) -> None:
    events = [replace(e, trajectory_ids=()) if isinstance(e, Step) else e for e in played.play(small())]
    text = report(tmp_path, small(), events)
    assert "No straggler chart: no step trained on a trajectory." in text
    assert "- **staleness**: –[^" in text


def test_512_trajectories_a_step_are_reported(tmp_path: Path) -> None:
    spec = small(batch_size=64, group_size=8, steps=2, warmup_steps=1)
    text = report(tmp_path, spec)
    assert "512 trajectories, sorted by completion" in text
    assert (tmp_path / "out/figures/straggler.png").stat().st_size > 10_000
    assert (tmp_path / "out/figures/timeline.svg").stat().st_size < 4_000_000


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = folders.write_run(tmp_path / "run", small("async"))
    for name in ("one", "two"):
        write_report([run], tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    names = {str(path) for path in files}
    pictures = ("straggler", "timeline", "account", "waterfall")
    figures = {f"figures/{name}.{kind}" for name in pictures for kind in ("png", "svg")}
    assert names == {"report.md"} | figures
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    text = (tmp_path / "one/report.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (tmp_path / "one" / link).is_file()


def test_a_picture_of_an_earlier_report_does_not_stay(tmp_path: Path, no_pictures: None) -> None:
    report(tmp_path, small())
    assert (tmp_path / "out/figures/account.png").exists()
    shutil.rmtree(tmp_path / "run")
    report(tmp_path, small(), [event for event in played.play(small()) if not isinstance(event, Step | Bye)])
    assert not (tmp_path / "out/figures/account.png").exists()
    assert not (tmp_path / "out/figures/straggler.svg").exists()


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no run given"):
        write_report([], tmp_path)
    with pytest.raises(SpecError, match="no such folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "out")
    run = folders.write_run(tmp_path / "run", small())
    with pytest.raises(SpecError, match="given twice"):
        write_report([run, tmp_path / "." / "run"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_gpu_run_shows_power_as_played(tmp_path: Path, no_pictures: None) -> None:
    spec = small(device=Device.CUDA)
    run = gpus.write_gpu_run(tmp_path / "run", spec)
    text = write_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# skyrl, colocated"
    events = gpus.play_gpu(spec)
    ends = {event.step: event.end_ns for event in events if isinstance(event, Step)}
    low, high = ends[spec.warmup_steps], ends[spec.steps]
    joules = gpus.IDLE_W * (high - low) / S
    for start, end, level in gpus.watts(spec, events, "both"):
        joules += (level - gpus.IDLE_W) * max(0, min(end, high) - max(start, low)) / S
    shown = rows(text, "GPU power and energy | value")
    utilisation = joules / (gpus.LIMIT_W * (high - low) / S)
    assert float(shown["GPU power utilisation, all GPUs"][0].rstrip("%")) == pytest.approx(100 * utilisation, abs=0.1)
    trained = (spec.steps - spec.warmup_steps) * 8
    each = float(shown["energy per trained trajectory"][0].split(" J ")[0].replace(",", ""))
    assert each == pytest.approx(2 * joules / trained, rel=0.01)
    assert f"(n = {trained})" in shown["energy per trained trajectory"][0]
    assert "**random weights**" in text
    assert "- **energy**: **ok**" in text
    assert "| MFU | value |" in text
    assert "never on GPU" in text
