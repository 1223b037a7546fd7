"""Planted faults: each leaves the traces that the harness must cope with."""

import os
import re
import signal
from pathlib import Path
from statistics import fmean

import pytest
from simulated_runs import Played, end_process, finish, make_spec, play, start, wait_for

from adapters.simulated.faults import FAULTS, Faults
from harness.protocol.events import Failure
from harness.protocol.phases import Phase
from harness.protocol.spec import RunSpec


def small(placement: str, *faults: str, **changes: object) -> RunSpec:
    return make_spec(placement, **{"steps": 2, "warmup_steps": 1, "batch_size": 2, "faults": faults, **changes})


def failures(run: Played) -> list[tuple[str, str, str]]:
    return [(f.boundary, f.type, f.message) for f in run.of(Failure)]


@pytest.mark.parametrize("placement", ["colocated", "disaggregated", "async"])
def test_die(tmp_path: Path, placement: str) -> None:
    run = play(small(placement, "die=2"), tmp_path / "run")
    assert (run.code, run.bye, run.damaged) == (17, None, [])
    assert [step.step for step in run.steps] == [1]
    assert {(o.native_name, o.step) for o in run.hung if o.trajectory_id is None} == {("step", 2), ("train", 2)}
    assert failures(run) == []


@pytest.mark.parametrize("placement", ["colocated", "async"])
def test_hang(tmp_path: Path, placement: str) -> None:
    child = start(small(placement, "hang=1"), tmp_path / "run")
    try:
        wait_for(tmp_path / "run", '"train"')
        with pytest.raises(Exception, match="timed out"):
            child.wait(timeout=1.0)
    finally:
        child.terminate()
    run = finish(child, tmp_path / "run")
    assert (run.code, run.bye, run.steps) == (-signal.SIGTERM, None, [])
    assert ("train", 1) in {(o.native_name, o.step) for o in run.hung}


@pytest.mark.parametrize("placement", ["colocated", "async"])
def test_raise_is_a_recorded_failure(tmp_path: Path, placement: str) -> None:
    run = play(small(placement, "raise=2"), tmp_path / "run")
    assert (run.code, run.bye) == (1, None)
    assert failures(run) == [("worker", "RuntimeError", "planted failure in step 2")]
    assert "planted failure in step 2" in run.stderr
    # Nothing stays open: what was in flight is recorded as cancelled.
    assert run.hung == []
    assert run.started == set(run.trajectories)


def test_torn_line_costs_itself_only(tmp_path: Path) -> None:
    run = play(small("colocated", "torn-line=2"), tmp_path / "run")
    assert (run.code, run.bye) == (17, None)
    assert len(run.damaged) == 1
    assert [step.step for step in run.steps] == [1]


@pytest.mark.parametrize("phase", ["train", "tool", "generation", "weight_sync"])
def test_slow_phase(tmp_path: Path, phase: str) -> None:
    run = play(small("disaggregated", f"slow-phase={phase}:0.1", steps=1, warmup_steps=0), tmp_path / "run")
    plain = play(small("disaggregated", steps=1, warmup_steps=0), tmp_path / "plain")
    assert run.code == 0
    slow = [s.end_ns - s.start_ns for s in run.spans if s.phase == phase]
    usual = [s.end_ns - s.start_ns for s in plain.spans if s.phase == phase]
    assert len(slow) == len(usual)
    assert min(slow) >= 100_000_000
    assert min(slow) > min(usual)
    if phase == "tool":  # slower than planned, but never timed out
        assert {s.attributes["status"] for s in run.spans if s.phase == "tool"} == {"ok"}


def test_a_planted_sleep_is_named_by_no_one(tmp_path: Path) -> None:
    spec = small("colocated", "sleep-between=0.5", steps=3)
    run = play(spec, tmp_path / "run")
    slept = {int(step): int(ns) / 1e9 for step, ns in re.findall(r"sleep of step (\d+) took (\d+) ns", run.stdout)}
    assert min(slept.values()) >= 0.5
    ratios = [run.other_s(step) / slept[step.step] for step in run.steps]
    assert min(ratios) >= 1.0
    assert min(ratios) <= 1.05  # the quietest step: a busy machine may stop the child anywhere


