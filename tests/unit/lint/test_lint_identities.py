"""Every identity: a planted error is found, and its clean twin is not."""

import pytest

from results.lint import energy_identities, identities
from results.lint.check import IDENTITIES, Check
from results.lint.findings import Linted, Severity
from results.lint.quantity import Quantity


def q(value: float, half: float = 0.0) -> Quantity:
    return Quantity(value, value - half, value + half)


# identity -> (broken, its clean twin); the twin differs in the one figure that was wrong.
CASES: dict[str, tuple[Check, Check]] = {
    "tokens_rate": (
        identities.tokens_rate(q(1000), q(10), q(4), q(50)),
        identities.tokens_rate(q(2000), q(10), q(4), q(50)),
    ),
    "rate_per_gpu": (identities.rate_per_gpu(q(80), q(10), q(4)), identities.rate_per_gpu(q(40), q(10), q(4))),
    "leaves_within_wall": (
        identities.leaves_within_wall([q(5), q(6)], q(10)),
        identities.leaves_within_wall([q(5), q(5)], q(10)),
    ),
    "phases_within_step": (
        identities.phases_within_step([q(385), q(60), q(33)], q(451)),
        identities.phases_within_step([q(385), q(24), q(33)], q(451)),
    ),
    "share_in_unit": (identities.share_in_unit(q(1.07), "idle"), identities.share_in_unit(q(1.0), "idle")),
    "shares_within_one": (
        identities.shares_within_one([q(0.6), q(0.5)]),
        identities.shares_within_one([q(0.6), q(0.4)]),
    ),
    "share_of_whole": (
        identities.share_of_whole(q(0.9, 0.005), q(385), q(451), "generation"),
        identities.share_of_whole(q(0.85, 0.005), q(385), q(451), "generation"),
    ),
    "mfu_below_one": (identities.mfu_below_one(q(3.37)), identities.mfu_below_one(q(0.42))),
    "flops_below_peak": (
        identities.flops_below_peak(q(1100e12), 989e12, "H100"),
        identities.flops_below_peak(q(400e12), 989e12, "H100"),
    ),
    "mfu_of_flops": (
        identities.mfu_of_flops(q(0.6), q(400e12), 989e12, "H100"),
        identities.mfu_of_flops(q(0.404, 0.0005), q(400e12), 989e12, "H100"),
    ),
    "power_within_limit": (
        energy_identities.power_within_limit(q(720), q(700)),
        energy_identities.power_within_limit(q(713), q(700)),
    ),
    "power_utilisation": (
        energy_identities.power_utilisation(q(0.6), q(350), q(700)),
        energy_identities.power_utilisation(q(0.5), q(350), q(700)),
    ),
    "energy_is_power": (
        energy_identities.energy_is_power(q(1000), q(100), q(2), q(10)),
        energy_identities.energy_is_power(q(2000), q(100), q(2), q(10)),
    ),
    "energy_per_step": (
        energy_identities.energy_per_step(q(0.9), energy_identities.energy_ratio((q(0.346), q(0.514)), q(0.839))),
        energy_identities.energy_per_step(
            q(1.25, 0.005), energy_identities.energy_ratio((q(0.346), q(0.514)), q(0.839))
        ),
    ),
    "speed_up": (identities.speed_up(q(2.57), q(100), q(50)), identities.speed_up(q(2.0), q(100), q(50))),
    "time_reduction": (
        identities.time_reduction(q(0.5), q(100), q(84)),
        identities.time_reduction(q(0.16), q(100), q(84)),
    ),
    "difference": (
        identities.difference(q(0.49), q(0.346), q(0.514), "power", "ratio"),
        identities.difference(q(0.168, 0.0005), q(0.346), q(0.514), "power", "ratio"),
    ),
    "staleness_within_bound": (
        identities.staleness_within_bound(q(3), q(2)),
        identities.staleness_within_bound(q(2), q(2)),
    ),
    "start_before_end": (identities.start_before_end(q(10), q(9)), identities.start_before_end(q(9), q(9))),
    "ledger_closes": (
        identities.ledger_closes({"open": q(3), "added": q(10)}, {"trained": q(8), "queued": q(2)}, "trajectory"),
        identities.ledger_closes({"open": q(3), "added": q(10)}, {"trained": q(11), "queued": q(2)}, "trajectory"),
    ),
    "ordered": (
        identities.ordered([("p50", q(9)), ("p95", q(8))])[0],
        identities.ordered([("p50", q(8)), ("p95", q(8))])[0],
    ),
    "count_not_negative": (
        identities.count_not_negative(q(-1), "dropped"),
        identities.count_not_negative(q(0), "dropped"),
    ),
    "counts_agree": (
        identities.counts_agree(q(7), q(8), "turns", "rows", "turn"),
        identities.counts_agree(q(8), q(8), "turns", "rows", "turn"),
    ),
    "gpu_hours": (identities.gpu_hours(q(4), q(8), q(3600)), identities.gpu_hours(q(8), q(8), q(3600))),
    "steps_time": (identities.steps_time(q(100), q(8), q(10)), identities.steps_time(q(80), q(8), q(10))),
    "counter_grows": (
        identities.counter_grows(q(10), q(9), "energy", "J"),
        identities.counter_grows(q(9), q(9), "energy", "J"),
    ),
    "hidden_within_busy": (identities.hidden_within_busy(q(9), q(8)), identities.hidden_within_busy(q(8), q(8))),
    "not_blank": (
        energy_identities.not_blank(q(9223372036854775794.0), "power"),
        energy_identities.not_blank(q(312.0), "power"),
    ),
    "used_once": (identities.used_once(2, "p0-s0-a0"), identities.used_once(1, "p0-s0-a0")),
}


