"""Tool calls that did not answer, and the token counts that are held against each other."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import MS, bye, end_of, follow, hello, make_run, make_spec, plan_of, step

from harness.protocol.events import Event, Metric, Span, Trajectory
from harness.protocol.spec import Load, Thinking
from results.adherence import Adherence, check_adherence
from results.collect import collect

SPEC = make_spec()
PLAN = plan_of(SPEC, 0, 0)
CALLS = len(PLAN.turns) - 1


def checked(folder: Path, *events: Event) -> Adherence:
    return check_adherence(collect(make_run(folder / "run", [hello(), *events], spec=SPEC)))


def tools(events: Sequence[Event], *, took_ns: int | None = None, **attributes: Any) -> list[Event]:
    """The same events, every tool call with other attributes and, where given, another length."""
    return [
        replace(
            event,
            end_ns=event.end_ns if took_ns is None else event.start_ns + took_ns,
            attributes={**event.attributes, **attributes},
        )
        if isinstance(event, Span) and event.native_name == "tool"
        else event
        for event in events
    ]


@pytest.mark.parametrize("status", ["error", "timeout", None])
def test_a_run_whose_every_tool_call_failed_at_once_does_not_adhere(tmp_path: Path, status: str | None) -> None:
    found = checked(tmp_path, *tools(follow(PLAN, 2_000), took_ns=MS // 1000, status=status))
    assert (found.content_ratio, found.failed_calls, found.finished_calls) == (0.0, CALLS, CALLS)
    assert (found.undercut, found.calls_timed, found.overshoot_p99_ns) == (CALLS, 0, None)
    first = f"p0-s0-a0: turn 0: {PLAN.turns[0].tool} ended as {status or 'unknown'}, planned ok"
    assert (found.deviations[0], found.deviation_count) == (first, CALLS)


def test_a_call_that_failed_late_deviates_and_undercuts_nothing(tmp_path: Path) -> None:
    found = checked(tmp_path, *tools(follow(PLAN, 2_000), status="error"))
    assert (found.content_ratio, found.failed_calls, found.undercut) == (0.0, CALLS, 0)


def test_only_the_last_call_of_a_trajectory_ended_from_outside_may_be_cut(tmp_path: Path) -> None:
    def cancelled(*turns: int) -> list[Event]:
        kept = sum(turn.observation_tokens for number, turn in enumerate(PLAN.turns[:2]) if number not in turns)
        events = [
            replace(e, attributes={**e.attributes, "status": "cancelled", "observation_tokens": None})
            if isinstance(e, Span) and e.native_name == "tool" and e.turn in turns
            else e
            for e in follow(PLAN, 2_000, turns=2)
        ]
        return [
            replace(e, status="cancelled", observation_tokens=kept) if isinstance(e, Trajectory) else e for e in events
        ]

    last = checked(tmp_path / "last", *cancelled(1))
    assert (last.content_ratio, last.failed_calls, last.finished_calls) == (1.0, 0, 1)
    both = checked(tmp_path / "both", *cancelled(0, 1))
    assert (both.content_ratio, both.failed_calls) == (0.0, 1)
    # An error with an answer in its place had ended by itself, whatever became of the trajectory.
    ended = [
        replace(e, status="cancelled") if isinstance(e, Trajectory) else e
        for e in tools(follow(PLAN, 2_000, turns=2), status="error")
    ]
    assert checked(tmp_path / "ended", *ended).failed_calls == 2


def test_a_step_without_a_loss_mask_leaves_the_cross_check_unknown(tmp_path: Path) -> None:
    events: list[Event] = []
    for sample in (0, 1):
        events += follow(plan_of(SPEC, 0, sample), 2_000, open_id=sample + 1)
    end, tokens = end_of(events), PLAN.generated_tokens

    def match(name: str, first: int | None, second: int | None) -> bool | None:
        steps = [
            step(1, 1, end, ["p0-s0-a0"], loss_tokens=first),
            step(2, end, end + 1, ["p0-s1-a0"], loss_tokens=second),
        ]
        return checked(tmp_path / name, *events, *steps).loss_tokens_match

    other = plan_of(SPEC, 0, 1).generated_tokens
    assert match("all", tokens, other) is True
    assert match("one", tokens, None) is None
    assert match("wrong", tokens + 1, None) is False
    assert match("none", None, None) is None


def counter(at_ns: int, value: float, engine: str = "http://engine-0") -> Metric:
    return Metric(name="engine.generation_tokens", mono_ns=at_ns, value=value, unit="token", labels={"engine": engine})


def test_the_engines_counters_must_say_what_the_replies_hold(tmp_path: Path) -> None:
    events = follow(PLAN, 2_000)
    end, tokens = end_of(events), PLAN.generated_tokens

    def found(name: str, *metrics: Metric) -> tuple[bool | None, str]:
        check = checked(tmp_path / name, *events, *metrics).engine_tokens
        return check.match, check.why

    assert found("equal", counter(1_000, 70), counter(5_000, 75), counter(end + 1, 70 + tokens))[0] is True
    match, why = found("more", counter(1_000, 70), counter(end + 1, 71 + tokens))
    assert match is False
    assert why.startswith(f"the engines counted {tokens + 1:,} tokens, the replies hold {tokens:,}; at 1 of 1 readings")
    assert found("missing") == (None, "no engine's counter of generated tokens was read")
    for name, metrics, said in (
        ("once", (counter(1_000, 0),), "read once"),
        ("fell", (counter(1_000, 9), counter(end + 1, 3)), "fell"),
        (
            "other",
            (counter(1_000, 0, "b"), counter(end + 1, tokens, "b")),
            "not read for engine(s) http://engine-0",
        ),
    ):
        match, why = found(name, *metrics)
        assert match is None
        assert said in why


def test_a_turn_without_a_reply_may_explain_what_the_counter_has_more(tmp_path: Path) -> None:
    events = [
        replace(event, attributes={**event.attributes, "generated_tokens": None})
        if isinstance(event, Span) and event.native_name == "turn" and event.turn == CALLS
        else event
        for event in follow(PLAN, 2_000)
    ]
    replied = PLAN.generated_tokens - PLAN.turns[-1].generated_tokens
    ends = (counter(1_000, 0), counter(end_of(events) + 1, replied + 3))
    check = checked(tmp_path, *events, *ends).engine_tokens
    assert (check.match, check.counted, check.replied) == (None, replied + 3, replied)


def test_what_is_to_be_trained_is_compared_with_the_trainers_loss_mask(tmp_path: Path) -> None:
    """Stripped thoughts, and trajectories that did not end well, are generated and not trained."""

    def match(name: str, loss: int, **changes: Any) -> bool | None:
        events = [
            replace(event, **changes) if isinstance(event, Trajectory) else event for event in follow(PLAN, 2_000)
        ]
        run = make_run(
            tmp_path / name,
            [hello(), *events, step(1, 1, end_of(events), ["p0-s0-a0"], loss_tokens=loss), bye(len(events) + 1)],
            spec=replace(SPEC, load=Load.LIVE, thinking=Thinking.STRIP, tools="local"),
        )
        return check_adherence(collect(run)).loss_tokens_match

    assert match("stripped", 9, loss_tokens=9) is True
    assert match("all", PLAN.generated_tokens, loss_tokens=9) is False
    assert match("unknown", 9) is None
    assert match("failed", 0, status="failed", loss_tokens=0) is True
