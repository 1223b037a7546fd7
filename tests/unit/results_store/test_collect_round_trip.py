"""Every event that can be recorded comes back from its table as it was, whatever is in it, however a file ends."""

import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import bye, follow, hello, make_run, make_spec, plan_of, step, write_file

from harness.protocol.events import (
    EVENT_TYPES,
    Bye,
    Event,
    Failure,
    Gate,
    Hello,
    Metric,
    Open,
    Span,
    Step,
    Trajectory,
    encode,
)
from results.collect import collect
from results.store import RunTables

INTS = st.integers(-(2**62), 2**62 - 1)
COUNTS = st.integers(0, 2**40)
TIMES = st.integers(0, 2**62 - 1)
TEXTS = st.text(max_size=8)  # hypothesis gives no lone surrogates: they cannot be encoded
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(TEXTS, COUNTS, FLOATS, st.booleans(), st.none())


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "attributes": st.dictionaries(TEXTS, SCALARS, max_size=3),
    "labels": st.dictionaries(TEXTS, SCALARS, max_size=3),
    "versions": st.dictionaries(TEXTS, TEXTS, max_size=3),
    "gpu_uuids": st.lists(TEXTS, max_size=2).map(tuple),
    "trajectory_ids": st.lists(TEXTS, max_size=3).map(tuple),
    "dropped_ids": st.lists(TEXTS, max_size=3).map(tuple),
    "values": maybe(st.lists(FLOATS, max_size=4).map(tuple)),
    "policy_version": st.integers(-1000, 1000),
    "open_id": maybe(st.integers(10**6, 10**7)),  # never the id of an Open of these tests
    "protocol": st.just(1),
    "pid": st.integers(1, 2**31),
}
KINDS = {"int": INTS, "float": FLOATS, "str": TEXTS, "bool": st.booleans()}


@st.composite
def event_of(draw: st.DrawFn, kind: type[Event]) -> Event:
    values: dict[str, Any] = {}
    for field in fields(kind):
        base, _, unknown = str(getattr(field.type, "__name__", field.type)).partition(" | ")
        strategy = SPECIAL[field.name] if field.name in SPECIAL else KINDS[base]
        if field.name.endswith("_ns"):
            strategy = TIMES
        values[field.name] = draw(maybe(strategy) if unknown and field.name not in SPECIAL else strategy)
    if "end_ns" in values:
        values["start_ns"], values["end_ns"] = sorted((values["start_ns"], values["end_ns"]))
    return kind(**values)


def collected(*events: Event) -> RunTables:
    with tempfile.TemporaryDirectory() as folder:
        return collect(make_run(Path(folder) / "run", events))


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def same_fields(row: dict[str, Any], event: Event, *, but: tuple[str, ...] = ()) -> None:
    for field in fields(event):
        if field.name not in but:
            assert row[field.name] == plain(getattr(event, field.name)), field.name


few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(event_of(Hello), event_of(Bye))
def test_hello_and_bye(first: Hello, last: Bye) -> None:
    (row,) = collected(first, last).tables["processes"].to_pylist()
    same_fields(row, first, but=("versions",))
    assert json.loads(row["versions_json"]) == first.versions
    assert row["wall_minus_mono_ns"] == first.wall_ns - first.mono_ns
    assert row["ended"] is True
    assert (row["bye_ns"], row["bye_wall_ns"], row["recorder_ns"]) == (last.mono_ns, last.wall_ns, last.recorder_ns)
    assert (row["events"], row["events_written"], row["events_lost"]) == (2, last.events, last.lost_events)
    assert row["first_ns"] == min(first.mono_ns, last.mono_ns)
    assert row["last_ns"] == max(first.mono_ns, last.mono_ns)


@few
@given(event_of(Open))
def test_open(event: Open) -> None:
    run = collected(hello(), event)
    (row,) = run.tables["opens"].to_pylist()
    same_fields(row, event)
    assert (row["host"], row["pid"], row["role"]) == ("node-1", 42, "controller")


@few
@given(event_of(Span))
def test_span(event: Span) -> None:
    (row,) = collected(hello(), event, bye(2)).tables["spans"].to_pylist()
    same_fields(row, event, but=("attributes",))
    assert json.loads(row["attributes_json"]) == dict(event.attributes)


@few
@given(event_of(Trajectory))
def test_trajectory(event: Trajectory) -> None:
    (row,) = collected(hello(), event, bye(2)).tables["trajectories"].to_pylist()
    same_fields(row, event, but=("open_id",))
    assert row["step_consumed"] is row["consumed_ns"] is row["version_trained"] is None


@few
@given(event_of(Step))
def test_step(event: Step) -> None:
    (row,) = collected(hello(), event, bye(2)).tables["steps"].to_pylist()
    same_fields(row, event)
    assert row["trained_at"] == event.policy_version - 1
    assert row["trajectories"] == len(event.trajectory_ids)


@few
@given(event_of(Metric))
def test_metric(event: Metric) -> None:
    (row,) = collected(hello(), event, bye(2)).tables["probes"].to_pylist()
    same_fields(row, event, but=("labels",))
    assert json.loads(row["labels_json"]) == dict(event.labels)


@few
@given(event_of(Gate), event_of(Failure))
def test_gate_and_failure(gate: Gate, failure: Failure) -> None:
    run = collected(hello(), gate, failure, bye(3))
    (row,) = run.tables["gates"].to_pylist()
    same_fields(row, gate)
    (row,) = run.tables["failures"].to_pylist()
    same_fields(row, failure)


def test_every_event_type_has_its_round_trip_above() -> None:
    assert set(EVENT_TYPES.values()) == {Hello, Open, Span, Trajectory, Step, Metric, Gate, Failure, Bye}


