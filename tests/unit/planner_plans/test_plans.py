"""Plans: bounds of the study, what decides, coverage where the truth is known, and when async does not pay."""

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from harness.cli import call
from harness.cli.fitting import fitting
from harness.protocol.errors import SpecError
from reports.planned.calibrated import calibration_page
from reports.planned.planned import document_of, draw, plan_page, write_plan
from results.cost import Prices
from results.planner.calibration.constants import Calibration, Constant, Fit, read, write
from results.planner.calibration.from_phases import Published, calibrate_phases
from results.planner.candidates import Candidate, candidates, centre, naive_step_s, needed, predict, scenario
from results.planner.model import mean_duration
from results.planner.outcomes import Task, outcome
from results.planner.plans import plan
from results.planner.predictions import Prediction, Range
from results.planner.priors import BEYOND, OFFLOAD, SHARED, SYNC, SYNC_SPLIT, TRAIN
from results.planner.ranking import BY, front

SPLIT = Candidate(placement="async", train_gpus=4, rollout_gpus=4, max_staleness=1)
COLOCATED = Candidate(placement="colocated", train_gpus=8, rollout_gpus=8)


PUBLISHED = ["calibrate", "--phases", "generate=385,train=33", "--batch", "24", "--gpus", "8"]


def constant(value, spread=0.0, unit="s"):
    return Constant(value=value, low=value * (1 - spread), high=value * (1 + spread), unit=unit, source="measured", n=9)


def calibrated(**other):
    """A colocated system of 8 GPUs, made by hand."""
    steps = {"train_s": 30.0, "logprob_s": 10.0, "host_s": 1.0, "offload_s": 2.0}
    sync = {"sync_pause_s": 0.5, "sync_transfer_s": 3.0, "sync_resume_s": 0.5}
    turn = {"token_s": 0.02, "token_s_per_sequence": 0.002, "agent_s": 0.1}
    about = {
        "source": "measured",
        "name": "run",
        "device": "cuda",
        "placement": "colocated",
        "framework": "skyrl",
        "model": "m",
        "batch_size": 8,
        "group_size": 3,
        "train_gpus": 8,
        "rollout_gpus": 8,
        "gpus_per_engine": 1,
        "turns": tuple(range(2, 10)),
        "turn_tokens": (300.0, 600.0, 900.0),
        "tool_s": (5.0, 10.0, 20.0, 40.0),
        "constants": {name: constant(value, 0.05) for name, value in {**steps, **sync, **turn}.items()},
        "fit": Fit(turns=500, least=1.0, most=3.0, r2=0.9, residual_p50=0.1, residual_p95=0.3),
    }
    return Calibration(**about | other)


@pytest.fixture(scope="module")
def study():
    row = {"generate": 385, "logprob": 24, "train": 33, "weight_sync": 9}
    return calibrate_phases(Published(name="study", phases=row, trajectories=24, gpus=8))


def step(calibration, candidate, seed=1, **places):
    found = predict(calibration, candidate, {**centre(calibration), **places}, updates=80, seed=seed)
    return found.window_s / found.updates


def test_the_study_s_split_lies_between_its_two_bounds(study):
    """The trainer decides: twice 57 s and the sync, 123 s. Arithmetic bounds generation: twice 385 s and it, 779 s."""
    free = {BEYOND.name: 0.0, TRAIN.name: 0.5, SYNC.name: 0.5}
    assert 2 * (24 + 33) + 9 == 123
    floor = step(study, replace(SPLIT, max_staleness=8), **free)
    assert floor == pytest.approx(123, rel=0.02)  # generation runs far ahead: the trainer decides
    ceiling = 2 * 385 + 9
    for places in (free, {BEYOND.name: 1.0}, {BEYOND.name: 1.0, SYNC.name: 1.0, TRAIN.name: 1.0}):
        assert 123 * 0.98 <= step(study, SPLIT, **places) <= ceiling
    assert 123 < 378 < ceiling  # what was published


def test_what_a_row_leaves_open_is_named(study):
    assert set(needed(study, SPLIT)) == {BEYOND.name, TRAIN.name, SYNC.name}
    assert needed(study, COLOCATED) == ()


