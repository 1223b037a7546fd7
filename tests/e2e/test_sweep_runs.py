"""`bench sweep` with `simulated`: whole, killed and resumed, interrupted, with refused and failing cells."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import call
from harness.run import list_runs, read_status
from harness.sweep.folder import SweepFolder
from harness.sweep.journal import read_journal

BENCH = [sys.executable, "-c", "from harness.cli import main; main()"]
PAIR = """
[common]
framework = "simulated"
steps = 4
latency_scale = {scale}

[matrix]
placement = ["colocated", "async"]
"""
ODD = """
[[include]]
framework = "simulated"
placement = "disaggregated"
faults = ["die=2"]

[[include]]
framework = "simulated"
placement = "disaggregated"
max_staleness = 2
"""


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain")


def write(tmp_path: Path, text: str = PAIR, scale: float = 0.05, *, real_time: bool = False) -> list[str]:
    """The command line of a sweep with that file; in real time where it is to be ended in the middle of a run."""
    text += '[overrides.simulated]\nclock = "real"\n' if real_time else ""
    (tmp_path / "sweep.toml").write_text(text.replace("{scale}", str(scale)), encoding="utf-8")
    words = ["sweep", "-c", str(tmp_path / "sweep.toml"), "--repeats", "2"]
    return [*words, "--out", str(tmp_path / "sweep"), "--runs-dir", str(tmp_path / "runs")]


def statuses(tmp_path: Path) -> list[str]:
    return [outcome.status for outcome in SweepFolder.open(tmp_path / "sweep").state()]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[list[str]], subprocess.Popen[str]]]:
    """Starts `bench` in a process of its own; what is left of it is ended."""
    mark = uuid.uuid4().hex
    made: list[subprocess.Popen[str]] = []

    def begin(words: list[str]) -> subprocess.Popen[str]:
        env = {**os.environ, "BENCH_TEST_MARK": mark}
        process = subprocess.Popen([*BENCH, *words], env=env, stdout=-1, stderr=subprocess.STDOUT, text=True)
        made.append(process)
        return process

    yield begin
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
    for process in made:
        process.communicate()


def second_run_under_way(tmp_path: Path) -> bool:
    """Whether the first run has ended and the second one records steps."""
    runs = list_runs(tmp_path / "runs")
    if len(runs) < 2 or not (tmp_path / "sweep" / "sweep.json").is_file():
        return False
    lines, _ = read_journal(tmp_path / "sweep" / "journal.jsonl")
    if [line.kind for line in lines][-1:] != ["cell_started"]:
        return False
    folder = (tmp_path / "sweep" / lines[-1].data["run"]).resolve()
    return any('"k":"step"' in path.read_text() for path in folder.glob("events/*.jsonl"))


def test_a_sweep_with_failing_and_refused_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path, PAIR + ODD)
    assert call([*words, "--dry-run"]) == 0
    assert "refused: max_staleness = 2" in capsys.readouterr().out
    assert not (tmp_path / "sweep").exists()

    assert call(words) == 4
    seen = capsys.readouterr()
    lines = [line for line in seen.err.splitlines() if line.startswith("[")]
    assert len(lines) == 12  # six runs, begun and ended
    assert sum(": finished in " in line for line in lines) == 4
    assert sum(": failed in " in line for line in lines) == 2
    assert "4 of 6 runs finished, 2 failed; 1 cell refused" in seen.out
    assert "--retry-failed" in seen.err.splitlines()[-1]
    assert "Traceback" not in seen.err

    text = (tmp_path / "sweep" / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# Sweep: simulated x colocated, async, disaggregated (simulated)\n")
    for part in ("; n = 2)", "exit code 17", "max\\_staleness = 2: allowed is 0", "| 2 of 2 |", "2 of 2 finished"):
        assert part in text
    assert (tmp_path / "sweep" / "figures" / "steps.png").stat().st_size > 0
    plan = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert (plan["repeats"], plan["shuffle"]) == (2, 1)
    for number in (1, 2):
        assert sorted(entry["cell"] for entry in plan["order"] if entry["round"] == number) == [0, 1, 2]

    # The same command again: nothing is left to do, and nothing is run again.
    before = list_runs(tmp_path / "runs")
    assert call(words) == 4
    assert list_runs(tmp_path / "runs") == before
    capsys.readouterr()
    assert call(["report", str(tmp_path / "sweep"), "-o", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out.endswith(f"written: {tmp_path / 'again' / 'report.md'}\n")
    assert (tmp_path / "again" / "report.md").read_text(encoding="utf-8") == text
    assert call(["report", str(tmp_path / "sweep"), str(before[0])]) == 2


def test_killed_in_the_middle_and_resumed(
    tmp_path: Path, start: Callable[[list[str]], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = write(tmp_path, scale=0.4, real_time=True)
    process = start(words)
    wait_for(lambda: second_run_under_way(tmp_path))
    process.kill()
    process.wait()
    first, killed = (outcome.run_dir for outcome in SweepFolder.open(tmp_path / "sweep").state()[:2])
    assert first is not None
    assert killed is not None
    assert statuses(tmp_path) == ["finished", "interrupted", "pending", "pending"]
    with (tmp_path / "sweep" / "journal.jsonl").open("a") as journal:
        journal.write('{"k": "cell_en')  # as a kill in the middle of a write leaves it

    write(tmp_path, PAIR.replace("steps = 4", "steps = 5"), scale=0.4, real_time=True)
    assert call(words) == 2  # the file has changed: another plan
    assert "holds another sweep" in capsys.readouterr().err

    assert call(["sweep", "--resume", str(tmp_path / "sweep")]) == 0
    assert statuses(tmp_path) == ["finished"] * 4
    outcomes = SweepFolder.open(tmp_path / "sweep").state()
    assert outcomes[0].run_dir == first
    assert outcomes[0].attempts == 1
    assert outcomes[1].attempts == 2
    assert outcomes[1].run_dir != killed
    assert len(list_runs(tmp_path / "runs")) == 5
    text = (tmp_path / "sweep" / "report.md").read_text(encoding="utf-8")
    assert "1 line cut by a kill" in text
    assert killed.name not in text


def test_ctrl_c_ends_the_run_cleanly_and_the_sweep_goes_on_later(
    tmp_path: Path, start: Callable[[list[str]], subprocess.Popen[str]]
) -> None:
    words = write(tmp_path, scale=0.4, real_time=True)
    process = start(words)
    wait_for(lambda: second_run_under_way(tmp_path))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert f"interrupted; go on with: bench sweep --resume {tmp_path / 'sweep'}" in said.splitlines()[-1]
    assert "stopping: interrupted by Ctrl-C" in said
    assert statuses(tmp_path) == ["finished", "interrupted", "pending", "pending"]
    stopped = SweepFolder.open(tmp_path / "sweep").state()[1].run_dir
    assert stopped is not None
    assert (read_status(stopped).status, read_status(stopped).sealed) == ("interrupted", True)
    assert call(words) == 0
    assert statuses(tmp_path) == ["finished"] * 4


def test_what_the_command_line_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = write(tmp_path)
    for wrong, said in (
        (["sweep"], "give a sweep file"),
        ([*words, "--resume", str(tmp_path)], "give a sweep file"),
        ([*words, "--shuffle", "3", "--no-shuffle"], "exclude each other"),
        (["sweep", "--resume", str(tmp_path), "--repeats", "3"], "the plan as it is"),
        (["sweep", "--resume", str(tmp_path)], "not a sweep folder"),
        (["sweep", "-c", str(tmp_path / "none.toml")], "cannot be read"),
    ):
        assert call(wrong) == 2, wrong
        assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
