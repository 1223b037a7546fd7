"""The benchmark of a large run: each limit decides, and memory is that of all processes."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.compute as pc
import pytest

from results.collect import collect

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def large_run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import large_run as module

    return module


@pytest.mark.parametrize(
    ("part", "figure", "value", "limit"),
    [
        ("collect", "s", 10.5, "collect_s"),
        ("report", "s", 5.5, "report_s"),
        ("nodes", "s", 60.5, "nodes_s"),
        ("collect", "memory_bytes", 2**30 + 1, "collect_memory_bytes"),
        ("report", "memory_bytes", 2**30 + 1, "report_memory_bytes"),
        ("nodes", "memory_bytes", 2**30 + 1, "nodes_memory_bytes"),
        ("none", "s", 0.0, None),
    ],
)
def test_one_limit_that_is_not_kept_fails_the_benchmark(
    large_run: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    part: str,
    figure: str,
    value: float,
    limit: str | None,
) -> None:
    def measured(argv: list[str]) -> dict[str, float]:
        at_limit = {"s": 5.0, "cpu_s": 5.0, "memory_bytes": 2**30, "load": 0.0}
        name = "report" if large_run.REPORT in argv else "nodes" if "nodes-" in argv[-1] else "collect"
        is_it = name == part and large_run.IMPORTS not in argv and "pandas_script" not in argv[1]
        return {**at_limit, **({figure: value} if is_it else {})}

    told: dict[str, object] = {}

    def finish(_: str, figures: dict[str, object], *, ok: bool, **__: object) -> int:
        told.update(figures)
        return 0 if ok else 1

    monkeypatch.setattr(large_run, "measured", measured)
    monkeypatch.setattr(large_run, "finish", finish)
    sizes = ["--trajectories", "400", "--samples", "1000", "--nodes", "2", "--node-seconds", "1", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["large_run.py", "--folder", str(tmp_path), *sizes])
    assert large_run.main() == (1 if limit else 0)
    assert told["missed"] == ([limit] if limit else [])
    assert len(told["limits"]) == 6  # type: ignore[arg-type]


def test_samples_cover_the_steps(large_run: ModuleType, tmp_path: Path) -> None:
    counts = large_run.generate(tmp_path / "run", 400, 1000)
    tables = collect(tmp_path / "run").tables
    assert tables["samples"].num_rows == counts["samples"] > 1000
    steps, samples = tables["steps"], tables["samples"]
    assert pc.min(samples["mono_ns"]).as_py() <= pc.min(steps["start_ns"]).as_py()
    assert pc.max(samples["mono_ns"]).as_py() >= pc.max(steps["end_ns"]).as_py()


def test_seconds_are_the_median_and_memory_is_the_most(large_run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([(3.0, 1.0, 20), (9.0, 4.0, 10), (4.0, 2.0, 30)])

    def measured(argv: list[str]) -> dict[str, float]:
        seconds, cpu, memory = next(made)
        return {"s": seconds, "cpu_s": cpu, "memory_bytes": memory, "load": 0.0}

    monkeypatch.setattr(large_run, "measured", measured)
    found, touched = large_run.in_turns({"part": ["x"]}, 3)
    assert found["part"] == {"s": 4.0, "s_min": 3.0, "s_max": 9.0, "cpu_s": 2.0, "memory_bytes": 30, "load": 0.0}
    assert len(touched) == 3


def test_the_memory_of_children_counts(large_run: ModuleType) -> None:
    holds = "import sys; held = b'x' * 2**26; print(1, flush=True); sys.stdin.read()"
    starts = (
        "import sys; from subprocess import PIPE, Popen;"
        " started = Popen([sys.executable, '-c', sys.argv[1]], stdout=PIPE, stdin=PIPE);"
        " print(started.stdout.read(1), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts, holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        both = large_run._anonymous(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    assert 2**26 < both < 2**28
    assert large_run._anonymous(2**30) == 0
