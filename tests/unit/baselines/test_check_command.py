"""`bench check`, `baseline` and `history` as commands: exit codes, what they print and write."""

import json
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from harness.cli import call
from reports.checked.document import document
from reports.checked.page import value_line
from results.baselines.check import check, gates_named
from results.comparing.kept import KEPT, measures_of, stamp_of, write_measures
from results.comparing.measures import Value


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A collected run of the simulated framework."""
    folder = tmp_path_factory.mktemp("real")
    code = call(
        ["run", "--framework", "simulated", "--placement", "async", "--steps", "4", "--runs-dir", str(folder / "runs")]
    )
    assert code == 0
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture
def folders(real, tmp_path, nights):
    """Run folders whose kept measures are those of `nights`, in the real run's cell and machine."""
    found = measures_of(real)

    def make(count, *, lost=(), **how):
        made = []
        for run in nights(count, **how):
            path = tmp_path / "runs" / run.run_id
            shutil.copytree(real, path)
            own = {
                name: getattr(found, name) for name in ("framework", "placement", "spec_digest", "machine", "device")
            }
            values = {**run.values, **dict.fromkeys(lost, Value(float("nan")))}
            write_measures(path / KEPT, [replace(run, values=values, **own)], stamp=stamp_of(path))
            made.append(str(path))
        return made

    return make


@pytest.fixture
def baseline(folders, tmp_path):
    folder = str(tmp_path / "baselines")
    code = call(["baseline", "accept", *folders(6), "--why", "the first nights", "--who", "Ann", "--baseline", folder])
    assert code == 0
    return folder


def test_passed(folders, baseline, tmp_path, capsys):
    new = folders(3, first=9, each=3, seed=2, prefix="new")
    out = [str(tmp_path / name) for name in ("check.xml", "check.md", "summary.md")]
    (tmp_path / "summary.md").write_text("# before\n")
    capsys.readouterr()
    code = call(["check", *new, "--baseline", baseline, "--junit", out[0], "--comment", out[1], "--summary", out[2]])
    page = capsys.readouterr().out
    assert code == 0, page
    assert page.startswith("# Regression check: passed")
    assert (tmp_path / "check.md").read_text() == page
    assert (tmp_path / "summary.md").read_text() == f"# before\n{page}\n"
    (suite,) = ElementTree.parse(out[0]).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")


