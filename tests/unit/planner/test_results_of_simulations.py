"""What a result says: energy, histograms, records, and when a queue is said to grow."""

import dataclasses
import math

import numpy as np
import pytest

from harness.protocol.errors import SpecError
from results.planner.engine import simulate
from results.planner.model import Empirical, Fixed, LogNormal, Mixture, Policy, Pools, Scenario, SlowDown
from results.planner.result import Histogram, grows

WATTS = {
    "train_watts": {"offload": 150, "logprob": 500, "train": 650, "weight_sync": 200, "wait_rollout": 110},
    "rollout_watts": {"generating": 600, "tool_wait": 120, "weight_sync": 200, "wait_train": 110},
}


def powered(policy: Policy, **pools) -> Scenario:
    common = {"workers": 16, "train": Fixed(30), "logprob": Fixed(5), "transfer": Fixed(2)}
    return Scenario(
        durations=LogNormal(20, 1),
        policy=policy,
        pools=Pools(**(common | {"rollout_gpus": 4, "train_gpus": 4} | WATTS | pools)),
        batch_size=16,
        horizon_updates=50,
    )


def test_energy_is_seconds_times_gpus_times_watts():
    found = simulate(powered(Policy(max_staleness=1)))

    expected = sum(4 * WATTS["train_watts"].get(name, 0) * value for name, value in found.train_s.items())
    expected += sum(4 * WATTS["rollout_watts"][name] * value for name, value in found.rollout_s.items())
    assert found.total_energy_j == pytest.approx(expected)
    assert found.energy_per_trajectory_j == pytest.approx(expected / (50 * 16))
    assert found.energy_j["train.train"] == pytest.approx(50 * 30 * 4 * 650)
    assert found.energy_j["train.wait_drain"] == 0


def test_colocated_gpus_are_counted_once():
    found = simulate(powered(Policy(mode="synchronous", colocated=True), offload=Fixed(3)))

    names = set(found.energy_j)
    assert {"train.wait_rollout", "rollout.wait_train", "rollout.weight_sync"} & names == set()
    seconds = sum(found.train_s[name] for name in ("offload", "logprob", "train", "weight_sync"))
    seconds += sum(found.rollout_s[name] for name in ("generating", "tool_wait"))
    assert seconds == pytest.approx(found.window_s)
    assert found.train_s["offload"] == pytest.approx(150)


def test_an_unknown_power_makes_the_energy_unknown_not_less():
    some = {name: value for name, value in WATTS["train_watts"].items() if name != "logprob"}
    found = simulate(powered(Policy(max_staleness=1), train_watts=some))

    assert found.energy_j["train.logprob"] is None
    assert found.energy_j["train.train"] is not None
    assert found.total_energy_j is None
    assert found.energy_per_trajectory_j is None
    assert simulate(powered(Policy(max_staleness=1), train_gpus=None)).total_energy_j is None


def test_histograms_know_mean_quantiles_and_what_they_cut():
    counts = np.array([5, 3, 0, 2])
    found = Histogram(counts=counts, total=3 + 2 * 7)  # the last two were 7, say
    assert (found.n, found.mean) == (10, 1.7)
    assert [found.quantile(q) for q in (0.5, 0.51, 0.8)] == [0, 1, 1]
    assert found.quantile(0.9) is None  # in the last bin: at least 3
    assert found.shares == {0: 0.5, 1: 0.3, 3: 0.2}
    later = dataclasses.replace(found, least=1)
    assert (later.mean, later.quantile(0.5)) == (2.7, 1)
    empty = Histogram(counts=np.zeros(4, dtype=int), total=0)
    assert (empty.mean, empty.quantile(0.5)) == (None, None)