def test_every_identity_has_a_case() -> None:
    assert set(CASES) == set(IDENTITIES)


@pytest.mark.parametrize("identity", sorted(IDENTITIES))
def test_a_planted_error_is_found_and_named_with_both_sides(identity: str) -> None:
    broken, _ = CASES[identity]
    linted = Linted("file.csv")
    linted.check(broken, "row 3", line=7)
    (finding,) = linted.findings
    assert (finding.severity, finding.identity, finding.row, finding.line) == (
        Severity.VIOLATION,
        identity,
        "row 3",
        7,
    )
    assert (finding.left, finding.right) == (broken.left.value, broken.right.value)
    assert finding.tolerance is not None
    assert finding.tolerance >= 0
    for part in (IDENTITIES[identity], broken.left_words, broken.right_words):
        assert part in finding.message


@pytest.mark.parametrize("identity", sorted(IDENTITIES))
def test_the_clean_twin_is_not(identity: str) -> None:
    _, clean = CASES[identity]
    linted = Linted("file.csv")
    linted.check(clean, "row 3")
    assert linted.findings == []
    assert linted.made == {identity: 1}


@pytest.mark.parametrize("value", [-0.01, 1.01])
def test_shares_have_two_ends(value: float) -> None:
    assert not identities.share_in_unit(q(value), "idle").holds


@pytest.mark.parametrize(
    "value", [0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF3, 140737488355328.0, 140737488355330.0, 2147483632, 4294967295]
)
def test_signs_for_blank(value: float) -> None:
    assert not energy_identities.not_blank(q(float(value)), "reading").holds
    assert energy_identities.not_blank(q(float(value), 1.0), "bytes", narrow=False).holds == (value < 2**33)


def test_a_side_that_rounding_may_have_moved_is_no_finding() -> None:
    assert identities.speed_up(q(2.6, 0.05), q(100, 0.5), q(39, 0.5)).holds
    assert not identities.speed_up(q(2.8, 0.05), q(100, 0.5), q(39, 0.5)).holds


def test_slack_lets_pass_what_it_says() -> None:
    assert not identities.tokens_rate(q(2030), q(10), q(4), q(50)).holds
    assert identities.tokens_rate(q(2030), q(10), q(4), q(50), slack=0.02).holds


def test_instants_are_compared_to_the_last_digit() -> None:
    """A wall clock has ten digits before the point: a share of them would be half an hour."""
    assert not identities.start_before_end(q(1795997496.4), q(1795997496.3)).holds
    assert not identities.counts_agree(q(5_000_001), q(5_000_000), "tokens", "tokens of its turns", "token").holds


def test_what_is_no_number_cannot_be_checked() -> None:
    linted = Linted("file.csv")
    linted.check(identities.share_in_unit(q(float("nan")), "idle"), "row 1")
    assert [finding.severity for finding in linted.findings] == [Severity.UNCHECKED]
    assert linted.checks == 0


def test_a_ratio_over_what_may_be_nothing_could_be_anything() -> None:
    assert identities.speed_up(q(50.0), q(3), q(0, 0.5)).holds
