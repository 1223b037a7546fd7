"""A check of new runs: what fails it, what leaves it undecided, and what never does either."""

import math
from dataclasses import replace

import pytest

from harness.protocol.errors import SpecError
from results.baselines.check import DEFAULT_GATES, Outcome, check, gates_named, occasions
from results.comparing.claims import GATE_RULE
from results.comparing.measures import Value


def one(cells):
    (cell,) = cells
    return cell


def test_the_same_passes_and_says_what_it_would_have_found(nights):
    cell = one(check(nights(3, first=9, each=3, seed=2, prefix="new"), nights(6)))
    assert cell.outcome is Outcome.PASSED
    assert [gate.measure.name for gate in cell.gates] == list(DEFAULT_GATES)
    assert all(gate.detectable is not None and 0.1 < gate.detectable <= 0.15 for gate in cell.gates)


def test_a_slower_phase_fails_though_the_step_hardly_moved(nights):
    new = nights(3, first=9, each=3, seed=2, prefix="new", factors={"phase_train_s": 1.15, "step_time_s": 1.015})
    cell = one(check(new, nights(6)))
    assert cell.outcome is Outcome.FAILED
    assert [gate.measure.name for gate in cell.gates if gate.failed] == ["phase_train_s"]


@pytest.mark.parametrize("factors", [{"step_time_s": 0.5}, {"goodput_tokens_per_s_gpu": 2.0}, {"phase_train_s": 0.7}])
def test_better_never_fails(nights, factors):
    cell = one(check(nights(3, first=9, each=3, seed=2, prefix="new", factors=factors), nights(6)))
    assert cell.outcome is Outcome.PASSED


def test_less_goodput_is_worse(nights):
    cell = one(
        check(nights(3, first=9, each=3, seed=2, factors={"goodput_tokens_per_s_gpu": 0.8}, prefix="new"), nights(6))
    )
    assert [gate.measure.name for gate in cell.gates if gate.failed] == ["goodput_tokens_per_s_gpu"]
    assert math.isclose(cell.gates[2].change or 0, 0.25, abs_tol=0.03)


def test_a_change_within_the_tolerance_passes_however_sure_it_is(nights):
    new = nights(5, first=9, each=5, seed=2, noise=0.001, prefix="new", factors={"step_time_s": 1.06})
    cell = one(check(new, nights(8, noise=0.001)))
    assert cell.outcome is Outcome.PASSED
    assert cell.gates[0].p_adjusted is not None
    assert cell.gates[0].p_adjusted < 1e-4
    stricter = one(check(new, nights(8, noise=0.001), gates_named(["step_time_s=5%"])))
    assert stricter.outcome is Outcome.FAILED


def test_noise_leaves_it_undecided_never_green(nights):
    cell = one(check(nights(3, first=9, each=3, seed=2, noise=0.2, prefix="new"), nights(6, noise=0.2)))
    assert cell.outcome is Outcome.UNDERPOWERED


@pytest.mark.parametrize(
    ("count", "each", "said"), [(4, 1, "at least 5"), (6, 6, "1 occasion"), (0, 1, "has no run of this cell")]
)
def test_a_thin_baseline_leaves_it_undecided(nights, count, each, said):
    cell = one(check(nights(3, first=9, each=3, seed=2, prefix="new"), nights(count, each=each)))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert any(said in reason for reason in cell.thin)


def test_a_single_run_is_never_gated(nights):
    cell = one(check(nights(1, first=9, each=1, seed=2, prefix="new"), nights(8)))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert any("a single one is never gated" in reason for reason in cell.thin)


def test_a_run_that_is_named_twice_is_one(nights):
    (new,) = nights(1, first=9, each=1, seed=2, prefix="new")
    cell = one(check([new, new], nights(8)))
    assert cell.candidates == (new.run_id,)
    assert cell.outcome is Outcome.UNDERPOWERED


def test_new_runs_of_two_machines_are_not_judged_together(nights):
    new = nights(3, first=9, each=3, seed=2, prefix="new")
    new[2] = replace(new[2], machine={**new[2].machine, "cpu": "other"})
    cell = one(check(new, nights(6)))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert any("the new runs differ in machine (cpu): c, other" in reason for reason in cell.thin)


def test_where_no_measure_gates_nothing_passed(nights):
    def without(runs):
        return [replace(run, values={}) for run in runs]

    cell = one(check(without(nights(3, first=9, each=3, prefix="new")), without(nights(6))))
    assert cell.outcome is Outcome.UNDERPOWERED
    assert len(cell.left_out) == 6
    assert all("it has none of step_time_s, phase_train_s" in reason for reason in cell.left_out)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_measure_that_is_missing_or_no_number_fails(nights, value):
    new = nights(3, first=9, each=3, seed=2, prefix="new")
    bad = replace(new[1], values={**new[1].values, "step_time_s": Value(value, "lost")})
    cell = one(check([new[0], bad, new[2]], nights(6)))
    assert cell.outcome is Outcome.FAILED
    assert [gate.measure.name for gate in cell.gates if gate.failed] == ["step_time_s"]
    assert bad.run_id in cell.gates[0].why


