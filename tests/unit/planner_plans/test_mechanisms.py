"""What adapters say of weight syncs and batches, and what a prediction makes of it."""

from dataclasses import replace

import pytest

from harness.specs import Machine, resolve
from results.planner import priors
from results.planner.calibration.constants import Calibration, Constant, Fit, Mechanism
from results.planner.calibration.mechanisms import mechanism_in, mechanisms_of
from results.planner.candidates import Candidate, centre, needed, predict, scenario

CPU = Machine(why="no NVIDIA GPU is visible")
COLOCATED = Candidate(placement="colocated", train_gpus=1, rollout_gpus=1)
ASYNC = Candidate(placement="async", train_gpus=1, rollout_gpus=1, max_staleness=1)
FILES, LOCAL, OVER = "files (safetensors)", "in process, one copy through Ray", "gloo broadcast"


def spec(framework, placement="colocated"):
    asked = {"framework": framework, "placement": placement, "device": "cpu"}
    return resolve(asked, machine=CPU).spec


@pytest.mark.parametrize("placement", ["colocated", "async"])
@pytest.mark.parametrize(
    ("framework", "found"),
    [
        ("skyrl", {"colocated": ("delta", 0, 0, False), "async": ("delta", 0, 0, False)}),
        ("areal", {"colocated": ("files", 1.0, 0.5, False), "async": ("gloo", 0, 0.5, False)}),
        ("verl", {"colocated": ("in process", 0, 0, False), "async": ("gloo", 0, 1.0, True)}),
    ],
)
def test_adapters_words_are_read_whatever_placement_ran(framework, found, placement):
    """A contract: what the adapters say in their fairness rows is what is read from them."""
    made = mechanisms_of(spec(framework, placement))
    for name, (transport, polled, held, whole) in found.items():
        one = made[name]
        assert one.transport.startswith(transport)
        assert (one.polled_s, one.held_s, one.whole_batches) == (polled, held, whole)


def test_a_framework_that_is_not_here_says_nothing():
    assert mechanisms_of(replace(spec("skyrl"), framework="imported-skyrl")) == {}
    assert mechanism_in({}) == Mechanism()


def constant(value):
    return Constant(value=value, low=value, high=value, unit="s", source="measured", n=9)


def calibrated(colocated, asynchronous, sync=1.2, **other):
    steps = {"train_s": 0.4, "logprob_s": 0.1, "host_s": 0.1, "offload_s": 0.0}
    turn = {"token_s": 0.005, "token_s_per_sequence": 0.001, "agent_s": 0.0}
    parts = {"sync_pause_s": 0.0, "sync_transfer_s": sync, "sync_resume_s": 0.0}
    about = {
        "source": "measured", "name": "run", "device": "cpu", "placement": "colocated", "framework": "f", "model": "m",
        "batch_size": 4, "group_size": 2, "train_gpus": 1, "rollout_gpus": 1, "gpus_per_engine": 1,
        "turns": (2, 5, 9), "turn_tokens": (10.0, 20.0), "tool_s": (0.1, 0.2),
        "constants": {name: constant(value) for name, value in {**steps, **turn, **parts}.items()},
        "fit": Fit(turns=500, least=1.0, most=8.0, r2=0.9, residual_p50=0.1, residual_p95=0.3),
        "mechanisms": {"colocated": colocated, "async": asynchronous},
    }  # fmt: skip
    return Calibration(**about | other)


def transfer(calibration, candidate=ASYNC, **places):
    shares = {**centre(calibration), **places}
    return scenario(calibration, candidate, shares, updates=10, seed=1).pools.transfer.seconds


def test_the_same_mechanism_is_as_measured():
    known = calibrated(Mechanism(transport=FILES), Mechanism(transport=FILES))
    assert priors.SYNC.name not in needed(known, ASYNC)
    assert [transfer(known, **{priors.SYNC.name: place}) for place in (0.0, 1.0)] == [1.2, 1.2]


def test_an_unknown_mechanism_is_another_one():
    known = calibrated(Mechanism(), Mechanism())
    assert priors.SYNC.name in needed(known, ASYNC)
    assert priors.SYNC.name not in needed(known, COLOCATED)


def test_what_a_sync_waited_for_its_poll_is_not_what_another_takes():
    known = calibrated(Mechanism(transport=FILES, polled_s=1.0), Mechanism(transport=OVER))
    assert transfer(known) == pytest.approx(0.2)
    assert transfer(known, **{priors.SYNC.name: 1.0}) == pytest.approx(1.2)
    back = replace(
        known,
        placement="async",
        mechanisms={"async": known.mechanisms["async"], "colocated": known.mechanisms["colocated"]},
    )
    assert transfer(back, COLOCATED) == pytest.approx(2.2)


def test_a_sync_that_stayed_in_its_process_tells_little_of_one_between_processes():
    """Next to nothing was measured: multiples of it would be next to nothing as well."""
    known = calibrated(Mechanism(transport=LOCAL), Mechanism(transport=OVER), sync=1e-6)
    assert priors.SYNC_START.name in needed(known, ASYNC)
    low, middle, high = (transfer(known, **{priors.SYNC_START.name: place}) for place in (0.0, 0.5, 1.0))
    assert (low, middle, high) == (
        pytest.approx(0.02, rel=0.01),
        pytest.approx(0.1, rel=0.01),
        pytest.approx(0.5, rel=0.01),
    )


def test_a_factor_s_range_is_as_wide_below_as_above():
    for place in (0.1, 0.3, 0.5):
        assert priors.SYNC.at(place) * priors.SYNC.at(1 - place) == pytest.approx(1)
    assert priors.SYNC.at(0.75) == pytest.approx(6**0.5)


def test_batches_that_are_trained_on_whole_are_one_group():
    known = calibrated(Mechanism(), Mechanism(whole_batches=True))
    made = scenario(known, ASYNC, centre(known), updates=10, seed=1)
    assert (made.batch_size, made.policy.group_size) == (1, 8)
    assert made.trajectories_per_step == known.trajectories
    other = scenario(known, COLOCATED, centre(known), updates=10, seed=1)
    assert (other.batch_size, other.policy.group_size) == (4, 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_trainer_that_waits_for_the_oldest_has_none_beyond_the_bound(device):
    """verl's bound is a hard one; first come, first served passes it now and then."""
    waits, takes = (
        predict(known, ASYNC, centre(known), updates=60, seed=1)
        for known in (calibrated(Mechanism(), Mechanism(whole_batches=whole), device=device) for whole in (True, False))
    )
    assert waits.violations == 0
    assert waits.staleness["at_start"].mean == 1
    assert takes.violations > 0
    assert waits.window_s > takes.window_s


def test_energy_is_told_where_turns_are_held_too():
    joules = [
        predict(known, ASYNC, centre(known), updates=20, seed=1).energy_per_trajectory_j
        for known in (
            calibrated(Mechanism(), Mechanism(held_s=held), device="cuda", watts_limit=700.0) for held in (0.0, 1e-9)
        )
    ]
    assert joules[1] == pytest.approx(joules[0], rel=1e-3)
