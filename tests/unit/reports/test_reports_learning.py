"""The course of the reward: by hand, and what a page says and draws of it."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from harness.protocol.spec import Load, Policy
from reports import curves
from reports.learning import curve_of, learning_section, level_of
from results.learning import SMOOTHED, Learning, learning


def run(rewards: list[list[float]], *, reward: str = "probe", step_s: float = 2.0, **spec: Any) -> Any:
    """Two trajectories a group; step n ends at n * step_s seconds after the first began."""
    rows = [
        (number, f"p{number}-{index // 2}", f"t{number}-{index}", value)
        for number, values in enumerate(rewards, start=1)
        for index, value in enumerate(values)
    ]
    names = ["step_consumed", "group_id", "trajectory_id", "reward"]
    trajectories = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    count = len(rewards)
    steps = pa.table(
        {
            "step": list(range(1, count + 1)),
            "start_ns": [round(1e9 * (5 + step_s * n)) for n in range(count)],
            "end_ns": [round(1e9 * (5 + step_s * (n + 1))) for n in range(count)],
        }
    )
    asked = {"reward": reward, "load": Load.FIXED, "policy": Policy.MODEL, **spec}
    return SimpleNamespace(spec=SimpleNamespace(**asked), tables={"trajectories": trajectories, "steps": steps})


def found(rewards: list[list[float]], **spec: Any) -> Learning:
    known = learning(run(rewards, **spec))
    assert known is not None
    return known


def test_the_figures_by_hand() -> None:
    course = found([[0.1, 0.3], [0.2, 0.4], [0.6, 0.6], [0.8, 0.6]])
    assert [point.mean for point in course.points] == pytest.approx([0.2, 0.3, 0.6, 0.7])
    assert [point.ended_s for point in course.points] == pytest.approx([2.0, 4.0, 6.0, 8.0])
    assert (course.first, course.last, course.gain) == pytest.approx((0.2, 0.7, 0.5))
    assert (course.low, course.rises) == (None, None)  # one group on each side has no spread
    reached = course.reached(0.36)
    assert reached is not None
    assert reached.step == 3  # mean of all three steps so far is 0.3667
    assert course.reached(0.37) is not None
    touched = found([[0.5]] * 3 + [[0.1]] * 3 + [[0.5]] * 4)  # the mean over three is above 0.4 for good at the ninth
    at = touched.reached(0.4)
    assert at is not None
    assert at.step == 9
    assert course.reached(0.99) is None


def test_the_interval_is_welchs_over_groups() -> None:
    first, last = [[0.2, 0.2, 0.4, 0.4, 0.3, 0.3]], [[0.7, 0.7, 0.5, 0.5, 0.9, 0.9]]
    course = found(first + [[0.5] * 6] * 2 + last)
    # Group means 0.2 0.4 0.3 and 0.7 0.5 0.9: difference 0.4, standard error sqrt(0.01/3 + 0.04/3) = 0.1291,
    # 2.94 degrees of freedom, t(0.975) = 3.222.
    assert (course.low, course.high) == (pytest.approx(0.4 - 3.222 * 0.1291, abs=4e-3), pytest.approx(0.816, abs=4e-3))
    assert course.rises is False


def test_noise_alone_is_seldom_said_to_rise() -> None:
    dice = random.Random(7)
    verdicts = [found([[dice.gauss(0.5, 0.1) for _ in range(12)] for _ in range(20)]).rises for _ in range(300)]
    assert verdicts.count(True) <= 300 * 0.025 + 10


def test_a_real_rise_is_found() -> None:
    dice = random.Random(7)
    assert found([[dice.gauss(0.5 + 0.01 * step, 0.05) for _ in range(8)] for step in range(20)]).rises is True


def test_who_decides_the_reward_decides_whether_there_is_a_course() -> None:
    rewards = [[0.0, 1.0], [0.0, 1.0]]
    assert learning(run(rewards, reward="plan")) is None
    assert learning(run(rewards, reward="exact", load=Load.LIVE, policy=Policy.SCRIPTED)) is None
    assert learning(run(rewards, reward="exact", load=Load.LIVE)) is not None
    assert learning(run(rewards[:1])) is None


def test_steps_without_a_reward_are_no_points() -> None:
    course = found([[0.1, 0.3], [], [0.5, 0.7]])
    assert [point.step for point in course.points] == [1, 3]


def test_the_page_compares_the_time_to_a_reward(tmp_path: Path) -> None:
    dice = random.Random(3)
    rising = [[dice.gauss(0.5 + 0.02 * step, 0.02) for _ in range(8)] for step in range(20)]
    names, runs = ["a <b>", "twice as fast"], [run(rising), run(rising, step_s=1.0)]
    text = "\n".join(learning_section(names, runs, tmp_path / "figures"))
    assert "![" in text
    assert (tmp_path / "figures" / "reward.png").stat().st_size > 10_000
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "quarter" not in line]
    slow, fast = (float(row[-1].strip(" |s")) for row in rows[-2:])
    assert slow == pytest.approx(2 * fast, rel=0.05)
    assert "<b>" not in text
    level = level_of([found(rising)])
    assert level is not None
    assert 0.6 < level < 0.75

    assert learning_section(["plan"], [run(rising, reward="plan")], tmp_path / "figures") == []
    assert not (tmp_path / "figures" / "reward.png").exists()


def test_no_common_level_where_a_run_does_not_rise(tmp_path: Path) -> None:
    falling = [[0.6 - 0.01 * step] * 4 for step in range(8)]
    assert level_of([found(falling)]) is None
    assert "Time to reward" not in "\n".join(learning_section(["x"], [run(falling)], tmp_path / "figures"))


def test_many_runs_fit_one_picture() -> None:
    many = [(f"run number {n} with a long name that is cut somewhere", found([[0.1], [0.2], [0.3]])) for n in range(12)]
    assert len(curves.draw([curve_of(*one) for one in many], SMOOTHED).get_axes()) == 2
