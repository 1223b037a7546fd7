"""Which runs are compared: what must be equal, what is allowed to differ and then said, and what is paired."""

from dataclasses import replace

import pytest
from made_measures import made_run, steady

from harness.protocol.errors import SpecError
from results.comparing.alike import ON_CPU, no_verdict, others, refuse
from results.comparing.claims import Verdict
from results.comparing.comparison import Side, compare_sides
from results.comparing.measures import RunMeasures, Value
from results.comparing.paired import on_common_plans


def side(label: str, *runs: RunMeasures) -> Side:
    return Side.of(label, runs)


def several(label: str, train: float, count: int = 4, **more: object) -> Side:
    jitter = (0.0, 0.004, -0.003, 0.001, 0.002)
    return side(label, *(steady(f"{label}{i}", train + jitter[i], 1.0 + jitter[i], **more) for i in range(count)))


def other_work(run: RunMeasures, **fields: str) -> RunMeasures:
    return replace(run, work={**run.work, **fields}, work_digest=f"{run.work_digest}{sorted(fields.items())}")


def test_different_work_is_refused_with_its_fields() -> None:
    a, b = steady("a", 0.3), other_work(steady("b", 0.3), preset="deep-research")
    with pytest.raises(SpecError, match=r"preset \(deep-research-smoke and deep-research\)") as error:
        refuse([[a], [b]])
    assert error.value.exit_code == 2
    assert "--allow-different preset" in str(error.value)
    for allowed in ("preset", "work"):
        (one,) = refuse([[a], [b]], [allowed])
        assert one.text == "preset (deep-research-smoke and deep-research)"
    with pytest.raises(SpecError, match="preset"):
        refuse([[a], [b]], ["seed"])


def test_different_machines_are_refused() -> None:
    a = steady("a", 0.3)
    b = steady("b", 0.3, machine={**a.machine, "cpu": "Another CPU"})
    with pytest.raises(SpecError, match=r"cpu \(Example CPU and Another CPU\)"):
        refuse([[a], [b]])
    assert [one.what for one in refuse([[a], [b]], ["machine"])] == ["machine"]
    # GPU nodes of one kind are interchangeable, hosts on CPU are not.
    for device, count in (("cpu", 1), ("cuda", 0)):
        c = replace(a, device=device)
        d = replace(c, machine={**a.machine, "host": "node-2"})
        assert len(refuse([[c], [d]], ["machine"])) == count


def test_different_granularity_is_refused_and_where_allowed_not_compared() -> None:
    def engines(name: str, grain: str) -> RunMeasures:
        run = steady(name, 0.3, granularity=grain)
        return replace(run, values={**run.values, "rollout_generating_s": Value(0.5)})

    a, b = side("a", engines("a", "engine")), side("b", engines("b", "pool"))
    with pytest.raises(SpecError, match="granularity"):
        compare_sides([a, b])
    (pair,) = compare_sides([a, b], allowed=["granularity"]).pairs
    claim = pair.claim("rollout_generating_s")
    assert claim is not None
    assert (claim.verdict, claim.contrast) == (Verdict.NOT_COMPARABLE, None)
    step = pair.claim("step_time_s")
    assert step is not None
    assert step.contrast is not None


def test_a_what_that_is_none_is_named() -> None:
    with pytest.raises(SpecError, match="--allow-different weather: allowed is one of work, machine, granularity"):
        refuse([[steady("a", 0.3)], [steady("b", 0.3)]], ["weather"])


def test_bad_runs_are_left_out_and_a_side_of_none_is_refused() -> None:
    bad = steady("bad", 0.3, problems=("did not finish (status failed)",))
    whole = side("mixed", bad, steady("good", 0.3))
    assert [run.run_id for run in whole.runs] == ["good"]
    assert whole.left_out == (("bad", "did not finish (status failed)"),)
    with pytest.raises(SpecError, match="only: no run that may be compared: bad did not finish"):
        compare_sides([side("a", steady("a", 0.3)), side("only", bad)])


def test_a_run_is_given_once() -> None:
    with pytest.raises(SpecError, match="same: in a and in b"):
        compare_sides([side("a", steady("same", 0.3)), side("b", steady("same", 0.3))])
    with pytest.raises(SpecError, match="nothing to compare with"):
        compare_sides([side("a", steady("a", 0.3))])


def test_frameworks_on_cpu_get_no_verdict() -> None:
    a = several("a", 0.3)
    b = several("b", 0.6, framework="areal")
    assert no_verdict(a.runs, b.runs) == ON_CPU
    (pair,) = compare_sides([a, b]).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.verdict is Verdict.NONE
    assert claim.contrast is not None  # shown all the same
    assert not no_verdict(a.runs, several("c", 0.3).runs)
    on_gpus = [replace(run, device="cuda") for run in (*a.runs, *b.runs)]
    assert not no_verdict(on_gpus[:4], on_gpus[4:])


