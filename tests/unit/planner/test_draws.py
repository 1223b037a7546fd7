"""Random numbers by place: the same on every machine, compiled or not, and shared by scenarios of one seed."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from results.planner import compiled, draws, scalar
from results.planner.engine import simulate
from results.planner.model import Composed, Empirical, Fixed, LogNormal, Mixture, Policy, Pools, Scenario

NORMAL = NormalDist()
EDGES = [2.0**-53, 1e-15, 1e-12, 1e-6, 0.0749, 0.0751, 0.3, 0.5, 0.9249, 0.9251, 1 - 1e-9, 1 - 2.0**-53]


def test_the_bits_are_philoxs():
    # Philox 4x64 with 10 rounds, key (7, 2), counters 1 and 2: NumPy moves the counter on before it draws.
    assert draws.bits(7, 2, 0, 5).tolist() == np.random.Philox(key=[7, 2]).random_raw(5).tolist()


def test_some_draws_to_the_last_bit():
    found = draws.seconds(LogNormal(20.0, 1.0), 1, draws.GENERATION, 0, 4)

    assert [value.hex() for value in found.tolist()] == [
        "0x1.7eb831a8ddcefp+3",
        "0x1.c0943d1db6108p+5",
        "0x1.d1fb0b1b7b51bp+2",
        "0x1.8c9f91986f773p+1",
    ]


@pytest.mark.parametrize("first", [0, 1, 3, 4, 1001, 1 << 33])
def test_a_draw_is_the_same_wherever_one_begins(first):
    whole = draws.uniforms(5, draws.TOOL, first - first % 4, 64)

    assert draws.uniforms(5, draws.TOOL, first, 20).tolist() == whole[first % 4 :][:20].tolist()
    assert 0 < whole.min() < whole.max() < 1


def test_large_seeds_are_kept_apart():
    seen = {float(draws.uniforms(seed, 0, 0, 1)[0]) for seed in (2**64 - 1, 2**64 - 2, 2**63, 2**53, 2**53 + 1, 0)}

    assert len(seen) == 6


def test_normal_quantiles_are_those_of_the_standard_library():
    at = np.concatenate([draws.uniforms(3, 0, 0, 5_000), np.array(EDGES)])

    expected = [NORMAL.inv_cdf(value) for value in at.tolist()]
    np.testing.assert_allclose(draws.normal_quantiles(at), expected, rtol=1e-14, atol=1e-16)


def test_exponential_and_logarithm_are_right_to_the_last_digits():
    at = np.linspace(-690, 690, 20_001)
    np.testing.assert_allclose(draws.exponential(at), np.exp(at), rtol=6e-16)
    positive = np.exp(np.linspace(-700, 700, 20_001))
    np.testing.assert_allclose(draws.logarithm(positive), np.log(positive), rtol=6e-16, atol=3e-16)


def test_the_compiled_draws_are_the_same_bits():
    assert compiled.available(), "the extra sim is part of dev: without numba this test shows nothing"
    raw = draws.bits(9, 0, 0, 40_001)
    for median, sigma in ((20.0, 1.0), (0.003, 2.5), (1e6, 0.0)):
        slow = draws.seconds(LogNormal(median, sigma), 9, 0, 0, len(raw))
        found = np.empty(len(raw))
        compiled.log_normals(raw, median, sigma, found)
        assert found.tolist() == slow.tolist()


def test_the_function_that_is_compiled_gives_them_interpreted_too():
    bits = (draws.bits(9, 0, 0, 3_000) >> np.uint64(12)).astype(np.int64)
    bits[:6] = [0, 1, 2, (1 << 52) - 1, (1 << 52) - 2, 1 << 51]  # beyond what 3,000 draws reach
    found, depths, powers = (np.empty(len(bits) + 1) for _ in range(3))

    scalar.normals(bits, found[:-1], np.empty(len(bits) + 1, dtype=np.int64), depths, depths.view(np.int64), powers)

    assert found[:-1].tolist() == draws.normal_quantiles((bits + 0.5) * 2.0**-52).tolist()


@pytest.mark.parametrize("first", [0, 1, 3, 8191, 12_345])
@pytest.mark.parametrize("count", [1, 20_001, 40_001])  # bits of the last are too many to be kept
def test_compiled_draws_begin_anywhere_too(first, count):
    law = LogNormal(20, 1)
    for _ in range(2):  # the second time from bits that were kept
        fast = draws.seconds(law, 4, draws.TOOL, first, count, compiled.log_normals)

        assert fast.tolist() == draws.seconds(law, 4, draws.TOOL, first, count).tolist()


def test_kept_bits_are_of_their_own_seed_and_stream():
    law, made = LogNormal(20, 1), {}
    for seed, stream in ((4, draws.TOOL), (5, draws.TOOL), (4, draws.GENERATION)):
        made[seed, stream] = tuple(draws.seconds(law, seed, stream, 0, 100, compiled.log_normals))

        assert made[seed, stream] == tuple(draws.seconds(law, seed, stream, 0, 100))
    assert len(set(made.values())) == 3


def test_laws_have_the_shares_they_say():
    count = 40_000
    recorded = draws.seconds(Empirical((1.0, 1.0, 5.0, 9.0)), 2, 0, 0, count)
    assert {value: round(float(np.mean(recorded == value)), 2) for value in (1.0, 5.0, 9.0)} == {
        1.0: 0.5, 5.0: 0.25, 9.0: 0.25,
    }  # fmt: skip
    mixed = draws.seconds(Mixture(((60, Fixed(1.0)), (40, LogNormal(100.0, 0.5)))), 2, 0, 0, count)
    assert np.mean(mixed == 1.0) == pytest.approx(0.6, abs=0.01)
    assert np.median(mixed[mixed > 1]) == pytest.approx(100, rel=0.02)
    assert np.std(np.log(mixed[mixed > 1])) == pytest.approx(0.5, rel=0.03)


def test_turns_and_seconds_of_a_trajectory_do_not_depend_on_the_chunk():
    law = Composed((2, 5), LogNormal(4, 1), LogNormal(9, 1))
    turns, seconds = draws.durations(law, 4, 0, 40)
    for number in (0, 1, 17, 39):
        own_turns, own = draws.durations(law, 4, number, 1)
        assert own_turns[0] == turns[number]
        assert own.tolist() == seconds.reshape(40, 9)[number].tolist()
    assert set(turns.tolist()) == {2, 5}


def test_scenarios_of_one_seed_share_their_trajectories():
    def lengths(workers: int, **policy) -> np.ndarray:
        scenario = Scenario(
            durations=LogNormal(20, 1),
            policy=Policy(in_flight="keep", **policy),
            pools=Pools(workers=workers, train=Fixed(15)),
            horizon_updates=20,
        )
        records = simulate(scenario, records=200).records
        assert records is not None
        return records.end_s - records.start_s

    few, many, bounded = lengths(16), lengths(64), lengths(64, max_staleness=1)

    np.testing.assert_allclose(few, many, rtol=1e-9)
    np.testing.assert_allclose(few, bounded, rtol=1e-9)


def test_a_wider_law_spreads_the_same_draws():
    narrow = draws.seconds(LogNormal(20, 0.5), 1, 0, 0, 500)
    wide = draws.seconds(LogNormal(20, 1.0), 1, 0, 0, 500)

    np.testing.assert_allclose(np.log(wide / 20), 2 * np.log(narrow / 20), rtol=1e-9, atol=1e-12)
    assert math.isclose(float(np.median(wide)), 20, rel_tol=0.1)


def test_where_machine_code_cannot_be_kept_it_is_made_each_time(monkeypatch):
    import numba

    makes = numba.njit

    def no_place(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return makes(**options)

    monkeypatch.setattr(numba, "njit", no_place)
    compiled._filling.cache_clear()
    try:
        raw = draws.bits(1, 0, 0, 100)
        found = np.empty(len(raw))
        compiled.log_normals(raw, 20.0, 1.0, found)
        assert found.tolist() == draws.seconds(LogNormal(20, 1), 1, 0, 0, 100).tolist()
    finally:
        compiled._filling.cache_clear()
