"""Faults as data: drawn apart from all else, played by the mock tools, carried by preset files."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace

import pytest

from harness.protocol.errors import SpecError
from workloads.deep_research.faults import KINDS, Fault, status_of
from workloads.deep_research.laws import Empirical, LogNormal
from workloads.deep_research.plan import draw_plan, limits
from workloads.deep_research.presets import BROWSE, PRESETS, SEARCH, decode_preset, encode_preset
from workloads.deep_research.tools import STATUSES, MockTools, Observation, ToolRequest

FULL, SMOKE = PRESETS["deep-research"], PRESETS["deep-research-smoke"]
FAULTY, FAULTY_SMOKE = PRESETS["deep-research-faulty"], PRESETS["deep-research-faulty-smoke"]


def every(kind: str, **changes: object) -> Fault:
    return Fault(rate=1.0, **changes)  # type: ignore[arg-type]


def played(kind: str) -> tuple[Observation, float, float]:
    """(answer, seconds it took, seconds planned) of a call with that fault, the smallest latencies."""
    preset = replace(SMOKE, faults={tool: {kind: every(kind)} for tool in (SEARCH, BROWSE)})
    turn = draw_plan(preset, 1, 0, 0, latency_scale=0.01).turns[0]
    assert turn.fault == kind
    assert turn.latency_s is not None
    request = ToolRequest(tool=turn.tool, argument="where?", trajectory_id="t", call=0, planned=turn)
    start = time.monotonic()
    answer = asyncio.run(MockTools().call(request))
    return answer, time.monotonic() - start, turn.latency_s


def test_faults_move_nothing_but_the_calls_they_hit() -> None:
    for prompt in range(200):
        plain, faulty = draw_plan(FULL, 3, prompt, 0), draw_plan(FAULTY, 3, prompt, 0)
        assert plain.reward == faulty.reward
        for one, other in zip(plain.turns, faulty.turns, strict=True):
            assert (
                one == other
                if other.fault is None
                else (one.tool, one.generated_tokens)
                == (
                    other.tool,
                    other.generated_tokens,
                )
            )
        assert (plain.digest == faulty.digest) == all(turn.fault is None for turn in faulty.turns)


def test_plans_without_faults_keep_their_digests() -> None:
    # As drawn before there were faults: work that was offered then is the same work now.
    assert [draw_plan(FULL, 1, prompt, 0).digest for prompt in range(3)] == DIGESTS


DIGESTS = ["204cbde92a720173", "2219e2662ee409bf", "c8d0df0456291c47"]


def test_faults_come_at_their_rates() -> None:
    turns = [t for prompt in range(1_500) for s in (0, 1) for t in draw_plan(FAULTY, 7, prompt, s).turns[:-1]]
    for tool in (SEARCH, BROWSE):
        mine = [turn for turn in turns if turn.tool == tool]
        seen = Counter(turn.fault for turn in mine)
        assert set(seen) == {None, *FAULTY.faults[tool]}
        for kind, fault in FAULTY.faults[tool].items():
            five_errors = 5 * (fault.rate * (1 - fault.rate) / len(mine)) ** 0.5
            assert seen[kind] / len(mine) == pytest.approx(fault.rate, abs=five_errors)


def test_no_planned_fault_reaches_the_hard_limit() -> None:
    for preset in (FAULTY, FAULTY_SMOKE):
        turns = [turn for prompt in range(300) for turn in draw_plan(preset, 5, prompt, 0).turns[:-1]]
        assert max(turn.latency_s or 0.0 for turn in turns) <= preset.slowest_call_s
        assert preset.slowest_call_s < limits(preset).tool_timeout_s


@pytest.mark.parametrize("kind", KINDS)
def test_the_mock_tools_play_a_fault_and_never_raise(kind: str) -> None:
    answer, took_s, planned_s = played(kind)
    assert answer.status == status_of(kind)
    assert answer.status in STATUSES
    assert answer.planned_s == planned_s <= took_s
    assert answer.text
    assert (answer.detail is not None) == (answer.status != "ok")


def test_a_huge_page_is_long_a_garbled_one_unreadable_and_a_drip_slow() -> None:
    def turns(kind: str) -> tuple[object, ...]:
        preset = replace(FULL, faults={BROWSE: {kind: every(kind)}}, search_share=0.0)
        return draw_plan(preset, 1, 0, 0).turns[:-1]

    plain = draw_plan(replace(FULL, search_share=0.0), 1, 0, 0).turns[:-1]
    assert all(turn.observation_tokens == FULL.observation.cap for turn in turns("huge"))  # type: ignore[attr-defined]
    for turn, usual in zip(turns("slow"), plain, strict=True):
        assert usual.latency_s is not None
        assert turn.latency_s == pytest.approx(min(4 * usual.latency_s, 300.0), abs=1e-5)  # type: ignore[attr-defined]
    assert all(turn.latency_s == 300.0 for turn in turns("timeout"))  # type: ignore[attr-defined]
    garbled = played("garbled")[0].text
    assert "Ã" in garbled
    assert "where?" not in garbled


def test_a_fault_may_have_a_latency_of_its_own() -> None:
    law = Empirical(values=(2.0, 7.0), shares=(0.5, 1.0))
    preset = replace(FULL, faults={tool: {"error": every("error", latency_s=law)} for tool in (SEARCH, BROWSE)})
    seen = {turn.latency_s for prompt in range(20) for turn in draw_plan(preset, 1, prompt, 0).turns[:-1]}
    assert seen == {2.0, 7.0}


def test_preset_files_carry_everything() -> None:
    calls = Empirical(values=(0.0, 3.0, 9.0), shares=(0.25, 0.5, 1.0))
    law = Empirical(values=(0.5, 2.5), shares=(0.125, 1.0))
    own = replace(
        FAULTY,
        name="own",
        calls=calls,
        least_calls=0,
        most_calls=9,
        latency_s={SEARCH: law, BROWSE: LogNormal(mean=1.0, sigma=0.5, least=0.1, cap=9.0)},
        faults={SEARCH: {"timeout": Fault(rate=0.25, latency_s=law)}},
    )
    for preset in (*PRESETS.values(), own):
        assert decode_preset(encode_preset(preset)) == preset
    assert {draw_plan(own, 1, prompt, 0).tool_calls for prompt in range(60)} == {0, 3, 9}
    raw = json.loads(encode_preset(FULL))
    del raw["faults"], raw["calls"]
    assert decode_preset(json.dumps(raw)) == FULL
    raw["faults"] = {SEARCH: {"timeout": 0.5}}
    assert decode_preset(json.dumps(raw)).faults == {SEARCH: {"timeout": Fault(rate=0.5)}}


WRONG = [
    ({"faults": {"finish": {"timeout": 0.1}}}, "faults.finish: allowed is one of"),
    ({"faults": {SEARCH: {"tiemout": 0.1}}}, "faults.search_engine.tiemout: allowed is one of timeout"),
    ({"faults": {SEARCH: {"timeout": 1.5}}}, "rate 1.5: allowed is 0 to 1"),
    ({"faults": {SEARCH: {"timeout": 0.6, "error": 0.5}}}, "sum to 1.1"),
    ({"faults": {SEARCH: {"timeout": {"rate": 0.1, "latency_s": {"mean": 1}}}}}, r"keys \['mean'\]"),
    ({"faults": 3}, "faults = 3"),
    ({"latency_s": {SEARCH: {"mean": 1, "sigma": 1, "least": 1, "cap": 2}}}, "latency_s.web_browser: missing"),
    ({"prompt": {"mean": -1, "sigma": 1, "least": 1, "cap": 2}}, "prompt: "),
    ({"prompt": {"mean": "x", "sigma": 1, "least": 1, "cap": 2}}, "mean = 'x': allowed is a number"),
    ({"observation": {"values": [1, 2], "shares": [0.5, 0.9]}}, "shares: allowed"),
    ({"observation": {"values": [2, 1], "shares": [0.5, 1.0]}}, "values: allowed are ascending"),
    ({"calls": {"values": [1, 99], "shares": [0.5, 1.0]}}, "calls: allowed"),
    ({"least_calls": 9}, "least_calls = 9, most_calls = 8"),
    ({"most_calls": 2.5}, "most_calls = 2.5"),
    ({"search_share": 2}, "search_share = 2"),
    ({"speed": 2}, "speed: allowed is name"),
]


@pytest.mark.parametrize(("change", "says"), WRONG)
def test_a_wrong_preset_file_is_told_by_its_key(change: dict[str, object], says: str) -> None:
    raw = {**json.loads(encode_preset(FULL)), **change}
    with pytest.raises(SpecError, match=says):
        decode_preset(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}"])
def test_what_is_no_preset_is_a_wrong_request(text: str) -> None:
    with pytest.raises(SpecError, match="preset: its definition cannot be read"):
        decode_preset(text)
