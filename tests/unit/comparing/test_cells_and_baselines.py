"""What `bench compare` does not compare, and says: cells without a partner, runs that a ledger does not have."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_measures import steady

from harness.cli import call
from results.baselines import store
from results.comparing.kept import read_measures, write_measures
from results.comparing.measures import RunMeasures


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = call(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def cell(name: str, placement: str, train: float = 0.3, count: int = 3, **more: object) -> list[RunMeasures]:
    system = {"framework": "simulated", "placement": placement, "steps": "6"}
    return [
        steady(f"{name}-{placement}-{i}", train + 0.001 * i, placement=placement, system=system, **more)
        for i in range(count)
    ]


def folder(path: Path, *cells: Sequence[RunMeasures]) -> Path:
    path.mkdir()
    for place, runs in enumerate(cells):
        write_measures(path / f"{place}.parquet", runs)
    return path


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """One of colocated and async, one of colocated and disaggregated."""
    return (
        folder(tmp_path / "one", cell("one", "colocated"), cell("one", "async")),
        folder(tmp_path / "two", cell("two", "colocated"), cell("two", "disaggregated", count=2)),
    )


def test_cells_without_a_partner_are_named(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *two)
    assert (code, err) == (0, "")
    assert "# simulated colocated: two: colocated against one: colocated" in out
    assert "**Not compared**: one: async (3 runs, simulated async): there is no such cell in two." in out
    assert (
        "**Not compared**: two: disaggregated (2 runs, simulated disaggregated): there is no such cell in one." in out
    )
    assert out.count("**Not compared**") == 2
    code, out, err = run(capsys, *two, "--format", "json")
    assert [len(one["cells_not_compared"]) for one in json.loads(out)] == [2]
    code, out, err = run(capsys, *two, "--format", "csv")
    assert code == 0
    assert err.count("not compared: ") == 2
    assert len(list(csv.DictReader(io.StringIO(out)))) > 5


def test_a_cell_that_only_some_have_says_of_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [folder(tmp_path / name, cell(name, "colocated"), cell(name, "async")) for name in ("a", "b")]
    third = folder(tmp_path / "c", cell("c", "async"))
    code, out, _ = run(capsys, *both, third)
    assert code == 0
    assert "**Not compared**: a: colocated (3 runs, simulated colocated): there is no such cell in c." in out
    assert sum(line.startswith("# ") for line in out.splitlines()) == 2


def test_cells_of_other_models_are_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def models(name: str) -> Path:
        runs = [
            [
                replace(each, run_id=f"{each.run_id}-{model}", model=model, work={**each.work, "model": model})
                for each in cell(name, "colocated", work_digest=model)
            ]
            for model in ("small", "large")
        ]
        return folder(tmp_path / name, *runs)

    code, out, err = run(capsys, models("a"), models("b"))
    assert (code, err) == (0, "")
    assert "b: model=small against a: model=small" in out
    assert "b: model=large against a: model=large" in out


def test_a_cell_of_failed_runs_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = [replace(each, problems=("did not finish (status failed)",)) for each in cell("a", "async")]
    a = folder(tmp_path / "a", cell("a", "colocated"), failed)
    b = folder(tmp_path / "b", cell("b", "colocated"), cell("b", "async"))
    code, out, _ = run(capsys, a, b)
    assert code == 0
    assert "**Not compared**: a: async: no run that may be compared: a-async-0 did not finish (status failed)" in out
    assert "**Not compared**: b: async (3 runs, simulated async): there is no run to compare it with." in out


def test_what_was_left_out_is_told_though_its_cell_has_no_partner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = baseline(tmp_path / "a", cell("a", "async"), cell("a", "colocated"))
    tampered(a, "a-async-1")
    b = folder(tmp_path / "b", cell("b", "colocated"))
    code, out, _ = run(capsys, a, b)
    assert code == 0
    assert "- `a-async-1` of a: colocated: its numbers are not those that ann accepted" in out


def baseline(path: Path, *cells: Sequence[RunMeasures]) -> Path:
    for runs in cells:
        store.accept(path, runs, who="ann", why="quiet", utc="2026-11-30T00:00:00Z")
    return path


def tampered(path: Path, run_id: str) -> None:
    """Makes a run of a baseline's files half as long, behind the ledger's back."""
    for file in path.glob("*.parquet"):
        runs = read_measures(file)
        if any(each.run_id == run_id for each in runs):
            fast = steady(run_id, 0.1)
            write_measures(file, [replace(e, values=fast.values) if e.run_id == run_id else e for e in runs])


def test_a_baselines_ledger_decides_as_in_a_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = baseline(tmp_path / "baselines", cell("base", "colocated", count=4))
    tampered(base, "base-colocated-3")
    write_measures(base / "smuggled.parquet", cell("smuggled", "colocated", 0.1, 1))
    new = folder(tmp_path / "new", cell("new", "colocated"))
    code, out, _ = run(capsys, base, new, "--format", "json")
    assert code == 0
    (found,) = json.loads(out)
    side = found["sides"][0]
    assert side["runs"] == ["base-colocated-0", "base-colocated-1", "base-colocated-2"]
    left = {one["what"]: one["why"] for one in side["left_out"]}
    assert left["base-colocated-3"] == "its numbers are not those that ann accepted"
    assert left["smuggled-colocated-0"] == "the ledger does not have it as accepted"
    code, out, _ = run(capsys, base / "smuggled.parquet", new)  # nor by its file's name
    assert code == 2


def test_measures_without_a_ledger_are_used_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [folder(tmp_path / name, cell(name, "colocated")) for name in ("a", "b")]
    _, out, _ = run(capsys, *sides)
    assert "> No ledger in a: who took its runs in" in out


def test_noise_from_a_baseline_of_several_cells_is_of_the_matching_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = baseline(tmp_path / "baselines", cell("n", "async", count=5), cell("n", "colocated", count=5))
    sides = [folder(tmp_path / name, cell(name, "colocated", train, 1)) for name, train in (("a", 0.3), ("b", 0.45))]
    code, out, err = run(capsys, *sides, "--noise-from", base)
    assert (code, err) == (0, "")
    assert "How runs vary is taken from 5 runs of baselines: colocated" in out
    code, _, err = run(capsys, *sides, "--noise-from", base / next(base.glob("*async*")).name)
    assert code == 2
    assert "placement (async, not colocated)" in err


def test_noise_of_one_seed_is_found_among_those_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def seeded(name: str, seed: int, spread: float, count: int) -> list[RunMeasures]:
        runs = cell(name, "colocated", count=count)
        work = {**runs[0].work, "seed": str(seed)}
        return [
            replace(
                steady(f"{name}-{seed}-{i}", 0.3 + spread * i, system=runs[0].system),
                seed=seed,
                work=work,
                work_digest=f"seed-{seed}",
                spec_digest=f"seed-{seed}",
            )
            for i in range(count)
        ]

    base = baseline(tmp_path / "baselines", seeded("n", 1, 0.002, 5), seeded("n", 2, 0.03, 4))
    sides = [folder(tmp_path / name, seeded(name, 2, 0.0, 1)) for name in ("a", "b")]
    code, out, err = run(capsys, *sides, "--noise-from", base)
    assert (code, err) == (0, "")
    assert "How runs vary is taken from 4 runs of baselines: seed=2" in out


def git(at: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{what}": "ann@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(at), *arguments], check=True, capture_output=True, env={**os.environ, **who})


def test_a_git_ref_is_a_side_and_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    baseline(tmp_path / "baselines", cell("base", "colocated", count=4))
    git(tmp_path, "add", "baselines")
    git(tmp_path, "commit", "-qm", "baseline")
    for path in (tmp_path / "baselines").iterdir():
        path.unlink()
    new = folder(tmp_path / "new", cell("new", "colocated", 0.4, 1))
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "main", new, "--noise-from", "main:baselines", "--format", "json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    assert found["sides"][0]["label"] == "main"
    assert len(found["sides"][0]["runs"]) == 4
    assert [one["from"] for one in found["noise"]] == ["main:baselines"]
    code, _, err = run(capsys, "main:nowhere", new)
    assert code == 2
    assert "nowhere" in err
    code, _, err = run(capsys, "neither", new)
    assert code == 2
    assert "no such run folder" in err
