"""The check of predictions: what decides, and that short runs are no evidence."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from results.planner.predictions import Range

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def predict_async(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import predict_async as module

    return module


@pytest.mark.parametrize(
    ("steps", "predicted", "naive", "ok"),
    [
        ([1.0, 1.0, 1.0], (1.1, 0.9, 1.2), 1.5, True),
        ([1.0, 1.0, 1.0], (1.16, 0.9, 1.2), 1.5, False),  # 16 %: beyond what is allowed
        ([0.8, 1.0, 1.2], (1.3, 0.9, 1.4), 1.5, True),  # 30 %, but the runs say no more than 50 %
        ([1.0, 1.0, 1.0], (1.1, 1.05, 1.2), 1.5, False),  # outside its interval
        ([1.0, 1.0, 1.0], (1.1, 0.9, 1.2), 1.05, False),  # a guess would have been better
        ([1.0, 1.0, 1.0], (1.1, 0.9, 1.2), None, False),  # better than nothing isn't shown
    ],
)
def test_all_three_decide(
    predict_async: ModuleType, steps: list[float], predicted: tuple[float, ...], naive: float | None, ok: bool
) -> None:
    value, low, high = predicted
    assert predict_async.held(steps, Range(value=value, low=low, high=high), naive)["ok"] is ok


def test_a_run_of_too_few_steady_steps_is_no_evidence(predict_async: ModuleType) -> None:
    runs = [SimpleNamespace(run_id=f"r{steps}", steps=steps, value=lambda _: 1.0) for steps in (29, 30)]
    assert predict_async.steps_of(runs[1:]) == [1.0]
    with pytest.raises(SystemExit, match="r29: fewer than 30 steady steps"):
        predict_async.steps_of(runs)
