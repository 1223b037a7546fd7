"""What would help, at most: bounds by hand, their sum, and the picture."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from played_folders import write_run
from played_runs import make_spec

from harness.protocol.spec import Gpus, Placement
from reports.case import Case
from reports.report import write_report
from reports.waterfall import bounds_lines
from results.bounds import bounds


def account(pool: str, seconds: dict[str, float], steps: int = 10) -> Any:
    """An account whose one pool has these seconds of its window."""
    return SimpleNamespace(
        window_s=sum(seconds.values()), steps=steps, pool_seconds=lambda asked: seconds if asked == pool else {}
    )


def test_the_bounds_by_hand() -> None:
    spec = make_spec("async", gpus=Gpus(train=4, rollout=4))
    found = bounds(
        spec, account("train", {"train": 200.0, "logprob": 50.0, "wait_rollout": 150.0, "weight_sync": 100.0})
    )
    assert found.step_s == pytest.approx(50.0)
    assert {each.name: (each.seconds, each.share, each.speed_up) for each in found.exposed} == {
        "train": (20.0, 0.4, pytest.approx(1 / 0.6)),
        "logprob": (5.0, 0.1, pytest.approx(1 / 0.9)),
        "wait_rollout": (15.0, 0.3, pytest.approx(1 / 0.7)),
        "weight_sync": (10.0, 0.2, pytest.approx(1.25)),
    }
    by_split = {(split.train, split.rollout): split.speed_up for split in found.splits}
    assert by_split[4, 4] == pytest.approx(50 / 25)  # 25 s of training on 4 GPUs
    assert by_split[5, 3] == pytest.approx(50 / 20)
    assert by_split[1, 7] == pytest.approx(50 / 100)  # slower than now: training alone takes 100 s
    assert len(by_split) == 7


def test_colocated_gpus_all_train() -> None:
    spec = make_spec("colocated", gpus=Gpus(train=8, rollout=8))
    found = bounds(spec, account("both", {"generating": 85.0, "train": 12.0, "other": 3.0}, steps=1))
    assert {(split.train, split.rollout): split.speed_up for split in found.splits}[4, 4] == pytest.approx(100 / 24)


def test_a_class_that_is_all_of_the_step_has_no_bound() -> None:
    found = bounds(make_spec("colocated"), account("both", {"generating": 10.0}))
    assert [each.speed_up for each in found.exposed] == [None]
    assert found.splits == ()


@pytest.mark.parametrize("placement", [placement.value for placement in Placement])
def test_the_exposed_account_sums_to_the_step(tmp_path: Path, placement: str) -> None:
    case = Case.load(write_run(tmp_path / "run", make_spec(placement)))
    assert case.figures.account is not None
    assert case.figures.window is not None
    found = bounds(case.run.spec, case.figures.account)
    assert sum(each.seconds for each in found.exposed) == pytest.approx(found.step_s)
    assert found.step_s == pytest.approx(case.figures.window.seconds / case.figures.window.steps)
    text = write_report([tmp_path / "run"], tmp_path / "out").read_text()
    assert "### What would help, at most" in text
    assert (tmp_path / "out" / "figures" / "waterfall.png").stat().st_size > 10_000


def test_small_classes_are_gathered_and_other_is_not(tmp_path: Path) -> None:
    seconds = {"train": 997.0, "logprob": 1.0, "host": 1.5, "other": 0.5}
    found = bounds(make_spec("async"), account("train", seconds))
    text = "\n".join(bounds_lines(found, "foot", tmp_path / "figures"))
    assert "| other (nothing recorded) |" in text
    assert "| logprob, host |" in text
