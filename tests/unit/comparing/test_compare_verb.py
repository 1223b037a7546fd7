"""`bench compare` from the command line, on runs, folders, globs, sweeps and baselines; what it writes, and refuses."""

import csv
import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from comparing_folders import play_run
from made_measures import made_run, steady

from harness.cli import call
from results.comparing.kept import KEPT, measures_of, write_measures


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs: three of a base and three with training 30 % longer, colocated; and one async run."""
    folder = tmp_path_factory.mktemp("world")
    for side, factor in (("base", 1.0), ("slow", 1.3)):
        for i in range(3):
            play_run(folder / side / f"{side}-{i}", "colocated", slower_train=factor, noise=i)
    play_run(folder / "other" / "other-0", "colocated", seed=2)
    play_run(folder / "other" / "async-0", "async")
    play_run(folder / "bad" / "bad-0", "colocated", status="failed")
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = call(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_folders_of_runs(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, world / "base", world / "slow")
    assert (code, err) == (0, "")
    assert out.startswith("# skyrl colocated: slow against base (functional check on CPU)\n")
    train = next(line for line in out.splitlines() if line.startswith("| `phase_train_s`"))
    assert "**worse**" in train
    assert "**`phase_train_s`**, +" in out
    assert "3 runs and 3 runs" in out


def test_the_page_is_byte_stable_wherever_the_runs_lie(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, first, _ = run(capsys, world / "base", world / "slow")
    _, again, _ = run(capsys, world / "base", world / "slow")
    shutil.copytree(world / "base", tmp_path / "elsewhere" / "base")
    shutil.copytree(world / "slow", tmp_path / "elsewhere" / "slow")
    for kept in (tmp_path / "elsewhere").rglob(KEPT):
        kept.unlink()
    _, moved, _ = run(capsys, tmp_path / "elsewhere" / "base", tmp_path / "elsewhere" / "slow")
    assert first == again == moved
    assert str(world) not in first


def test_globs_runs_and_names_mean_the_same(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, folders, _ = run(capsys, world / "base", world / "slow", "--format", "csv")
    code, globs, err = run(capsys, "base/base-*", f"{world}/slow/slow-*", "--runs-dir", world, "--format", "csv")
    assert (code, err) == (0, "")

    def numbers(text: str) -> list[list[str]]:
        return [row[2:] for row in csv.reader(io.StringIO(text))][1:]

    assert numbers(folders) == numbers(globs)
    code, out, _ = run(capsys, "base-0", "base-1", "--runs-dir", world / "base")
    assert code == 0
    assert "within runs only" in out
    assert "With one run on a side" not in out
    assert "with one run on a side, how runs vary is not known" in out


def test_a_baseline_of_measures_alone(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = tmp_path / "baseline"
    baseline.mkdir()
    for path in sorted((world / "base").iterdir()):
        write_measures(baseline / f"{path.name}.parquet", [measures_of(path)])
    code, out, _ = run(capsys, baseline, world / "slow", "--format", "csv")
    _, same, _ = run(capsys, world / "base", world / "slow", "--format", "csv")
    assert code == 0
    assert [row[2:] for row in csv.reader(io.StringIO(out))] == [row[2:] for row in csv.reader(io.StringIO(same))]
    code, out, _ = run(capsys, world / "base" / "base-0", world / "slow" / "slow-0", "--noise-from", baseline)
    assert code == 0
    assert "How runs vary is taken from 3 runs of baseline" in out


def test_json_and_parquet_hold_the_csvs_numbers(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = run(capsys, world / "base", world / "slow", "--format", "csv")
    _, held, _ = run(capsys, world / "base", world / "slow", "--format", "json")
    code, out, _ = run(capsys, world / "base", world / "slow", "--format", "parquet", "-o", tmp_path / "c.parquet")
    assert code == 0
    assert out == f"written: {tmp_path / 'c.parquet'}\n"
    rows = pq.read_table(tmp_path / "c.parquet").to_pylist()
    (whole,) = json.loads(held)
    assert whole["rows"] == rows
    assert whole["sides"][1]["runs"] == ["slow-0", "slow-1", "slow-2"]
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["measure"] for row in table] == [row["measure"] for row in rows]
    assert [float(row["change"]) if row["change"] else None for row in table] == [row["change"] for row in rows]
    effects = [row["change"] for row in rows if row["section"] == "blame" and row["measure"] != "total"]
    total = next(row["change"] for row in rows if row["measure"] == "total")
    assert sum(effects) == pytest.approx(total, abs=1e-9)


def test_parquet_needs_a_file(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, world / "base", world / "slow", "--format", "parquet")
    assert code == 2
    assert "-o" in err
    code, _, err = run(capsys, world / "base", world / "slow", "-o", tmp_path / "no" / "such" / "page.md")
    assert code == 2
    assert "can't be written" in err


def test_other_work_is_refused_and_where_allowed_titled(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, world / "base", world / "other" / "other-0")
    assert (code, out) == (2, "")
    assert "seed (1 and 2)" in err
    assert "--allow-different seed" in err
    code, out, err = run(capsys, world / "base", world / "other" / "other-0", "--allow-different", "seed")
    assert (code, err) == (0, "")
    assert "different seed" in out.splitlines()[0]
    assert "**Not the same seed**: 1 and 2" in out


def test_placements_on_cpu_get_no_verdict(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, world / "base", world / "other" / "async-0")
    assert code == 0
    assert "no verdict" in out.splitlines()[0]
    assert "**worse**" not in out
    assert "**better**" not in out


def test_bad_runs_are_left_out_and_named(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, world / "base", world / "bad")
    assert code == 2
    assert "bad-0 did not finish (status failed)" in err
    mixed = tmp_path / "mixed"
    shutil.copytree(world / "slow", mixed)
    shutil.copytree(world / "bad" / "bad-0", mixed / "bad-0")
    (mixed / "broken").mkdir()
    (mixed / "broken" / "spec.json").write_text("{}")
    code, out, _ = run(capsys, world / "base", mixed)
    assert code == 0
    assert "- `bad-0` of mixed: did not finish (status failed)" in out
    assert "- `broken` of mixed" in out


def test_several_cells_are_compared_cell_by_cell(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("one", "two"):
        folder = tmp_path / side
        folder.mkdir()
        write_measures(folder / "a.parquet", [steady(f"{side}-c{i}", 0.3 + 0.001 * i) for i in range(2)])
        cells = {"system": {"framework": "simulated", "placement": "async", "steps": "6"}, "placement": "async"}
        write_measures(folder / "b.parquet", [steady(f"{side}-a{i}", 0.3 + 0.001 * i, **cells) for i in range(2)])
    code, out, _ = run(capsys, tmp_path / "one", tmp_path / "two")
    assert code == 0
    heads = [line for line in out.splitlines() if line.startswith("# ")]
    assert heads == [
        "# simulated async: two: async against one: async (simulated)",
        "# simulated colocated: two: colocated against one: colocated (simulated)",
    ] or heads == [
        "# simulated colocated: two: colocated against one: colocated (simulated)",
        "# simulated async: two: async against one: async (simulated)",
    ]
    defined = [line.partition(":")[0] for line in out.splitlines() if line.startswith("[^")]
    assert defined == [f"[^{number}]" for number in range(1, len(defined) + 1)]  # one numbering for the page
    code, out, _ = run(capsys, tmp_path / "one")
    assert code == 0
    assert out.count("\n# ") == 0


@pytest.mark.parametrize("argument", ["", "no-such-run", "no-*-such"])
def test_bad_arguments_are_one_line(argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, argument, argument, "--runs-dir", tmp_path)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_an_empty_folder_is_no_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = run(capsys, tmp_path / "empty", tmp_path / "empty")
    assert code == 2
    assert "neither run, sweep, folder of runs nor baseline" in err


def test_what_a_run_says_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("a", "b"):
        folder = tmp_path / side
        folder.mkdir()
        noted = steady(f"{side}|run", 0.3, notes=("<script>alert(1)</script> | x",), commit=f"{side}`|")
        write_measures(folder / "m.parquet", [noted])
    code, out, _ = run(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 0
    assert "<script>" not in out
    for line in out.splitlines():
        if line.startswith("| commit"):
            assert line.replace("\\|", "").count("|") == 4


def test_a_sweep_alone_compares_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        "[common]\nsteps = 5\nlatency_scale = 0.02\n[matrix]\nframework = ['simulated']\n"
        "placement = ['colocated', 'disaggregated']\n"
    )
    out = tmp_path / "sweep"
    sweep = ["sweep", "-c", str(file), "--repeats", "2", "-o", str(out), "--runs-dir", str(tmp_path / "r")]
    assert call(sweep) == 0
    capsys.readouterr()
    code, text, err = run(capsys, out)
    assert (code, err) == (0, "")
    assert "simulated" in text.splitlines()[0]
    assert "2 runs and 2 runs" in text
    assert "no verdict" in text.splitlines()[0]  # two placements, on CPU
    assert all((path / KEPT).is_file() for path in (tmp_path / "r").iterdir() if path.is_dir())


def sides(tmp_path: Path, *more: str, framework: str = "simulated") -> tuple[Path, Path]:
    """Two baselines of runs: A of no generation on the train side, B of 1, 2 and 4 s of it."""
    folders = (tmp_path / "a", tmp_path / "b")
    for folder, generation in zip(folders, ((0.0,) * 3, (1.0, 2.0, 4.0)), strict=True):
        runs = [
            made_run(
                f"{folder.name}{k}",
                {"phase_train_s": [3.0 + 0.01 * k] * 5, "exposed_generating_s": [each] * 5},
                values={"phase_generation_s": each, "phase_wait_rollout_s": 0.0},
                framework=framework,
                seed=k,
                plans=[f"{folder.name}{k}, step {step}" for step in range(5)],
            )
            for k, each in enumerate(generation)
        ]
        folder.mkdir()
        write_measures(folder / "cell.parquet", runs[:1] if "one" in more else runs)
    return folders


def test_the_means_shown_are_those_that_the_change_is_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides(tmp_path)
    code, out, err = run(capsys, a, b, "--format", "csv")
    assert (code, err) == (0, "")
    held = [row for row in csv.DictReader(io.StringIO(out)) if row["kind"] == "difference" and row["value_a"]]
    assert "phase_generation_s" in {row["measure"] for row in held}
    for row in held:
        assert float(row["value_b"]) - float(row["value_a"]) == pytest.approx(float(row["change"]), abs=1e-9)


def test_the_page_says_which_means_and_which_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = sides(tmp_path)
    _, out, _ = run(capsys, a, b)
    (foot,) = [line for line in out.splitlines() if line.startswith("<sub>3 runs")]
    assert foot.count("intervals: ") == 1
    assert "geometric means over the runs where the change is a ratio" in foot
    assert "Seconds are arithmetic means over the seeds of both sides, and in each over its runs" in out
    assert "t of the seeds' differences" in foot
    assert "| 3 seeds |" in out


def test_one_run_a_side_tests_nothing_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = sides(tmp_path, "one")
    _, out, _ = run(capsys, a, b)
    assert "No single part is shown" not in out
    assert "Nothing was tested" in out
    assert "no intervals: how runs vary is not known" in out


@pytest.mark.parametrize(("framework", "label"), [("simulated", "simulated"), ("skyrl", "functional check on CPU")])
def test_rows_say_what_the_runs_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], framework: str, label: str
) -> None:
    a, b = sides(tmp_path, framework=framework)
    _, out, _ = run(capsys, a, b, "--format", "csv")
    held = list(csv.DictReader(io.StringIO(out)))
    assert {(row["label"], row["device"], row["simulated"]) for row in held} == {
        (label, "cpu", str(framework == "simulated"))
    }
    path = tmp_path / "rows.parquet"
    assert run(capsys, a, b, "--format", "parquet", "-o", path)[0] == 0
    assert {row["label"] for row in pq.read_table(path).to_pylist()} == {label}