def test_a_plan_ranks_by_goodput_and_says_what_decides(study, tmp_path):
    asked = [COLOCATED, SPLIT, replace(SPLIT, placement="disaggregated", max_staleness=0)]
    made = plan(study, asked, gpus=8, draws=8, updates=20)
    goodput = [one.goodput.value for one in made.predictions]
    assert goodput == sorted(goodput, reverse=True)
    assert made.predictions[0].best
    assert made.predictions[0].candidate == SPLIT
    assert math.fsum(one.share for one in made.deciding) == pytest.approx(1)
    assert made.deciding[0].name in (BEYOND.name, SYNC.name)
    page = "\n".join(plan_page(made))
    assert "nothing here was measured" in page
    assert "async pays in 100% of the draws" in page
    paths = write_plan(made, tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text()) == json.loads(json.dumps(document_of(made)))
    assert [path.name for path in paths] == ["plan.md", "plan.json", "front.png"]


def test_the_same_seed_gives_the_same_plan(study):
    one, other = (plan(study, [COLOCATED, SPLIT], gpus=8, draws=4, updates=12) for _ in range(2))
    assert document_of(one) == document_of(other)


def test_a_calibration_read_from_its_file_gives_the_same_plan(tmp_path):
    known = calibrated()
    write(known, tmp_path / "c.json")
    one, other = (plan(each, [SPLIT], gpus=8, draws=4, updates=12) for each in (known, read(tmp_path / "c.json")))
    assert document_of(one) == document_of(other)


def test_a_cpu_s_calibration_places_no_gpus(tmp_path, capsys):
    write(calibrated(device="cpu", train_gpus=1, rollout_gpus=1), tmp_path / "c.json")
    assert call(["plan", str(tmp_path / "c.json"), "--gpus", "8"]) == 2
    assert "says nothing of GPUs" in capsys.readouterr().err


def test_an_async_run_on_cpu_tells_of_async_only(tmp_path, capsys):
    """Its constants hold what both sides did to each other on the same cores."""
    one = {"train_gpus": 1, "rollout_gpus": 1}
    known = calibrated(device="cpu", placement="async", **one)
    with pytest.raises(SpecError, match="doesn't tell what either takes alone; calibrate from a colocated"):
        plan(known, [Candidate(placement="colocated", **one)], gpus=1, draws=2, updates=10)
    write(known, tmp_path / "c.json")
    assert call(["plan", str(tmp_path / "c.json"), "--draws", "2", "--updates", "10", "--max-staleness", "1"]) == 0
    said = capsys.readouterr().out
    assert "no other placement is predicted from it" in said
    assert "| colocated" not in said


def test_async_that_does_not_pay_is_said():
    """Training longer than generation: half the GPUs for it take twice as long, and hide little."""
    heavy = calibrated(constants=calibrated().constants | {"train_s": constant(500.0)})
    made = plan(heavy, [COLOCATED, SPLIT], gpus=8, draws=6, updates=12)
    assert any("async does NOT pay" in word for word in made.words)
    assert any("the trainer decides" in word for word in made.words)


def test_syncs_that_eat_the_gain_are_said():
    slow = calibrated(constants=calibrated().constants | {"sync_transfer_s": constant(200.0)})
    made = plan(slow, [COLOCATED, SPLIT], gpus=8, draws=6, updates=12)
    assert any("weight syncs take" in word for word in made.words)


def test_prices_and_energy():
    free = calibrated(watts_limit=700.0)
    made = plan(free, [COLOCATED, SPLIT], gpus=8, draws=4, updates=12, prices=Prices(gpu_hour=2.0, kwh=0.2))
    for one in made.predictions:
        assert one.cost is not None
        assert one.joules is not None
        assert one.power_ratio is not None
        hours = one.step_s.value / 3600 * 8 / 24 * 1000
        assert one.cost.value == pytest.approx(2.0 * hours, rel=0.05)
        assert 0.1 < one.power_ratio.value < 0.95
        assert one.energy_cost is not None
        assert one.energy_cost.value == pytest.approx(one.joules.value * 1000 / 3.6e6 * 0.2)
    (header,) = [line for line in plan_page(made) if "| candidate |" in line]
    assert "| cost of 1,000 | energy cost of 1,000 |" in header
    assert plan(calibrated(), [COLOCATED], gpus=8, draws=2, updates=12).predictions[0].joules is None


