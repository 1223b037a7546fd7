"""Calibrations: what is fitted is what the run was made of; published rows tell what they tell and no more."""

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.cli import call
from harness.protocol.errors import SpecError
from reports.case import Case
from results.planner.calibration.constants import PRIOR, STEP, read, write
from results.planner.calibration.from_phases import Published, calibrate_phases
from results.planner.calibration.from_run import _line, calibrate_run, mean_running
from results.planner.candidates import Candidate, centre, predict, scaled_to_its_power

STUDY = Published(
    name="study",
    phases={"generate": 385, "logprob": 24, "train": 33, "weight_sync": 9},
    trajectories=24,
    gpus=8,
    power_ratio=0.346,
    watts_limit=700,
)
COLOCATED = Candidate(placement="colocated", train_gpus=8, rollout_gpus=8)


@pytest.fixture(scope="module")
def study():
    return scaled_to_its_power(calibrate_phases(STUDY))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A run of the simulated framework."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["--framework", "simulated", "--placement", "colocated", "--steps", "10"]
    assert call(["run", *words, "--runs-dir", str(folder)]) == 0
    (run,) = folder.iterdir()
    return Case.load(run)


def test_mean_running_counts_each_instant():
    start, end = np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 5.0])
    assert mean_running(start, end).tolist() == pytest.approx([1.5, 2.0, 1.5])


@pytest.mark.parametrize("seed", range(5))
def test_a_line_is_found_under_noise(seed):
    random = np.random.default_rng(seed)
    tokens, beside = random.uniform(100, 1000, 2000), random.uniform(0, 7, 2000)
    seconds = tokens * (0.02 + 0.003 * beside) * np.exp(random.normal(0, 0.1, 2000))
    base, slope = _line(tokens, beside, seconds)
    assert base == pytest.approx(0.02, rel=0.05)
    assert slope == pytest.approx(0.003, rel=0.1)


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.5])
def test_fitted_seconds_add_up_to_the_measured_ones_however_noisy(noise):
    """What a turn takes on average is what a rollout phase is made of: noise of one side must not draw it down."""
    random = np.random.default_rng(1)
    tokens, beside = random.uniform(100, 1000, 5000), random.uniform(0, 7, 5000)
    expected = tokens * (0.02 + 0.003 * beside)
    seconds = expected * np.exp(random.normal(-(noise**2) / 2, noise, 5000))  # of mean 1
    base, slope = _line(tokens, beside, seconds)
    assert math.fsum(tokens * (base + slope * beside)) == pytest.approx(math.fsum(seconds), rel=1e-6)
    assert (base, slope) == (pytest.approx(0.02, rel=0.05), pytest.approx(0.003, rel=0.05))


def test_speed_that_no_load_slows_has_no_slope_below_zero():
    tokens, beside = np.full(50, 100.0), np.linspace(0, 7, 50)
    base, slope = _line(tokens, beside, tokens * (0.02 - 0.001 * beside))
    assert slope == 0
    assert 0.012 < base < 0.02


def test_a_run_s_own_step_comes_out_of_its_calibration(case):
    found = calibrate_run(case.run, case.figures)
    result = predict(
        found, Candidate(placement="colocated", train_gpus=1, rollout_gpus=1), centre(found), updates=200, seed=1
    )
    assert result.window_s / result.updates == pytest.approx(found.step_s, rel=0.15)
    parts = math.fsum(found.constants[name].value for name in STEP)
    assert 0 < parts < (found.step_s or 0)
    assert any("slow each other on the same cores" in said for said in found.unseen)


def test_a_calibration_is_read_back(tmp_path, study):
    write(study, tmp_path / "c.json")
    assert read(tmp_path / "c.json") == study


def test_a_run_without_turns_is_said(case):
    tables = {**case.run.tables, "turns": case.run.tables["turns"].slice(0, 0)}
    with pytest.raises(SpecError, match="0 turns on record"):
        calibrate_run(replace(case.run, tables=tables), case.figures)


@pytest.mark.parametrize("text", ["{", "[]", '{"colour": 1}', '{"format": 2}'])
def test_a_file_that_is_none_is_said(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(SpecError, match=r"c\.json: no calibration"):
        read(tmp_path / "c.json")


def test_the_published_row_comes_out_of_its_own_calibration(study):
    result = predict(study, COLOCATED, centre(study), updates=400, seed=7)
    assert result.window_s / result.updates == pytest.approx(451, rel=0.04)
    joules = result.energy_per_trajectory_j
    assert joules is not None
    ratio = joules * 24 * result.updates / (result.window_s * 8 * 700)
    assert ratio == pytest.approx(0.346, rel=0.03)


def test_a_printed_number_is_rounded_in_its_last_digit():
    row = replace(STUDY, phases={"generate": 385, "train": 33.4, "logprob": 24, "weight_sync": 0})
    found = calibrate_phases(row).constants
    assert [(found[name].low, found[name].high) for name in ("train_s", "logprob_s", "sync_transfer_s")] == [
        pytest.approx((33.35, 33.45)),
        (23.5, 24.5),
        (0.0, 0.0),
    ]


def test_a_row_does_not_tell_how_load_slows(study):
    assert study.constants["token_s_per_sequence"].source == PRIOR
    assert study.fit is None
    assert any("bound by memory or by arithmetic" in said for said in study.unseen)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": {"generate": 385}}, "train is missing"),
        ({"phases": {"generate": 385, "train": 1, "sleep": 2}}, "sleep: allowed are"),
        ({"phases": {"generate": 385, "train": -1}}, "train = -1"),
        ({"phases": {"generate": 20, "train": 33}}, "in tools alone"),
        ({"calls": (8, 1)}, "LEAST-MOST"),
        ({"trajectories": 0}, "1 and more"),
    ],
)
def test_rows_that_can_t_be(changes, said):
    with pytest.raises(SpecError, match=said):
        calibrate_phases(replace(STUDY, **changes))
