"""Plans: bounds of the study, what decides, coverage where the truth is known, and when async does not pay."""

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from plans_by_hand import COLOCATED, PUBLISHED, SPLIT, calibrated, constant, step

from harness.cli import call
from harness.protocol.errors import SpecError
from reports.planned.calibrated import calibration_page
from reports.planned.planned import document_of, draw, plan_page, write_plan
from results.planner.calibration.constants import read, write
from results.planner.calibration.from_phases import Published, calibrate_phases
from results.planner.candidates import Candidate, candidates, centre, naive_step_s, needed, predict
from results.planner.plans import plan
from results.planner.priors import BEYOND, SHARED, SYNC, TRAIN
from results.prices import Prices


@pytest.fixture(scope="module")
def study():
    row = {"generate": 385, "logprob": 24, "train": 33, "weight_sync": 9}
    return calibrate_phases(Published(name="study", phases=row, trajectories=24, gpus=8))


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
        (["plan", "{study}", "--draws", "0"], "draws = 0: allowed is a whole number from 2 to 100000"),
        (["plan", "{study}", "--draws", "1000000000000"], "draws = 1000000000000: allowed is"),
        (["plan", "{study}", "--updates", "9"], "updates = 9: allowed is a whole number from 10 to 100000"),
        (["plan", "{study}", "--updates", "1000000000000"], "updates = 1000000000000: allowed is"),
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
