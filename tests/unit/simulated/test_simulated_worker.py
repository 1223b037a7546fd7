"""The simulated worker as a real child: each placement's events, and that the record adds up."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest
from simulated_runs import Played, make_spec, play

from adapters.simulated.adapter import ADAPTER
from harness.protocol.phases import Phase
from harness.protocol.spec import Gpus, Offload, RunSpec
from workloads.deep_research.plan import PRESETS, draw_plan

PLACEMENTS = ("colocated", "disaggregated", "async")
SPECS = {name: make_spec(name, steps=5 if name == "async" else 3) for name in PLACEMENTS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    folder = tmp_path_factory.mktemp("simulated")
    return {name: play(spec, folder / name) for name, spec in SPECS.items()}


@pytest.fixture(params=PLACEMENTS)
def case(request: pytest.FixtureRequest, runs: dict[str, Played]) -> tuple[RunSpec, Played]:
    return SPECS[request.param], runs[request.param]


def test_it_ends_well_and_says_what_it_is(case: tuple[RunSpec, Played]) -> None:
    spec, run = case
    assert (run.code, run.stderr, run.damaged) == (0, "", [])
    assert run.hello.role == "controller"
    assert "simulated" in run.hello.versions
    assert run.bye is not None
    assert run.events[-1] == run.bye
    assert (run.bye.events, run.bye.lost_events) == (len(run.events) - 1, 0)
    assert f"step {spec.steps}/{spec.steps}" in run.stdout


def test_every_step_is_recorded_with_what_it_trained_on(case: tuple[RunSpec, Played]) -> None:
    spec, run = case
    assert [step.step for step in run.steps] == list(range(1, spec.steps + 1))
    assert [step.policy_version for step in run.steps] == list(range(1, spec.steps + 1))
    seen: set[str] = set()
    for step in run.steps:
        assert len(step.trajectory_ids) == spec.trajectories_per_step
        assert not step.dropped_ids
        assert not seen & set(step.trajectory_ids)  # nothing is trained on twice
        seen |= set(step.trajectory_ids)
        trained = [run.trajectories[name] for name in step.trajectory_ids]
        assert {t.status for t in trained} == {"ok"}
        assert step.loss_tokens == sum(t.generated_tokens for t in trained)
        tokens = sum(t.prompt_tokens + t.generated_tokens + t.observation_tokens for t in trained)
        assert step.processed_tokens == tokens
        rewards = [t.reward for t in trained if t.reward is not None]
        assert step.reward_mean == pytest.approx(fmean(rewards))
        assert step.grad_norm is not None
        assert step.grad_norm > 0
    costs = [step.recorder_ns for step in run.steps]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(costs))


def test_whatever_began_was_closed(case: tuple[RunSpec, Played]) -> None:
    _, run = case
    assert run.hung == []
    assert run.started == set(run.trajectories)


def test_what_was_played_is_the_plan(case: tuple[RunSpec, Played]) -> None:
    spec, run = case
    for closed in run.trajectories.values():
        plan = draw_plan(PRESETS[spec.preset], spec.seed, closed.prompt, closed.sample, spec.latency_scale)
        assert closed.prompt_tokens == plan.prompt_tokens
        spans = [s for s in run.spans if s.trajectory_id == closed.trajectory_id]
        turns = [s for s in spans if s.phase == "generation" and s.attributes["stop_reason"] == "length"]
        tools = [s for s in spans if s.phase == "tool" and s.attributes["status"] == "ok"]
        asked = [t.generated_tokens for t in plan.turns][: len(turns)]
        assert [s.attributes["generated_tokens"] for s in turns] == asked
        assert [s.attributes["tool"] for s in tools] == [t.tool for t in plan.turns][: len(tools)]
        assert [s.attributes["observation_tokens"] for s in tools] == [
            t.observation_tokens for t in plan.turns if t.latency_s is not None
        ][: len(tools)]
        assert all(s.end_ns - s.start_ns >= s.attributes["planned_ns"] for s in tools)  # type: ignore[operator]
        if closed.status == "ok":
            assert (closed.turns, closed.tool_calls) == (len(plan.turns), plan.tool_calls)
            assert closed.reward == plan.reward


def test_each_span_has_a_mapped_native_name_and_a_step(case: tuple[RunSpec, Played]) -> None:
    _, run = case
    for span in run.spans:
        phase = ADAPTER.phases[span.native_name]
        assert span.phase == (phase.value if phase else None)
        assert span.container == (phase is None)
        if span.trajectory_id is None:
            assert span.step is not None


def test_the_train_track_is_named(case: tuple[RunSpec, Played]) -> None:
    _, run = case
    # The median: a busy machine may stop the child anywhere, also between two spans, but not in most steps.
    assert median(run.other_s(step) for step in run.steps) <= 0.05
    for before, after in pairwise(run.steps):
        assert before.end_ns <= after.start_ns


def test_the_train_track_has_no_overlap(case: tuple[RunSpec, Played]) -> None:
    _, run = case
    leaves = sorted(
        (s.start_ns, s.end_ns)
        for s in run.spans
        if s.pool in ("train", "both") and not s.container and s.trajectory_id is None
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(leaves))


def test_weights_follow_each_update(case: tuple[RunSpec, Played]) -> None:
    spec, run = case
    pool = "both" if spec.placement == "colocated" else "rollout"
    syncs = [s for s in run.spans if s.phase == "weight_sync" and "version" in s.attributes]
    assert [s.attributes["version"] for s in syncs] == list(range(spec.steps + 1))
    assert {s.pool for s in syncs} == {pool}
    assert {s.attributes["engine"] for s in syncs} == {"simulated://engine-0"}
    for span in syncs:
        stages = [span.attributes[name] for name in ("pause_ns", "transfer_ns", "resume_ns")]
        assert sum(stages) == pytest.approx(span.end_ns - span.start_ns, rel=0.5)  # type: ignore[arg-type]


def test_the_sync_can_be_proven(case: tuple[RunSpec, Played]) -> None:
    spec, run = case
    probes = {
        (m.labels["source"], m.labels["version"]): m.values
        for m in run.metrics("probe_logprobs")
        if m.values is not None
    }
    versions = range(spec.warmup_steps + 1)
    assert set(probes) == {(source, version) for source in ("trainer", "engine") for version in versions}
    for version in versions:
        own, served = probes["trainer", version], probes["engine", version]
        assert mean_difference(own, served) < 1e-6
        if version:
            assert mean_difference(probes["trainer", version - 1], served) > 1e-3
    assert mean_difference(probes["trainer", 0], probes["trainer", 2]) > 1e-3
    worst = run.metrics("logprob_diff_max")
    assert worst
    assert all(m.value is not None and m.value <= 1e-4 for m in worst)
    assert all(m.labels == {"staleness": 0, "same_version": True} for m in worst)


def mean_difference(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return fmean(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_synchronous_placements_train_on_nothing_old(runs: dict[str, Played], placement: str) -> None:
    run = runs[placement]
    assert set(run.staleness()) == {0}
    assert {t.status for t in run.trajectories.values()} == {"ok"}
    assert {t.version_scheduled == t.version_first == t.version_last for t in run.trajectories.values()} == {True}


def test_async_trains_on_old_data_within_its_capacity(runs: dict[str, Played]) -> None:
    run, spec = runs["async"], SPECS["async"]
    ages = run.staleness()
    assert set(ages[: spec.trajectories_per_step]) == {0}  # nothing is older than version 0
    assert max(ages) >= 1
    # The rule itself, at every moment: groups admitted <= (max_staleness + version + 1) x batch.
    admitted: dict[int, int] = {}
    for closed in run.trajectories.values():
        assert closed.version_scheduled is not None
        admitted[closed.version_scheduled] = admitted.get(closed.version_scheduled, 0) + 1
    total = 0
    for version in sorted(admitted):
        total += admitted[version]
        assert total <= (spec.max_staleness + version + 1) * spec.trajectories_per_step


def test_async_cancels_what_is_in_flight_at_the_end(runs: dict[str, Played]) -> None:
    run, spec = runs["async"], SPECS["async"]
    trained = {name for step in run.steps for name in step.trajectory_ids}
    rest = set(run.trajectories) - trained
    assert len(rest) == spec.max_staleness * spec.trajectories_per_step
    assert {run.trajectories[name].status for name in rest} <= {"ok", "cancelled"}
    last = run.gates[-1]
    assert (last.open, last.why) == (False, "end of the run")


def test_async_generates_while_it_trains(runs: dict[str, Played]) -> None:
    run = runs["async"]
    trains = [s for s in run.spans if s.phase == "train"]
    turns = [s for s in run.spans if s.phase in ("generation", "tool") and s.pool == "rollout"]
    assert any(t.start_ns < s.end_ns and s.start_ns < t.end_ns for s in trains for t in turns)


def test_admission_is_closed_while_a_disaggregated_run_trains(runs: dict[str, Played]) -> None:
    run = runs["disaggregated"]
    assert [gate.open for gate in run.gates] == [True, False] * SPECS["disaggregated"].steps
    for train in (s for s in run.spans if s.phase == "train"):
        before = [gate for gate in run.gates if gate.mono_ns <= train.start_ns]
        assert before[-1].open is False
    waits = [s for s in run.spans if s.phase == "wait_rollout"]
    assert [s.step for s in waits] == [1, 2, 3]


def test_colocated_turns_lie_inside_the_native_generation_span(runs: dict[str, Played]) -> None:
    run = runs["colocated"]
    native = {s.step: s for s in run.spans if s.native_name == "generate"}
    assert {(s.pool, s.phase) for s in native.values()} == {("both", "generation")}
    for span in (s for s in run.spans if s.native_name in ("turn", "tool")):
        around = native[span.step]
        assert around.start_ns <= span.start_ns
        assert span.end_ns <= around.end_ns


def test_all_placements_offer_the_same_work(runs: dict[str, Played]) -> None:
    lengths = [
        {
            name: (t.prompt_tokens, t.turns, t.generated_tokens)
            for name, t in run.trajectories.items()
            if t.status == "ok"
        }
        for run in runs.values()
    ]
    common = set(lengths[0]) & set(lengths[1]) & set(lengths[2])
    assert len(common) >= SPECS["colocated"].trajectories_per_step
    assert all(lengths[0][name] == lengths[1][name] == lengths[2][name] for name in common)
    assert len({spec.work_digest for spec in SPECS.values()}) == 1


def test_several_engines_share_the_trajectories(tmp_path: Path) -> None:
    spec = make_spec(
        "disaggregated", steps=1, warmup_steps=0, batch_size=8, gpus=Gpus(train=2, rollout=4), rollout_tp=2
    )
    run = play(spec, tmp_path / "run")
    assert run.code == 0
    engines = {"simulated://engine-0", "simulated://engine-1"}
    assert {s.attributes["engine"] for s in run.spans if s.native_name == "turn"} == engines
    by_trajectory: dict[str, set[object]] = {}
    for turn in (s for s in run.spans if s.native_name == "turn"):
        by_trajectory.setdefault(str(turn.trajectory_id), set()).add(turn.attributes["engine"])
    assert all(len(served) == 1 for served in by_trajectory.values())
    updates = [s for s in run.spans if s.native_name == "update_weights"]
    assert {(s.unit, s.attributes["version"]) for s in updates} == {(e, v) for e in engines for v in (0, 1)}


def test_offload_is_a_phase_when_colocated(tmp_path: Path) -> None:
    spec = make_spec("colocated", steps=2, warmup_steps=1, batch_size=1, offload=Offload.OPTIMIZER)
    run = play(spec, tmp_path / "run")
    assert [s.native_name for s in run.spans if s.phase == Phase.OFFLOAD] == ["load_optimizer", "offload_optimizer"] * 2
