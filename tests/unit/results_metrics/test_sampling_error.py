"""Intervals of sampled means: that they hold, for load of every kind, and that they are no wider than they must be."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from harness.telemetry.cadence import Ticks
from results.power import Series
from results.sampling import half_width, unseen_within, window_mean
from results.stats import effective_n

S = 1_000_000_000
LENGTH_S = 60.0
Power = Callable[[np.ndarray], np.ndarray]


def square(period_s: float, duty: float, high: float = 700.0, low: float = 200.0) -> Power:
    return lambda at: np.where((at % period_s) < duty * period_s, high, low)


def walk(seed: int, memory_s: float) -> Power:
    """Power that wanders: a first-order autoregression on a grid of 10 ms."""
    rng, keep = np.random.default_rng(seed), np.exp(-0.01 / memory_s)
    noise = rng.normal(size=round(LENGTH_S * 100) + 200) * 100 * np.sqrt(1 - keep**2)
    values = np.empty(noise.size)
    level = 0.0
    for place, each in enumerate(noise):
        level = keep * level + each
        values[place] = 400 + level
    return lambda at: values[np.clip((at * 100).astype(int), 0, values.size - 1)]


def sampled(power: Power, seed: int, period_s: float = 0.1, refresh_s: float | None = None) -> Series:
    """As the sampler reads it: one reading a period at a random place in it; held by the sensor where it refreshes."""
    ticks, now, at = Ticks(period_s, 0, random.Random(seed)), 0, []
    while now < (LENGTH_S + 1) * S:
        now = ticks.next(now)
        at.append(now)
    times = np.array(at, dtype=np.int64)
    seen = times / S if refresh_s is None else np.floor(times / S / refresh_s) * refresh_s
    return Series(times, power(seen))


def truth(power: Power, low: float, high: float) -> float:
    grid = np.arange(low, high, 0.0005) + 0.00025
    return float(power(grid).mean())


LOADS: dict[str, Callable[[int], Power]] = {
    "constant": lambda seed: lambda at: np.full(at.shape, 300.0),
    "a wave in phase with the sampling": lambda seed: square(0.1, 0.25),
    "a wave of 70 ms": lambda seed: square(0.07, 0.5),
    "bursts of 50 ms": lambda seed: square(0.7, 0.07),
    "phases of seconds": lambda seed: square(7.3, 0.4),
    "white": lambda seed: walk(seed, 0.01),
    "memory of 0.3 s": lambda seed: walk(seed, 0.3),
    "memory of 5 s": lambda seed: walk(seed, 5.0),
}


@pytest.mark.parametrize("name", LOADS)
def test_the_truth_lies_in_the_interval_as_often_as_it_says(name: str) -> None:
    inside, trials = 0, 120
    for seed in range(trials):
        power = LOADS[name](seed)
        found = window_mean(sampled(power, seed), round(1.03 * S), round(59.97 * S))
        assert found.value is not None
        assert found.half_width is not None
        inside += abs(found.value - truth(power, 1.03, 59.97)) <= found.half_width + 0.02
    assert inside >= 0.88 * trials  # 95 % of 120: fewer than 106 are seen once in a thousand


def test_slow_load_that_the_samples_follow_has_a_narrow_interval() -> None:
    power = square(7.3, 0.4)
    series = sampled(power, 1)
    found = window_mean(series, S, 59 * S)
    assert found.half_width is not None
    # As independent draws of a process the same readings would say little: their interval is far wider.
    loose = 1.96 * float(series.values.std()) / np.sqrt(effective_n(series.values))
    assert found.half_width < loose / 5
    assert found.half_width < 10.0  # of 400 W


def test_a_sensor_that_repeats_its_value_is_not_new_knowledge() -> None:
    power = walk(3, 0.05)
    held = sampled(power, 3, refresh_s=1.0)
    told = half_width(held, 1.0)
    naive = half_width(held, 0.0)
    assert told is not None
    assert naive is not None
    assert told > 2.5 * naive
    errors = []
    for seed in range(60):
        load = walk(seed, 0.05)
        series = sampled(load, seed, refresh_s=1.0)
        found = window_mean(series, S, 59 * S, 1.0)
        assert found.value is not None
        assert found.half_width is not None
        errors.append(abs(found.value - truth(load, 0.5, 58.5)) / found.half_width)
    assert float(np.quantile(errors, 0.9)) <= 1.0


def test_what_crosses_an_edge_belongs_to_no_cell() -> None:
    series = Series(np.arange(0, 10 * S, S, dtype=np.int64), np.array([1.0] * 5 + [3.0] * 5))
    cut_there = unseen_within(series, 0.0, np.array([0, round(4.5 * S), 9 * S], dtype=np.int64))
    assert cut_there.tolist() == [0.0, 0.0]
    cut_elsewhere = unseen_within(series, 0.0, np.array([0, round(7.5 * S), 9 * S], dtype=np.int64))
    assert cut_elsewhere.tolist() == [2.0, 0.0]  # (3 - 1)^2 / 2 x (1 s)^2


def test_a_gap_is_left_out_and_told() -> None:
    times = np.concatenate((np.arange(0, 20, 0.1), np.arange(30, 40, 0.1)))
    series = Series(np.round(times * S).astype(np.int64), np.where(times < 20, 0.2, 0.8))
    found = window_mean(series, 0, 40 * S)
    assert found.value == pytest.approx((0.2 * 19.9 + 0.8 * 9.9) / 29.8, rel=0.01)
    assert found.covered == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_readings_have_no_interval(count: int) -> None:
    series = Series(np.arange(count, dtype=np.int64) * S // 10, np.ones(count))
    found = window_mean(series, 0, S)
    assert found.half_width is None
    assert (found.value is None) == (count < 2)