def test_a_gate_that_was_asked_for_and_no_run_has_fails(nights):
    cell = one(check(nights(3, first=9, each=3, prefix="new"), nights(6), gates_named(["mfu_ratio"])))
    assert cell.outcome is Outcome.FAILED


def test_a_usual_gate_that_no_run_ever_had_is_left_out_and_said(nights):
    def without(runs):
        return [replace(run, values={**run.values, "phase_train_s": Value(None, "no track")}) for run in runs]

    cell = one(check(without(nights(3, first=9, each=3, seed=2, prefix="new")), without(nights(6))))
    assert cell.outcome is Outcome.PASSED
    assert any("phase_train_s does not gate" in note for note in cell.notes)


def test_a_run_that_stopped_early_fails_beside_good_ones(nights):
    new = nights(4, first=9, each=4, seed=2, prefix="new")
    bad = replace(new[0], status="stalled", problems=("did not finish (status stalled)",))
    cell = one(check([bad, *new[1:]], nights(6)))
    assert cell.outcome is Outcome.FAILED
    assert cell.problems == (f"{bad.run_id}: did not finish (status stalled)",)
    assert not any(gate.failed for gate in cell.gates)


def test_on_gpus_a_run_without_power_lost_its_samples(nights):
    cell = one(check(nights(3, first=9, each=3, seed=2, prefix="new", device="cuda"), nights(6, device="cuda")))
    assert cell.outcome is Outcome.FAILED
    assert all("no power figure" in problem for problem in cell.problems)


def test_baseline_runs_of_another_machine_don_t_count(nights):
    far = nights(6, prefix="far")
    far = [replace(run, machine={**run.machine, "cpu": "other"}) for run in far]
    cell = one(check(nights(3, first=9, each=3, seed=2, prefix="new"), [*far, *nights(6)]))
    assert len(cell.baseline) == 6
    assert sum("another machine" in reason for reason in cell.left_out) == 6


def test_versions_that_differ_are_listed(nights):
    new = nights(3, first=9, each=3, seed=2, prefix="new", versions={"torch": "2.14"})
    cell = one(check(new, nights(6)))
    assert "version of torch: 2.13 -> 2.14" in cell.differences


def test_cells_share_the_error_rate(nights):
    other = {"placement": "colocated", "spec_digest": "fedcba9876543210"}
    quiet = {"noise": 0.004}
    new = nights(3, first=9, each=3, seed=2, prefix="new", **quiet)
    cells = check(
        [*new, *nights(3, first=9, each=3, seed=3, prefix="newer", **quiet, **other)],
        [*nights(6, **quiet), *nights(6, prefix="old", **quiet, **other)],
    )
    alone = one(check(new, nights(6, **quiet)))
    together = next(cell for cell in cells if "async" in cell.cell)
    assert [cell.outcome for cell in cells] == [Outcome.PASSED] * 2
    assert [gate.p_adjusted for gate in together.gates] == [gate.p_adjusted for gate in alone.gates]
    tight = replace(GATE_RULE, tolerance=0.0)
    least = [
        one(check(new, nights(6, **quiet), rule=rule)).gates[0].detectable
        for rule in (tight, replace(tight, alpha=0.005))
    ]
    halved = check([*new, *nights(3, first=9, each=3, seed=3, **quiet, **other)], nights(6, **quiet), rule=tight)
    assert next(cell for cell in halved if cell.gates).gates[0].detectable == least[1]
    assert (least[0] or 1) < (least[1] or 0)


def test_occasions_are_evenings_not_runs(nights):
    assert occasions(nights(6, each=3)) == 2
    assert occasions(nights(5)) == 5
    assert occasions([]) == 0
    assert occasions([*nights(1), replace(nights(1, first=2)[0], started_utc="2026-03-03T02:00:00")]) == 2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("speed", "no such measure"),
        ("power_utilisation_ratio", "neither better nor worse"),
        ("step_time_s=much", "percent"),
        ("step_time_s=-1%", "percent"),
        ("step_time_s=nan", "percent"),
        ("step_time_s=15%", "would never be green"),
    ],
)
def test_gates_that_are_none(word, said):
    with pytest.raises(SpecError, match=said):
        gates_named([word])


def test_more_than_five_gates_are_refused():
    names = [
        "step_time_s",
        "phase_train_s",
        "goodput_tokens_per_s_gpu",
        "phase_logprob_s",
        "mfu_ratio",
        "slot_loss_share",
    ]
    with pytest.raises(SpecError, match="at most 5"):
        gates_named(names)
