"""The whole command line on a short simulated run: run, list, collect, report, logs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import call
from harness.cli.runs import find_run
from harness.run_folder import list_runs
from results.store import load_run

SHORT = ["run", "--framework", "simulated", "--steps", "4", "--latency-scale", "0.2"]
RUN = [*SHORT, "--placement", "async"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an async run, made through the command, and before it a colocated one."""
    folder = tmp_path_factory.mktemp("cli") / "runs"
    assert call([*SHORT, "--placement", "colocated", "--runs-dir", str(folder)]) == 0
    done = subprocess.run(
        [sys.executable, "-c", "from harness.cli import main; main()", *RUN, "--runs-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    (folder / "out.txt").write_text(done.stdout)
    (folder / "err.txt").write_text(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder


def test_what_a_run_prints(runs: Path) -> None:
    folder = find_run("latest", runs)
    out, err = (runs / "out.txt").read_text(), (runs / "err.txt").read_text()
    # Progress is on stderr, the result on stdout.
    for part in ("simulated 2, async", "4 steps of 4 prompts x 2 trajectories", "step 4/4"):
        assert part in err
    for part in ("throughput", "plan adherence", "100.0%", "weight sync", f"report: {folder / 'report.md'}"):
        assert part in out
    assert "GPU power" not in out
    assert "Traceback" not in err
    assert (folder / "report.md").is_file()


def test_figures_are_kept(runs: Path) -> None:
    run = load_run(find_run("latest", runs))
    figures = {row["metric"]: row for row in run.tables["metrics"].to_pylist()}
    assert figures["adherence_ratio"]["value"] == 1.0
    assert figures["power_utilisation_ratio"]["value"] is None


def test_collecting_again_changes_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = find_run("latest", runs)
    before = dict(load_run(folder).tables)
    assert call(["collect", "latest", "--runs-dir", str(runs)]) == 0
    assert "trajectories" in capsys.readouterr().out
    after = load_run(folder).tables
    assert set(after) == set(before)
    for name, table in before.items():
        assert after[name].equals(table), name


def test_report_of_a_run_and_of_two(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", "latest", "--runs-dir", str(runs), "-o", str(tmp_path / "one")]) == 0
    out = capsys.readouterr().out
    assert out.endswith(f"written: {tmp_path / 'one' / 'report.md'}\n")
    pair = [path.name for path in list_runs(runs)]
    assert call(["report", *pair, "--runs-dir", str(runs), "-o", str(tmp_path / "two")]) == 0
    assert (tmp_path / "two" / "report.md").is_file()


def test_a_run_is_not_compared_with_itself(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", "latest", "latest", "--runs-dir", str(runs)]) == 2
    assert "given twice" in capsys.readouterr().err


def test_list_shows_it_finished(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", "runs", "--runs-dir", str(runs)]) == 0
    row = capsys.readouterr().out.splitlines()[2].split()
    assert row[:5] == [find_run("latest", runs).name, "finished", "tiny", "cpu", "4"]


def test_logs_show_the_worker(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["logs", "latest", "--runs-dir", str(runs)]) == 0
    assert "==> logs/worker.log <==" in capsys.readouterr().out


def test_a_failed_run_has_its_code_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    assert call([*RUN, "--fault", "die=2", "--runs-dir", str(runs)]) == 4
    folder = find_run("latest", runs)
    assert json.loads((folder / "meta.json").read_text())["status"] == "failed"
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith(f"bench: {folder.name} failed: ")
    assert "Traceback" not in err
    assert (folder / "report.md").is_file()


def test_a_fault_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*RUN, "--fault", "explode", "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "explode" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