def test_a_prediction_s_interval_holds_the_truth_that_its_ranges_hold():
    """The truth is a system drawn from the ranges; the plan knows the ranges only. 80 % of such truths lie inside."""
    known = calibrated()
    made = plan(known, [SPLIT], gpus=8, draws=20, updates=20)
    (one,) = made.predictions
    inside = 0
    random = Random(5)
    for seed in range(30):
        places = {name: random.random() for name in centre(known)}
        found = predict(known, SPLIT, places, updates=20, seed=1000 + seed)
        inside += one.step_s.low <= found.window_s / found.updates <= one.step_s.high
    assert inside >= 16  # of 30; 24 expected, less four standard deviations


def test_shared_cores_slow_both_sides_but_never_more_than_one_after_the_other():
    alone = calibrated(device="cpu", train_gpus=1, rollout_gpus=1, fit=replace(calibrated().fit, most=24.0))
    both = replace(SPLIT, train_gpus=1, rollout_gpus=1)
    none, some, full = (step(alone, both, **{SHARED.name: place}) for place in (0.0, 0.5, 1.0))
    assert none < some < full
    one_after_the_other = step(alone, Candidate(placement="colocated", train_gpus=1, rollout_gpus=1))
    assert full < one_after_the_other
    assert SHARED.name in needed(alone, both)


def test_candidates_are_whole_engines():
    two = calibrated(gpus_per_engine=2)
    names = [one.name for one in candidates(two, 8, (1, 2))]
    assert names[0] == "colocated 8"
    assert "async 4+4, staleness 2" in names
    assert "disaggregated 2+6" in names
    assert not any("+3" in name or "+5" in name for name in names)
    with pytest.raises(SpecError, match="an engine takes 2"):
        candidates(two, 1, (1,))
    with pytest.raises(SpecError, match="1 and more"):
        candidates(two, 8, (0,))


def test_the_naive_guess():
    assert naive_step_s(calibrated(step_s=200.0)) == pytest.approx(200 - 41 - 2)
    assert naive_step_s(calibrated()) is None