def test_without_the_sync_the_proof_fails(tmp_path: Path) -> None:
    run = play(small("disaggregated", "no-sync", steps=3, warmup_steps=2), tmp_path / "run")
    assert run.code == 0  # nothing crashes: only the proof can tell
    syncs = [s for s in run.spans if s.phase == "weight_sync" and "version" in s.attributes]
    assert [s.attributes["version"] for s in syncs] == [0, 1, 2, 3]
    probes = {(m.labels["source"], m.labels["version"]): m.values for m in run.metrics("probe_logprobs")}

    def difference(trainer: int, engine: int) -> float:
        a, b = probes["trainer", trainer], probes["engine", engine]
        assert a is not None
        assert b is not None
        return fmean(abs(x - y) for x, y in zip(a, b, strict=True))

    assert difference(0, 2) < 1e-6  # the engine still has version 0
    assert difference(2, 2) > 1e-3
    assert difference(2, 2) > difference(1, 2)  # nearer to an older version than to its own
    worst = {m.step: m.value for m in run.metrics("logprob_diff_max")}
    assert worst[1] is not None
    assert worst[1] <= 1e-4
    assert worst[3] is not None
    assert worst[3] > 1e-3


def test_no_bye(tmp_path: Path) -> None:
    run = play(small("colocated", "no-bye"), tmp_path / "run")
    assert (run.code, run.bye) == (0, None)
    assert [step.step for step in run.steps] == [1, 2]


def test_the_orphan_outlives_the_run_in_its_own_session(tmp_path: Path) -> None:
    run = play(small("colocated", "fork-orphan"), tmp_path / "run")
    found = re.search(r"left process (\d+) behind", run.stdout)
    assert found
    pid = int(found.group(1))
    try:
        assert run.code == 0
        assert os.getsid(pid) == pid
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"BENCH_RUN_ID={(tmp_path / 'run').name}".encode() in environment
    finally:
        end_process(pid)


def test_overstale_breaks_the_bound(tmp_path: Path) -> None:
    spec = make_spec("async", steps=5, batch_size=2, faults=("overstale",))
    run = play(spec, tmp_path / "run")
    assert run.code == 0
    assert max(run.staleness()) > spec.max_staleness


def test_sigterm_leaves_a_readable_record(tmp_path: Path) -> None:
    child = start(make_spec("async", steps=60, latency_scale=1.0), tmp_path / "run")
    wait_for(tmp_path / "run", '"k":"step"')
    child.terminate()
    run = finish(child, tmp_path / "run")
    assert (run.code, run.bye, run.damaged, run.hung) == (143, None, [], [])
    assert failures(run) == [("worker", "message", "ended by signal 15")]
    assert "cancelled" in {t.status for t in run.trajectories.values()}


def test_a_spec_that_cannot_be_read_is_exit_2(tmp_path: Path) -> None:
    child = start(small("colocated", "no-such-fault"), tmp_path / "run")
    run = finish(child, tmp_path / "run")
    assert (run.code, run.events) == (2, [])
    assert "no-such-fault" in run.stderr


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("explode", "unknown"),
        ("die", "a step, 1 to 2"),
        ("die=0", "a step, 1 to 2"),
        ("hang=3", "a step, 1 to 2"),
        ("raise=soon", "a step, 1 to 2"),
        ("slow-phase=train", "seconds"),
        ("slow-phase=dreaming:1", "one of generation"),
        ("slow-phase=train:-1", "seconds"),
        ("slow-phase=train:nan", "seconds"),
        ("sleep-between=0", "seconds"),
        ("no-sync=1", "no value"),
    ],
)
def test_a_fault_that_means_nothing_is_refused(fault: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        Faults.of(small("colocated", fault))


def test_faults_are_read(tmp_path: Path) -> None:
    faults = Faults.of(small("async", "torn-line", "slow-phase=train:0.25", "overstale"))
    assert (faults.torn_line, faults.slow_phase, faults.slow_s, faults.overstale) == (1, Phase.TRAIN, 0.25, True)
    assert (faults.extra_s(Phase.TRAIN), faults.extra_s(Phase.TOOL)) == (0.25, 0.0)
    assert Faults.of(small("async")) == Faults()
    assert set(FAULTS) >= {"die", "hang", "torn-line", "no-sync"}