def test_when_a_queue_grows():
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 60, 400)
    assert not grows(noise, 64)
    assert not grows(np.zeros(400, dtype=int), 64)
    assert grows(noise + 30 * np.arange(400), 64)
    assert not grows(300 * np.arange(8), 64)  # too short to say
    assert grows(300 * np.arange(10), 64)
    assert not grows(np.array([0, 9, 3, 40, 8, 0, 20, 90, 50, 130]), 64)  # few, and not in a line
    assert not any(grows(rng.integers(0, 300, count), 64) for count in range(10, 60) for _ in range(40))
    assert not grows(noise + 500, 64)  # long, and no longer


def test_records_are_the_first_trajectories():
    scenario = Scenario(
        durations=LogNormal(20, 1),
        policy=Policy(mode="synchronous"),
        pools=Pools(workers=8, train=Fixed(15)),
        batch_size=8,
        horizon_updates=3,
    )
    found = simulate(scenario, records=24)
    records = found.records

    assert records is not None
    assert records.update.tolist() == [1] * 8 + [2] * 8 + [3] * 8
    assert records.version.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    for step in range(3):
        mine = slice(8 * step, 8 * step + 8)
        assert sorted(records.worker[mine].tolist()) == list(range(8))
        assert records.end_s[mine].max() == pytest.approx(found.taken_s[step])
    unfinished = simulate(dataclasses.replace(scenario, horizon_updates=None, horizon_s=1.0), records=24).records
    assert unfinished is not None
    assert math.isnan(unfinished.end_s[23])
    assert unfinished.update[23] == -1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogNormal(0, 1), "median_s = 0"),
        (lambda: LogNormal(20, float("inf")), "sigma = inf"),
        (lambda: LogNormal(True, 1), "median_s = True"),
        (lambda: Empirical(()), "at least one recorded duration"),
        (lambda: Mixture(((0, Fixed(1)),)), "weight = 0"),
        (lambda: SlowDown((1, 4), (1,)), "2 concurrencies and 1 factors"),
        (lambda: SlowDown((4, 1), (1, 2)), "it must rise"),
        (lambda: Policy(mode="synchronous", max_staleness=1), "its staleness is fixed"),
        (lambda: Policy(over_sampling=0.5), "nothing is cut there"),
        (lambda: Policy(colocated=True), "GPUs that take turns allow synchronous only"),
        (lambda: Policy(group_size=0), "group_size = 0"),
        (lambda: Pools(workers=0), "workers = 0"),
        (lambda: Pools(train=15), "train = 15: allowed are the laws"),  # type: ignore[arg-type]
        (lambda: Pools(train_watts={"sleeping": 1}), "train_watts.sleeping"),
        (lambda: Scenario(durations=Fixed(1)), "never ends"),
        (lambda: Scenario(durations=Fixed(0), horizon_s=1), "no time at all"),
        (lambda: Scenario(durations=Fixed(1), horizon_s=1, pools=Pools(offload=Fixed(1))), "allowed with colocated"),
        (lambda: Scenario(durations=Fixed(1), horizon_s=1, seed=2**64), "seed = 18446744073709551616"),
        (lambda: simulate(Scenario(durations=Fixed(1), horizon_s=1), backend="abacus"), "backend = abacus"),
    ],
)
def test_what_cannot_be_simulated_says_why(make, words):
    with pytest.raises(SpecError) as caught:
        make()

    assert words in str(caught.value)


def test_a_clock_that_never_moves_is_an_error_not_a_hang():
    scenario = Scenario(durations=Mixture(((1e9, Fixed(0.0)), (1e-9, Fixed(1.0)))), horizon_s=10.0)

    with pytest.raises(SpecError, match="the virtual clock does not move"):
        simulate(scenario, backend="interpreted")


def test_curves_between_and_beyond_their_points():
    curve = SlowDown((1, 8, 16), (1.0, 2.0, 4.0))
    assert [curve.at(n) for n in (0.5, 1, 4.5, 8, 12, 16, 24)] == [1, 1, 1.5, 2, 3, 4, 6]
    assert SlowDown((8,), (2.0,)).at(100) == 2
    assert not curve.flat
    assert SlowDown().flat
