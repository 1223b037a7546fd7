"""Whole run folders: killed ones, odd ones, several processes and hosts; and that collecting again changes nothing."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from small_runs import HOST, PID, bye, end_of, follow, hello, make_run, make_spec, plan_of, step, write_file

from harness.protocol.events import Event, Failure, Gate, Metric, Open, Span, Trajectory
from harness.protocol.spec import Load
from results.collect import collect
from results.schema import TABLES
from results.store import COMPUTED, RunTables, load_run, table_path, write_table

SPEC = make_spec()


def recording(run: RunTables) -> dict[str, str]:
    rows = run.tables["failures"].to_pylist()
    return {row["type"]: row["message"] for row in rows if row["boundary"] == "recording"}


def trajectory_rows(run: RunTables) -> dict[str, dict[str, Any]]:
    return {row["trajectory_id"]: row for row in run.tables["trajectories"].to_pylist()}


def file_digests(run_dir: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (run_dir / "tables").iterdir()}


def test_collecting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = follow(plan_of(SPEC, 0, 0), 2_000), follow(plan_of(SPEC, 1, 0), 2_000)
    run_dir = make_run(tmp_path / "run", [hello(), *one, bye(len(one) + 1)])
    write_file(run_dir, [hello(pid=43), *two], "node-1-43.jsonl")
    collect(run_dir)
    first = file_digests(run_dir)
    assert set(first) == {f"{name}.parquet" for name in TABLES if name not in COMPUTED}
    collect(run_dir)
    assert file_digests(run_dir) == first


def test_figures_computed_from_older_tables_are_removed(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    run = collect(run_dir)
    for name in COMPUTED:
        assert load_run(run_dir).tables[name].num_rows == 0  # a run of before there was such a table, too
        write_table(table_path(run_dir, name), name, run.tables[name], run.run_id)
    collect(run_dir)
    for name in COMPUTED:
        assert not table_path(run_dir, name).exists()
        assert load_run(run_dir).tables[name].num_rows == 0


def test_a_run_that_never_started_its_child_has_empty_tables(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", status="failed")
    (run_dir / "events").rmdir()
    run = collect(run_dir)
    assert {name for name, table in run.tables.items() if table.num_rows} == {"runs"}


def test_a_killed_run_keeps_what_it_was_doing(tmp_path: Path) -> None:
    plan = plan_of(SPEC, 3, 1)
    cut = follow(plan, 5_000, turns=1, close=False, versions=(2, 2), attempt=1)
    done = follow(plan_of(SPEC, 0, 0), 2_000, open_id=2)
    hung = Open(id=9, start_ns=10**13, phase="weight_sync", native_name="sync_weights", pool="train", step=3)
    closed = Span(phase="train", native_name="t", start_ns=1, end_ns=2, open_id=8)
    opened = Open(id=8, start_ns=1, phase="train", native_name="t")
    run = collect(make_run(tmp_path / "run", [hello(), *done, *cut, opened, closed, hung], status="running"))
    opens = {row["native_name"]: row for row in run.tables["opens"].to_pylist()}
    assert set(opens) == {"trajectory", "sync_weights"}
    assert opens["sync_weights"] | {} == {
        "host": HOST,
        "pid": PID,
        "role": "controller",
        "id": 9,
        "start_ns": 10**13,
        "phase": "weight_sync",
        "native_name": "sync_weights",
        "pool": "train",
        "unit": None,
        "step": 3,
        "trajectory_id": None,
        "turn": None,
    }
    (process,) = run.tables["processes"].to_pylist()
    assert (process["ended"], process["bye_ns"], process["last_ns"]) == (False, None, 10**13)
    row = trajectory_rows(run)["p3-s1-a1"]
    turn = plan.turns[0]
    assert (row["status"], row["start_ns"], row["end_ns"]) == ("open", 5_000, None)
    assert (row["group_id"], row["prompt"], row["sample"], row["attempt"]) == ("p3", 3, 1, 1)
    assert (row["turns"], row["tool_calls"]) == (1, 1)
    assert (row["generated_tokens"], row["observation_tokens"]) == (turn.generated_tokens, turn.observation_tokens)
    assert (row["version_first"], row["version_last"], row["version_scheduled"]) == (2, 2, None)
    assert row["planned_turns"] == len(plan.turns)
    assert trajectory_rows(run)["p0-s0-a0"]["status"] == "ok"
    assert run.meta["status"] == "interrupted"
    assert recording(run) == {}


def test_a_trajectory_whose_open_line_was_lost_is_known_by_its_turns(tmp_path: Path) -> None:
    events = [
        event for event in follow(plan_of(SPEC, 0, 0), 5_000, turns=2, close=False) if not isinstance(event, Open)
    ]
    row = trajectory_rows(collect(make_run(tmp_path / "run", [hello(), *events])))["p0-s0-a0"]
    assert (row["status"], row["start_ns"], row["turns"]) == ("open", 5_000, 2)


def test_a_turn_without_a_reply_is_no_turn_of_an_open_trajectory(tmp_path: Path) -> None:
    plan = plan_of(SPEC, 0, 0)
    events = follow(plan, 5_000, turns=1, close=False)
    end = end_of(events)
    late = Span(
        phase="generation",
        native_name="turn",
        start_ns=end,
        end_ns=end + 5,
        trajectory_id="p0-s0-a0",
        turn=1,
        attributes={"stop_reason": "cancelled"},
    )
    run = collect(make_run(tmp_path / "run", [hello(), *events, late]))
    assert run.tables["turns"].num_rows == 2
    row = trajectory_rows(run)["p0-s0-a0"]
    assert (row["turns"], row["generated_tokens"]) == (1, plan.turns[0].generated_tokens)


def test_an_open_trajectory_of_another_name_is_kept_without_a_plan(tmp_path: Path) -> None:
    begin = Open(id=1, start_ns=5, phase=None, native_name="trajectory", trajectory_id="elsewhere")
    row = trajectory_rows(collect(make_run(tmp_path / "run", [hello(), begin])))["elsewhere"]
    assert row["prompt"] is row["group_id"] is row["planned_turns"] is row["prompt_tokens"] is None
    assert (row["turns"], row["generated_tokens"]) == (0, 0)


def test_the_step_that_consumed_a_trajectory_is_joined(tmp_path: Path) -> None:
    events: list[Event] = [hello()]
    for sample in range(3):
        events += follow(plan_of(SPEC, 0, sample), 2_000, open_id=sample + 1)
    end = end_of(events)
    events.append(step(1, 1_000, end + 10, ["p0-s1-a0"]))
    events.append(replace(step(2, end + 10, end + 20, ["p0-s0-a0"], dropped_ids=("p0-s2-a0",)), policy_version=5))
    rows = trajectory_rows(collect(make_run(tmp_path / "run", events)))
    joined = ("step_consumed", "version_trained", "consumed_ns", "step_dropped")
    assert [rows["p0-s1-a0"][name] for name in joined] == [1, 0, end + 10, None]
    assert [rows["p0-s0-a0"][name] for name in joined] == [2, 4, end + 20, None]
    assert [rows["p0-s2-a0"][name] for name in joined] == [None, None, None, 2]


def test_plans_are_joined_for_the_offered_work_only(tmp_path: Path) -> None:
    plan = plan_of(SPEC, 1, 1)
    events = [hello(), *follow(plan, 2_000)]
    row = trajectory_rows(collect(make_run(tmp_path / "fixed", events)))["p1-s1-a0"]
    assert row["planned_turns"] == len(plan.turns) == row["turns"]
    assert row["planned_tool_calls"] == len(plan.turns) - 1
    assert row["planned_generated_tokens"] == sum(turn.generated_tokens for turn in plan.turns)
    assert row["planned_observation_tokens"] == sum(turn.observation_tokens for turn in plan.turns)
    assert row["planned_tool_ns"] == sum(round(turn.latency_s * 1e9) for turn in plan.turns if turn.latency_s)
    live = make_run(tmp_path / "live", events, spec=make_spec(load=Load.LIVE))
    assert trajectory_rows(collect(live))["p1-s1-a0"]["planned_turns"] is None


def test_a_name_recorded_twice_is_kept_twice_and_the_earlier_end_is_not_consumed(tmp_path: Path) -> None:
    first, again = follow(plan_of(SPEC, 0, 0), 2_000), follow(plan_of(SPEC, 0, 0), 10**13, open_id=2)
    end = end_of(again)
    run = collect(make_run(tmp_path / "run", [hello(), *first, *again, step(1, 1, end, ["p0-s0-a0"])]))
    rows = run.tables["trajectories"].to_pylist()
    assert [row["step_consumed"] for row in rows] == [None, 1]
    assert recording(run) == {
        "duplicate_trajectory": "trajectory p0-s0-a0 was recorded 2 times; all rows are kept",
    }


def test_a_retry_is_another_trajectory(tmp_path: Path) -> None:
    events = [*follow(plan_of(SPEC, 0, 0), 2_000), *follow(plan_of(SPEC, 0, 0), 10**13, open_id=2, attempt=1)]
    run = collect(make_run(tmp_path / "run", [hello(), *events, bye(len(events) + 1)]))
    assert set(trajectory_rows(run)) == {"p0-s0-a0", "p0-s0-a1"}
    assert recording(run) == {}


def test_steps_that_do_not_match_the_trajectories_are_told(tmp_path: Path) -> None:
    events = follow(plan_of(SPEC, 0, 0), 2_000)
    end = end_of(events)
    ghosts = [f"ghost-{number}" for number in range(8)]
    steps = [step(1, 1, end, ["p0-s0-a0", *ghosts]), step(2, end, end + 5, ["p0-s0-a0"]), step(2, end, end + 6, [])]
    run = collect(make_run(tmp_path / "run", [hello(), *events, *steps]))
    found = recording(run)
    assert set(found) == {"unknown_trajectory", "trained_twice", "duplicate_step"}
    assert found["trained_twice"] == "trajectory p0-s0-a0 was trained on by step 1 and again by 2"
    assert found["unknown_trajectory"].endswith("; and 3 more")
    assert trajectory_rows(run)["p0-s0-a0"]["step_consumed"] == 1


def test_processes_are_merged_by_time_then_by_file(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    gates = [Gate(mono_ns=ns, open=True, why=why) for ns, why in ((7, "b1"), (5, "b2"), (5, "b3"))]
    write_file(run_dir, [hello(pid=2), *gates], "node-1-2.jsonl")
    gates = [Gate(mono_ns=ns, open=True, why=why) for ns, why in ((5, "a1"), (6, "a2"))]
    write_file(run_dir, [hello(pid=1), *gates], "node-1-1.jsonl")
    run = collect(run_dir)
    assert run.frame("gates")["why"].tolist() == ["a1", "b2", "b3", "a2", "b1"]
    assert run.frame("processes")["pid"].tolist() == [1, 2]
    assert recording(run) == {}


def test_a_process_id_used_again_is_another_process(tmp_path: Path) -> None:
    # Both open something with id 1; the second one's end must not close the first one's.
    begin = Open(id=1, start_ns=10, phase="train", native_name="first")
    again = replace(begin, native_name="second", start_ns=30)
    end = Span(phase="train", native_name="second", start_ns=30, end_ns=40, open_id=1)
    run = collect(make_run(tmp_path / "run", [hello(), begin, hello(role="train"), again, end, bye(3)]))
    assert run.frame("opens")["native_name"].tolist() == ["first"]
    rows = run.tables["processes"].to_pylist()
    assert [(row["role"], row["events"], row["ended"]) for row in rows] == [
        ("controller", 2, False),
        ("train", 4, True),
    ]


def test_hosts_with_clocks_of_their_own_are_told(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", [hello(wall_ns=10**18, mono_ns=10**12), bye(1)])
    other = hello(host="node-2", wall_ns=10**18, mono_ns=10**11)
    write_file(run_dir, [other, bye(1)], "node-2-42.jsonl")
    run = collect(run_dir)
    assert run.frame("processes")["wall_minus_mono_ns"].tolist() == [10**18 - 10**12, 10**18 - 10**11]
    assert recording(run) == {
        "several_clocks": "times of node-1, node-2 are of different clocks: see processes.wall_minus_mono_ns"
    }
    near = replace(other, mono_ns=10**12 + 1_000_000)  # two containers on one kernel
    write_file(run_dir, [near, bye(1)], "node-2-42.jsonl")
    assert recording(collect(run_dir)) == {}


def test_what_a_process_says_it_lost_is_told(tmp_path: Path) -> None:
    gate = Gate(mono_ns=5, open=True, why="x")
    last = replace(bye(7), lost_events=3)
    found = recording(collect(make_run(tmp_path / "run", [hello(), gate, last])))
    assert found["lost_events"] == "events/node-1-42.jsonl: 3 events could not be written"
    assert found["missing_events"] == "events/node-1-42.jsonl: 5 events it wrote are not there"


def test_files_that_do_not_belong_are_told_and_read(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run", [hello(run_id="run-2"), bye(1)])
    write_file(run_dir, [hello(pid=7, protocol=99)], "node-1-7.jsonl")
    write_file(run_dir, [Gate(mono_ns=5, open=True, why="x")], "odd name.jsonl")
    run = collect(run_dir)
    found = recording(run)
    assert found["foreign_run"] == "events/node-1-42.jsonl says it belongs to run run-2"
    assert found["newer_protocol"] == "events/node-1-7.jsonl speaks protocol 99"
    assert found["no_hello"].startswith("events/odd name.jsonl")
    (gate,) = run.tables["gates"].to_pylist()
    assert (gate["host"], gate["pid"]) == ("odd name", -1)


def test_typed_columns_come_from_the_attributes_and_odd_ones_stay_unknown(tmp_path: Path) -> None:
    sync = Span(
        phase="weight_sync",
        native_name="sync",
        start_ns=10,
        end_ns=90,
        pool="rollout",
        step=2,
        attributes={"version": 3, "engine": "e-1", "pause_ns": 5, "transfer_ns": 60, "resume_ns": 15, "bytes": 4096},
    )
    no_version = replace(sync, attributes={"engine": "e-1"})
    turn = Span(
        phase="generation",
        native_name="turn",
        start_ns=1,
        end_ns=2,
        trajectory_id="t",
        attributes={"engine": 5, "generated_tokens": "12", "prompt_tokens": 7, "version_start": True},
    )
    pool_span = Span(phase="generation", native_name="generate", start_ns=1, end_ns=2, pool="both")
    run = collect(make_run(tmp_path / "run", [hello(), sync, no_version, turn, pool_span]))
    (row,) = run.tables["weight_syncs"].to_pylist()
    assert row == {
        "host": HOST,
        "pid": PID,
        "step": 2,
        "version": 3,
        "engine": "e-1",
        "pool": "rollout",
        "unit": None,
        "start_ns": 10,
        "end_ns": 90,
        "pause_ns": 5,
        "transfer_ns": 60,
        "resume_ns": 15,
        "bytes": 4096,
    }
    (row,) = run.tables["turns"].to_pylist()
    assert (row["prompt_tokens"], row["generated_tokens"], row["engine"], row["version_start"]) == (7, None, None, None)
    assert "generation span 'turn': engine = '5'" in recording(run)["bad_attribute"]
    # What a typed column holds is not stored twice; what none could hold is not lost.
    rests = run.frame("spans")["attributes_json"].tolist()
    assert rests == ['{"engine":5,"generated_tokens":"12","version_start":true}', "{}", "{}", '{"engine":"e-1"}']


def test_damaged_samples_are_told(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    (run_dir / "samples").mkdir()
    (run_dir / "samples" / "node-1.arrows").write_bytes(b"no arrow stream at all")
    run = collect(run_dir)
    assert run.tables["samples"].num_rows == 0
    assert "samples/node-1.arrows: " in recording(run)["damaged_samples"]


def test_recorded_failures_come_before_those_found_and_are_kept(tmp_path: Path) -> None:
    late = Failure(mono_ns=9, boundary="tool", type="E", message="late")
    early = Failure(mono_ns=2, boundary="engine", type="E", message="early")
    run = collect(make_run(tmp_path / "run", [hello(), late, early, replace(bye(3), lost_events=1)]))
    assert run.frame("failures")["boundary"].tolist() == ["engine", "tool", "recording"]


def test_more_events_than_a_batch_keep_their_order(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("results.rows.BATCH_ROWS", 10)
    metrics = [Metric(name=str(number), mono_ns=number % 3, value=1.0) for number in range(100)]
    run = collect(make_run(tmp_path / "run", [hello(), *metrics]))
    names = [int(name) for name in run.frame("probes")["name"]]
    assert names == sorted(range(100), key=lambda number: (number % 3, number))


def test_a_trajectory_that_closed_in_another_process_is_not_open(tmp_path: Path) -> None:
    events = follow(plan_of(SPEC, 0, 0), 2_000)
    closing = [replace(event, open_id=None) for event in events if isinstance(event, Trajectory)]
    run_dir = make_run(tmp_path / "run", [hello(), *(event for event in events if not isinstance(event, Trajectory))])
    write_file(run_dir, [hello(pid=43), *closing], "node-1-43.jsonl")
    run = collect(run_dir)
    assert [row["status"] for row in run.tables["trajectories"].to_pylist()] == ["ok"]
    assert run.tables["opens"].num_rows == 0
