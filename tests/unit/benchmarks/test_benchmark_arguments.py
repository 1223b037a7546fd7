"""The benchmarks' command lines: --record appends one row, and a mistake is told before anything is measured."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module with its results in a folder of the test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tracked as module

    monkeypatch.setattr(module, "RESULTS", tmp_path / "results.jsonl")
    return module


def rows(tracked: ModuleType) -> list[dict[str, Any]]:
    path: Path = tracked.RESULTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("slow", "at_once", "on_time", "ok"),
    [(0.01, 0.01, 1.0, True), (0.01, 0.02, 1.0, True), (0.02, 0.01, 1.0, False), (0.01, 0.01, 0.98, False)],
)
@pytest.mark.parametrize("record", [True, False])
def test_sampler_cost_has_limits_and_is_recorded(
    tracked: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    slow: float,
    at_once: float,
    on_time: float,
    ok: bool,
    record: bool,
) -> None:
    """What decides are the calls that take their time: those that answer at once are no driver's."""
    import sampler_cost

    def measure(*_: object, latencies: bool = False, **__: object) -> dict[str, float | str]:
        measured: dict[str, float | str] = {"sampler_core_ratio": 0.03, "sampler_own_cpu_s": 0.2, "memory_bytes": 1.0}
        measured |= {"bare_loop_core_ratio": 0.01, "bare_loop_own_core_ratio": 0.005}
        measured |= {"zeus_own_core_ratio": "not installed"}
        return {**measured, "sampler_own_core_ratio": slow if latencies else at_once}

    monkeypatch.setattr(sampler_cost, "measure", measure)
    monkeypatch.setattr(sampler_cost, "on_time", lambda *_, **__: {"ticks": 1000, "on_time": on_time})
    monkeypatch.setattr(sampler_cost, "compile_stand_in", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["sampler_cost.py", "--repeats", "2", *(["--record"] if record else [])])
    assert sampler_cost.main() == (0 if ok else 1)
    found = rows(tracked)
    assert len(found) == record
    for row in found:
        assert (row["benchmark"], row["ok"], row["rounds"]) == ("sampler_cost", ok, 2)
        assert (row["gpus"], row["hz"]) == (8, 10.0)
        assert row["limits"] == {"sampler_own_core_ratio": 0.01, "on_time": 0.99}
        assert row["sampler_own_core_ratio"]["median"] == slow
        assert row["calls_that_answer_at_once"]["sampler_own"]["median"] == at_once
        against = {"bare_loop": 200 * slow, "nvitop": "not asked for: --peers PYTHON", "zeus": "not installed"}
        assert row["own_against"] == against


@pytest.mark.parametrize("record", [True, False])
def test_recording_pair_takes_pairs_and_record(
    tracked: ModuleType, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    import recording_pair

    seconds = iter([1.02, 1.0, 1.0, 1.01])  # on, off; then the other order
    monkeypatch.setattr(recording_pair, "step_seconds", lambda *_: next(seconds))
    monkeypatch.setattr(sys, "argv", ["recording_pair.py", *(["--record"] if record else [])])
    monkeypatch.setenv("PAIRS", "2")
    assert recording_pair.main() in (0, 1)
    assert next(seconds, None) is None
    found = rows(tracked)
    assert len(found) == record
    for row in found:
        assert (row["benchmark"], row["pairs"]) == ("recording_pair", 2)
        assert row["low"] <= row["ratio"] <= row["high"]


@pytest.mark.parametrize(("pairs", "words"), [("0", []), ("two", []), ("1", ["--recrod"])])
def test_a_mistake_is_told_before_any_run(
    tracked: ModuleType, monkeypatch: pytest.MonkeyPatch, pairs: str, words: list[str]
) -> None:
    import recording_pair

    monkeypatch.setattr(recording_pair, "step_seconds", lambda *_: pytest.fail("a run was started"))
    monkeypatch.setattr(sys, "argv", ["recording_pair.py", *words])
    monkeypatch.setenv("PAIRS", pairs)
    with pytest.raises(SystemExit):
        recording_pair.main()
