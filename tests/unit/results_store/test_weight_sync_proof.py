"""The proof on recorded probes: it holds when the engine follows, and fails in each way a sync can be broken."""

from pathlib import Path
from typing import Any

import pytest
from small_runs import hello, make_run, make_spec, step

from harness.protocol.events import Event, Metric, Span
from harness.protocol.spec import Device
from results.collect import collect
from results.sync_proof import SyncProof, prove_sync

WEIGHTS = {0: (-1.0, -2.0), 1: (-1.1, -2.1), 2: (-1.2, -2.2)}  # the trainer's probe at each version


def probe(source: str, version: int, values: tuple[float, ...], **labels: Any) -> Metric:
    labels |= {"source": source, "version": version}
    return Metric(name="probe_logprobs", mono_ns=5, values=values, labels=labels)


def diff(mean: float, largest: float, *, staleness: int = 0, same: bool = True) -> list[Event]:
    labels = {"staleness": staleness, "same_version": same}
    return [
        Metric(name="logprob_diff_mean", mono_ns=6, value=mean, labels=labels),
        Metric(name="logprob_diff_max", mono_ns=6, value=largest, labels=labels),
    ]


def near(values: tuple[float, ...], by: float = 1e-6) -> tuple[float, ...]:
    return tuple(value + by for value in values)


TRAINER = [probe("trainer", version, values) for version, values in WEIGHTS.items()]
ENGINE = [probe("engine", version, near(values)) for version, values in WEIGHTS.items()]
FRESH = [*diff(2e-7, 1e-6), *diff(4e-7, 9e-6)]
STEPS = [step(number, number * 10, number * 10 + 9, [], grad_norm=0.5) for number in (1, 2, 3)]


def proof(folder: Path, *events: Event, device: Device = Device.CPU) -> SyncProof:
    run_dir = make_run(folder / "run", [hello(), *events], spec=make_spec(device=device))
    return prove_sync(collect(run_dir))


def test_an_engine_that_follows_is_proven_with_its_numbers(tmp_path: Path) -> None:
    found = proof(tmp_path, *TRAINER, *ENGINE, *FRESH, *STEPS)
    assert found.proven
    assert (found.fresh.passed, found.changed.passed, found.follows.passed) == (True, True, True)
    assert found.fresh_max == 9e-6
    assert found.fresh_mean == pytest.approx(3e-7)
    assert found.bound == 1e-4
    assert found.moved == pytest.approx(0.2)
    assert found.grad_norms == {1: 0.5, 2: 0.5, 3: 0.5}
    assert [one.version for one in found.versions] == [1, 2]
    assert [one.to_same for one in found.versions] == pytest.approx([1e-6, 1e-6])
    assert [one.to_before for one in found.versions] == pytest.approx([0.1, 0.1], rel=1e-3)
    assert "contract test" in found.control


def test_an_engine_that_never_got_new_weights_is_not_proven(tmp_path: Path) -> None:
    stuck = [probe("engine", version, near(WEIGHTS[0])) for version in WEIGHTS]
    found = proof(tmp_path, *TRAINER, *stuck, *FRESH, *STEPS)
    assert found.follows.passed is False
    assert "did not follow; version 1" in found.follows.why
    assert not found.proven


def test_an_engine_one_version_behind_is_not_proven(tmp_path: Path) -> None:
    behind = [probe("engine", version, near(WEIGHTS[version - 1])) for version in (1, 2)]
    assert proof(tmp_path, *TRAINER, *behind, *FRESH, *STEPS).follows.passed is False


def test_one_engine_of_two_that_is_behind_is_enough(tmp_path: Path) -> None:
    both = [probe("engine", 1, near(WEIGHTS[1]), engine="a"), probe("engine", 1, near(WEIGHTS[0]), engine="b")]
    found = proof(tmp_path, *TRAINER, *both, *FRESH, *STEPS)
    assert found.follows.passed is False
    assert [(one.engine, one.to_same < one.to_before) for one in found.versions] == [("a", True), ("b", False)]


