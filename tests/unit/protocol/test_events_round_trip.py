"""Every event survives encode and decode; damaged lines are told apart, never guessed."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    decode,
    encode,
    read_events,
)

TEXT = st.text(max_size=12)
NS = st.integers(min_value=0, max_value=2**63 - 1)
COUNT = st.integers(min_value=0, max_value=10**9)
REAL = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.none() | TEXT | st.integers(min_value=-(2**53), max_value=2**53) | REAL | st.booleans()
NAMED = st.dictionaries(TEXT, SCALAR, max_size=3)
NAMES = st.lists(TEXT, max_size=4).map(tuple)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


WHERE = {
    "pool": maybe(TEXT),
    "unit": maybe(TEXT),
    "step": maybe(COUNT),
    "trajectory_id": maybe(TEXT),
    "turn": maybe(COUNT),
}
FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    Hello: {
        "protocol": COUNT,
        "run_id": TEXT,
        "host": TEXT,
        "pid": COUNT,
        "role": TEXT,
        "wall_ns": NS,
        "mono_ns": NS,
        "gpu_uuids": NAMES,
        "pool": maybe(TEXT),
        "versions": st.dictionaries(TEXT, TEXT, max_size=3),
    },
    Open: dict(id=COUNT, start_ns=NS, phase=maybe(TEXT), native_name=TEXT, **WHERE),
    Span: dict(
        phase=maybe(TEXT),
        native_name=TEXT,
        start_ns=NS,
        end_ns=NS,
        container=st.booleans(),
        open_id=maybe(COUNT),
        attributes=NAMED,
        **WHERE,
    ),
    Trajectory: {
        "trajectory_id": TEXT,
        "group_id": TEXT,
        "prompt": COUNT,
        "sample": COUNT,
        "attempt": COUNT,
        "status": TEXT,
        "start_ns": NS,
        "end_ns": NS,
        "turns": COUNT,
        "tool_calls": COUNT,
        "tool_ns": NS,
        "prompt_tokens": COUNT,
        "generated_tokens": COUNT,
        "observation_tokens": COUNT,
        "version_scheduled": maybe(COUNT),
        "version_first": maybe(COUNT),
        "version_last": maybe(COUNT),
        "reward": maybe(REAL),
        "open_id": maybe(COUNT),
        "message": maybe(TEXT),
        "loss_tokens": maybe(COUNT),
        "sequence_tokens": maybe(COUNT),
    },
    Step: {
        "step": COUNT,
        "policy_version": COUNT,
        "start_ns": NS,
        "end_ns": NS,
        "trajectory_ids": NAMES,
        "dropped_ids": NAMES,
        "loss_tokens": maybe(COUNT),
        "processed_tokens": maybe(COUNT),
        "reward_mean": maybe(REAL),
        "grad_norm": maybe(REAL),
        "recorder_ns": maybe(NS),
    },
    Metric: {
        "name": TEXT,
        "mono_ns": NS,
        "value": maybe(REAL),
        "values": maybe(st.lists(REAL, max_size=4).map(tuple)),
        "unit": TEXT,
        "step": maybe(COUNT),
        "labels": NAMED,
    },
    Gate: {"mono_ns": NS, "open": st.booleans(), "why": TEXT, "in_flight": maybe(COUNT), "cap": maybe(COUNT)},
    Failure: {"mono_ns": NS, "boundary": TEXT, "type": TEXT, "message": TEXT},
    Bye: {"mono_ns": NS, "wall_ns": NS, "events": COUNT, "lost_events": COUNT, "recorder_ns": NS},
}
EVENTS = st.one_of(*(st.builds(cls, **strategies) for cls, strategies in FIELDS.items()))


def test_every_field_of_every_event_is_generated() -> None:
    assert set(FIELDS) == set(EVENT_TYPES.values())
    for cls, strategies in FIELDS.items():
        assert set(strategies) == {f.name for f in fields(cls)}, cls.kind


@given(EVENTS)
def test_round_trip(event: Event) -> None:
    line = encode(event)
    assert "\n" not in line
    assert decode(line) == event


@given(EVENTS, st.data())
def test_a_cut_line_is_never_an_event(event: Event, data: st.DataObject) -> None:
    line = encode(event)
    cut = data.draw(st.integers(min_value=0, max_value=len(line) - 1))
    with pytest.raises(ValueError, match=r"."):
        decode(line[:cut])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(Metric(name="loss", mono_ns=1, value=value))


def test_unknown_is_left_out_and_not_zero() -> None:
    raw = json.loads(encode(Gate(mono_ns=1, open=False, why="cap")))
    assert "in_flight" not in raw
    assert decode(json.dumps(raw)) == Gate(mono_ns=1, open=False, why="cap", in_flight=None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[1]",
        '"span"',
        "{}",
        '{"k":"unheard"}',
        '{"k":["span"]}',
        '{"k":"gate","mono_ns":1,"open":true,"why":"x","colour":"red"}',
        '{"k":"gate","open":true,"why":"x"}',
        '{"k":"step","step":1,"policy_version":1,"start_ns":1,"end_ns":2,"trajectory_ids":5}',
    ],
)
def test_what_is_not_an_event_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    gate = Gate(mono_ns=1, open=True, why="start")
    bye = Bye(mono_ns=9, wall_ns=9, events=2, lost_events=0, recorder_ns=1)
    path = tmp_path / "host-1.jsonl"
    good, cut = encode(gate).encode(), encode(bye).encode()[:20]
    path.write_bytes(good + b"\n" + b"\xff\xfe torn\n" + good + b"\n" + cut)
    read = list(read_events(path))
    assert [read[0], read[2]] == [gate, gate]
    assert [isinstance(event, ValueError) for event in read] == [False, True, False, True]
    assert "host-1.jsonl:2:" in str(read[1])
    assert "host-1.jsonl:4:" in str(read[3])


def test_no_field_is_named_like_the_kind() -> None:
    for cls in EVENT_TYPES.values():
        assert "k" not in {f.name for f in fields(cls)}
