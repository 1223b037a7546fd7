"""Runs whose measures are not kept: computed in several processes, the same as in one, and whoever waits is told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comparing_folders import play_run

from harness.cli import call
from harness.protocol.errors import SpecError
from results.comparing import code, many
from results.comparing.kept import KEPT, kept_measures, measures_of
from results.comparing.measures import RunMeasures
from results.spread import spread


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("eight")
    return [play_run(folder / side / f"{side}-{i}", "colocated", noise=i) for side in ("a", "b") for i in range(4)]


def cold(folders: list[Path]) -> None:
    for folder in folders:
        (folder / KEPT).unlink(missing_ok=True)


def test_several_processes_measure_what_one_does(eight: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "cores", lambda: 2)
    monkeypatch.setattr(many, "_free_bytes", lambda: None)
    alone = [measures_of(folder) for folder in eight]
    cold(eight)
    told: list[tuple[int, int, int]] = []
    found = many.measures_of_all(eight, lambda *each: told.append(each))
    assert found == alone
    assert told == [(done, 8, 2) for done in range(9)]
    assert all(kept_measures(folder) == each for folder, each in zip(eight, alone, strict=True))
    told.clear()
    assert many.measures_of_all(eight, lambda *each: told.append(each)) == alone
    assert told == []  # they were kept: nothing is computed
    cold(eight[:2])
    assert many.measures_of_all(eight, lambda *each: told.append(each)) == alone
    assert told == []  # soon done
    cold(eight[:2])
    monkeypatch.setattr(many, "LARGE_BYTES", 1000)
    many.measures_of_all(eight, lambda *each: told.append(each))
    assert told == [(0, 2, 1), (1, 2, 1), (2, 2, 1)]


def test_a_folder_that_is_none_is_told_in_its_place(eight: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "spec.json").write_text("{}")
    first, second, third = many.measures_of_all([eight[0], broken, eight[1]])
    assert isinstance(second, SpecError)
    assert [each.run_id for each in (first, third) if isinstance(each, RunMeasures)] == ["a-0", "a-1"]


def test_no_more_processes_than_there_is_memory_for(eight: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "cores", lambda: 64)
    for free, most in ((None, 64), (2_000_000_000, 4), (1, 1)):
        monkeypatch.setattr(many, "_free_bytes", lambda free=free: free)
        assert 1 <= many._room(eight) <= most
    assert many._room([]) == 64


def test_what_takes_long_is_said_on_stderr(eight: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    cold(eight)
    sides = [str(eight[0].parent), str(eight[-1].parent)]
    assert call(["compare", *sides]) == 0
    first, said = capsys.readouterr()
    assert said.splitlines()[0].startswith("measuring 8 runs")
    assert call(["compare", *sides]) == 0
    assert capsys.readouterr() == (first, "")


def blas_threads(number: int) -> str | None:
    import numpy as np

    assert np.ones(number).sum() == number
    return os.environ.get("OPENBLAS_NUM_THREADS")


def test_each_process_has_one_thread_for_linear_algebra_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert list(spread(blas_threads, [3, 4], 2)) == ["1", "1"]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert list(spread(blas_threads, [3], 1)) == ["3"]


def fails(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    return number * number


def test_spread_work_comes_in_order_and_what_it_raises_leaves_nothing_running() -> None:
    import multiprocessing

    before = set(multiprocessing.active_children())
    assert list(spread(abs, [-3, -1, -2], 2)) == [3, 1, 2]
    with pytest.raises(ValueError, match="two"):
        list(spread(fails, [1, 2, 3, 4], 2))
    assert set(multiprocessing.active_children()) == before


def test_the_code_of_measures_is_all_that_is_imported_for_them_and_not_all_there_is() -> None:
    """A change of a module that has no part in measures must not make every run be measured anew; any other must."""
    program = (
        "import sys, results.collect, results.comparing.measuring, results.comparing.kept\n"
        "for m in list(sys.modules.values()):\n"
        "    if (getattr(m, '__name__', '').split('.')[0] in ('results', 'workloads', 'harness')\n"
        "            and getattr(m, '__file__', None)):\n"
        "        print(m.__file__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    found = {str(path) for path in code.modules(code.ROOTS)}
    assert set(done.stdout.split()) <= found
    names = {Path(path).relative_to(Path(code.__file__).parents[2]).as_posix() for path in found}
    assert {"results/window.py", "workloads/deep_research/plan.py", "harness/protocol/phases.py"} <= names
    others = ("results/planner/", "results/lint/", "results/baselines/", "results/comparing/claims", "reports/")
    assert not [name for name in names if name.startswith(others)]


def test_imports_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_TOP", tmp_path)
    (tmp_path / "results" / "deep").mkdir(parents=True)
    for name, text in (
        ("__init__", ""),
        ("deep/__init__", ""),
        ("a", "from results import (\n    b,\n    c as d,\n)\nimport os, results.deep.e as e\n"),
        ("b", "def f():\n    from results.deep.f import x  # late\n"),
        ("c", ""),
        ("g", "import results.a\n"),
        ("deep/e", "if True:\n    from results.a import y\n"),
        ("deep/f", ""),
    ):
        (tmp_path / "results" / f"{name}.py").write_text(text)
    found = [path.relative_to(tmp_path / "results").as_posix() for path in code.modules(["results.a"])]
    assert sorted(found) == ["__init__.py", "a.py", "b.py", "c.py", "deep/__init__.py", "deep/e.py", "deep/f.py"]
    shutil.rmtree(tmp_path / "results")
