"""Adherence against histories whose deviations are known, and against the real agent loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import MS, RUN_ID, end_of, follow, hello, make_run, make_spec, plan_of, step

from harness.protocol.events import Event, Span, Trajectory
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Load
from results.adherence import SHOWN, Adherence, check_adherence, consumed_digest
from results.collect import collect
from workloads.deep_research.episode import Generated, Sampling, run_episode
from workloads.deep_research.plan import draw_plan
from workloads.deep_research.tools import MockTools

SPEC = make_spec()
PLAN = plan_of(SPEC, 0, 0)
CALLS = len(PLAN.turns) - 1


def checked(folder: Path, *events: Event, **spec: Any) -> Adherence:
    return check_adherence(collect(make_run(folder / "run", [hello(), *events], spec=make_spec(**spec))))


def attribute(events: Sequence[Event], native: str, turn: int, **changes: Any) -> list[Event]:
    """The same events with other attributes in one turn or tool span."""
    return [
        replace(event, attributes={**event.attributes, **changes})
        if isinstance(event, Span) and event.native_name == native and event.turn == turn
        else event
        for event in events
    ]


def closed(events: Sequence[Event], **changes: Any) -> list[Event]:
    """The same events with another closing of the trajectory."""
    return [replace(event, **changes) if isinstance(event, Trajectory) else event for event in events]


def without(events: Sequence[Event], native: str, turn: int) -> list[Event]:
    return [e for e in events if not (isinstance(e, Span) and e.native_name == native and e.turn == turn)]


def test_the_plan_has_what_these_tests_need() -> None:
    assert CALLS >= 2


def test_trajectories_that_follow_their_plan_adhere(tmp_path: Path) -> None:
    events: list[Event] = []
    for prompt, sample in ((0, 0), (0, 1), (1, 0)):
        events += follow(plan_of(SPEC, prompt, sample), 2_000, open_id=len(events) + 1)
    found = checked(tmp_path, *events)
    plans = [plan_of(SPEC, prompt, sample) for prompt, sample in ((0, 0), (0, 1), (1, 0))]
    assert (found.content_ratio, found.started, found.adhering, found.unfinished) == (1.0, 3, 3, 0)
    assert found.turns == sum(len(plan.turns) for plan in plans)
    assert found.tool_calls == found.calls_timed == sum(len(plan.turns) - 1 for plan in plans)
    assert found.generated_tokens == sum(plan.generated_tokens for plan in plans)
    assert (found.deviations, found.deviation_count, found.why_none) == ((), 0, None)


def _drop_last_turn(events: Sequence[Event]) -> list[Event]:
    fewer = closed(without(events, "turn", CALLS), turns=CALLS)
    return closed(fewer, generated_tokens=PLAN.generated_tokens - PLAN.turns[-1].generated_tokens)


def _swap_tools(events: Sequence[Event]) -> list[Event]:
    other = "web_browser" if PLAN.turns[0].tool == "search_engine" else "search_engine"
    return attribute(events, "tool", 0, tool=other)


def _one_token_less(events: Sequence[Event]) -> list[Event]:
    fewer = attribute(events, "turn", 1, generated_tokens=PLAN.turns[1].generated_tokens - 1)
    return closed(fewer, generated_tokens=PLAN.generated_tokens - 1)


def _shorter_observation(events: Sequence[Event]) -> list[Event]:
    fewer = attribute(events, "tool", 1, observation_tokens=PLAN.turns[1].observation_tokens - 2)
    return closed(fewer, observation_tokens=PLAN.observation_tokens - 2)


G1, O1 = PLAN.turns[1].generated_tokens, PLAN.turns[1].observation_tokens
DEVIATIONS: dict[str, tuple[Callable[[Sequence[Event]], list[Event]], str]] = {
    "a turn too few": (_drop_last_turn, f"{CALLS} turns, planned {CALLS + 1}"),
    "another tool": (_swap_tools, "turn 0: called"),
    "a token too few": (_one_token_less, f"turn 1: {G1 - 1} generated tokens, planned {G1}"),
    "a shorter observation": (_shorter_observation, f"turn 1: {O1 - 2} observation tokens, planned {O1}"),
    "unknown observation": (
        lambda events: attribute(
            closed(events, observation_tokens=PLAN.observation_tokens - O1), "tool", 1, observation_tokens=None
        ),
        f"turn 1: None observation tokens, planned {O1}",
    ),
    "history rendered anew": (
        lambda events: attribute(events, "turn", 1, prompt_tokens=5),
        "turn 1: 5 tokens were sent, planned",
    ),
    "another prompt": (
        lambda events: closed(events, prompt_tokens=3),
        f"prompt of 3 tokens, planned {PLAN.prompt_tokens}",
    ),
    "another latency": (
        lambda events: attribute(events, "tool", 0, planned_ns=1),
        "turn 0: offered 1 ns of tool time, planned",
    ),
    "a call lost": (
        lambda events: closed(
            without(events, "tool", 0),
            tool_calls=CALLS - 1,
            observation_tokens=PLAN.observation_tokens - PLAN.turns[0].observation_tokens,
        ),
        f"{CALLS - 1} tool calls after {CALLS + 1} turns, planned {CALLS}",
    ),
    "its own sum": (
        lambda events: closed(events, generated_tokens=1),
        f"its generated_tokens is 1, its parts have {PLAN.generated_tokens}",
    ),
    "a failure": (lambda events: closed(events, status="failed"), f"ended as failed after {CALLS + 1} of {CALLS + 1}"),
}


@pytest.mark.parametrize("what", DEVIATIONS)
def test_a_deviation_is_told_in_words(what: str, tmp_path: Path) -> None:
    change, says = DEVIATIONS[what]
    fine = follow(plan_of(SPEC, 1, 0), 3_000, open_id=2)
    found = checked(tmp_path, *change(follow(PLAN, 2_000)), *fine)
    assert (found.adhering, found.started, found.content_ratio) == (1, 2, 0.5)
    assert found.deviations[0].startswith(f"p0-s0-a0: {says}"), found.deviations
    assert found.deviation_count == len(found.deviations) >= 1


def test_calls_in_another_order_deviate(tmp_path: Path) -> None:
    turns = {0: 1, 1: 0}
    events = [
        replace(event, turn=turns[event.turn])
        if isinstance(event, Span) and event.native_name == "tool" and event.turn in turns
        else event
        for event in follow(PLAN, 2_000)
    ]
    found = checked(tmp_path, *events)
    assert found.adhering == 0


def test_only_the_first_deviations_are_told_and_all_are_counted(tmp_path: Path) -> None:
    events: list[Event] = []
    for sample in range(SHOWN + 5):
        events += closed(follow(plan_of(SPEC, 0, sample), 2_000, open_id=sample + 1), prompt_tokens=1)
    found = checked(tmp_path, *events)
    assert (found.content_ratio, len(found.deviations), found.deviation_count) == (0.0, SHOWN, SHOWN + 5)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_an_open_trajectory_is_compared_up_to_its_last_turn(turns: int, tmp_path: Path) -> None:
    events = follow(PLAN, 2_000, turns=turns, close=False)
    found = checked(tmp_path, *events)
    assert (found.content_ratio, found.unfinished, found.turns) == (1.0, 1, turns)
    if turns:
        in_a_tool = without(events, "tool", turns - 1)
        assert checked(tmp_path / "in-a-tool", *in_a_tool).content_ratio == 1.0
        wrong = attribute(events, "turn", turns - 1, generated_tokens=1)
        assert checked(tmp_path / "wrong", *wrong).content_ratio == 0.0


def test_an_open_trajectory_with_two_calls_missing_deviates(tmp_path: Path) -> None:
    events = follow(PLAN, 2_000, turns=2, close=False)
    found = checked(tmp_path, *without(without(events, "tool", 0), "tool", 1))
    assert found.deviations == ("p0-s0-a0: 0 tool calls after 2 turns, planned 2",)


def test_what_was_cancelled_inside_a_tool_is_compared_up_to_there(tmp_path: Path) -> None:
    events = follow(PLAN, 2_000, turns=2)
    cut = attribute(events, "tool", 1, status="cancelled", observation_tokens=None)
    cut = closed(cut, status="cancelled", observation_tokens=PLAN.turns[0].observation_tokens)
    found = checked(tmp_path, *cut)
    assert (found.content_ratio, found.unfinished) == (1.0, 1)
    assert (found.calls_timed, found.undercut) == (1, 0)


def test_a_failure_after_the_last_step_is_unfinished_and_before_it_a_deviation(tmp_path: Path) -> None:
    events = closed(follow(PLAN, 2_000, turns=1), status="failed")
    end = end_of(events)
    after = checked(tmp_path / "after", *events, step(1, 1_000, end - 1, []))
    before = checked(tmp_path / "before", *events, step(1, 1_000, end + 1, []))
    assert (after.content_ratio, after.unfinished) == (1.0, 1)
    assert (before.content_ratio, before.unfinished) == (0.0, 0)
    assert before.deviations == (f"p0-s0-a0: ended as failed after 1 of {CALLS + 1} turns",)


def test_timing_is_told_apart_from_content(tmp_path: Path) -> None:
    planned = [round(turn.latency_s * 1e9) for turn in PLAN.turns if turn.latency_s is not None]
    late = int(max(60 * MS, 0.06 * max(planned)))
    found = checked(tmp_path / "late", *follow(PLAN, 2_000, over_ns=late))
    assert found.content_ratio == 1.0
    assert (found.overshoot_p50_ns, found.overshoot_p99_ns, found.timing_distorted) == (late, late, True)
    found = checked(tmp_path / "early", *follow(PLAN, 2_000, over_ns=-5))
    assert (found.undercut, found.overshoot_p99_ns, found.timing_distorted) == (CALLS, -5, False)
    found = checked(tmp_path / "fine", *follow(PLAN, 2_000, over_ns=49 * MS))
    assert (found.undercut, found.timing_distorted) == (0, False)


def test_five_per_cent_of_a_long_call_distort_nothing(tmp_path: Path) -> None:
    spec = {"latency_scale": 10_000.0}
    plan = plan_of(make_spec(**spec), 0, 0)
    shortest = min(turn.latency_s for turn in plan.turns if turn.latency_s is not None)
    assert shortest > 100
    within, beyond = round(0.04 * shortest * 1e9), round(0.06 * shortest * 1e9)
    assert checked(tmp_path / "a", *follow(plan, 1, over_ns=within), **spec).timing_distorted is False
    longest = max(turn.latency_s for turn in plan.turns if turn.latency_s is not None)
    beyond = round(0.06 * longest * 1e9)
    assert checked(tmp_path / "b", *follow(plan, 1, over_ns=beyond), **spec).timing_distorted is True


def test_the_trainers_loss_mask_is_compared_with_what_the_engine_returned(tmp_path: Path) -> None:
    one, two = follow(PLAN, 2_000), follow(plan_of(SPEC, 0, 1), 2_000, open_id=2)
    end = end_of([*one, *two])
    tokens = PLAN.generated_tokens + plan_of(SPEC, 0, 1).generated_tokens
    names = ["p0-s0-a0", "p0-s1-a0"]
    right = checked(tmp_path / "right", *one, *two, step(1, 1, end, names, loss_tokens=tokens))
    assert (right.consumed, right.loss_tokens, right.consumed_generated_tokens) == (2, tokens, tokens)
    assert right.loss_tokens_match is True
    wrong = checked(tmp_path / "wrong", *one, *two, step(1, 1, end, names, loss_tokens=tokens - 1))
    assert wrong.loss_tokens_match is False
    silent = checked(tmp_path / "silent", *one, *two, step(1, 1, end, names))
    assert (silent.loss_tokens, silent.loss_tokens_match) == (None, None)
    ghost = checked(tmp_path / "ghost", *one, *two, step(1, 1, end, [*names, "ghost"], loss_tokens=tokens))
    assert (ghost.loss_tokens, ghost.consumed_generated_tokens, ghost.loss_tokens_match) == (tokens, None, None)


def test_the_digest_of_consumed_plans_ignores_order_and_attempts_only(tmp_path: Path) -> None:
    def digests(name: str, *samples: int, attempt: int = 0) -> tuple[str | None, str | None]:
        events: list[Event] = []
        for sample in (0, 1, 2):
            events += follow(plan_of(SPEC, 0, sample), 2_000, open_id=sample + 1, attempt=attempt)
        end = end_of(events)
        names = [f"p0-s{sample}-a{attempt}" for sample in samples]
        steps = [step(1, 1, end, names[:1]), step(2, end, end + 1, names[1:])]
        run = collect(make_run(tmp_path / name, [hello(), *events, *steps]))
        assert check_adherence(run).consumed_digest == consumed_digest(run)
        return consumed_digest(run), consumed_digest(run, [1])

    both, first = digests("a", 0, 1)
    assert both == digests("b", 1, 0)[0] == digests("c", 0, 1, attempt=2)[0]
    assert both != digests("d", 0, 2)[0]
    assert first == digests("e", 0, 2)[1] != both
    assert digests("f") == (None, None)


def test_nothing_planned_or_nothing_started_is_no_adherence(tmp_path: Path) -> None:
    live = checked(tmp_path / "live", *follow(PLAN, 2_000), load=Load.LIVE)
    assert live.content_ratio is live.overshoot_p99_ns is live.timing_distorted is live.consumed_digest is None
    assert live.why_none is not None
    assert "live" in live.why_none
    unknown = checked(tmp_path / "unknown", *follow(PLAN, 2_000), preset="another")
    assert unknown.why_none == "workload deep-research with preset another is not known to this version"
    nothing = checked(tmp_path / "nothing")
    assert (nothing.why_none, nothing.content_ratio) == ("no trajectory started", None)


def test_a_trajectory_of_no_known_plan_does_not_adhere(tmp_path: Path) -> None:
    found = checked(tmp_path, *closed(follow(PLAN, 2_000), prompt=-1))
    assert found.deviations == ("p0-s0-a0: it is not known which plan it follows",)


class _Exact:
    def prompt_ids(self, question: str, tokens: int) -> list[int]:
        return [1] * tokens

    def observation_ids(self, text: str, tokens: int) -> list[int]:
        return [2] * tokens


@pytest.mark.parametrize("short", [0, 1])
def test_the_real_agent_loop_adheres_and_an_engine_that_stops_early_does_not(short: int, tmp_path: Path) -> None:
    spec = make_spec(latency_scale=0.001)
    run_dir = make_run(tmp_path / "run", spec=spec)
    recorder = Recorder(run_dir / "events" / "node-1-1.jsonl", make_hello(RUN_ID, "controller"))

    async def generate(name: str, ids: list[int], sampling: Sampling) -> Generated:
        count = sampling.max_tokens - short
        return Generated(ids=[3] * count, logprobs=[-1.0] * count, version_start=0, version_end=0)

    async def play() -> None:
        for sample in range(2):
            await run_episode(
                plan=plan_of(spec, 0, sample),
                trajectory_id=f"p0-s{sample}-a0",
                group_id="p0",
                attempt=0,
                generate=generate,
                tools=MockTools(),
                codec=_Exact(),
                recorder=recorder,
                pool="rollout",
                version_scheduled=0,
                tool_timeout_s=60,
                trajectory_timeout_s=600,
            )

    asyncio.run(play())
    recorder.bye()
    run = collect(run_dir)
    found = check_adherence(run)
    assert run.tables["failures"].num_rows == 0
    assert run.tables["turns"]["submitted_ns"].null_count == run.tables["turns"].num_rows  # the loop cannot see a queue
    assert (found.started, found.adhering) == (2, 0 if short else 2), found.deviations
    assert found.undercut == 0
    assert found.calls_timed == sum(plan_of(spec, 0, sample).tool_calls for sample in range(2))


def test_each_plan_of_a_long_run_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the plans are more than are kept: to draw one takes longer than all that is done with it."""
    events: list[Event] = []
    keys = [(prompt, sample) for prompt in range(4) for sample in range(2)]
    for prompt, sample in keys:
        events += follow(plan_of(SPEC, prompt, sample), 2_000, open_id=len(events) + 1)
    names = [f"p{prompt}-s{sample}-a0" for prompt, sample in keys[:-1]]
    run = collect(make_run(tmp_path / "run", [hello(), *events, step(1, 1, end_of(events), names)]))
    drawn: list[tuple[int, int]] = []

    def noted(preset: Any, seed: int, prompt: int, sample: int, **more: Any) -> Any:
        drawn.append((prompt, sample))
        return draw_plan(preset, seed, prompt, sample, **more)

    expected = check_adherence(run)
    monkeypatch.setattr("results.plans.draw_plan", noted)
    monkeypatch.setattr("results.plans.CACHED_PLANS", 2)
    assert check_adherence(run) == expected
    assert expected.consumed == 7
    assert expected.consumed_digest is not None
    assert sorted(drawn) == keys
