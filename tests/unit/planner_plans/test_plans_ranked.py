"""Plans: the front, what candidates are ranked by, what has a range, and what is left out."""

import math
from dataclasses import replace

import pytest
from plans_by_hand import COLOCATED, SPLIT, calibrated, constant, step

from harness.cli import call
from harness.cli.fitting import fitting
from harness.protocol.errors import SpecError
from reports.planned.planned import document_of, draw, plan_page
from results.planner.calibration.constants import write
from results.planner.candidates import Candidate, candidates, centre, needed, scenario
from results.planner.model import mean_duration
from results.planner.outcomes import Task, outcome
from results.planner.plans import plan
from results.planner.predictions import Prediction, Range
from results.planner.priors import OFFLOAD, SHARED, SYNC_SPLIT
from results.planner.ranking import BY, front
from results.prices import Prices


def predicted(name, goodput, staleness, step=1.0):
    return Prediction(
        candidate=Candidate(placement="async", train_gpus=name, rollout_gpus=1, max_staleness=1),
        leans_on=(),
        power_ratio=None,
        joules=None,
        cost=None,
        energy_cost=None,
        **{
            figure: Range(value=value, low=value, high=value)
            for figure, value in {
                "step_s": step,
                "throughput": 1.0,
                "goodput": goodput,
                "staleness": staleness,
                "late_share": 0.0,
                "worker_busy": 1.0,
            }.items()
        },
    )


@pytest.mark.parametrize(
    ("made", "best"),
    [
        ([(500, 2.004), (400, 2.0)], [500]),  # as stale: no more than noise
        ([(500, 0.009), (400, 0.0)], [500]),
        ([(500, 2.0), (498, 1.0)], [498]),  # as much, for half
        ([(500, 2.0), (400, 1.0), (300, 1.5), (200, 0.0)], [500, 400, 200]),
        # Each a little less for clearly less: the first must not fall for the last, which has much less.
        ([(1000, 4.0), (995, 3.0), (988, 2.0), (960, 1.0)], [995, 988, 960]),
    ],
)
def test_the_front_takes_what_differs_by_noise_as_equal(made, best):
    marked = front([predicted(k + 1, *each) for k, each in enumerate(made)], "cuda")
    assert [one.goodput.value for one in marked if one.best] == best
    backwards = front([predicted(k + 1, *each) for k, each in reversed(list(enumerate(made)))], "cuda")
    assert {one.goodput.value for one in backwards if one.best} == set(best)


def test_on_cpu_the_front_goes_by_the_step_that_it_is_ranked_by():
    """Goodput per process counts one machine twice in async: the front must not contradict the order."""
    quick, slow = predicted(1, 100, 1.0, step=1.0), predicted(2, 500, 1.0, step=3.0)
    assert [one.best for one in front([quick, slow], "cpu")] == [True, False]
    assert [one.best for one in front([quick, slow], "cuda")] == [False, True]
    known = calibrated(device="cpu", train_gpus=1, rollout_gpus=1)
    one = {"train_gpus": 1, "rollout_gpus": 1}
    made = plan(known, [Candidate(placement="colocated", **one), replace(SPLIT, **one)], gpus=1, draws=4, updates=12)
    assert made.predictions[0].best
    (axes,) = draw(made).axes
    assert axes.get_ylabel() == "updates/h"


@pytest.mark.parametrize("by", list(BY))
def test_candidates_are_ranked_by_what_is_asked(by):
    known = calibrated(watts_limit=700.0)
    asked = [COLOCATED, SPLIT, replace(SPLIT, train_gpus=6, rollout_gpus=2)]
    made = plan(known, asked, gpus=8, by=by, draws=4, updates=12, prices=Prices(gpu_hour=2.0))
    figure, more = BY[by]
    values = [figure(one).value for one in made.predictions]
    assert values == sorted(values, reverse=more)
    assert f"Ranked by {by}" in "\n".join(plan_page(made))


