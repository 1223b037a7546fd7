"""The pages on the planner and on regressions say what the code has: ranges, rules, and the example's figures."""

import re
from pathlib import Path

import pytest

from harness.cli.check import UNDERPOWERED
from reports.planned.planned import plan_page
from results import host_samples
from results.baselines import between, check, history, occasions, work
from results.comparing import alike
from results.comparing.claims import GATE_RULE
from results.planner import candidates, priors
from results.planner.calibration.constants import Calibration, read, write
from results.planner.calibration.from_phases import Published, calibrate_phases
from results.planner.candidates import Candidate, centre, predict
from results.planner.plans import DRAWS, PAYS, UPDATES, plan
from results.planner.predictions import LOW

DOCS = Path(__file__).parents[3] / "docs"
PLANNER = (DOCS / "planner.md").read_text(encoding="utf-8")
PROSE = " ".join(PLANNER.split())
REGRESSIONS = " ".join((DOCS / "regressions.md").read_text(encoding="utf-8").split())
PHASES = {"generate": 385.0, "logprob": 24.0, "train": 33.0, "weight_sync": 9.0}
ASYNC = Candidate(placement="async", train_gpus=4, rollout_gpus=4, max_staleness=1)
COLOCATED = Candidate(placement="colocated", train_gpus=8, rollout_gpus=8)
PUBLISHED_S = 451 * (1 - 0.161)


def cells(lines: list[str], name: str) -> list[str]:
    (row,) = [line for line in lines if f"| {name} |" in line]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """The calibration of the page, through its file as a reader has it."""
    row = Published(name="study", phases=PHASES, trajectories=24, gpus=8, power_ratio=0.346, watts_limit=700.0)
    path = tmp_path_factory.mktemp("study") / "study.json"
    write(candidates.scaled_to_its_power(calibrate_phases(row)), path)
    return read(path)


def test_the_example_s_command_has_the_example_s_numbers() -> None:
    phases = ",".join(f"{name}={value:g}" for name, value in PHASES.items())
    assert f"bench calibrate --phases {phases} --batch 24 --gpus 8" in PLANNER
    assert "--power 0.346 --watts-limit 700 --model random:qwen3-14b --gpu-gib 80 -o study.json" in PLANNER
    assert "bench plan study.json --gpus 8 --max-staleness 1" in PLANNER


def test_the_example_s_rows_are_what_a_plan_prints(study: Calibration) -> None:
    made = plan(study, [COLOCATED, ASYNC], gpus=8)
    printed = plan_page(made)
    for candidate in (COLOCATED, ASYNC):
        own = cells(printed, candidate.name)
        name, step, _, goodput, _, *rest = own  # the page leaves throughput and staleness out
        assert cells(PLANNER.splitlines(), candidate.name) == [name, step, goodput, *rest]
    step = next(one.step_s for one in made.predictions if one.candidate == ASYNC)
    assert f"is {step.low:.0f} to {step.high:.0f} s, around {step.value:.0f} s" in PROSE
    assert not step.low <= PUBLISHED_S <= step.high, "the page says that the plan does not hold the published row"


def test_the_bounds_and_the_worst_corner_are_as_told(study: Calibration) -> None:
    work, sync = PHASES["train"] + PHASES["logprob"], PHASES["weight_sync"]
    assert f"2 x (24 + 33) + 9 = {2 * work + sync:.0f} s" in PROSE
    assert f"2 x 385 + 9 = {2 * PHASES['generate'] + sync:.0f} s" in PROSE
    worst = dict.fromkeys(("token_s", priors.BEYOND.name, priors.TRAIN.name, priors.SYNC.name), 1.0)
    found = predict(study, ASYNC, {**centre(study), **worst}, updates=UPDATES, seed=1)
    assert f"at once it is {found.window_s / found.updates:.0f} s: still below {PUBLISHED_S:.0f} s" in PROSE


def test_every_prior_stands_on_the_page_with_its_range() -> None:
    (table,) = re.findall(r"^\| prior \|.*?\n(?=\n)", PLANNER, flags=re.MULTILINE | re.DOTALL)
    told = [row.split("|")[2].strip() for row in table.splitlines()[2:]]
    every = [*priors.STEP, *priors.POWER.values()]

    def shown(value: float) -> str:
        return f"1/{1 / value:g}" if value == 1 / 6 else f"{value:g}"

    assert told == [
        f"{shown(one.constant.low)} to {shown(one.constant.high)}, {shown(one.constant.value)}" for one in every
    ]


def test_the_planner_s_numbers_are_those_of_the_code() -> None:
    assert f"(`--draws`, {DRAWS})" in PROSE
    assert f"simulation of {UPDATES} updates (`--updates`)" in PROSE
    assert f"the {LOW:.0%} and the".replace("%", " %") in PROSE
    assert f"step is shorter in {100 * PAYS:.0f} % of the draws" in PROSE
    assert f"point at {candidates.FAR:g} times that concurrency" in PROSE


def test_the_rules_of_a_check_are_those_of_the_code() -> None:
    for name in check.DEFAULT_GATES:
        assert f"`{name}`" in REGRESSIONS
    assert f"| {UNDERPOWERED} | underpowered" in REGRESSIONS
    assert f"fewer than {check.LEAST_RUNS} usable runs" in REGRESSIONS
    assert f"fewer than {check.LEAST_OCCASIONS} occasions" in REGRESSIONS
    assert f"within {occasions.OCCASION.total_seconds() / 3600:.0f} hours" in REGRESSIONS
    assert f"for at most {occasions.LONGEST.total_seconds() / 3600:.0f} hours" in REGRESSIONS
    assert f"From {between.LEAST_OCCASIONS} occasions in the baseline on" in REGRESSIONS
    assert f"more than {100 * alike.TOLERANCE:.0f} % that Welch's t" in REGRESSIONS
    assert f"shows ({100 * work.ALPHA:.1f} % for all of them" in REGRESSIONS
    assert f"in more than {100 * host_samples.MOST_LOST:.0f} % of the window" in REGRESSIONS
    assert f"its own tolerance ({100 * GATE_RULE.tolerance:.0f} %)" in REGRESSIONS
    assert f"error rate is {100 * GATE_RULE.alpha:.0f} %" in REGRESSIONS
    assert f"is above {100 * GATE_RULE.most_detectable:.0f} %" in REGRESSIONS
    assert f"with probability {100 * GATE_RULE.power:.0f} %" in REGRESSIONS


def test_the_rules_of_a_history_are_those_of_the_code() -> None:
    assert f"From {history.LEAST_POINTS} occasions on" in REGRESSIONS
    assert f"at least {history.LEAST_SIDE} points on each side" in REGRESSIONS
    assert f"finds it at {100 * history.ALPHA:.1f} %" in REGRESSIONS
    assert f"changed by {100 * history.LEAST_CHANGE:.0f} % or more" in REGRESSIONS
