"""What hosts recorded by clocks of their own stands on one axis once collected, with what is uncertain about it."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.nodes import gather
from harness.nodes.clock import METRIC, Clock, Offset
from harness.progress import Progress
from harness.protocol.events import Bye, Gate, Metric, Open, Span, Step, Trajectory, encode
from harness.protocol.recorder import make_hello
from harness.specs import resolve
from harness.telemetry.segment import Segment
from results.clocks import UNFINISHED, Clocks, offsets_at
from results.collect import collect
from results.samples import read_gpus
from results.store import load_run

SECOND = 1_000_000_000
AHEAD = 1_000_000 * SECOND  # the far host was booted long before
HERE, FAR = "here", "far"


@given(
    offsets=st.lists(
        st.tuples(st.integers(0, 10**11), st.integers(-(10**6), 10**6), st.integers(0, 10**6)),
        min_size=1,
        max_size=9,
        unique_by=lambda one: one[0],
    ),
    times=st.lists(st.integers(-(10**10), 2 * 10**11), min_size=1, max_size=30),
)
def test_many_instants_at_once_are_moved_as_one_by_one(offsets, times):
    clock = Clock(
        Offset(mono_ns=at, offset_ns=offset, uncertainty_ns=error, round_trip_ns=0, rounds=1)
        for at, offset, error in offsets
    )
    found = offsets_at(clock, np.array(times, dtype=np.int64))
    for offset, one in zip(found.tolist(), times, strict=True):
        assert abs(offset - (one - clock.here(one))) <= 1
        assert abs(offset - clock.offset_at(one)[0]) <= 3


def compared(at_ns, offset_ns=AHEAD, uncertainty_ns=400_000, host=FAR):
    labels = {"host": host, "at_ns": at_ns, "offset_ns": offset_ns, "uncertainty_ns": uncertainty_ns}
    return Metric(name=METRIC, mono_ns=at_ns, value=0.0, labels={**labels, "round_trip_ns": 800_000, "rounds": 8})


def said(name, at_ns, **labels):
    return Metric(name=name, mono_ns=at_ns, labels={"host": FAR, **labels})


def hello(host, pid, role, at_ns):
    return replace(make_hello("run-1", role), host=host, pid=pid, mono_ns=at_ns, wall_ns=at_ns + 10**18)


def far_events():
    at = AHEAD + 5 * SECOND
    common = {"pool": "rollout", "trajectory_id": "t1", "turn": 1}
    yield hello(FAR, 7, "rollout", at)
    attributes = {"engine": "http://far:1", "submitted_ns": at + 1, "generated_tokens": 3, "prompt_tokens": 2}
    yield Span(
        phase="generation", native_name="turn", start_ns=at + 10, end_ns=at + 20, attributes=attributes, **common
    )
    yield Gate(mono_ns=at + 30, open=True, why="x")
    yield Open(id=9, start_ns=at + 40, phase="tool", native_name="search")
    yield Bye(mono_ns=at + 50, wall_ns=1, events=4, lost_events=0, recorder_ns=1)


@pytest.fixture
def run_dir(tmp_path):
    for part in ("events", "samples", "logs", "tables"):
        (tmp_path / part).mkdir()
    spec = resolve({"framework": "simulated", "placement": "async", "device": "cpu"}).spec
    (tmp_path / "spec.json").write_text(spec.to_json())
    (tmp_path / "meta.json").write_text(json.dumps({"run_id": "run-1", "machine": {"host": HERE}}))
    return tmp_path


def write(run_dir, name, events):
    (run_dir / "events" / name).write_text("".join(encode(event) + "\n" for event in events))


def gathered(run_dir, *more):
    begin = hello(HERE, 2, "gatherer", SECOND)
    write(run_dir, "gatherer-here-2.jsonl", [begin, *(compared(at * SECOND) for at in range(2, 12, 2)), *more])


def sampled(run_dir, host, times):
    segment = Segment(run_dir / "samples" / f"{host}-1-1.arrows")
    for at_ns in times:
        segment.append({"host": host, "mono_ns": at_ns, "uncertainty_ns": 5, "cpu_ratio": 0.5})
    segment.close()


def test_events_and_samples_of_two_hosts_on_one_axis(run_dir):
    write(run_dir, "far-7.jsonl", far_events())
    controller = [hello(HERE, 1, "controller", SECOND)]
    controller.append(Step(step=1, policy_version=1, start_ns=4 * SECOND, end_ns=6 * SECOND, trajectory_ids=("t1",)))
    write(run_dir, "here-1.jsonl", controller)
    gathered(run_dir, said(gather.END, 12 * SECOND, complete=True))
    sampled(run_dir, HERE, [2 * SECOND, 4 * SECOND])
    sampled(run_dir, FAR, [AHEAD + 3 * SECOND, AHEAD + 5 * SECOND])
    run = collect(run_dir)
    (turn,) = run.tables["turns"].to_pylist()
    assert (turn["submitted_ns"], turn["start_ns"], turn["end_ns"]) == tuple(5 * SECOND + at for at in (1, 10, 20))
    assert run.tables["gates"]["mono_ns"].to_pylist() == [5 * SECOND + 30]
    assert run.tables["opens"]["start_ns"].to_pylist() == [5 * SECOND + 40]
    samples = run.tables["samples"]
    assert samples["mono_ns"].to_pylist() == [at * SECOND for at in (2, 3, 4, 5)]
    assert samples["host"].to_pylist() == [HERE, FAR, HERE, FAR]
    process = {row["host"]: row for row in run.tables["processes"].to_pylist() if row["role"] == "rollout"}[FAR]
    assert (process["first_ns"], process["last_ns"], process["bye_ns"]) == (
        5 * SECOND,
        5 * SECOND + 50,
        5 * SECOND + 50,
    )
    assert "several_clocks" not in run.tables["failures"]["type"].to_pylist()
    here, far = sorted(load_run(run_dir).tables["hosts"].to_pylist(), key=lambda row: row["host"] != HERE)
    assert (here["reference"], here["offset_ns"], here["uncertainty_ns"]) == (True, 0, 0)
    assert (far["reference"], far["offset_ns"], far["comparisons"], far["steady"]) == (False, AHEAD, 5, True)
    assert 400_000 <= far["uncertainty_ns"] <= 400_000 + 200_000 + 200 * 1_000  # measured, and 1 s from a comparison
    assert (far["samples"], far["last_ns"], far["lost"], far["reason"]) == (2, 5 * SECOND + 50, False, None)
    assert far["drift_ppm"] == 0.0


def test_a_lost_node_is_told(run_dir):
    write(run_dir, "far-7.jsonl", [hello(FAR, 7, "rollout", AHEAD + 3 * SECOND)])
    gathered(run_dir, said(gather.LOST, 9 * SECOND, reason="dead", for_good=True), said(gather.END, 9, complete=False))
    (far,) = [row for row in collect(run_dir).tables["hosts"].to_pylist() if row["host"] == FAR]
    assert (far["lost"], far["reason"], far["last_ns"]) == (True, "dead", 3 * SECOND)


def test_a_node_that_came_back_is_not_lost(run_dir):
    gathered(run_dir, said(gather.LOST, 5, reason="hiccup", for_good=False), said(gather.RETURNED, 6))
    (far,) = [row for row in collect(run_dir).tables["hosts"].to_pylist() if row["host"] == FAR]
    assert (far["lost"], far["first_ns"]) == (False, None)


@pytest.mark.parametrize("complete", [True, False])
def test_a_gathering_that_did_not_come_to_its_end_is_told(run_dir, complete):
    gathered(run_dir, said(gather.BEGIN, 3), *([said(gather.END, 9, complete=True)] if complete else []))
    (far,) = [row for row in collect(run_dir).tables["hosts"].to_pylist() if row["host"] == FAR]
    assert far["lost"] is not complete
    assert far["reason"] == (None if complete else UNFINISHED)


def test_a_host_whose_clock_was_not_compared_keeps_its_times_and_is_told(run_dir):
    write(run_dir, "far-7.jsonl", far_events())
    write(run_dir, "here-1.jsonl", [hello(HERE, 1, "controller", SECOND)])
    run = collect(run_dir)
    assert run.tables["gates"]["mono_ns"].to_pylist() == [AHEAD + 5 * SECOND + 30]
    far = {row["host"]: row for row in run.tables["hosts"].to_pylist()}[FAR]
    assert far["offset_ns"] is far["uncertainty_ns"] is far["steady"] is None
    assert "was not compared" in far["reason"]


def test_trajectories_never_end_before_they_begin(run_dir):
    gathered(run_dir)
    clocks = Clocks.read(run_dir / "events")
    event = Trajectory(
        trajectory_id="t", group_id="g", prompt=0, sample=0, attempt=0, status="ok", start_ns=AHEAD + 7,
        end_ns=AHEAD + 7, turns=0, tool_calls=0, tool_ns=0, prompt_tokens=0, generated_tokens=0, observation_tokens=0,
    )  # fmt: skip
    moved = clocks.event(FAR, event)
    assert moved.start_ns == moved.end_ns == 7
    assert clocks.event(HERE, event) is event


def test_damaged_comparisons_are_counted_and_no_clock(run_dir):
    gathered(run_dir)
    with (run_dir / "events" / "gatherer-here-2.jsonl").open("a") as file:
        file.write(encode(Metric(name=METRIC, mono_ns=1, labels={"host": "other", "offset_ns": "x"})) + "\n{cut")
    clocks = Clocks.read(run_dir / "events")
    assert clocks.damaged == 1
    assert set(clocks.clocks) == {FAR}


def test_an_empty_table_stays_so(run_dir):
    gathered(run_dir)
    table = pa.table({"host": pa.array([], pa.string()), "mono_ns": pa.array([], pa.int64())})
    assert Clocks.read(run_dir / "events").table(table) is table


def test_gpus_of_all_hosts_are_read(run_dir):
    for name, host in (("gpus.json", HERE), ("gpus-far.json", FAR)):
        (run_dir / "samples" / name).write_text(
            json.dumps({"gpus": [{"host": host, "index": 0, "uuid": f"GPU-{host}"}]})
        )
    assert [gpu["uuid"] for gpu in read_gpus(run_dir / "samples")] == ["GPU-far", "GPU-here"]


def test_what_is_open_elsewhere_is_shown_by_this_clock():
    progress = Progress()
    progress.add("far-7.jsonl", hello(FAR, 7, "rollout", AHEAD))
    progress.add("here-1.jsonl", hello(HERE, 1, "controller", 0))
    progress.add("far-7.jsonl", Open(id=1, start_ns=AHEAD + 5 * SECOND, phase="tool", native_name="search"))
    progress.add("here-1.jsonl", Open(id=1, start_ns=6 * SECOND, phase="train", native_name="train"))
    progress.add("gatherer-here-2.jsonl", compared(7 * SECOND))
    first, second = (phase.describe(8 * SECOND) for phase in progress.open_phases())
    assert "open for 3 s, rollout of far-7" in first
    assert "open for 2 s, controller of here-1" in second


def test_tokens_generated_elsewhere_count_by_this_clock():
    progress = Progress()
    progress.add("far-7.jsonl", hello(FAR, 7, "rollout", AHEAD))
    progress.add("gatherer-here-2.jsonl", compared(SECOND))
    for event in far_events():
        progress.add("far-7.jsonl", event)
    assert progress.tokens_per_s(6 * SECOND) == pytest.approx(3, rel=0.01)
