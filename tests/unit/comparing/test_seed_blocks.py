"""Seeds as blocks: the claim, the columns beside it and the blame are made of the same blocks."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_measures import steady

from reports.compared.words import caveats
from results.comparing.blame import Blame
from results.comparing.claims import Verdict
from results.comparing.comparison import Comparison, Side, compare_sides
from results.comparing.measures import RunMeasures, Value


def seeded(name: str, seed: int, train: float, **more: object) -> RunMeasures:
    run = steady(name, train, **more)
    work = {**run.work, "seed": str(seed)}
    return replace(run, seed=seed, work=work, work_digest=f"work-{seed}")


def uneven(slow: float = 2.0) -> Comparison:
    """Seed 2 takes `slow` times as long on either side; A has it once in four runs, B three times."""

    def runs(label: str, seeds: Sequence[int]) -> Side:
        made = [seeded(f"{label}{i}", seed, slow if seed == 2 else 1.0) for i, seed in enumerate(seeds)]
        return Side.of(label, made)

    return compare_sides([runs("a", (1, 1, 1, 2)), runs("b", (1, 2, 2, 2))])


def blamed(found: Comparison) -> Blame:
    (pair,) = found.pairs
    assert isinstance(pair.blame, Blame)
    return pair.blame


def test_how_often_a_seed_was_run_is_no_change() -> None:
    found = uneven()
    (pair,) = found.pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.contrast is not None
    assert claim.contrast.estimate == pytest.approx(1.0)
    assert claim.b == pytest.approx(claim.a)  # the columns say what the change beside them says
    assert claim.a == pytest.approx(2**0.5)
    blame = blamed(found)
    assert blame.total.seconds == pytest.approx(0.0, abs=1e-12)
    assert all(one.seconds == pytest.approx(0.0, abs=1e-12) for one in (*blame.effects, blame.remainder))
    assert blame.total.a_s == pytest.approx(blame.total.b_s)


def test_blame_of_blocks_adds_up_and_has_their_interval() -> None:
    """A seed's own pace is no noise: a change that every seed shows is blamed, though seeds differ tenfold."""
    a = [seeded(f"a{seed}", seed, 10.0**seed, tool=0.0) for seed in (1, 2, 3)]
    b = [seeded(f"b{seed}", seed, 10.0**seed + 0.5 + 0.001 * seed, tool=0.0) for seed in (1, 2, 3)]
    found = compare_sides([Side.of("a", a), Side.of("b", b)])
    blame = blamed(found)
    train = next(one for one in blame.effects if one.name == "phase_train_s")
    assert train.seconds == pytest.approx(0.502)
    assert train.low is not None
    assert 0.49 < train.low < 0.502
    assert blame.culprit == train
    assert sum(one.seconds for one in blame.effects) + blame.remainder.seconds == pytest.approx(blame.total.seconds)
    assert blame.basis == "pairs of runs"
    assert blame.n == (3, 3)


def test_a_part_that_one_run_has_none_of_is_still_paired() -> None:
    a = [seeded(f"a{seed}", seed, 1.0, tool=0.0) for seed in (1, 2)]
    b = [seeded(f"b{seed}", seed, 1.0, tool=float(seed)) for seed in (1, 2)]
    (pair,) = compare_sides([Side.of("a", a), Side.of("b", b)]).pairs
    claim = pair.claim("exposed_tool_s")
    assert claim is not None
    assert claim.contrast is not None
    assert (claim.contrast.kind, claim.contrast.basis) == ("difference", "pairs of runs")
    assert claim.contrast.estimate == pytest.approx(1.5)
    assert (claim.a, claim.b) == (0.0, pytest.approx(1.5))


def test_noise_of_a_baseline_is_not_used_where_seeds_are_blocks_and_that_is_said() -> None:
    noise = Side.of("noise", [seeded(f"n{i}", 1, 1.0 + 0.001 * i) for i in range(5)])

    def sides(seeds: Sequence[int]) -> list[Side]:
        return [
            Side.of(label, [seeded(f"{label}{seed}", seed, train + 0.1 * seed) for seed in seeds])
            for label, train in (("a", 1.0), ("b", 1.01))
        ]

    noise = [noise, Side.of("noise", [seeded(f"m{i}", 2, 1.0 + 0.001 * i) for i in range(5)])]
    with_noise, without = compare_sides(sides((1, 2)), noise=noise), compare_sides(sides((1, 2)))
    for name in ("step_time_s", "phase_train_s"):
        assert with_noise.pairs[0].claim(name) == without.pairs[0].claim(name)
    assert with_noise.pairs[0].blame == without.pairs[0].blame
    assert with_noise.pairs[0].noise == ""
    (said,) = [text for text in caveats(with_noise) if "noise" in text]
    assert "is not used" in said
    assert "seeds" in said
    assert "pooled" not in said


def lost(values: Sequence[float | None]) -> list[RunMeasures]:
    made = []
    for i, value in enumerate(values):
        run = steady(f"r{i}-{len(values)}", 0.3 + 0.001 * i)
        held = Value(value) if value is not None else Value(None, "no loss mask is on record")
        made.append(replace(run, values={**run.values, "goodput_tokens_per_s_gpu": held}))
    return made


def test_values_that_runs_lack_are_counted_with_the_reason() -> None:
    a, b = lost([100.0, None, 101.0, None, 99.0]), lost([100.0, 101.0, 99.0, 100.0])
    (pair,) = compare_sides([Side.of("a", a), Side.of("b", b)]).pairs
    claim = pair.claim("goodput_tokens_per_s_gpu")
    assert claim is not None
    assert claim.contrast is not None
    assert (claim.contrast.n_a, claim.contrast.n_b) == (3, 4)
    assert (claim.lost_a, claim.lost_b) == (2, 0)
    assert "2 of 5 runs of a have none of it" in claim.lost
    assert "no loss mask is on record" in claim.lost
    whole = pair.claim("step_time_s")
    assert whole is not None
    assert (whole.lost_a, whole.lost_b, whole.lost) == (0, 0, "")


def test_a_part_that_a_run_does_not_know_is_not_taken_for_none_of_it() -> None:
    a, b = steady("a", 0.3), steady("b", 0.3)
    values = {name: value for name, value in b.values.items() if name != "phase_train_s"}
    (pair,) = compare_sides([Side.of("a", [a]), Side.of("b", [replace(b, values=values)])]).pairs
    assert pair.blame == "b: phase_train_s: not among the run's measures"


def test_a_verdict_follows_as_the_claim_of_the_blocks_says() -> None:
    a = [seeded(f"a{seed}", seed, 10.0**seed, tool=0.0) for seed in (1, 2, 3)]
    b = [seeded(f"b{seed}", seed, 1.2 * 10.0**seed * (1 + 0.001 * seed), tool=0.0) for seed in (1, 2, 3)]
    (pair,) = compare_sides([Side.of("a", a), Side.of("b", b)]).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.verdict is Verdict.WORSE
    assert claim.a is not None
    assert claim.b is not None
    assert claim.b / claim.a == pytest.approx(claim.contrast.estimate if claim.contrast else None)
