"""What a report says of a live run's answers."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from harness.protocol.spec import Device, Load, Placement, Policy
from harness.specs import default_spec
from reports.answers import answers_section
from reports.markdown import Footnotes
from reports.provenance import SCRIPTED, caveat, title
from results.answers import Answers, Group, answers, doubts
from results.store import RunTables

SAID: dict[str, dict[str, Any]] = {
    "a": {"ended": "answered", "answer": "x", "right": True, "hops": 1, "calls": 3, "parse_errors": 1, "thoughts": 2},
    "b": {"ended": "answered", "answer": "y", "right": False, "hops": 1, "calls": 2, "cut_observations": 1},
    "c": {"ended": "context", "answer": None, "right": False, "hops": 4, "calls": 5, "cut_replies": 1},
    "d": {"ended": "answered", "answer": "x", "right": True, "hops": 4},  # failed afterwards: not judged
}
REWARDS: dict[str, float | None] = {"a": 1.0, "b": 0.0, "c": 0.0, "d": None}


def run(load: Load = Load.LIVE, said: dict[str, dict[str, Any]] = SAID) -> Any:
    trajectories = [
        {
            "trajectory_id": name,
            "status": "failed" if name == "d" else "ok",
            "reward": REWARDS[name],
            "turns": 4,
            "tool_calls": 2,
        }
        for name in said
    ]
    spans: list[dict[str, str | None]] = [
        {"native_name": "reward", "trajectory_id": name, "attributes_json": json.dumps(said[name])} for name in said
    ]
    spans.append({"native_name": "train", "trajectory_id": None, "attributes_json": "{}"})
    schema = pa.schema(
        {"trajectory_id": pa.string(), "status": pa.string(), "reward": pa.float64()}
        | {"turns": pa.int64(), "tool_calls": pa.int64()}
    )
    tables = {
        "trajectories": pa.Table.from_pylist(trajectories, schema=schema),
        "spans": pa.Table.from_pylist(spans),
    }
    spec: Any = SimpleNamespace(load=load)
    return RunTables(spec=spec, meta={}, run_dir=Path("run"), tables=tables)


def section(given: Any) -> str:
    return "\n".join(answers_section(SimpleNamespace(run=given), Footnotes()))  # type: ignore[arg-type]


def test_counts_are_of_judged_trajectories() -> None:
    found = answers(run())
    assert (found.trajectories, found.ended) == (3, {"answered": 2, "context": 1})
    assert (found.right, found.known) == (1, 3)
    assert found.reward_mean == pytest.approx(1 / 3)
    assert (found.calls, found.parse_errors, found.tool_calls, found.turns) == (10, 1, 6, 12)
    assert (found.thoughts, found.cut_replies, found.cut_observations) == (2, 1, 1)
    assert found.groups == (
        Group(hops=1, trajectories=2, right=1, reward_mean=0.5),
        Group(hops=4, trajectories=1, right=0, reward_mean=0.0),
    )


CUT: dict[str, dict[str, Any]] = {
    name: {"ended": "silent", "answer": None, "right": False, "cut_replies": 4} for name in "abc"
}


def test_replies_that_were_all_cut_are_warned_of_on_the_page() -> None:
    found = answers(run(said=CUT))
    assert doubts(found) == (
        "all 12 replies were cut, by --turn-tokens or the end of the context: what they were about to say is not known",
        "no reply had a call in it",
        "no trajectory gave an answer",
    )
    page = section(run(said=CUT))
    assert "> **All 12 replies were cut, by --turn-tokens" in page
    assert "> **No trajectory gave an answer.**" in page


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({}, []),
        ({"turns": 2, "cut_replies": 1}, []),
        ({"turns": 3, "cut_replies": 2}, ["2 of 3 replies were cut"]),
        ({"turns": 1, "cut_replies": 1}, ["the only reply was cut"]),
        ({"calls": 0, "parse_errors": 0}, ["no reply had a call in it"]),
        ({"calls": 3, "parse_errors": 2}, ["2 of 3 calls were written in a form that can't be made"]),
        ({"calls": 4, "parse_errors": 2}, []),
        ({"ended": {"turns": 4}}, ["no trajectory gave an answer"]),
        ({"trajectories": 0, "ended": {}, "calls": 0, "turns": 0}, []),
    ],
)
def test_what_hints_at_limits_and_formats_is_said(changes: dict[str, Any], warned: list[str]) -> None:
    fine = Answers(trajectories=4, ended={"answered": 1, "turns": 3}, turns=8, calls=6, tool_calls=6)
    found = doubts(replace(fine, **changes))
    assert len(found) == len(warned)
    for text, start in zip(found, warned, strict=True):
        assert text.startswith(start)


def test_a_fine_run_is_warned_of_nothing() -> None:
    assert doubts(answers(run())) == doubts(answers(run(Load.FIXED))) == ()
    assert "**" not in section(run())


def test_without_accepted_answers_right_is_unknown() -> None:
    found = answers(run(said={"a": {**SAID["a"], "right": None, "hops": None}}))
    assert (found.right, found.known) == (None, 0)
    assert "[^1]" in section(run(said={"a": {**SAID["a"], "right": None, "hops": None}}))


def test_a_fixed_load_answers_nothing() -> None:
    assert "the plan decides" in (answers(run(Load.FIXED)).why_none or "")
    assert section(run(Load.FIXED)) == ""


def test_a_run_without_an_end_says_so() -> None:
    assert "no trajectory was judged" in section(run(said={"d": SAID["d"]}))


def test_title_and_caveat_say_who_decided() -> None:
    spec = replace(default_spec("skyrl", Placement.ASYNC, Device.CPU), load=Load.LIVE)
    scripted = replace(spec, policy=Policy.SCRIPTED)
    assert title(scripted) == "skyrl, async: functional check on CPU, scripted policy"
    assert title(spec) == "skyrl, async: functional check on CPU"
    assert (caveat(scripted) or "").endswith(SCRIPTED)
    assert SCRIPTED not in (caveat(spec) or "")
    assert caveat(replace(scripted, device=Device.CUDA)) == SCRIPTED
    assert caveat(replace(spec, device=Device.CUDA)) is None


def test_the_page_counts_ends_and_right_answers() -> None:
    page = section(run())
    assert "| ended by: the context was full | 1 of 3 | 33.3% |" in page
    assert "| answered right (exactly) | 1 of 3 | 33.3% |" in page