def test_weights_that_do_not_move_prove_nothing(tmp_path: Path) -> None:
    still = [probe("trainer", version, WEIGHTS[0]) for version in WEIGHTS]
    engine = [probe("engine", version, WEIGHTS[0]) for version in WEIGHTS]
    found = proof(tmp_path, *still, *engine, *diff(0.0, 0.0), *STEPS)
    assert (found.changed.passed, found.follows.passed, found.moved) == (False, False, 0.0)
    assert not found.proven


def test_a_move_of_less_than_ten_times_the_fresh_difference_fails(tmp_path: Path) -> None:
    assert proof(tmp_path / "a", *TRAINER, *diff(0.0199, 0.02), *STEPS).changed.passed is True
    assert proof(tmp_path / "b", *TRAINER, *diff(0.0201, 0.02), *STEPS).changed.passed is False


def test_a_zero_gradient_in_any_step_fails_and_an_unknown_one_is_unknown(tmp_path: Path) -> None:
    zero = [*STEPS, step(4, 40, 49, [], grad_norm=0.0)]
    found = proof(tmp_path / "zero", *TRAINER, *ENGINE, *FRESH, *zero)
    assert found.changed.passed is False
    assert "zero in step(s) 4" in found.changed.why
    found = proof(tmp_path / "unknown", *TRAINER, *ENGINE, *FRESH, *STEPS, step(4, 40, 49, []))
    assert found.changed.passed is None
    assert "1 of 4 steps have no gradient" in found.changed.why
    found = proof(tmp_path / "no-step", *TRAINER, *ENGINE, *FRESH)
    assert found.changed.passed is None


def test_the_cpu_bound_applies_on_cpu_only(tmp_path: Path) -> None:
    events = [*TRAINER, *ENGINE, *diff(1e-3, 2e-4), *STEPS]
    found = proof(tmp_path / "cpu", *events)
    assert found.fresh.passed is False
    assert not found.proven
    assert "beyond the bound of 0.0001" in found.fresh.why
    found = proof(tmp_path / "cuda", *events, device=Device.CUDA)
    assert (found.fresh.passed, found.bound) == (None, None)
    assert found.fresh.why.startswith("shown: ")
    assert found.proven  # by parts 2 and 3, and a mean of a tenth of what training moved


def test_differences_of_stale_or_mixed_tokens_are_not_fresh(tmp_path: Path) -> None:
    stale = [*diff(0.05, 0.9, staleness=1), *diff(0.05, 0.9, same=False)]
    found = proof(tmp_path / "only", *TRAINER, *ENGINE, *stale, *STEPS)
    assert (found.fresh.passed, found.fresh_max, found.fresh_mean) == (None, None, None)
    assert found.changed.passed is None
    assert proof(tmp_path / "beside", *TRAINER, *ENGINE, *FRESH, *stale, *STEPS).fresh_max == 9e-6


def test_the_fresh_mean_weighs_steps_by_their_tokens_where_all_are_known(tmp_path: Path) -> None:
    def mean(value: float, **labels: Any) -> Metric:
        labels |= {"staleness": 0, "same_version": True}
        return Metric(name="logprob_diff_mean", mono_ns=6, value=value, labels=labels)

    assert proof(tmp_path / "known", mean(1.0, tokens=30), mean(5.0, tokens=10)).fresh_mean == pytest.approx(2.0)
    assert proof(tmp_path / "one-unknown", mean(1.0, tokens=30), mean(5.0)).fresh_mean == pytest.approx(3.0)


def test_a_run_without_probes_is_unproven_and_says_why(tmp_path: Path) -> None:
    found = proof(tmp_path, *STEPS)
    assert (found.fresh.passed, found.changed.passed, found.follows.passed) == (None, None, None)
    assert not found.proven
    assert found.follows.why == "no engine was probed after a sync"
    assert "(probed: none)" in found.changed.why


