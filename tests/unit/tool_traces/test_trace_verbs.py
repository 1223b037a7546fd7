"""`bench tools fit` and `bench tools trace`, from files and from a run."""

import json
import re
from pathlib import Path

import pytest
from trace_calls import made

from harness.cli import call
from workloads.deep_research.presets import PRESETS, decode_preset
from workloads.deep_research.trace import TraceWriter, read_trace, write_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    write_trace(path, (made(n % 3, trajectory_id=f"t{n // 3}", latency_s=0.1 + n / 100) for n in range(120)), {})
    return path


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    runs = tmp_path / "runs"
    flags = ["--framework", "simulated", "--placement", "async", "--preset", "deep-research-faulty-smoke"]
    flags += ["--latency-scale", "0.05", "--steps", "4", "--runs-dir", str(runs)]
    assert call(["run", *flags]) == 0, capsys.readouterr().err
    capsys.readouterr()
    (folder,) = (path for path in runs.iterdir() if (path / "spec.json").exists())
    return folder


def test_fit_prints_its_quality_and_writes_a_preset(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert call(["tools", "fit", str(trace), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    for part in (
        "120 calls, 40 trajectories of 3 calls",
        "KS distance",
        "95 % interval",
        "p99",
        f"written: {out}",
    ):
        assert part in said
    assert decode_preset(out.read_text()).name == "mine"


def test_a_preset_of_long_pages_says_so_and_what_helps_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages, preset = tmp_path / "pages.parquet", tmp_path / "long.json"
    texts = {"tool": "web_browser", "text": "words of a page " * 700}
    write_trace(pages, (made(n % 3, trajectory_id=f"t{n // 3}", **texts) for n in range(120)), {})
    run = ["run", "--framework", "simulated", "--placement", "async", "--dry-run"]
    assert call(["tools", "fit", str(pages), "-o", str(preset)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"context: the longest of 192 trajectories of it \(seed 1\) has [1-9][0-9],[0-9]{3} tokens", said)
    assert "a run by default cpu 2,048" in said
    assert call([*run, "--preset", str(preset)]) == 2
    refused = capsys.readouterr().err
    for way_out in ("--base deep-research-smoke --lengths base", "--model"):
        assert way_out in refused
    short = tmp_path / "short.json"
    flags = ["--base", "deep-research-smoke", "--lengths", "base", "-o", str(short)]
    assert call(["tools", "fit", str(pages), *flags]) == 0
    said = capsys.readouterr().out
    assert "all lengths are those of the preset deep-research-smoke, as asked for" in said
    assert "observation, tokens" not in said
    assert "a run by default" not in said
    fitted = decode_preset(short.read_text())
    assert fitted.observation == PRESETS["deep-research-smoke"].observation
    assert fitted.latency_s == decode_preset(preset.read_text()).latency_s
    assert call([*run, "--preset", str(short)]) == 0


def test_one_of_everything_is_said_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = tmp_path / "one.parquet"
    write_trace(one, [made(0)], {})
    assert call(["tools", "fit", str(one)]) == 0
    assert "1 call, 1 trajectory of 1 call\n" in (said := capsys.readouterr().out)
    assert not re.search(r"\b1 (calls|trajectories|values|tokens)\b", said)
    assert call(["tools", "trace", str(one), "-o", str(tmp_path / "two.parquet")]) == 0
    assert "1 call, 1 with its observation" in capsys.readouterr().out


def test_what_will_run_names_the_trace_it_plays_and_the_one_it_makes(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--framework", "simulated", "--placement", "async", "--dry-run", "--steps", "1", "--batch-size", "1"]
    made = ["--record", str(trace.with_name("new.parquet"))]
    assert call([*run, "--tools", f"replay:{trace}", *made]) == 0
    said = "tools replay:t.parquet, recorded into new.parquet: 1 step of 1 prompt x 2 trajectories,"
    assert said in capsys.readouterr().out


def test_fit_without_a_file_to_write_prints_only(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["tools", "fit", str(trace)]) == 0
    assert "written" not in capsys.readouterr().out
    assert {path.name for path in trace.parent.iterdir()} == {"t.parquet"}


def test_a_run_becomes_a_trace_and_a_preset_that_runs(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traced, preset = tmp_path / "run.parquet", tmp_path / "mine.json"
    assert call(["tools", "trace", str(run), "-o", str(traced)]) == 0
    assert "0 with their observation" in capsys.readouterr().out
    found = read_trace(traced)
    assert found.facts["run_id"].startswith(run.name)
    assert {c.status for c in found.calls()} > {"ok"}
    assert sum(found.facts["calls_per_trajectory"].values()) > 0
    assert call(["tools", "fit", str(run), "-o", str(preset)]) == 0
    said = capsys.readouterr().out
    assert "generated, tokens" in said
    assert "prompt, tokens" in said
    fitted = decode_preset(preset.read_text())
    assert fitted.faults
    flags = ["--framework", "simulated", "--placement", "async", "--preset", str(preset), "--steps", "3"]
    assert call(["run", *flags, "--runs-dir", str(tmp_path / "again")]) == 0, capsys.readouterr().err
    (folder,) = (path for path in (tmp_path / "again").iterdir() if (path / "spec.json").exists())
    assert json.loads(json.loads((folder / "spec.json").read_text())["preset_definition"])["name"] == "mine"
    report = (folder / "report.md").read_text()
    assert "## Tool calls" in report
    assert "(100.0%)" in report


def test_the_rest_of_a_killed_recording_becomes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter(tmp_path / "t.parquet", {"tools": "local"})
    for number in range(3):
        writer.append(made(number))
    part = tmp_path / "t.parquet.part"
    part.write_bytes(part.read_bytes()[:-5])
    assert call(["tools", "trace", str(part), "-o", str(tmp_path / "saved.parquet")]) == 0
    assert "2 calls, 2 with their observation; 1 damaged line is lost" in capsys.readouterr().out
    found = read_trace(tmp_path / "saved.parquet")
    assert (found.complete, found.facts) == (True, {"tools": "local", "damaged_lines": 1})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "none.parquet"], "there is no such trace"),
        (["fit", "nowhere"], "run = nowhere"),
        (["fit", "t.parquet", "-o", "mine.txt"], "ends in .json"),
        (["fit", "t.parquet", "-o", "none/mine.json"], "there is no folder"),
        (["fit", "t.parquet", "-o", "there.json"], "there is such a file"),
        (["fit", "t.parquet", "--base", "nothing"], "--base = 'nothing'"),
        (["fit", "empty.parquet"], "has no call of"),
        (["fit", "text.parquet"], "cannot be read as a trace"),
        (["trace", "t.parquet", "-o", "t.parquet"], "there is such a file"),
        (["trace", "latest", "-o", "new.parquet"], "run = latest"),
        (["trace", "t.parquet"], "Missing option"),
    ],
)
def test_wrong_requests_are_one_line(
    arguments: list[str],
    says: str,
    trace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(trace.parent)
    (trace.parent / "there.json").write_text("{}")
    (trace.parent / "text.parquet").write_text("no")
    write_trace(trace.parent / "empty.parquet", [], {})
    assert call(["tools", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert len(error.splitlines()) == 1
