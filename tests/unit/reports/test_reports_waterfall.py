"""What would help, at most: bounds by hand, their sum, and the picture."""

from collections.abc import Sequence
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


def account(
    pool: str, seconds: dict[str, float], steps: int = 10, *, tail_s: float = 0.0, units: Sequence[Any] = ()
) -> Any:
    """An account whose one pool has these seconds of its window."""
    return SimpleNamespace(
        window_s=sum(seconds.values()),
        steps=steps,
        pool_seconds=lambda asked: seconds if asked == pool else {},
        tail_s=tail_s,
        units=units,
    )


def unit(gpus: float, **tail_seconds: float) -> Any:
    """A rollout unit with these seconds inside the tail."""
    return SimpleNamespace(pool="rollout", gpus=gpus, tail_seconds=tail_seconds)


def test_the_bounds_by_hand(tmp_path: Path) -> None:
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
    by_split = {(split.train, split.rollout): split for split in found.splits}
    assert by_split[4, 4].speed_up == pytest.approx(50 / 25)  # 25 s of training on 4 GPUs
    assert by_split[5, 3].speed_up == pytest.approx(50 / 20)
    # On one GPU training alone takes 100 s or less: what it lost by sharing work is not known, and a bound must hold.
    assert by_split[1, 7].speed_up == pytest.approx(50 / 25)
    assert by_split[1, 7].in_proportion == pytest.approx(50 / 100)
    assert len(by_split) == 7
    assert found.tail is None
    text = "\n".join(bounds_lines(found, "foot", tmp_path / "figures"))
    assert "- Bound: A 5+3 split: at most 150.0% faster (2.50x)." in text


def test_the_tails_bound_by_hand_and_in_words(tmp_path: Path) -> None:
    spec = make_spec("disaggregated", gpus=Gpus(train=4, rollout=4))
    # Ten steps of 50 s; of each the last 10 s wait for stragglers. Two engines of 2 GPUs: one works, one is empty.
    units = [unit(2, generating=100.0), unit(2, empty=90.0, tool_wait=10.0)]
    seconds = {"train": 200.0, "wait_rollout": 300.0}
    found = bounds(spec, account("train", seconds, tail_s=100.0, units=units))
    assert found.tail is not None
    assert (found.tail.seconds, found.tail.share) == (pytest.approx(10.0), pytest.approx(0.2))
    assert found.tail.speed_up == pytest.approx(1 / (1 - 0.2))
    assert found.tail_waste_share == pytest.approx((2 * 0 + 2 * 100) / (4 * 500))
    text = "\n".join(bounds_lines(found, "foot", tmp_path / "figures"))
    assert (
        "- Bound: Removing the tail's waste: at most 25.0% faster (1.25x). (The tail is 20.0% of the window; " in text
    )
    assert "10.0% of the rollout GPU-seconds are waste inside it.)" in text
    by_split = {(split.train, split.rollout): split for split in found.splits}
    # 20 s of training and 30 s of waiting take turns: 20 x 4 / 5 + 30; on one GPU more to roll out 20 + 30 x 4 / 5.
    assert by_split[5, 3].speed_up == pytest.approx(50 / 46)
    assert by_split[3, 5].speed_up == pytest.approx(50 / 44)
    assert by_split[5, 3].in_proportion == pytest.approx(50 / (16 + 40))
    assert "- Bound: A 3+5 split: at most 13.7% faster (1.14x)." in text
    assert "Bounds, not predictions" in text


def test_colocated_gpus_all_train() -> None:
    spec = make_spec("colocated", gpus=Gpus(train=8, rollout=8))
    found = bounds(spec, account("both", {"generating": 85.0, "train": 12.0, "other": 3.0}, steps=1))
    half = {(split.train, split.rollout): split for split in found.splits}[4, 4]
    assert found.nearest == (half,)
    assert half.speed_up == pytest.approx(100 / 12)
    assert half.in_proportion == pytest.approx(100 / 24)


def test_a_class_that_is_all_of_the_step_has_no_bound() -> None:
    found = bounds(make_spec("colocated"), account("both", {"generating": 10.0}))
    assert [each.speed_up for each in found.exposed] == [None]
    assert (found.splits, found.nearest) == ((), ())


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