def test_commands(tmp_path, capsys):
    phases = "generate=385,logprob=24,train=33,weight_sync=9"
    out = str(tmp_path / "study.json")
    assert call(["calibrate", "--phases", phases, "--batch", "24", "--gpus", "8", "-o", out]) == 0
    assert "It can't see:" in capsys.readouterr().out
    words = ["--gpus", "2", "--max-staleness", "1", "--draws", "2", "--updates", "10", "-o", str(tmp_path / "plan")]
    assert read(Path(out)).group_size == 1
    grouped = ["calibrate", "--phases", phases, "--batch", "24", "--group", "3", "--gpus", "8", "-o", out]
    assert call(grouped) == 0
    assert (read(Path(out)).batch_size, read(Path(out)).group_size) == (8, 3)
    capsys.readouterr()
    assert call(["plan", out, *words]) == 0
    assert "# Plan for 2 GPUs, predicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["calibrate"], "give a RUN, or --phases"),
        (["calibrate", "--phases", "generate=1"], "needs --batch"),
        (["calibrate", "--phases", "generate", "--batch", "1", "--gpus", "1"], "NAME=SECONDS"),
        (["calibrate", "--phases", "generate=9", "--batch", "1", "--gpus", "1", "--calls", "x"], "LEAST-MOST"),
        ([*PUBLISHED, "--gpus-per-engine", "0"], "gpus-per-engine = 0"),
        ([*PUBLISHED, "--gpus-per-engine", "3"], "no whole number of engines"),
        ([*PUBLISHED, "--watts-limit", "-5"], "watts-limit = -5"),
        ([*PUBLISHED, "--turn-tokens", "nan"], "turn-tokens = nan"),
        (["calibrate", "--phases", "train=1,train=2", "--batch", "1", "--gpus", "1"], "train is given twice"),
        ([*PUBLISHED, "--group", "5"], "no whole number of groups"),
        ([*PUBLISHED, "--power", "0.3"], "give --watts-limit too"),
        ([*PUBLISHED, "--gpu-gib", "0"], "gpu-gib"),
        (["calibrate", "some-run", "--watts-limit", "700"], "--watts-limit: only with --phases"),
        (["calibrate", "some-run", "--batch", "8", "--tool-s", "16"], "--batch, --tool-s: only with --phases"),
        (["plan", "{study}", "--jobs", "0"], "jobs = 0"),
        (["plan", "{study}", "--by", "energy", "--draws", "2", "--updates", "10"], "by = energy"),
        (["plan", "nothing"], "nothing"),
        (["plan", "{study}", "--gpus", "0"], "gpus = 0"),
        (["plan", "{study}", "--seed", "-1"], "seed"),
        (["plan", "{study}", "--max-staleness", "0"], "max-staleness = 0"),
        (["plan", "{study}", "--max-staleness", "1,100000"], "max-staleness = 100000"),
        (["score", "nothing", "latest"], "can't be read"),
    ],
)
def test_wrong_requests_are_exit_2_in_one_line(words, said, study, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(study, tmp_path / "study.json")
    assert call([word.format(study="study.json") for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_generation_that_no_load_slowed_is_the_end_of_one_that_load_hardly_slowed():
    """No jump in what lies beyond the seen load, whatever the prior says."""
    flat, hardly = (
        calibrated(constants=calibrated().constants | {"token_s_per_sequence": constant(slope)})
        for slope in (0.0, 1e-7)
    )
    for place in (0.0, 0.5, 1.0):
        one, other = (step(each, SPLIT, **{BEYOND.name: place}) for each in (flat, hardly))
        assert one == pytest.approx(other, rel=0.01)


def test_no_gpu_is_foretold_to_draw_more_than_its_limit():
    hot = calibrated(watts_limit=700.0, power_scale=3.0)
    made = plan(hot, [COLOCATED, SPLIT], gpus=8, draws=4, updates=12)
    for one in made.predictions:
        assert one.power_ratio is not None
        assert one.power_ratio.high <= 1.0 + 1e-9


def test_measured_idle_power_is_used_where_a_class_has_none():
    cold, warm = (calibrated(watts_limit=700.0, watts={"idle": watts}) for watts in (40.0, 200.0))
    one, other = (plan(each, [SPLIT], gpus=8, draws=2, updates=12).predictions[0].joules for each in (cold, warm))
    assert one is not None
    assert other is not None
    assert one.value < other.value


def test_on_cpu_the_shortest_step_is_first():
    small = calibrated(device="cpu", train_gpus=1, rollout_gpus=1)
    both = replace(SPLIT, train_gpus=1, rollout_gpus=1)
    made = plan(
        small, [Candidate(placement="colocated", train_gpus=1, rollout_gpus=1), both], gpus=1, draws=4, updates=12
    )
    steps = [one.step_s.value for one in made.predictions]
    assert steps == sorted(steps)


def test_a_simulated_run_s_plan_says_simulated_and_no_gpu(tmp_path, capsys):
    path = tmp_path / "c.json"
    write(calibrated(device="cpu", framework="simulated", train_gpus=1, rollout_gpus=1), path)
    page = "\n".join(calibration_page(read(path)))
    assert page.startswith("# Calibration fitted to one simulated run: run\n")
    assert "| simulated |" in page
    assert "measured |" not in page
    assert call(["plan", str(path), "--draws", "2", "--updates", "10"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# Plan for simulated processes, predicted")
    assert "(fitted to a simulated run: nothing was measured)" in said
    assert "the simulated " in said
    assert "the measured train" not in said
    assert "tok/s/process" in said
    assert "GPU" not in said.split("## What decides")[0].replace("no statement about GPUs", "")


def test_a_cpu_run_s_plan_is_called_so_in_its_page_and_picture():
    split = Candidate(placement="async", train_gpus=1, rollout_gpus=1, max_staleness=1)
    known = calibrated(device="cpu", train_gpus=1, rollout_gpus=1)
    made = plan(known, [split], gpus=1, draws=2, updates=10)
    assert plan_page(made)[0].startswith("# Plan for processes on CPU, ")
    assert "functional check on CPU" in calibration_page(known)[0]
    assert "| fitted |" in "\n".join(calibration_page(known))
    figure = draw(made)
    written = [text.get_text() for text in figure.texts] + [axes.get_ylabel() for axes in figure.axes]
    assert not [text for text in written if "GPU" in text]
    assert [text for text in written if "on CPU" in text]


def test_where_the_trainer_decides_a_cpu_is_told_of_no_gpus():
    split = Candidate(placement="async", train_gpus=1, rollout_gpus=1, max_staleness=1)
    colocated = Candidate(placement="colocated", train_gpus=1, rollout_gpus=1)
    heavy = calibrated().constants | {"train_s": constant(5000.0)}
    known = calibrated(device="cpu", train_gpus=1, rollout_gpus=1, constants=heavy)
    made = plan(known, [colocated, split], gpus=1, draws=2, updates=10)
    assert any("more rollout processes" in word for word in made.words)
    assert not any("rollout GPUs" in word for word in made.words)


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