@pytest.mark.parametrize(
    ("by", "said"), [("energy", "--watts-limit"), ("cost", "--price-per-gpu-hour"), ("luck", "allowed")]
)
def test_ranking_by_what_is_not_known_is_refused(by, said):
    with pytest.raises(SpecError, match=said):
        plan(calibrated(), [COLOCATED], gpus=8, by=by, draws=2, updates=10)


def test_goodput_counts_tokens_not_trajectories():
    """What is late is what was long: with turns of 1 or 40, the late ones hold more of the tokens than of the count."""
    known = calibrated(turns=(1, 1, 1, 40), group_size=1, batch_size=8)
    found = outcome(known, Task(candidate=SPLIT, shares=centre(known), seed=1), 60)
    assert 0 < found.late_share < found.late_tokens < 1
    cpu = replace(known, device="cpu", train_gpus=1, rollout_gpus=1)
    both = replace(SPLIT, train_gpus=1, rollout_gpus=1)
    again = outcome(cpu, Task(candidate=both, shares={**centre(cpu), SHARED.name: 0.5}, seed=1), 60)
    assert 0 < again.late_share < again.late_tokens < 1


def test_host_seconds_have_their_own_power():
    """An hour of reward and data is no hour of logprob: measured watts of each count for its own seconds."""
    idle, busy = {"both.logprob": 600.0, "both.host": 100.0}, {"both.logprob": 600.0, "both.host": 600.0}
    long = calibrated().constants | {"host_s": constant(200.0)}
    joules = [
        outcome(known, Task(candidate=COLOCATED, shares=centre(known), seed=1), 20).joules
        for known in (calibrated(watts_limit=700.0, watts=watts, constants=long) for watts in (idle, busy))
    ]
    assert joules[1] - joules[0] == pytest.approx(200.0 * 500.0 * 8 / 24, rel=1e-6)


@pytest.mark.parametrize("turns", [(1,), (1, 5), (2, 9)])
def test_every_second_of_the_agent_is_in_a_trajectory(turns):
    """A turn has its agent's seconds though there is one call fewer than turns."""
    free, slow = (
        calibrated(turns=turns, constants=calibrated().constants | {"agent_s": constant(agent)}) for agent in (0.0, 3.0)
    )
    ends = [
        mean_duration(scenario(each, COLOCATED, centre(each), updates=10, seed=1).durations) for each in (free, slow)
    ]
    assert ends[1] - ends[0] == pytest.approx(3.0 * sum(turns) / len(turns))


def test_priors_of_power_are_named_where_nothing_was_measured():
    names = set(plan(calibrated(watts_limit=700.0), [COLOCATED], gpus=8, draws=2, updates=10).predictions[0].leans_on)
    assert {"power_train", "power_idle", "power_host"} <= names
    watts = {f"both.{name}": 300.0 for name in ("generating", "train", "logprob", "weight_sync", "host")}
    known = calibrated(watts_limit=700.0, watts={**watts, "idle": 90.0})
    made = plan(known, [COLOCATED], gpus=8, draws=2, updates=10)
    assert not any(name.startswith("power_") for name in made.predictions[0].leans_on)
    assert "power while waiting" not in "\n".join(plan_page(made))


def test_what_decides_joules_is_said():
    made = plan(calibrated(watts_limit=700.0), [COLOCATED], gpus=8, draws=2, updates=10)
    assert math.fsum(one.share for one in made.deciding_joules) == pytest.approx(1)
    assert made.deciding_joules[0].name.startswith("power_")
    assert "Joules a trajectory of colocated 8:" in plan_page(made)
    assert plan(calibrated(), [COLOCATED], gpus=8, draws=2, updates=10).deciding_joules == ()


def test_what_was_not_measured_of_another_placement_has_a_range():
    apart = calibrated(
        placement="async",
        train_gpus=4,
        rollout_gpus=4,
        constants=calibrated().constants | {"offload_s": constant(0.0)},
    )
    assert OFFLOAD.name in needed(apart, COLOCATED)
    assert step(apart, COLOCATED, **{OFFLOAD.name: 1.0}) > step(apart, COLOCATED, **{OFFLOAD.name: 0.0}) + 1
    assert SYNC_SPLIT.name in needed(apart, replace(SPLIT, train_gpus=1, rollout_gpus=7))
    assert SYNC_SPLIT.name not in needed(apart, SPLIT)
    assert OFFLOAD.name not in needed(calibrated(), COLOCATED)