def typical() -> list[Event]:
    """A small history in which every event type occurs and every trajectory is trained on."""
    spec = make_spec()
    one, two = follow(plan_of(spec, 0, 0), 2_000), follow(plan_of(spec, 0, 1), 3_000, open_id=2)
    end = 10**12
    events: list[Event] = [hello(), Gate(mono_ns=1_500, open=True, why="start", in_flight=0, cap=8), *one, *two]
    events.append(Metric(name="probe_logprobs", mono_ns=end, values=(-1.5, -2.0), labels={"version": 0}))
    events.append(Span(phase="weight_sync", native_name="sync", start_ns=1, end_ns=2, attributes={"version": 1}))
    events.append(step(1, 1_000, end, ["p0-s0-a0", "p0-s1-a0"], loss_tokens=5, grad_norm=0.5))
    events.append(Failure(mono_ns=end, boundary="tool", type="E", message="größer"))
    events.append(bye(len(events)))
    assert {type(event) for event in events} == set(EVENT_TYPES.values())
    return events


TYPICAL = typical()
WHOLE = "".join(encode(event) + "\n" for event in TYPICAL).encode()


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, len(WHOLE)))
def test_a_file_cut_at_any_byte_loses_at_most_its_last_line(cut: int) -> None:
    kept = WHOLE[:cut]
    whole_lines = kept.count(b"\n") + (cut < len(WHOLE) and WHOLE[cut : cut + 1] == b"\n")
    damaged = not (cut == 0 or kept.endswith(b"\n") or WHOLE[cut : cut + 1] == b"\n")
    with tempfile.TemporaryDirectory() as folder:
        run_dir = make_run(Path(folder) / "run")
        (run_dir / "events" / "node-1-42.jsonl").write_bytes(kept)
        run = collect(run_dir)
    processes = run.tables["processes"].to_pylist()
    assert sum(row["events"] for row in processes) == whole_lines
    assert sum(row["damaged_lines"] for row in processes) == damaged
    assert all((row["host"], row["pid"]) == ("node-1", 42) for row in processes)
    found = [row for row in run.tables["failures"].to_pylist() if row["type"] == "damaged_lines"]
    assert len(found) == damaged
    if damaged:
        assert found[0]["boundary"] == "recording"
        assert f"1 of {whole_lines + 1} lines cut or damaged, first line {whole_lines + 1}:" in found[0]["message"]
    events = TYPICAL[:whole_lines]
    for kind, table in ((Span, "spans"), (Step, "steps"), (Gate, "gates"), (Metric, "probes")):
        assert run.tables[table].num_rows == sum(isinstance(event, kind) for event in events), table
    assert run.tables["trajectories"].num_rows == len({e.trajectory_id for e in events if isinstance(e, Open)})


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_never_stops_the_collection(at: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = make_run(Path(folder) / "run")
        (run_dir / "events" / "node-1-42.jsonl").write_bytes(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])
        run = collect(run_dir)
    damaged = sum(row["damaged_lines"] for row in run.tables["processes"].to_pylist())
    read = sum(row["events"] for row in run.tables["processes"].to_pylist())
    assert damaged <= 2  # a newline in a line makes two of one
    assert read >= len(TYPICAL) - 2  # a newline that is lost makes one of two


BAD = [
    '{"k":"gate","mono_ns":"5","open":true,"why":"x"}',
    '{"k":"gate","mono_ns":5.5,"open":true,"why":"x"}',
    '{"k":"gate","mono_ns":true,"open":true,"why":"x"}',
    '{"k":"gate","mono_ns":null,"open":true,"why":"x"}',
    '{"k":"gate","mono_ns":5,"open":1,"why":"x"}',
    '{"k":"gate","mono_ns":36893488147419103232,"open":true,"why":"x"}',
    '{"k":"gate","mono_ns":4611686018427387904,"open":true,"why":"x"}',
    '{"k":"gate","mono_ns":5,"open":true,"why":"\\ud800"}',
    '{"k":"gate","mono_ns":5,"open":true,"why":"x","surprise":1}',
    '{"k":"gate","mono_ns":5,"open":true}',
    '{"k":"metric","name":"x","mono_ns":5,"value":NaN}',
    '{"k":"metric","name":"x","mono_ns":5,"values":[1.0,null]}',
    '{"k":"metric","name":"x","mono_ns":5,"values":3}',
    '{"k":"metric","name":"x","mono_ns":5,"labels":[]}',
    '{"k":"step","step":1,"policy_version":1,"start_ns":1,"end_ns":2,"trajectory_ids":[7]}',
    '{"k":"span","phase":null,"native_name":"x","start_ns":9,"end_ns":2}',
    '{"k":"nonsense"}',
    "[1,2]",
    "\x00\x00",
    "[" * 100_000,
]


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:60])
def test_a_line_that_is_no_event_is_counted_and_costs_only_itself(line: str, tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "run")
    gate = Gate(mono_ns=5, open=True, why="good")
    path = write_file(run_dir, [hello(), gate])
    path.write_text(path.read_text() + line + "\n" + encode(gate) + "\n" + line + "\n" + encode(bye(3)) + "\n")
    run = collect(run_dir)
    assert run.frame("gates")["why"].tolist() == ["good", "good"]
    (process,) = run.tables["processes"].to_pylist()
    assert (process["events"], process["damaged_lines"], process["ended"]) == (4, 2, True)
    (failure,) = run.tables["failures"].to_pylist()
    assert failure["type"] == "damaged_lines"
    assert "2 of 6 lines cut or damaged, first line 3: " in failure["message"]