def test_a_regression_is_exit_1_and_named(folders, baseline, tmp_path, capsys):
    new = folders(3, first=9, each=3, seed=2, prefix="new", factors={"phase_train_s": 1.2})
    xml = str(tmp_path / "check.xml")
    capsys.readouterr()
    assert call(["check", *new, "--baseline", baseline, "--junit", xml, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "failed"
    (gate,) = [gate for gate in document["cells"][0]["gates"] if gate["failed"]]
    assert gate["measure"] == "phase_train_s"
    assert gate["worse_by"] == pytest.approx(0.2, abs=0.03)
    cases = ElementTree.parse(xml).getroot()[0]
    (failed,) = [case for case in cases if case.find("failure") is not None]
    assert failed.get("name") == "phase_train_s"
    (failure,) = failed
    assert (failure.get("message") or "").startswith("phase_train_s: ")
    assert (failure.get("message") or "").endswith("% worse, failed")


def test_undecided_is_exit_5_and_no_reader_s_green(folders, baseline, tmp_path, capsys):
    xml = str(tmp_path / "check.xml")
    assert call(["check", *folders(1, first=9, each=1, prefix="new"), "--baseline", baseline, "--junit", xml]) == 5
    assert "# Regression check: underpowered" in capsys.readouterr().out
    suite = ElementTree.parse(xml).getroot()[0]
    assert int(suite.get("errors") or 0) >= 1


def test_a_measure_that_is_lost_is_exit_1(folders, baseline, capsys):
    new = folders(3, first=9, each=3, seed=2, prefix="new", lost=["step_time_s"])
    assert call(["check", *new, "--baseline", baseline]) == 1
    assert "not a number" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--baseline", "nowhere"], "baseline = nowhere"),
        (["--baseline", "{}", "--gate", "speed"], "gate = speed: no such measure"),
    ],
)
def test_a_wrong_request_is_exit_2_in_one_line(folders, baseline, words, said, capsys):
    new = folders(1, first=9, each=1, prefix="new")
    capsys.readouterr()
    assert call(["check", *new, *(word.format(baseline) for word in words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_listing_names_cells_people_and_reasons(baseline, capsys):
    capsys.readouterr()
    assert call(["baseline", "list", "--baseline", baseline]) == 0
    said = capsys.readouterr().out
    assert "6 run(s) from 6 occasion(s)" in said
    assert "the first nights" in said
    assert "trusted: Ann" in said


def test_the_only_one_trusted_is_not_said_to_be_trusted_no_longer(baseline, capsys):
    words = ["baseline", "trust", "Ann", "--no-longer", "--why", "leaves", "--who", "Ann", "--baseline", baseline]
    assert call(words) == 2
    assert "Ann is the only one trusted" in capsys.readouterr().err


def test_a_gate_of_differences_is_told_in_its_unit(nights):
    def staler(runs, level):
        return [
            replace(run, values={**run.values, "staleness_at_start_mean": Value(level + 0.01 * k)})
            for k, run in enumerate(runs)
        ]

    named = gates_named(["staleness_at_start_mean"])
    (cell,) = check(staler(nights(3, first=9, each=3, prefix="new"), 1.5), staler(nights(6), 1.0), named)
    (gate,) = cell.gates
    assert value_line(gate) == "staleness_at_start_mean: 0.485 version worse, failed"
    (told,) = document([cell])["cells"][0]["gates"]
    assert (told["kind"], told["worse_by"]) == ("difference", pytest.approx(0.485))


def test_a_stranger_is_told_who_is_trusted(folders, baseline, capsys):
    new = folders(1, first=9, each=1, prefix="new")
    assert call(["baseline", "accept", *new, "--why", "x", "--who", "Bob", "--baseline", baseline]) == 2
    assert "trusted are Ann" in capsys.readouterr().err
    assert call(["baseline", "trust", "Bob", "--why", "runs the nights", "--who", "Ann", "--baseline", baseline]) == 0
    assert call(["baseline", "accept", *new, "--why", "x", "--who", "Bob", "--baseline", baseline]) == 0
    (name,) = (path.rpartition("/")[2] for path in new)
    assert call(["baseline", "withdraw", name, "--why", "no", "--who", "Bob", "--baseline", baseline]) == 0


def test_history_reads_a_baseline_and_grows_a_series(folders, baseline, tmp_path, capsys):
    out = tmp_path / "out"
    assert call(["history", baseline, "-o", str(out)]) == 0
    said = (out / "history.md").read_text()
    assert "No change found in step\\_time\\_s, phase\\_train\\_s" in said
    assert said.startswith("# Nights in a row (simulated)")
    series = str(tmp_path / "series")
    new = folders(8, seed=2, prefix="a") + folders(8, first=8, prefix="b", factors={"step_time_s": 1.3})
    capsys.readouterr()
    assert call(["history", series, *new, "--measure", "step_time_s", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "16 new runs in" in said
    assert "**worse**" in said
    assert call(["history", series, "--measure", "speed"]) == 2


def test_runs_whose_folders_are_gone_are_accepted_from_the_series(folders, tmp_path, capsys):
    series, baseline = str(tmp_path / "series"), str(tmp_path / "own")
    runs = folders(2)
    assert call(["history", series, *runs, "--measure", "step_time_s", "-o", str(tmp_path / "out")]) == 0
    names = [path.rpartition("/")[2] for path in runs]
    for path in runs:
        shutil.rmtree(path)
    words = ["--series", series, "--why", "a good night", "--who", "Ann", "--baseline", baseline]
    assert call(["baseline", "accept", *names, *words]) == 0
    capsys.readouterr()
    assert call(["baseline", "list", "--baseline", baseline]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in names)
    assert call(["baseline", "accept", "nobody", *words]) == 2
    assert "no such run" in capsys.readouterr().err
    assert call(["baseline", "withdraw", "run", "--why", "x", "--who", "Ann", "--baseline", baseline]) == 2
    assert "means 2 runs" in capsys.readouterr().err
    assert call(["baseline", "withdraw", names[0], "--why", "x", "--who", "Ann", "--baseline", baseline]) == 0


def test_a_folder_without_ledger_and_runs_is_called_so(folders, baseline, tmp_path, capsys):
    empty = tmp_path / "mistyped"
    empty.mkdir()
    words = ["check", *folders(3, first=10, each=3, prefix="new"), "--baseline"]
    assert call([*words, str(empty)]) == 5
    said = capsys.readouterr().out
    assert "**Nothing to check against**" in said
    assert f"`{empty}` has no ledger and no run" in said
    call([*words, str(baseline)])
    assert "Nothing to check against" not in capsys.readouterr().out