def test_whether_async_pays_is_not_silent_without_a_colocated_one():
    made = plan(
        calibrated(gpus_per_engine=4), candidates(calibrated(gpus_per_engine=4), 6, (1,)), gpus=6, draws=2, updates=10
    )
    assert any(
        "can't be said: colocated does not fit, as 6 GPUs are no whole number of engines of 4" in word
        for word in made.words
    )


def test_processes_change_nothing_in_a_plan():
    one, other = (plan(calibrated(), [COLOCATED, SPLIT], gpus=8, draws=2, updates=10, jobs=jobs) for jobs in (1, 2))
    assert document_of(one) == document_of(other)


def test_engines_that_leave_no_split_are_said(tmp_path, capsys):
    write(calibrated(gpus_per_engine=8), tmp_path / "c.json")
    assert call(["plan", str(tmp_path / "c.json"), "--gpus", "8", "--draws", "2", "--updates", "10"]) == 0
    assert "no split of 8 GPUs leaves whole engines of 8: only colocated is planned" in capsys.readouterr().out


GIANT = {"model": "random:qwen3-14b", "gpu_bytes": 80 * 2**30}


def test_splits_that_can_t_hold_the_training_are_left_out_with_the_arithmetic(tmp_path, capsys):
    known = calibrated(**GIANT)
    kept, words = fitting(known, candidates(known, 8, (1,)))
    assert {one.train_gpus for one in kept} == {3, 4, 5, 6, 7, 8}
    assert words[0].startswith("left out with 1 training GPU, which can't hold it: 14.8 billion parameters x 16 bytes")
    assert "220 GiB on each, of 80 GiB" in words[0]
    write(known, tmp_path / "c.json")
    words = ["--gpus", "8", "--max-staleness", "1", "--draws", "2", "--updates", "10", "--jobs", "1"]
    assert call(["plan", str(tmp_path / "c.json"), *words]) == 0
    said = capsys.readouterr().out
    assert "async 1+7" not in said
    assert "220 GiB on each" in said


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({}, "not checked: the sizes of m are not known"),
        ({"model": "random:qwen3-14b"}, "not checked: GPU memory is not known"),
        ({**GIANT, "offload": "full"}, "not checked: states are offloaded"),
    ],
)
def test_memory_that_was_not_checked_is_said(about, said):
    known = calibrated(**about)
    kept, words = fitting(known, [COLOCATED, SPLIT])
    assert kept == [COLOCATED, SPLIT]
    assert any(said in word for word in words)


def test_an_engine_that_can_t_fit_leaves_nothing(tmp_path, capsys):
    write(calibrated(model="random:qwen3-32b", gpu_bytes=16 * 2**30), tmp_path / "c.json")
    assert call(["plan", str(tmp_path / "c.json"), "--gpus", "8"]) == 2
    assert "no engine fits: 32.8 billion parameters x 2 bytes" in capsys.readouterr().err


def test_names_in_the_picture_lie_inside_it_and_apart():
    every = [
        Candidate(placement="async", train_gpus=t, rollout_gpus=8 - t, max_staleness=b)
        for t in (3, 4, 5)
        for b in (1, 4)
    ]
    figure = draw(plan(calibrated(), [COLOCATED, *every], gpus=8, draws=2, updates=10))
    figure.canvas.draw()
    (axes,) = figure.axes
    room = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) >= 2
    for k, box in enumerate(boxes):
        assert room.x0 <= box.x0
        assert box.x1 <= room.x1
        assert not any(box.overlaps(other) for other in boxes[:k])


def test_a_plan_says_how_far_it_is():
    told = []
    plan(calibrated(), [SPLIT], gpus=8, draws=2, updates=10, progress=lambda done, of: told.append((done, of)))
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert {of for _, of in told} == {len(told)}
