from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cli.summary import summary
from results.metrics import Figure, RunFigures


@pytest.mark.parametrize(("gpus", "slot", "other"), [(False, "process", "GPU"), (True, "GPU", "process")])
def test_rates_are_per_process_where_there_is_no_gpu(tmp_path: Any, gpus: bool, slot: str, other: str) -> None:
    rates = ("throughput_tokens_per_s_gpu", "goodput_tokens_per_s_gpu")
    figures = {name: Figure(metric=name, unit="token/s/GPU", value=12.0, n=5) for name in rates}
    proof = SimpleNamespace(proven=True)
    found = SimpleNamespace(figures=figures, sync_proof=proof, window=None, no_window="too short")
    text = summary(cast(RunFigures, found), tmp_path / "report.md", gpus=gpus)
    assert f"12.0 generated tokens/s/{slot}" in text
    assert f"12.0 tokens/s/{slot}" in text
    assert f"/s/{other}" not in text


def shown(figures: list[Figure], *, window: Any = None, no_window: str | None = None, width: int = 0) -> str:
    found = SimpleNamespace(
        figures={figure.metric: figure for figure in figures},
        sync_proof=SimpleNamespace(proven=True),
        window=window,
        no_window=no_window,
    )
    return summary(cast(RunFigures, found), Path("report.md"), gpus=False, width=width)


def test_without_a_window_the_reason_is_said_once() -> None:
    why = "too few steps: none ended after the warm-up (1 steps)"
    names = ("step_time_s", "throughput_tokens_per_s_gpu", "other_share")
    figures = [Figure(metric=name, unit="s", value=None, note=f"no steady window: {why}") for name in names]
    figures.append(Figure(metric="tail_gap_share", unit="1", value=None, note="async has no batch tail"))
    text = shown(figures, no_window=why)
    assert text.count("too few steps") == 1
    assert "warm-up (1 step)" in text
    rows = {line[:22].strip(): line[22:].strip() for line in text.splitlines()}
    assert rows["throughput"] == ""
    assert rows["straggler gap"].split() == ["unknown", "async", "has", "no", "batch", "tail"]


def test_one_step_is_no_range_and_no_plural() -> None:
    window = SimpleNamespace(steps=1, seconds=0.2, not_steady=("1 steps, fewer than 10", "11 steps"))
    one = Figure(metric="step_time_s", unit="s", value=0.23, n=1, note="range 0.2294 to 0.2294")
    noted = Figure(metric="goodput_tokens_per_s_gpu", unit="1", value=2.0, n=1, note="a note; range 2 to 2")
    three = Figure(metric="throughput_tokens_per_s_gpu", unit="1", value=2.0, n=3, note="range 1 to 3")
    text = shown([one, noted, three], window=window)
    assert "steady window: 1 step, 0.2 s, not steady: 1 step, fewer than 10; 11 steps" in text
    assert "0.2294" not in text
    assert "a note\n" in text
    assert "range 1 to 3" in text


def test_notes_are_wrapped_to_the_terminal() -> None:
    note = "of unit train, the worst of 2 (engine granularity): 0.000 s, allowed 0.050 s; " * 3
    text = shown([Figure(metric="other_share", unit="1", value=0.01, n=2, note=note)], no_window="x " * 90, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert " ".join(text.split()).count("engine granularity") == 3


def test_the_worker_s_seconds_are_called_real_and_are_no_zero_beside_a_virtual_window() -> None:
    text = shown([Figure(metric="wall_s", unit="s", value=0.31)], no_window="too short")
    (line,) = [line for line in text.splitlines() if line.startswith("worker")]
    assert "real time" in line
    assert "0.3 s" in line