def test_a_change_is_claimed_of_runs_and_blamed() -> None:
    (pair,) = compare_sides([several("a", 0.3), several("b", 0.4)]).pairs
    for measure in ("step_time_s", "phase_train_s"):
        claim = pair.claim(measure)
        assert claim is not None
        assert claim.verdict is Verdict.WORSE, measure
    rate = pair.claim("throughput_tokens_per_s_gpu")
    assert rate is not None
    assert rate.verdict is Verdict.WORSE
    assert not isinstance(pair.blame, str)
    assert pair.blame.culprit is not None
    assert pair.blame.culprit.name == "phase_train_s"


def test_single_runs_are_paired_by_plan_and_claim_nothing() -> None:
    (pair,) = compare_sides([side("a", steady("a", 0.3)), side("b", steady("b", 0.4))]).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.contrast is not None
    assert claim.contrast.basis == "within runs only"
    assert claim.verdict is Verdict.UNDERPOWERED
    assert claim.equivalent is None


def test_a_baseline_tells_how_single_runs_vary() -> None:
    noise = several("noise", 0.3, 5)
    a, b = side("a", steady("a", 0.3)), side("b", steady("b", 0.45))
    (pair,) = compare_sides([a, b], noise=noise).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.verdict is Verdict.WORSE
    assert claim.contrast is not None
    assert claim.contrast.basis == "runs and a baseline's noise"
    with pytest.raises(SpecError, match=r"another cell than those of a: framework \(areal, not simulated\)"):
        compare_sides([a, b], noise=several("noise", 0.3, framework="areal"))
    with pytest.raises(SpecError, match="3 or more"):
        compare_sides([a, b], noise=several("noise", 0.3, 2))


def test_runs_of_different_length_are_compared_on_the_plans_they_share() -> None:
    """The long run's last steps are slow by their plans, not by the system."""
    short = [made_run(f"s{i}", {"phase_train_s": [1.0, 2.0]}, plans=["p1", "p2"]) for i in range(2)]
    long = [made_run(f"l{i}", {"phase_train_s": [1.0, 2.0, 9.0]}, plans=["p1", "p2", "p3"]) for i in range(2)]
    (pair,) = compare_sides([side("short", *short), side("long", *long)]).pairs
    assert pair.common_plans == 2
    claim = pair.claim("step_time_s")
    assert claim is not None
    assert claim.contrast is not None
    assert claim.contrast.estimate == pytest.approx(1.0)


def test_async_runs_are_not_paired() -> None:
    runs = [steady(f"r{i}", 0.3, placement="async") for i in range(2)]
    assert on_common_plans(runs) == (runs, None)
    twice = made_run("twice", {"phase_train_s": [1.0, 2.0]}, plans=["p", "p"])
    assert on_common_plans([twice, twice])[1] is None


def test_seeds_that_both_sides_have_are_blocks() -> None:
    """What seeds differ by (here tenfold) is not noise between sides that have the same ones."""

    def seeds(label: str, factor: float) -> Side:
        runs = [
            replace(
                other_work(
                    steady(f"{label}{seed}", factor * 10.0**seed * (1 + 0.001 * seed), tool=0.0), seed=str(seed)
                ),
                seed=seed,
            )
            for seed in (1, 2, 3)
        ]
        return side(label, *runs)

    (pair,) = compare_sides([seeds("a", 1.0), seeds("b", 1.2)]).pairs
    claim = pair.claim("phase_train_s")
    assert claim is not None
    assert claim.contrast is not None
    assert claim.contrast.basis == "pairs of runs"
    assert claim.contrast.estimate == pytest.approx(1.2)
    assert claim.verdict is Verdict.WORSE
    lone = side("lone", replace(other_work(steady("lone", 1.0), seed="9"), seed=9))
    with pytest.raises(SpecError, match="seed"):
        compare_sides([seeds("a", 1.0), lone])


def test_versions_and_machines_are_listed() -> None:
    a = steady("a", 0.3, versions={"vllm": "0.30.0"}, commit="one")
    b = steady("b", 0.3, versions={"vllm": "0.31.0"}, commit="two", machine={**a.machine, "driver": "580"})
    told = dict(others([[a], [b]]))
    assert told["version of vllm"] == [("0.30.0",), ("0.31.0",)]
    assert told["commit of bench"] == [("one",), ("two",)]
    assert told["driver"] == [("not on record",), ("580",)]
    assert "host" not in told
    assert others([[a], [a]]) == []