def test_probes_that_cannot_be_compared_are_not_taken_for_proof(tmp_path: Path) -> None:
    longer = [probe("engine", 1, near(WEIGHTS[1])), probe("engine", 2, (-1.2, -2.2, -3.2))]
    found = proof(tmp_path / "length", *TRAINER, *longer, *FRESH, *STEPS)
    assert found.follows.passed is None
    assert "version(s) 2" in found.follows.why
    odd = [probe("engine", 1, ()), Metric(name="probe_logprobs", mono_ns=5, values=(1.0,), labels={"source": "engine"})]
    assert proof(tmp_path / "odd", *TRAINER, *odd, *FRESH, *STEPS).follows.passed is None


def test_on_cuda_the_fresh_difference_proves_nothing_alone(tmp_path: Path) -> None:
    shown = [*TRAINER, *ENGINE, *STEPS]
    assert not proof(tmp_path / "none", *shown, device=Device.CUDA).proven
    assert proof(tmp_path / "small", *shown, *diff(0.0199, 0.5), device=Device.CUDA).proven
    assert not proof(tmp_path / "large", *shown, *diff(0.0201, 0.5), device=Device.CUDA).proven
    alone = proof(tmp_path / "alone", *TRAINER, *FRESH, *STEPS, device=Device.CUDA)
    assert (alone.fresh.passed, alone.changed.passed, alone.follows.passed, alone.proven) == (None, True, None, False)


def sync(version: int, engine: str | None) -> Span:
    return Span(
        phase="weight_sync",
        native_name="sync",
        start_ns=version * 10,
        end_ns=version * 10 + 1,
        pool="rollout",
        attributes={"version": version, "engine": engine},
    )


def test_every_engine_that_synced_must_have_been_probed(tmp_path: Path) -> None:
    syncs = [sync(version, name) for version in (1, 2) for name in ("a", "b")]
    some = [probe("engine", v, near(WEIGHTS[v]), engine=name) for v, name in ((1, "a"), (1, "b"), (2, "a"))]
    found = proof(tmp_path / "some", *TRAINER, *some, *syncs, *FRESH, *STEPS)
    assert (found.follows.passed, found.proven) == (None, False)
    assert found.follows.why == "engines that synced were not probed: b (version 2)"
    last = probe("engine", 2, near(WEIGHTS[2]), engine="b")
    assert proof(tmp_path / "all", *TRAINER, *some, last, *syncs, *FRESH, *STEPS).proven
    # Version 3 was synced after the proof phase: nobody probed it, and nobody had to.
    assert proof(tmp_path / "later", *TRAINER, *some, last, *syncs, sync(3, "a"), *FRESH, *STEPS).proven


def test_a_probe_without_a_name_stands_for_one_engine_only(tmp_path: Path) -> None:
    one = [sync(1, "a"), sync(2, "a")]
    assert proof(tmp_path / "one", *TRAINER, *ENGINE, *one, *FRESH, *STEPS).proven
    assert proof(tmp_path / "two", *TRAINER, *ENGINE, *one, sync(1, "b"), *FRESH, *STEPS).follows.passed is None


def test_every_row_must_follow_not_their_mean(tmp_path: Path) -> None:
    trainer = [probe("trainer", 0, (-1.0, -1.0, -2.0, -2.0)), probe("trainer", 1, (-5.0, -5.0, -2.1, -2.1))]
    stuck = (-5.0, -5.0, -2.0, -2.0)  # the second row was never synced; the mean hides it behind the first
    found = proof(tmp_path / "rows", *trainer, probe("engine", 1, stuck, row_tokens=2, engine="a"))
    assert (found.follows.passed, found.versions[0].rows, found.versions[0].rows_behind) == (False, 2, 1)
    assert "version 1 of engine a in 1 of 2 rows" in found.follows.why
    assert proof(tmp_path / "one", *trainer, probe("engine", 1, stuck)).follows.passed is True
    good = probe("engine", 1, (-5.0, -5.0, -2.1, -2.1), row_tokens=2)
    assert proof(tmp_path / "good", *trainer, good).follows.passed is True
