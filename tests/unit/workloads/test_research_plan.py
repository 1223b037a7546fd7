"""Plans: the study's figures, determinism, and what `check_context` refuses."""

import subprocess
import sys
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocol.errors import SpecError
from workloads.deep_research.plan import (
    PRESETS,
    TrajectoryPlan,
    check_context,
    draw_plan,
    limits,
    longest_plan,
    slowest_plan,
)
from workloads.deep_research.presets import BROWSE, FINISH, SEARCH, LogNormal, Preset

FULL = PRESETS["deep-research"]
SMOKE = PRESETS["deep-research-smoke"]

presets = st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__)
seeds = st.integers(min_value=0, max_value=2**63)
rows = st.integers(min_value=0, max_value=10**6)
samples = st.integers(min_value=0, max_value=64)


@pytest.fixture(scope="module")
def many() -> list[TrajectoryPlan]:
    return [draw_plan(FULL, 7, prompt, sample) for prompt in range(1_500) for sample in range(2)]


def test_calls_are_those_of_the_study(many: list[TrajectoryPlan]) -> None:
    calls = [plan.tool_calls for plan in many]
    assert set(calls) == set(range(1, 9))
    # Uniform on 1..8 has a standard deviation of 2.29: six standard errors of 3,000 draws are 0.25.
    assert fmean(calls) == pytest.approx(4.5, abs=0.25)
    for count in range(1, 9):
        assert calls.count(count) / len(calls) == pytest.approx(1 / 8, abs=0.035)


def test_latency_is_that_of_the_study(many: list[TrajectoryPlan]) -> None:
    latencies = [turn.latency_s for plan in many for turn in plan.turns if turn.latency_s is not None]
    assert len(latencies) > 10_000
    assert fmean(latencies) == pytest.approx(16.0, rel=0.05)
    assert FULL.mean_call_s == pytest.approx(16.0, rel=0.01)
    by_tool = {
        tool: [t.latency_s for plan in many for t in plan.turns if t.tool == tool and t.latency_s]
        for tool in (SEARCH, BROWSE)
    }
    assert fmean(by_tool[SEARCH]) == pytest.approx(10.0, rel=0.05)
    assert fmean(by_tool[BROWSE]) == pytest.approx(25.0, rel=0.05)
    assert len(by_tool[SEARCH]) / len(latencies) == pytest.approx(0.6, abs=0.03)
    assert max(latencies) <= FULL.slowest_call_s


def test_lengths_have_their_means(many: list[TrajectoryPlan]) -> None:
    generated = [turn.generated_tokens for plan in many for turn in plan.turns]
    observed = [turn.observation_tokens for plan in many for turn in plan.turns if turn.tool != FINISH]
    assert fmean(generated) == pytest.approx(FULL.generated.clipped_mean, rel=0.03)
    assert fmean(observed) == pytest.approx(FULL.observation.clipped_mean, rel=0.03)
    assert FULL.generated.clipped_mean == pytest.approx(600, rel=0.02)
    assert FULL.observation.clipped_mean == pytest.approx(1_500, rel=0.03)
    assert max(generated) == 2_048
    assert max(observed) == 4_096


@given(
    mean=st.floats(min_value=0.1, max_value=1e4),
    sigma=st.floats(min_value=0.05, max_value=1.2),
    low=st.floats(min_value=0.05, max_value=0.9),
    high=st.floats(min_value=1.1, max_value=10),
)
@settings(max_examples=25, deadline=None)
def test_clipped_mean_is_the_mean_of_the_quantiles(mean: float, sigma: float, low: float, high: float) -> None:
    shape = LogNormal(mean=mean, sigma=sigma, least=mean * low, cap=mean * high)
    grid = 2_000
    assert shape.clipped_mean == pytest.approx(fmean(shape.at((i + 0.5) / grid) for i in range(grid)), rel=5e-3)


@given(preset=presets, seed=seeds, prompt=rows, sample=samples)
@settings(max_examples=100, deadline=None)
def test_a_plan_is_well_formed(preset: object, seed: int, prompt: int, sample: int) -> None:
    assert isinstance(preset, Preset)
    chosen = preset
    plan = draw_plan(chosen, seed, prompt, sample)
    assert draw_plan(chosen, seed, prompt, sample) == plan
    assert len(plan.turns) == plan.tool_calls + 1
    last = plan.turns[-1]
    assert (last.tool, last.latency_s, last.observation_tokens) == (FINISH, None, 0)
    for turn in plan.turns[:-1]:
        assert turn.tool in (SEARCH, BROWSE)
        assert turn.latency_s is not None
        assert 0 < turn.latency_s <= chosen.slowest_call_s
        assert chosen.observation.least <= turn.observation_tokens <= chosen.observation.cap
    for turn in plan.turns:
        assert chosen.generated.least <= turn.generated_tokens <= chosen.generated.cap
    assert plan.context_tokens == plan.prompt_tokens + plan.generated_tokens + plan.observation_tokens
    assert plan.reward in (0.0, 1.0)


