"""The live load behind `Work`, and which adapters say that they can do it."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from live_parts import CODEC, FINISH, Tools, Written

from adapters.base import load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Device, Load, Placement, Policy, RunSpec
from harness.specs import default_spec, resolve
from workloads.deep_research.boundary import EpisodeResult, Generated
from workloads.deep_research.dataset import FILE, Row, write_rows
from workloads.deep_research.work import Work, rows_of


def live_spec(framework: str, **changes: Any) -> RunSpec:
    spec = default_spec(framework, Placement.ASYNC, Device.CPU)
    live = {"load": Load.LIVE, "policy": Policy.SCRIPTED, "tools": "local", "reward": "exact", "context_tokens": 4_096}
    return replace(spec, **{**live, **changes})


def made(folder: Path, codec: Any = CODEC, **changes: Any) -> Work:
    write_rows([Row(prompt=0, question="Who?", answers=("Ada Holm",))], folder / FILE)
    recorder = Recorder(folder / "events.jsonl", make_hello("run", "worker"))
    spec = live_spec("simulated", dataset="corpus", dataset_digest="0", **changes)
    return Work(spec, codec=codec, recorder=recorder, folder=folder, tools=Tools())


@pytest.mark.parametrize("load", list(Load))
def test_rows_that_are_missing_are_never_other_questions(tmp_path: Path, load: Load) -> None:
    for dataset in ("corpus", "/questions.jsonl"):
        for folder in (None, tmp_path):
            with pytest.raises(SpecError, match=r"dataset\.jsonl is not in the run's folder"):
                rows_of(live_spec("simulated", load=load, dataset=dataset), folder)
    assert rows_of(live_spec("simulated", load=load), None) == []


def test_generated_questions_are_no_file_s(tmp_path: Path) -> None:
    write_rows([Row(prompt=0, question="Who?")], tmp_path / FILE)
    assert rows_of(live_spec("simulated"), tmp_path) == []


def ask(work: Work, **changes: Any) -> EpisodeResult:
    async def go() -> EpisodeResult:
        return await work.trajectory(
            **{"prompt": 5, "sample": 1, "attempt": 2, "generate": Written([FINISH]).generate, **changes}
        )

    return asyncio.run(go())


def test_a_model_answers_the_row_of_its_prompt(tmp_path: Path) -> None:
    result = ask(made(tmp_path, policy=Policy.MODEL))
    assert (result.status, result.reward, result.trajectory_id, result.group_id) == ("ok", 1.0, "p5-s1-a2", "p5")


async def score(trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
    return Generated(ids=reply, logprobs=[-1.0] * len(reply))


def test_a_script_stands_for_the_model(tmp_path: Path) -> None:
    result = ask(made(tmp_path), generate=None, score=score)
    assert (result.status, result.reward) == ("ok", 0.0)
    assert "unknown" in CODEC.decode(result.response_ids)  # "Who?" is no question that it knows


def test_a_script_needs_an_adapter_that_scores(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="policy = scripted"):
        ask(made(tmp_path))


def test_what_is_missing_is_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="own_scorer_that_is_nowhere can't be imported"):
        made(tmp_path, reward="own_scorer_that_is_nowhere:score")
    with pytest.raises(SpecError, match="renders no conversations"):
        made(tmp_path, codec=object())


def test_every_engine_is_given_the_context_that_the_strictest_takes(tmp_path: Path) -> None:
    lengths = set()
    for engine in ("sglang", "vllm"):
        policy = Written([FINISH])
        ask(made(tmp_path, policy=Policy.MODEL, engine=engine, turn_tokens=4_096), generate=policy.generate)
        lengths.add(len(policy.sent[0]) + policy.samplings[0].max_tokens)
    (length,) = lengths
    assert length <= 4_096 - 7  # SGLang's


@pytest.mark.parametrize("framework", ["skyrl", "areal", "verl", "simulated"])
@pytest.mark.parametrize("placement", list(Placement))
def test_every_adapter_plays_a_script_in_every_placement(framework: str, placement: Placement) -> None:
    spec = live_spec(framework, placement=placement, max_staleness=1 if placement is Placement.ASYNC else 0)
    assert load_adapter(framework).supports(spec) is None


def test_a_model_is_wanted_where_it_decides() -> None:
    assert "no model to decide" in (
        load_adapter("simulated").supports(live_spec("simulated", policy=Policy.MODEL)) or ""
    )
    for framework in ("skyrl", "areal", "verl"):
        assert load_adapter(framework).supports(live_spec(framework, policy=Policy.MODEL)) is None


def test_verl_pads_to_the_context_where_nothing_is_planned(tmp_path: Path) -> None:
    settings = load_adapter("verl").launch(live_spec("verl"), tmp_path).notes
    assert "data.max_prompt_length=4096" in settings
    assert "data.max_response_length=4096" in settings
    assert "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096" in settings


def test_a_fixed_load_strips_nothing() -> None:
    with pytest.raises(SpecError, match="thinking = strip"):
        resolve({"framework": "simulated", "placement": "async", "thinking": "strip"})