@given(seed=seeds, prompt=rows, sample=samples, scale=st.floats(min_value=0.01, max_value=10))
@settings(max_examples=50, deadline=None)
def test_the_scale_moves_latencies_alone(seed: int, prompt: int, sample: int, scale: float) -> None:
    plain, scaled = draw_plan(FULL, seed, prompt, sample), draw_plan(FULL, seed, prompt, sample, scale)
    assert scaled.tool_seconds == pytest.approx(plain.tool_seconds * scale, abs=1e-4)
    assert [(t.tool, t.generated_tokens, t.observation_tokens) for t in scaled.turns] == [
        (t.tool, t.generated_tokens, t.observation_tokens) for t in plain.turns
    ]
    assert scaled.digest != plain.digest or scaled == plain


@given(seed=seeds, prompt=rows, group=st.integers(min_value=2, max_value=16))
@settings(max_examples=100, deadline=None)
def test_no_trajectory_of_a_group_has_advantage_zero(seed: int, prompt: int, group: int) -> None:
    rewards = [draw_plan(SMOKE, seed, prompt, sample).reward for sample in range(group)]
    assert all(reward != fmean(rewards) for reward in rewards)


def test_a_group_shares_its_prompt_and_not_its_course() -> None:
    group = [draw_plan(FULL, 1, 3, sample) for sample in range(8)]
    assert len({plan.prompt_tokens for plan in group}) == 1
    assert len({plan.digest for plan in group}) == 8
    assert len({plan.tool_calls for plan in group}) > 1


def test_seeds_and_prompts_give_different_plans() -> None:
    digests = {draw_plan(FULL, seed, prompt, 0).digest for seed in range(20) for prompt in range(20)}
    assert len(digests) == 400


def test_the_smoke_preset_has_the_same_shape() -> None:
    for prompt in range(50):
        full, smoke = draw_plan(FULL, 1, prompt, 0), draw_plan(SMOKE, 1, prompt, 0)
        assert [turn.tool for turn in smoke.turns] == [turn.tool for turn in full.turns]
        assert smoke.tool_seconds == pytest.approx(full.tool_seconds * 0.008, rel=1e-3)
    longest = SMOKE.prompt.cap + 9 * SMOKE.generated.cap + 8 * SMOKE.observation.cap
    assert longest < 2_048  # whatever the seed


# Recorded once. A change here is a change of every work offered so far: old and new runs can't be compared.
RECORDED = {
    ("deep-research", 1, 0, 0): "204cbde92a720173",
    ("deep-research", 1, 41, 2): "20d5fc2082b120ff",
    ("deep-research-smoke", 1, 0, 1): "7aa16eaae5920fbf",
    ("deep-research-smoke", 123_456_789, 7, 5): "89a2a8b4c9e61616",
}


@pytest.mark.parametrize("key", RECORDED)
def test_recorded_digests_hold(key: tuple[str, int, int, int]) -> None:
    preset, seed, prompt, sample = key
    assert draw_plan(PRESETS[preset], seed, prompt, sample).digest == RECORDED[key]


def test_another_process_draws_the_same_plans() -> None:
    code = (
        "from workloads.deep_research.plan import PRESETS, draw_plan;"
        "print(*(draw_plan(PRESETS['deep-research'], 5, p, 1).digest for p in range(20)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.split() == [draw_plan(FULL, 5, prompt, 1).digest for prompt in range(20)]


def test_a_plan_longer_than_the_context_is_refused() -> None:
    longest = longest_plan(SMOKE, 1, 40, 2)
    check_context(SMOKE, seed=1, prompts=40, group_size=2, context_tokens=longest.context_tokens)
    with pytest.raises(SpecError) as caught:
        check_context(SMOKE, seed=1, prompts=40, group_size=2, context_tokens=longest.context_tokens - 1)
    text = str(caught.value)
    for part in (
        "context_tokens",
        f"prompt {longest.prompt}, sample {longest.sample}",
        f"{longest.context_tokens} tokens",
        "deep-research-smoke",
        "allowed",
    ):
        assert part in text


def test_what_does_not_fit_names_the_ways_out() -> None:
    def said(preset: Preset, most: int | None = None) -> str:
        with pytest.raises(SpecError) as caught:
            check_context(preset, seed=1, prompts=9, group_size=2, context_tokens=1, most_context_tokens=most)
        return str(caught.value)

    full = longest_plan(FULL, 1, 9, 2).context_tokens
    assert f"at least {full:,} (--context-tokens {full})" in said(FULL)
    assert "or a smaller preset (--preset deep-research-smoke)" in said(FULL)
    assert "--lengths base" not in said(FULL)
    assert "smaller preset" not in said(SMOKE)  # there is none
    fitted = said(replace(FULL, name="mine"), 4_096)
    assert f"at least {full:,}, and this model has at most 4,096: another one (--model)" in fitted
    assert "--context-tokens" not in fitted  # it would not help
    assert "`bench tools fit ... --base deep-research-smoke --lengths base` fits all but the lengths" in fitted


def test_longest_and_slowest_are_extremes() -> None:
    plans = [draw_plan(FULL, 9, prompt, sample) for prompt in range(30) for sample in range(3)]
    assert longest_plan(FULL, 9, 30, 3) in plans
    assert longest_plan(FULL, 9, 30, 3).context_tokens == max(plan.context_tokens for plan in plans)
    assert slowest_plan(FULL, 9, 30, 3).tool_seconds == max(plan.tool_seconds for plan in plans)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_no_planned_latency_reaches_its_limit(scale: float) -> None:
    bound = limits(FULL, scale)
    assert bound.tool_timeout_s > FULL.slowest_call_s * scale
    assert bound.trajectory_timeout_s > FULL.most_calls * FULL.slowest_call_s * scale
